"""How a connection goes wrong, in words, below the errors that callers see."""

from __future__ import annotations


class FaultError(Exception):
    """What the server, or the way to it, did wrong, in words that may be shown."""


class LostError(FaultError):
    """The connection ended before the answer came."""


class UnsentError(LostError):
    """It ended before the server had the request, so that it may be sent again."""


class AnswerError(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class BadResultError(Exception):
    """The server answered, but not with the shape that MCP gives this result."""
