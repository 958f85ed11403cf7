"""The session that a conversation on disk is a part of, though it has another id.

An agent may keep one conversation under several ids: after `/clear` it goes on in another
transcript, and what was handed over to it begins with a mark of ours. Such a file joins the session
in which its first turn was said, if no other file has that turn, or whose mark it begins with. One
that says it was forked, and one that shares the beginning of a session, is another conversation.
"""

# See docs/decisions.md, 28.

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from acphold.conversation.history.entries import HANDED_OVER, PROMPT, PastEntry
from acphold.conversation.history.handovers import HandOver, handed_over_in, read_handed_over
from acphold.conversation.history.titles import is_command
from acphold.errors import TranscriptError
from acphold.imports.entry_writer import EntryWriter, prompt_text
from acphold.imports.readers import Reader
from acphold.imports.records import only_beginnings
from acphold.imports.session_writer import read_known
from acphold.imports.sources import Facts, Source
from acphold.imports.turns import SAME_MS, is_like, squeeze
from acphold.journal.journal import Journal, row_of
from acphold.journal.rows import ListFilter, ListKey, SessionRow

HEAD_BYTES: Final = 128 << 10
"""Bytes of a file searched for the first prompt: settings and hook output come before it."""

NEAR_MS: Final = 60_000
"""Words that a file has within this time of a prompt here are that prompt."""

_HAND_OVERS: Final = 100
"""The newest of a session that a mark is looked for in."""

_ROWS: Final = 200
"""Rows of the list that are read at a time."""


def read_beginning(source: Source, reading: Reader) -> tuple[Facts, list[PastEntry]]:
    """Return the facts at the beginning of a source, and its prompts up to the first that is no
    command; nothing if it cannot be read: reading it whole reports that."""
    facts = Facts(source.agent or reading.key, source.session_id)
    writer, prompts = EntryWriter(facts), list[PastEntry]()
    with only_beginnings(HEAD_BYTES), suppress(OSError, TranscriptError):
        for _ in chain(reading.tell(source, writer), [None]):
            for entry in writer.take():
                if entry.kind == PROMPT:
                    prompts.append(entry)
                    if not is_command(prompt_text(entry.raw)):
                        return facts, prompts
    return facts, prompts


class Joins:
    """The sessions of a journal that files may be parts of; those held here, the newest first."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: list[SessionRow] = []
        self._after: ListKey | None = None
        self._has_all = False

    async def are_possible(self) -> bool:
        """Return False if no session was held here."""
        return bool(await self._held_since(sys.maxsize) or self._rows or not self._has_all)

    async def find(
        self, source: Source, facts: Facts, prompts: Sequence[PastEntry]
    ) -> SessionRow | None:
        """Return the session that a source with this beginning is a part of; None if it is a
        conversation of its own."""
        if source.given or source.apart or source.branch_of or not prompts or (facts.begun_as):
            return None
        first = prompts[-1]
        mark, _, own = read_handed_over(prompt_text(first.raw))
        if mark is not None and (row := await self._marked(mark, facts.agent, source)):
            return row
        words, nearest = squeeze(own), dict[tuple[int, int], SessionRow]()
        for row in await self._held_since(first.at - SAME_MS) if words and first.at else ():
            is_its = row.agent == facts.agent and row.cwd == facts.folder
            if (
                not is_its
                or row.created_at > first.at + NEAR_MS
                or row.session_id == source.default_id
            ):
                continue
            turns = (await read_known(self._journal, row.session_id)).turns
            for turn in turns[1:]:
                apart = abs(turn.at - first.at)
                if turn.is_here and apart <= NEAR_MS and is_like(words, turn.words):
                    nearest.setdefault((apart, row.created_at), row)  # copies are newer
        return nearest[min(nearest)] if nearest else None

    async def _marked(self, mark: HandOver, agent: str, source: Source) -> SessionRow | None:
        """Return the session of a mark, if it was handed over to just this conversation: anybody
        can write a mark, or quote one."""
        if (row := await row_of(self._journal, mark.session_id)) is None:
            return None
        kinds = (HANDED_OVER,)
        page = await self._journal.read_back(row.session_id, None, _HAND_OVERS, kinds=kinds)
        known = (handed_over_in(entry.raw) for entry in page.entries)
        its = mark.digest, agent, source.session_id
        is_ours = any(it and (it.digest, it.agent, it.agent_session) == its for it in known)
        return row if is_ours else None

    async def _held_since(self, since: int) -> list[SessionRow]:
        """Return the sessions held here that were active at a time (ms since the epoch), or later:
        a program of theirs was started."""
        held = ListFilter(archived="include")
        while not self._has_all and (self._after is None or self._after.updated_at >= since):
            page = await self._journal.page(held, self._after, _ROWS)
            self._rows += [row for row in page if row.start is not None]
            self._has_all = len(page) < _ROWS
            if page:
                self._after = ListKey(page[-1].updated_at, page[-1].session_id)
        return [row for row in self._rows if row.updated_at >= since]
