"""The file changes of a session for the page.

    GET /sessions/ID/changes?turn=N|last&path=PATH

    {"turns": 7, "turn": null, "files": [FILE…], "more": 0, "prompts": [PROMPT…],
     "kept": false, "notes": []}
    FILE    {"path", "patch", "added", "removed", "rest", "gap", "turns"}
    PROMPT  {"turn", "seq", "text"}

`turn` selects one turn: its number, or `last`; without it, all turns. `turns` of the answer is
their number, `turns` of a file has those that changed it, and PROMPT is the prompt of one of
these. `rest` counts the lines that a long patch lacks here: with `path` the answer has that file
alone, and much more of it. `more` counts the files left out.

`kept`: the session's files were kept, and these are all changes; `notes` are lines about changes
between turns, and late and missing snapshots. Otherwise they are the edits that the agent reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import Segment, TurnSpan, turn_spans
from acphold.conversation.history.raw_update import storable
from acphold.conversation.history.words import document
from acphold.conversation.reports.file_edits import FileText
from acphold.conversation.reports.session_diff import FileDiff, Gap, on_disk
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import Journal, Readable, history
from acphold.journal.rows import SessionRow
from acphold.live.origins.kept_changes import FoundChanges, session_changes
from acphold.live.reading.json_facts import facts_json
from acphold.web import bounds
from acphold.web.exchange import RefusedError

log = logging.getLogger(__name__)


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
        async with self._one_at_a_time():
            bounded = _Bounded(journal)
            spans = await turn_spans(history(bounded, row.session_id, brief=True))
            if turn is not None:
                turn = len(spans) if turn == -1 else turn
                if not spans and turn == 0:
                    return _json(spans, turn, [], 0, [])
                if turn > len(spans):
                    raise RefusedError(404, f"the session has no turn {turn}; it has {len(spans)}")

            def look(path: str) -> FileText | None:
                return on_disk(path, row.cwd, bounds.DISK_FILE_BYTES) if reads_disk else None

            # The kept files are the disk of an earlier time.
            found = await session_changes(
                *(journal, row, spans, turn, look),
                reads_kept=reads_disk,
                read=bounded,
                threads=self._threads,
            )
            if found.problem:
                log.warning("session %s: %s", row.session_id, found.problem)
            changed = _diffs(found)
            room, most = bounds.ALL_PATCHES_CHARACTERS, bounds.PATCH_CHARACTERS
            if path is not None:
                changed = [file for file in changed if storable(file.path) == path]
                if not changed:
                    raise RefusedError(404, "the session did not change this file")
                room = most = bounds.LONE_PATCH_CHARACTERS
            shown = changed[: bounds.CHANGED_FILES]

            turns = {number for file in shown for number in file.turns if number}
            prompts = [
                {"turn": number, **await _prompt(journal, row.session_id, spans[number - 1])}
                for number in sorted(turns)[-bounds.CHANGE_PROMPTS :]
            ]
            files: list[dict[str, object]] = []
            for file in shown:
                facts, used = _file(file, min(room, most))
                room -= used
                files.append(facts)
            notes = found.notes if found.root else None
            return _json(spans, turn, files, len(changed) - len(shown), prompts, notes)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        """Wait until no other answer is computed; raises RefusedError if too many wait."""
        if self._asked > bounds.WAITING_CHANGES:
            raise RefusedError(503, "too many requests for changes at once; try again")
        self._asked += 1
        try:
            async with self._alone:
                yield
        finally:
            self._asked -= 1


def _diffs(found: FoundChanges) -> list[FileDiff]:
    """Return the changed files as a page shows them: without binary patches."""
    if not found.root:
        return [file for file in found.files if file.patch or file.gap]
    changed: list[FileDiff] = []
    for file in found.files:
        _, _, after = file.patch.partition("\nindex ")
        if after.partition("\n")[2].startswith("GIT binary patch"):
            file = replace(file, patch="", gap=Gap.BINARY)
        changed.append(file)
    return changed


class _Bounded:
    """A journal of which only so much is read; other questions have their turn in between."""

    def __init__(self, journal: Readable) -> None:
        self._journal = journal
        self._left = bounds.CHANGES_HISTORY_BYTES

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        return await self._journal.session(session_id, counted=counted)

    async def read(
        self,
        session_id: str,
        after: int,
        limit_bytes: int = journal_bounds.READ_BYTES,
        *,
        tail_bytes: int = 0,
        brief: bool = False,
    ) -> list[Segment]:
        found = await self._journal.read(
            session_id, after, limit_bytes, tail_bytes=tail_bytes, brief=brief
        )
        self._left -= sum(len(segment.raw) for segment in found)
        if self._left < 0:
            raise RefusedError(413, "the session is too long for this; use `acphold diff`")
        await asyncio.sleep(0)
        return found


async def _prompt(journal: Journal, session_id: str, span: TurnSpan) -> dict[str, object]:
    """Return the place and the words that began a turn; before its prompt may be its author."""
    async for segment in history(journal, session_id, span.first - 1, span.first + 1):
        for entry in segment.entries():
            if span.first <= entry.seq <= span.last and (words := document(entry).messages):
                text = " ".join(words[: 4 * bounds.CHANGE_PROMPT_CHARACTERS].split())
                return {"seq": entry.seq, "text": text[: bounds.CHANGE_PROMPT_CHARACTERS]}
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
    facts: dict[str, object] = {
        "turns": len(spans),
        "turn": turn,
        "files": files,
        "more": more,
        "prompts": prompts,
        "kept": notes is not None,
        "notes": [storable(note) for note in notes or ()],
    }
    return facts_json(facts).encode()
