"""The exceptions of `safety`; those of acp-wire are raised, too."""

from __future__ import annotations

from acp_wire.errors import AcpError, InvalidParamsError


class RedactionError(AcpError):
    """A text cannot be searched for secrets, so it is not written."""


class OutOfStepsError(AcpError):
    """A text takes more steps than its reader may take."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"too long to check in {steps:,} steps")
        self.steps = steps


class RuleError(AcpError):
    """The text of a standing answer is not a valid rule; the message has the reason."""

    code = InvalidParamsError.code
