"""Keeping what a client trusted us with out of errors and logs."""

from __future__ import annotations

from acphold.mcp.servers import McpServerAcp, Server
from acphold.schema import EnvVariable, HttpHeader, McpServerStdio

MARK = "***"
"""What stands in the place of a secret."""

SHORTEST = 4
"""Characters of a value that is kept out; `1` and `yes` are no secrets, and stand everywhere."""

SHORTEST_PART = 8
"""The same for one word of a value: of `Bearer abc…` the second alone may be told."""


class Redaction:
    """Replaces the values of a server's `env` or `headers` in texts."""

    def __init__(self, server: Server) -> None:
        values = {pair.value.strip() for pair in _pairs(server)}
        parts = {part for value in values for part in value.split() if len(part) >= SHORTEST_PART}
        secrets = {value for value in values if len(value) >= SHORTEST} | parts
        # The longest first: a short one may be a part of it.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """`text` with MARK for each secret in it."""
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        return text

    def one_line(self, text: str, limit: int = 200) -> str:
        """`text` without secrets and line breaks, of at most `limit` characters."""
        clean = " ".join(self(text).split())
        return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _pairs(server: Server) -> tuple[EnvVariable | HttpHeader, ...]:
    if isinstance(server, McpServerAcp):
        return ()
    return server.env if isinstance(server, McpServerStdio) else server.headers
