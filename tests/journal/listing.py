"""What tests of the list have in common."""

from __future__ import annotations

from acphold.journal import (
    Journal,
    NewSession,
    RowChange,
)


async def put(
    journal: Journal,
    session_id: str,
    updated_at: int,
    *,
    agent: str = "a",
    cwd: str = "/w",
    prompted: bool = True,
) -> None:
    """A session in the list."""
    lease = await journal.create(NewSession(session_id, agent, cwd, created_at=updated_at))
    await journal.change(lease, RowChange(prompted=prompted))
