"""Changes and origins, read here or from a server: one interface for `diff` and `why`.

A server finds the project by its first commits and its remotes, and the origins of lines by the
content of the files, which is sent there. It gives the answers that it would give on its machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from msgspec import Meta, Struct

from acphold.errors import ConnectionLostError, UnknownSessionError
from acphold.history.entries import TurnSpan, span_at, turn_spans
from acphold.journal import Journal, Readable, SessionRow, history
from acphold.origins.kept_changes import KeptChanges, kept_changes
from acphold.origins.versions import Claim
from acphold.origins.why import LineOrigin, Lines, TracedRun, TurnFacts, origins, runs, turn_facts
from acphold.reading.requests import CHANGES, ChangesQuery, place_of
from acphold.reports.file_edits import FileText
from acphold.reports.session_diff import FileDiff, on_disk, session_diff
from acphold.snapshots.checkouts import Checkout, ProjectMarks, marks
from acphold.snapshots.git import GitError
from acphold.workspace.threads import Threads

if TYPE_CHECKING:
    from acphold.reading.server_reader import ServerReader

ORIGINS: Final = "/origins"

MOST_FILES: Final = 500
MOST_BYTES: Final = 12 << 20
"""Limits of one request to a server: files, and bytes of their contents."""

NOT_ASKED: Final = f"not sent to the server: the files have more than {MOST_BYTES >> 20} MB"
GONE: Final = "its session was deleted"


class WantedChanges(Struct, frozen=True):
    """The turn whose changes are wanted: by its number, from 1, or from -1 for the last; or by one
    of its entries. `by_turn` asks for a patch of each step, `root` for one of the folders."""

    turn: int | None = None
    seq: int | None = None
    by_turn: bool = False
    root: str | None = None


class FoundChanges(Struct, frozen=True):
    """The changes of a session with this number of `turns`: from the `kept` files, or as `reported`
    by the agent. `problem` is the reason why kept files could not be read."""

    turns: int
    kept: KeptChanges | None = None
    reported: list[FileDiff] = []
    problem: str = ""


class AskedFile(Struct, frozen=True):
    """The path of a file below the top of its project, its content, and ranges of its lines."""

    path: bytes
    content: bytes
    lines: list[tuple[int, int]]


class AskedOrigins(Struct, frozen=True):
    """A request to a server for the origins of lines; `project` identifies their project."""

    project: ProjectMarks
    files: Annotated[list[AskedFile], Meta(max_length=MOST_FILES)]


class FoundOrigins(Struct, frozen=True):
    """The origins of lines, and the turns that they came from."""

    runs: list[TracedRun]
    turns: list[TurnFacts]


class OriginReader(Protocol):
    """Reads changes and origins. Raises the errors of a SessionReader; for a journal also GitError,
    TimeoutError, BufferError and OSError."""

    async def changes(self, row: SessionRow, wanted: WantedChanges) -> FoundChanges:
        """Return the changes of a session; none if it has no such turn. Raises WorkspaceError if
        no files of the wanted folder were kept."""

    async def origins(self, checkout: Checkout, asked: Sequence[Lines]) -> FoundOrigins:
        """Return the origins of these lines of a project."""


class LocalOrigins:
    """An OriginReader of a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def changes(self, row: SessionRow, wanted: WantedChanges) -> FoundChanges:
        spans = await turn_spans(history(self._journal, row.session_id))
        if not has_turn(spans, wanted):
            return FoundChanges(len(spans))
        look = partial(on_disk, folder=row.cwd)
        return await turn_changes(self._journal, row, spans, wanted, look)

    async def origins(self, checkout: Checkout, asked: Sequence[Lines]) -> FoundOrigins:
        found = await origins(self._journal, checkout, asked)
        every = [
            run for lines, its in zip(asked, found, strict=True) for run in runs(lines.path, its)
        ]
        facts: dict[tuple[str, int], TurnFacts] = {}
        claims: dict[Claim, None] = {}
        for run in every:
            claims |= dict.fromkeys(run.origin.claims if run.origin.how != "unknown" else ())
        for claim in claims:
            try:
                its = await turn_facts(self._journal, claim)
            except UnknownSessionError:  # deleted meanwhile
                continue
            key = (claim.session_id, claim.turn)
            facts[key] = facts[key].with_allowed(its.allowed) if key in facts else its
        for run in every:
            if run.origin.how != "unknown" and run.turn not in facts:
                run.origin = LineOrigin("unknown", reason=GONE)
        return FoundOrigins(every, [*facts.values()])


class ServerOrigins:
    """An OriginReader of a server: see `web.reports` and `web.file_changes`."""

    def __init__(self, server: ServerReader) -> None:
        self._server = server

    async def changes(self, row: SessionRow, wanted: WantedChanges) -> FoundChanges:
        turn = wanted.turn or 0
        asked = ChangesQuery(
            turn=turn if turn > 0 else None,
            whole=True,
            last=-turn if turn < 0 else None,
            entry=wanted.seq,
            steps=wanted.by_turn,
            root=wanted.root,
        )
        where = f"{place_of(row.session_id)}{CHANGES}"
        return await self._server.get(where, asked, FoundChanges)

    async def origins(self, checkout: Checkout, asked: Sequence[Lines]) -> FoundOrigins:
        project = await asyncio.to_thread(marks, checkout)
        files: list[AskedFile] = []
        left_out: list[TracedRun] = []
        left = MOST_BYTES
        for lines in asked:
            its = runs(
                lines.path, dict.fromkeys(lines.lines, LineOrigin("unknown", reason=NOT_ASKED))
            )
            if len(lines.content) > left or len(files) == MOST_FILES:
                left_out += its
            else:
                left -= len(lines.content)
                ranges = [(run.first, run.last) for run in its]
                files.append(AskedFile(os.fsencode(lines.path), lines.content, ranges))
        wanted = AskedOrigins(project, files)
        found = await self._server.post(ORIGINS, wanted, FoundOrigins)
        known = {(its.session_id, its.turn) for its in found.turns}
        for run in found.runs:
            if run.origin.how != "unknown" and not (run.origin.claims and run.turn in known):
                raise ConnectionLostError(
                    f"{self._server.origin} names a turn but does not describe it;"
                    " is it an `acphold serve`?"
                )
        return FoundOrigins([*found.runs, *left_out], found.turns)


def has_turn(spans: Sequence[TurnSpan], wanted: WantedChanges) -> bool:
    """Return True if the wanted turn is there, or all turns are wanted."""
    return wanted.turn is None or 1 <= abs(wanted.turn) <= len(spans)


async def turn_changes(
    journal: Journal,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    wanted: WantedChanges,
    look: Callable[[str], FileText | None],
    *,
    reads_kept: bool = True,
    read: Readable | None = None,
    threads: Threads | None = None,
) -> FoundChanges:
    """Return the changes of a session that has the wanted turn.

    `look` is as `on_disk` in `session_diff`; the history is read from `read`, by default the
    journal. Raises WorkspaceError if no files of the wanted folder were kept.
    """
    turn = wanted.turn
    if wanted.seq is not None:
        span = span_at(spans, wanted.seq)
        turn = 0 if span is None else span.number
    elif turn is not None and turn < 0:
        turn += len(spans) + 1
    problem = ""
    if reads_kept:
        try:
            kept = await kept_changes(
                *(journal, row, spans, turn),
                root=wanted.root,
                by_turn=wanted.by_turn,
                read=read,
                threads=threads,
            )
            if kept is not None:
                return FoundChanges(len(spans), kept)
        except (GitError, TimeoutError, BufferError, OSError) as error:
            problem = f"the kept files cannot be read: {error}"
    found = await session_diff(read or journal, row, spans, turn, look, threads)
    return FoundChanges(len(spans), None, found, problem)
