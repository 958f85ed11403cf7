"""A session with snapshots of its files: a test says what happens in each turn and in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from acphold.journal.journal import Lease
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stores import open_journal
from acphold.live.hub.kept_stores import stores_of
from tests.raw_entries import Raw, ended, prompt, update
from tests.snapshots.conftest import Project

State = Literal["whole", "likely", "late", "later", "refused", "missing"]


class KeptSession:
    """Turns are written into the journal as acphold writes them, with a snapshot at both ends."""

    def __init__(
        self, journal: Path, project: Project, session_id: str = "aa-1", *, cwd: Path | None = None
    ) -> None:
        self.project = project
        self._path = journal
        self.id = session_id
        self.at = 0
        asyncio.run(self._create(str(cwd or project.top)))

    async def _create(self, cwd: str) -> None:
        journal = open_journal(self._path)
        self._lease: Lease = await journal.create(NewSession(self.id, "claude", cwd))
        await journal.change(self._lease, RowChange(prompted=True))
        self.project.stores = await stores_of(journal)
        await journal.aclose()

    def turn(
        self,
        text: str,
        *raws: Raw,
        does: Callable[[], object] | None = None,
        begin: State = "whole",
        end: State = "whole",
        later: list[Raw] | None = None,
    ) -> None:
        """One turn: its prompt, a snapshot, the agent's updates and what it `does`, a snapshot.
        `later` are tool calls that `does` adds while it runs."""
        asyncio.run(self._turn(text, raws, later if later is not None else [], does, begin, end))

    async def _turn(
        self,
        text: str,
        raws: tuple[Raw, ...],
        later: list[Raw],
        does: Callable[[], object] | None,
        begin: State,
        end: State,
    ) -> None:
        journal = open_journal(self._path)
        lease, before = self._lease, self._lease.next_seq - 1
        rows = []
        for kind, raw in (prompt(text),):
            await journal.append(lease, [(kind, [raw])])
        rows += self.snapshot(before, "begin", begin)
        if does is not None:
            does()
        for kind, raw in (*raws, *later, ended()):
            await journal.append(lease, [(kind, [raw])])
        await journal.settle(lease, lease.next_seq - 1)
        rows += self.snapshot(before, "end", end)
        await journal.snapshots.keep(self.id, rows)
        await journal.aclose()

    def snapshot(
        self, turn: int, edge: Literal["begin", "end"], state: State
    ) -> list[TurnSnapshot]:
        self.at += 1
        top = str(self.project.top)
        if state == "missing":
            return []
        if state == "refused":
            return [
                TurnSnapshot(
                    turn=turn, edge=edge, root=top, at=self.at, state=state, reason="it is full"
                )
            ]
        return [kept(self.project, turn, edge, state, self.at)]


def kept(
    project: Project,
    turn: int,
    edge: Literal["begin", "end"],
    state: Literal["whole", "likely", "late", "later"],
    at: int,
) -> TurnSnapshot:
    """The row of a snapshot that is taken now."""
    taken = project.take()
    return TurnSnapshot(
        turn=turn,
        edge=edge,
        root=str(project.top),
        at=at,
        state=state,
        store=taken.store,
        tree=taken.tree,
        commit=taken.head.commit,
        left_out=tuple((one.path, one.why) for one in taken.left_out),
        left_out_count=taken.left_out_count,
    )


def edit(call: str, path: str, old: str | None, new: str, **fields: object) -> Raw:
    """A tool call that shows an edit and is over."""
    diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
    return update(
        "tool_call",
        toolCallId=call,
        kind="edit",
        title=f"Edit {path}",
        status="completed",
        content=[diff],
        **fields,
    )
