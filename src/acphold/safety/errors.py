"""The exceptions of `safety`; those of acp-wire are raised, too."""

from __future__ import annotations

from acp_wire.errors import AcpError, InvalidParamsError


class RedactionError(AcpError):
    """A text cannot be searched for secrets, so it is not written."""


class RuleError(AcpError):
    """The text of a standing answer is not a valid rule; the message has the reason."""

    code = InvalidParamsError.code
