"""The exceptions of MCP servers; those of acp-wire are raised, too."""

from __future__ import annotations

from acp_wire.errors import AcpError


class McpError(AcpError):
    """An MCP server of the session failed us; `server` is its name, `reason` the reason in words.

    Neither ever holds a value of the server's `env` or `headers`.
    """

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"MCP server {server!r}: {reason}")
        self.server = server
        self.reason = reason


class McpConnectError(McpError):
    """The server cannot be started or reached, or does not speak MCP."""


class McpLostError(McpError):
    """The server went away before it answered; the request may or may not have been carried out."""


class McpAnswerError(McpError):
    """The server answered with an error, or with something that is not an answer.

    `answer_code` is the code of its JSON-RPC error, if it was one.
    """

    def __init__(self, server: str, reason: str, answer_code: int | None = None) -> None:
        super().__init__(server, reason)
        self.answer_code = answer_code
