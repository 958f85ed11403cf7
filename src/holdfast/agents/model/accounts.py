"""What a session uses: the model's context, and money."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

    from holdfast.agents.authored import AuthoredSession
    from holdfast.agents.turn import Turn

COST = "cost"
"""Where the session's store keeps what it has cost so far, in US dollars."""


class Accounts:
    """The books of one session. Prices are those that pydantic-ai knows, if it knows any."""

    def __init__(self, session: AuthoredSession) -> None:
        self._store = session.store

    @property
    def cost(self) -> float | None:
        """US dollars so far; None if no price was known."""
        return self._store.get(COST)

    def pay(self, usage: RequestUsage) -> None:
        """Add what one request has cost."""
        if usage.cost is not None:
            self._store[COST] = (self.cost or 0.0) + float(usage.cost)

    async def tell(self, turn: Turn, usage: RequestUsage, window: int | None) -> None:
        """Show how full a context of `window` tokens is; nothing if nobody knows its size.

        Source: RFD session usage, "Context Window Fields".
        """
        used = usage.input_tokens + usage.output_tokens
        if window and used:
            await turn.usage(used, window, self.cost)
