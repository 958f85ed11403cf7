"""The changes of a session: by its kept files, or else by the edits that the agent showed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from acp_wire.workspace.threads import Threads
from acphold.live.origins.kept_changes import KeptChanges, read_kept_changes
from acphold.record.history.entries import TurnSpan
from acphold.record.journal import Journal, Readable, SessionRow
from acphold.record.reports.file_edits import FileText
from acphold.record.reports.session_diff import FileDiff, session_diff
from acphold.record.snapshots.git import GitError


class FoundChanges(Struct, frozen=True):
    """The changes of a session: from the `kept` files, or as `reported` by the agent. `problem` is
    the reason why kept files could not be read."""

    kept: KeptChanges | None = None
    reported: list[FileDiff] = []
    problem: str = ""


async def session_changes(
    journal: Journal,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    turn: int | None,
    look: Callable[[str], FileText | None],
    *,
    root: str | None = None,
    by_turn: bool = False,
    reads_kept: bool = True,
    read: Readable | None = None,
    threads: Threads | None = None,
) -> FoundChanges:
    """Return what changed in one turn, None for all.

    `look` is as `on_disk` in `session_diff`, the others are as in `read_kept_changes`. Raises
    WorkspaceError if no files of `root` were kept.
    """
    problem = ""
    if reads_kept:
        try:
            kept = await read_kept_changes(
                *(journal, row, spans, turn), root=root, by_turn=by_turn, read=read, threads=threads
            )
            if kept is not None:
                return FoundChanges(kept)
        except (GitError, TimeoutError, BufferError, OSError) as error:
            problem = f"the kept files cannot be read: {error}"
    found = await session_diff(read or journal, row, spans, turn, look, threads)
    return FoundChanges(None, found, problem)
