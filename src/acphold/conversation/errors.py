"""The exception of a conversation; those of acp-wire and of `safety` are raised, too."""

from __future__ import annotations

from acp_wire.errors import AcpError


class InterruptedTurnError(AcpError):
    """The process that had the session live ended in a turn, or lost it; the turn is over."""

    def __init__(self) -> None:
        super().__init__(
            "this turn was interrupted: the acphold process that ran its agent has ended, or was "
            "away for so long that another one has the session. What was said until then is kept, "
            "and the session goes on: with your next prompt the agent gets this turn, too"
        )
