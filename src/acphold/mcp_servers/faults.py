"""Faults of a connection to an MCP server, in words that may be shown to a person.

The modules of this distribution raise these to each other; callers outside get those of `errors`
instead. No value of `env` or `headers` is ever in the words.
"""

from __future__ import annotations

from contextlib import suppress

from acp_wire.schema import McpServerHttp, McpServerSse, McpServerStdio
from acphold.mcp_servers.servers import Server

MAX_REASON = 500
"""Characters of a reason; some servers answer with whole pages."""

HIDDEN = "***"
"""Replaces a secret."""

SHORTEST = 4
"""Characters of a value that is hidden; `1` and `yes` are no secrets, and too common."""

SHORTEST_PART = 8
"""The same for one word of a value: only the second word of `Bearer abc…` is a secret by itself."""


class FaultError(Exception):
    """A fault of the server, or of the way to it, in words that may be shown."""


class LostError(FaultError):
    """The connection ended before the answer came."""


class UnsentError(LostError):
    """The connection ended before the server had the request, so it may be sent again."""


class AnswerError(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class BadResultError(Exception):
    """The server answered with a shape that MCP does not give this result."""


class FaultRedaction:
    """Replaces values of a server's `env` or `headers`, and secrets of its address, in texts."""

    def __init__(self, server: Server) -> None:
        given: list[str] = []
        match server:
            case McpServerStdio():
                given = [variable.value for variable in server.env]
            case McpServerHttp() | McpServerSse():
                from urllib.parse import parse_qsl, urlsplit  # here: most sessions name no server

                given = [header.value for header in server.headers]
                with suppress(ValueError):  # no address, so nothing is sent there
                    address = urlsplit(server.url)
                    query = [value for _, value in parse_qsl(address.query)]
                    in_address = [address.password or "", *query]
                    given += [value for value in in_address if len(value) >= SHORTEST_PART]
        values = [value.strip() for value in given]
        parts = {part for value in values for part in value.split() if len(part) >= SHORTEST_PART}
        secrets = {value for value in values if len(value) >= SHORTEST} | parts
        # The longest first: it may contain a shorter one.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return `text` with HIDDEN for each secret in it."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def one_line(self, text: str, limit: int = 200) -> str:
        """Return `text` without secrets and line breaks, of at most `limit` characters."""
        clean = " ".join(self(text).split())
        return clean if len(clean) <= limit else clean[: limit - 1] + "…"
