"""The file changes of a session for the page: what `acphold diff` prints, in bounded pieces.

    GET /sessions/ID/changes?turn=N|last&path=PATH
    GET /sessions/ID/changes?whole=true&turn=N&last=N&entry=SEQ&steps=true&root=FOLDER

    {"turns": 7, "turn": null, "files": [FILE…], "more": 0, "prompts": [PROMPT…],
     "kept": false, "notes": []}
    FILE    {"path", "patch", "added", "removed", "rest", "gap", "turns", "how"}
    PROMPT  {"turn", "seq", "text"}

`turn` selects one turn: its number, or `last`; without it, all turns. `turns` of the answer is
their number, `turns` of a file has those that changed it, and PROMPT is the prompt of one of
these. `rest` counts the lines that a long patch lacks here: with `path` the answer has that file
alone, and much more of it. `more` counts the files left out.

`kept`: the session's files were kept, and these are all changes; `how` is a line about their
origin, and `notes` are lines about late and missing snapshots. Otherwise they are the edits that
the agent reported.

With `whole` the answer is `origins.origin_readers.FoundChanges`, for `acphold diff --server`: no
file is cut, bytes are in base64, `last` counts turns from the end, and `entry` is in the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from acphold.errors import WorkspaceError
from acphold.history import Segment
from acphold.history.raw_update import storable
from acphold.history.turn_spans import TurnSpan, turn_spans
from acphold.history.words import document
from acphold.journal import Journal, SessionRow
from acphold.journal.journal import READ_BYTES, Readable, history
from acphold.origins.origin_readers import (
    FoundChanges,
    WantedChanges,
    has_turn,
    turn_changes,
)
from acphold.presentation.visible_text import visible_json
from acphold.reports.file_edits import FileText
from acphold.reports.session_diff import FileDiff, Gap, on_disk
from acphold.web.gate import RefusedError
from acphold.workspace.threads import Threads

log = logging.getLogger(__name__)

MOST_FILES: Final = 500
MOST_PROMPTS: Final = 50
"""Most files of an answer, and most prompts: the newest."""

FILE_CHARACTERS: Final = 20_000
ALL_CHARACTERS: Final = 500_000
"""Most characters of the patch of one file among others, and of all patches of an answer."""

ALONE_CHARACTERS: Final = 2_000_000
"""Most characters of the patch of a file that was asked for alone."""

PROMPT_CHARACTERS: Final = 300

HISTORY_BYTES: Final = 128 << 20
"""Most history that is read for one answer, in bytes; it is read twice."""

WHOLE_BYTES: Final = 16 << 20
"""Most bytes of all patches, if they were asked for whole."""

DISK_BYTES: Final = 2 << 20
"""Longer files on disk are not read for this."""

WAITING: Final = 4
"""Most answers waiting for their turn; beyond that callers are told to come back later."""


class SessionChanges:
    """Computes one answer at a time: comparing files takes much of a processor."""

    def __init__(self) -> None:
        self._alone = asyncio.Semaphore()
        self._threads = Threads(1)
        self._asked = 0

    async def body(
        self,
        journal: Journal,
        row: SessionRow,
        turn: int | None,
        path: str | None,
        *,
        reads_disk: bool,
    ) -> bytes:
        """Return the answer about a session; for `turn` -1 about its last turn. The files
        themselves are only read if `reads_disk`.

        Raises RefusedError: 404 if it has no such turn or file, 413 if the session is too long,
        503 if too many wait.
        """
        return await self._in_turn(self._body(journal, row, turn, path, reads_disk))

    async def whole(
        self, journal: Journal, row: SessionRow, wanted: WantedChanges, *, reads_disk: bool
    ) -> bytes:
        """Return all changes as `FoundChanges`; raises RefusedError as `body` does, 413 also for
        very long patches, and 400 if no files of the wanted folder were kept."""
        return await self._in_turn(self._whole(journal, row, wanted, reads_disk))

    async def _in_turn(self, work: Coroutine[None, None, bytes]) -> bytes:
        if self._asked > WAITING:
            work.close()
            raise RefusedError(503, "too many requests for changes at once; try again")
        self._asked += 1
        try:
            async with self._alone:
                return await work
        finally:
            self._asked -= 1

    async def _whole(
        self, journal: Journal, row: SessionRow, wanted: WantedChanges, reads_disk: bool
    ) -> bytes:
        bounded = _Bounded(journal)
        spans = await turn_spans(history(bounded, row.session_id))
        if not has_turn(spans, wanted):
            return msgspec.json.encode(FoundChanges(len(spans)))
        try:
            found = await self._found(journal, bounded, row, spans, wanted, reads_disk)
        except WorkspaceError as error:
            raise RefusedError(400, str(error)) from None
        size = sum(len(it.patch) for it in found.reported)
        if (kept := found.kept) is not None:
            size += sum(len(it.patch) for it in kept.files)
            size += sum(len(it.patch) for it in kept.parts)
        if size > WHOLE_BYTES:
            least = f"more than {WHOLE_BYTES >> 20} MB have changed"
            raise RefusedError(413, f"{least}; ask for one turn with `--turn N`")
        reported = [
            replace(it, path=storable(it.path), patch=storable(it.patch)) for it in found.reported
        ]
        return msgspec.json.encode(replace(found, reported=reported))

    async def _found(
        self,
        journal: Journal,
        read: Readable,
        row: SessionRow,
        spans: Sequence[TurnSpan],
        wanted: WantedChanges,
        reads_disk: bool,
    ) -> FoundChanges:
        def look(path: str) -> FileText | None:
            return on_disk(path, row.cwd, DISK_BYTES) if reads_disk else None

        # The kept files are the disk of an earlier time.
        found = await turn_changes(
            *(journal, row, spans, wanted, look),
            reads_kept=reads_disk,
            read=read,
            threads=self._threads,
        )
        if found.problem:
            log.warning("session %s: %s", row.session_id, found.problem)
        return found

    async def _body(
        self,
        journal: Journal,
        row: SessionRow,
        turn: int | None,
        path: str | None,
        reads_disk: bool,
    ) -> bytes:
        bounded = _Bounded(journal)
        spans = await turn_spans(history(bounded, row.session_id))
        if turn is not None:
            turn = len(spans) if turn == -1 else turn
            if not spans and turn == 0:
                return _json(spans, turn, [], 0, [])
            if turn > len(spans):
                raise RefusedError(404, f"the session has {len(spans)} turns")

        wanted = WantedChanges(turn)
        of_turn = await self._found(journal, bounded, row, spans, wanted, reads_disk)
        kept = of_turn.kept
        how: dict[str, str] = {}
        if kept is not None:
            how = {file.path: file.words for file in kept.files}
            found = [
                FileDiff(file.path, *_text(file.patch), turns=file.turns) for file in kept.files
            ]
        else:
            found = [file for file in of_turn.reported if file.patch or file.gap]
        if path is not None and not (
            found := [file for file in found if storable(file.path) == path]
        ):
            raise RefusedError(404, "the session changed no such file")
        shown = found[:MOST_FILES]
        told = {number for file in shown for number in file.turns if number}
        prompts = [
            {"turn": number, **await _prompt(journal, row.session_id, spans[number - 1])}
            for number in sorted(told)[-MOST_PROMPTS:]
        ]
        room = ALL_CHARACTERS if path is None else ALONE_CHARACTERS
        most = FILE_CHARACTERS if path is None else ALONE_CHARACTERS
        files: list[dict[str, object]] = []
        for file in shown:
            facts, used = _file(file, min(room, most))
            room -= used
            files.append({**facts, "how": how.get(file.path)})
        notes = None if kept is None else kept.notes
        return _json(spans, turn, files, len(found) - len(shown), prompts, notes)


def _text(patch: bytes) -> tuple[str, Gap | None]:
    """Return the patch of a file as text, or the reason for none."""
    _, _, after = patch.partition(b"\nindex ")
    if after.partition(b"\n")[2].startswith(b"GIT binary patch"):
        return "", Gap.BINARY
    return patch.decode(errors="replace"), None


class _Bounded:
    """A journal of which only so much is read; other questions have their turn in between."""

    def __init__(self, journal: Readable) -> None:
        self._journal = journal
        self._left = HISTORY_BYTES

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        return await self._journal.session(session_id, counted=counted)

    async def read(
        self, session_id: str, after: int, limit_bytes: int = READ_BYTES, *, tail_bytes: int = 0
    ) -> list[Segment]:
        found = await self._journal.read(session_id, after, limit_bytes, tail_bytes=tail_bytes)
        self._left -= sum(len(segment.raw) for segment in found)
        if self._left < 0:
            raise RefusedError(413, "the session is too long for this; `acphold diff` shows it")
        await asyncio.sleep(0)
        return found


async def _prompt(journal: Journal, session_id: str, span: TurnSpan) -> dict[str, object]:
    """Return the place and the words that began a turn; before its prompt may be its author."""
    async for segment in history(journal, session_id, span.first - 1, span.first + 1):
        for entry in segment.entries():
            if span.first <= entry.seq <= span.last and (words := document(entry).messages):
                text = " ".join(words[: 4 * PROMPT_CHARACTERS].split())
                return {"seq": entry.seq, "text": text[:PROMPT_CHARACTERS]}
    return {"seq": span.first, "text": ""}


def _file(file: FileDiff, room: int) -> tuple[dict[str, object], int]:
    """Return a file as the page gets it, and the characters of its patch."""
    _, at, hunks = file.patch.partition("\n@@")
    lines = [line[:1] for line in hunks.split("\n")] if at else []
    patch = file.patch
    if len(patch) > room:
        patch = patch[:room].rpartition("\n")[0]
        patch += "\n" if patch else ""
    facts = {
        "path": storable(file.path),
        "patch": storable(patch),
        "added": lines.count("+"),
        "removed": lines.count("-"),
        "rest": file.patch.count("\n") - patch.count("\n"),
        "gap": None if file.gap is None else file.gap.value,
        "turns": [number for number in file.turns if number],
    }
    return facts, len(patch)


def _json(
    spans: Sequence[TurnSpan],
    turn: int | None,
    files: Sequence[dict[str, object]],
    more: int,
    prompts: Sequence[dict[str, object]],
    notes: Sequence[str] | None = None,
) -> bytes:
    facts = {
        "turns": len(spans),
        "turn": turn,
        "files": files,
        "more": more,
        "prompts": prompts,
        "kept": notes is not None,
        "notes": [storable(note) for note in notes or ()],
    }
    return visible_json(msgspec.json.encode(facts).decode(errors="replace")).encode()
