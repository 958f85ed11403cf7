"""Turns that have ended, for notices: found by what runs, and read from the journal.

A turn is known by its session and the last entry before it. Of one that runs no longer the journal
says how it ended; while it does not, as its process is silent or was killed, it is asked again,
with longer and longer pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import (
    AUTHOR,
    PROMPT,
    TURN_END,
    UPDATE,
    Segment,
    TurnSpan,
)
from acphold.conversation.history.message_chunks import Messages
from acphold.conversation.history.raw_update import members, string
from acphold.conversation.history.timeline import TurnOutcome, turn_end
from acphold.conversation.history.titles import last_words
from acphold.conversation.reports.file_edits import edits
from acphold.errors import UnknownSessionError
from acphold.journal.journal import Journal, history
from acphold.journal.rows import SessionRow
from acphold.live.reading.processes import Live
from acphold.safety.budget import Budget
from acphold.safety.errors import OutOfStepsError
from acphold.safety.redaction.redactor import Redactor
from acphold.web import bounds

log = logging.getLogger(__name__)

_OURS: Final = "acphold"
"""The names of our own clients begin so."""

STEPS: Final = 20_000_000
"""Steps to redact the words of a turn: about a second."""

_WORDS: Final[dict[TurnOutcome, str]] = {
    "completed": "done",
    "limited": "stopped at a limit",
    "refused": "refused by the agent",
    "failed": "failed",
}
"""The outcomes that a person is told of; whoever cancels a turn knows it."""

Turn = tuple[str, int]
"""A session, and the last entry before the turn."""


class EndedTurn(Struct, frozen=True):
    """A turn that has ended, in a session with this row; `seq` is the entry of its end.

    `words` say how it ended, "" if nobody has to be told of it, and `said` are the agent's last
    words, redacted, if they were asked for. It is `of_editor` if a program that is none of ours
    sent the prompt.
    """

    row: SessionRow
    seq: int
    seconds: float
    words: str
    of_editor: bool = False
    said: str = ""


class RunningTurns:
    """The turns that run, as the processes tell them."""

    def __init__(self) -> None:
        self._running: set[Turn] = set()
        self._over: dict[Turn, tuple[float, float]] = {}  # when to look, and the pause before that

    def over(self, live: Live, now: float) -> list[Turn]:
        """Return the turns that have run, and run no longer, whose end is to be looked for."""
        running = {(id_, it.turn) for id_, (it, _) in live.items() if it.turn is not None}
        for turn in self._running - running:
            self._over.setdefault(turn, (now, bounds.NOTICE_CHECK_SECONDS))
        self._running = running
        for turn in running & self._over.keys():  # its process was silent
            del self._over[turn]
        return [turn for turn, (look_at, _) in self._over.items() if now >= look_at]

    def forget(self, turn: Turn) -> None:
        """Look for its end no more."""
        self._over.pop(turn, None)

    def look_later(self, turn: Turn) -> None:
        """Look for its end again after twice the pause, or no more if that has become too long."""
        look_at, pause = self._over.pop(turn)
        if pause < bounds.DONE_SECONDS:
            self._over[turn] = look_at + 2 * pause, 2 * pause


async def ended_turn(journal: Journal, turn: Turn, *, with_words: bool) -> EndedTurn | None:
    """Return a turn that has ended; None while the journal does not know its end. Raises
    JournalError, RedactionError and UnknownSessionError."""
    session_id, before = turn
    row = await journal.session(session_id)
    kept: list[Segment] = []
    room, began, of_editor = bounds.ENDED_TURN_BYTES, None, False
    async for segment in history(journal, session_id, before):
        if segment.kind == PROMPT and began is None:
            began = segment.at
        elif segment.kind == AUTHOR and began is None:
            name = string(members(segment.raw).get("name"))
            of_editor = name is not None and not name.startswith(_OURS)
        elif segment.kind == TURN_END:
            end = turn_end(segment.raw, segment.at)
            words = _WORDS.get(end.outcome, "")
            if began is None or not words:
                return EndedTurn(row, segment.last_seq, 0.0, "")
            said = ""
            if room > 0:
                span = TurnSpan(1, before + 1, segment.last_seq)
                look = partial(_files_and_words, kept, span, with_words)
                count, said = await Threads(1).run_in_steps(look)
                if count:
                    words += f", {count} file{'s' * (count > 1)} changed"
            seconds = (end.at_ms - began) / 1000
            return EndedTurn(row, segment.last_seq, seconds, words, of_editor, said)
        room -= len(segment.raw)
        if room > 0:
            kept.append(segment)
        else:
            kept.clear()
    return None


async def is_kept(journal: Journal, ended: EndedTurn) -> bool:
    """Return True unless a person had the turn taken out, or its session deleted, since."""
    with suppress(UnknownSessionError):
        async for segment in history(journal, ended.row.session_id, ended.seq - 1, ended.seq):
            return segment.kind == TURN_END
    return False


def _files_and_words(
    segments: Sequence[Segment], span: TurnSpan, with_words: bool, checkpoint: Checkpoint
) -> tuple[int, str]:
    """Return the number of files that a turn changed, and the agent's last words, if wanted,
    without what is secret or personal in them; "" if that takes too many steps."""

    async def each() -> AsyncIterator[Segment]:
        for segment in segments:
            checkpoint()
            yield segment

    changed = len({edit.path for edit in asyncio.run(edits(each(), [span]))})
    entries = [
        entry
        for segment in segments
        if segment.kind == UPDATE and b'"agent_message_chunk"' in segment.raw
        for entry in segment.entries()
        if entry.raw
    ]
    if not with_words:
        return changed, ""
    redactor = Redactor(Surroundings.here().home, Messages, Budget(STEPS, checkpoint=checkpoint))
    try:
        redactor.look_through(entries)
        shown = [
            replace(entry, raw=redactor.redact(place, entry) or b"{}")
            for place, entry in enumerate(entries)
        ]
    except OutOfStepsError as error:
        log.info("the last words of a turn are left out: %s", error)
        return changed, ""
    return changed, last_words(reversed(shown))
