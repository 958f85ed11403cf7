"""A list on the terminal from which a person chooses a session.

It has the sessions of a reader, here or far away, or those that an agent lists.
"""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING

from acp_wire.surroundings import resolve_folder
from acphold.conversation.history.entries import Entry, milliseconds, now_ms
from acphold.conversation.reports.transcript import at_present, turn_scenes
from acphold.errors import NoJournalError
from acphold.faces.cli import bounds
from acphold.faces.cli.background_import import list_growth
from acphold.faces.cli.command_line import UsageError
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.list_table import BELOW, under_origins
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.terminal_text import describe_missing, folder, on_one_line, short_age, titled
from acphold.faces.screen.layout import LabelledText, passage
from acphold.faces.screen.picker import ActsOnSessions, Picked, Picker, PickerSource
from acphold.faces.screen.picker_lines import (
    ELSEWHERE,
    FOUND,
    HERE,
    LIVE,
    PINNED,
    PROGRAMS,
    WAITS,
    PickerLine,
    PickerNews,
)
from acphold.journal.hits import terms
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import SearchHit, Sought
from acphold.live.hub.annotations import AGENT
from acphold.live.reading.listed_sessions import ListedSession, Wanted
from acphold.live.reading.local_reader import LocalReader, last_entries, session_pages
from acphold.live.reading.processes import LiveSession
from acphold.safety.snapshots.checkouts import in_other_work_trees

if TYPE_CHECKING:
    from acp_wire.schema import SessionInfo
    from acphold.client import RemoteAgent


async def pick_session(
    words: str = "",
    *,
    acts: ActsOnSessions | None = None,
    at: str = "",
    selected: Sequence[str] = (),
    read: Callable[[str], Awaitable[None]],
) -> Picked | None:
    """Return the person's choice, None for nothing; the list begins `at` a session, with those
    `selected`. With `acts` they may do more than continue. `read` shows a session.

    Raises UsageError if there is no session yet.
    """
    try:
        async with sessions_here() as (reader, _):
            await list_growth(reader)
            picker = Picker(
                _ReadSessions(reader),
                words=words,
                acts=acts,
                at=at,
                selected=selected,
                read=read,
            )
            return await picker.run()
    except NoJournalError:
        raise UsageError(
            "there is no session yet: `acphold import` imports the conversations on this disk, "
            "`acphold chat AGENT` starts one"
        ) from None


async def choose_session(
    reader: LocalReader, does: str, words: str = "", among: Collection[str] | None = None
) -> str | None:
    """Return the id of the chosen session, of all or of these; None for none.

    `does` is the text for what Enter does with it, such as "continues".
    """
    picker = Picker(_ReadSessions(reader, among), words=words, does=does)
    choice = await picker.run()
    return None if choice is None else choice.session_id


async def choose_session_of(agent: RemoteAgent) -> SessionInfo | None:
    """Return the session of the agent that the person chooses to continue; None for none."""
    source = _SessionsOfAgent(agent)
    choice = await Picker(source).run()
    return None if choice is None else source.infos[choice.session_id]


class _LineMaker:
    """Makes the lines of the list."""

    def __init__(self) -> None:
        self.here = resolve_folder(os.curdir)
        self.beside = in_other_work_trees(self.here)
        here = {self.here, *map(resolve_folder, self.beside)}
        # Among a hundred thousand sessions, most share folder and agent with many others.
        self._called = cache(lambda key: on_one_line(agent_name(key)))
        self._is_here = cache(lambda cwd: resolve_folder(cwd) in here)
        self._folder = cache(folder)
        self._now = now_ms()

    def of(
        self,
        it: SessionRow | SearchHit | SessionInfo,
        agent: str,
        at: int | None,
        live: LiveSession | None = None,
        *,
        said: str | None = "",
        pinned: bool = False,
        by_program: bool = False,
    ) -> PickerLine:
        """Return the line of a session, last active `at` (ms since the epoch), with its last words,
        None if they are to be read."""
        excerpt, seq, is_here = "", 0, self._is_here(it.cwd)
        if isinstance(it, SearchHit):
            group, excerpt, seq = FOUND, it.excerpt, it.seq
        elif live is not None:
            group = WAITS if live.waiting else LIVE
        elif pinned:
            group = PINNED
        elif by_program:
            group = PROGRAMS
        else:
            group = HERE if is_here else ELSEWHERE
        is_archived = isinstance(it, SessionRow | SearchHit) and it.archived
        return PickerLine(
            it.session_id,
            titled(it.title),
            live.state if live is not None else "archived" if is_archived else "",
            self._called(agent),
            self._folder(it.cwd),
            "" if at is None else short_age(at, self._now),
            group,
            on_one_line(excerpt),
            at,
            seq,
            said and on_one_line(said),
            is_here,
            it.hashtags if isinstance(it, SessionRow) else "",
        )


class _ReadSessions(PickerSource):
    """The sessions that a reader has, all or those in `among`, as the picker shows them."""

    def __init__(
        self,
        reader: LocalReader,
        among: Collection[str] | None = None,
    ) -> None:
        self._reader = reader
        self._among = among
        self._below: dict[str, int] = {}  # by tail, the group of its origin
        self._lines = _LineMaker()

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        if self._among is not None:
            passes = [Wanted(ListFilter(include_unprompted=True, archived="include"))]
        else:  # these filters cost nothing here
            here = ListFilter(cwd=self._lines.here, beside=self._lines.beside)
            passes = [Wanted(only_live=True), Wanted(here), Wanted()]
        shown = set[str]()
        for wanted in passes:
            async for page in session_pages(self._reader, wanted):
                new = [
                    it
                    for it in page
                    if it.row.session_id not in shown and self._has(it.row.session_id)
                ]
                shown.update(it.row.session_id for it in new)
                yield [*self._folded(new)]

    def _has(self, session_id: str) -> bool:
        return self._among is None or session_id in self._among

    async def changes(self) -> AsyncIterator[PickerNews]:
        async with aclosing(self._reader.changes(bounds.PICKER_NEWEST)) as found:
            async for news in found:
                gone, lines = [*news.gone], list[PickerLine]()
                for it in news.sessions:
                    if self._has(it.row.session_id):
                        is_out = it.row.archived and self._among is None
                        if is_out or not (it.row.prompted or it.live):
                            gone.append(it.row.session_id)
                        else:
                            lines.append(self._line(it))
                yield PickerNews(lines, gone)

    def _line(self, it: ListedSession) -> PickerLine:
        row = it.row
        made = self._lines.of(
            *(row, row.agent, row.updated_at, it.live),
            said=it.said,
            pinned=it.pinned,
            by_program=it.by_program,
        )
        if (group := self._below.get(row.session_id)) is None:
            return made
        return made._replace(title=f"{BELOW}{made.title}", group=group)

    def _folded(self, listed: Sequence[ListedSession]) -> Iterator[PickerLine]:
        """Yield the lines of sessions, each tail under the session that it was left in."""
        group = 0
        places = [(it.row.session_id, it.row.tail_of) for it in listed]
        for number, is_below in under_origins(places):
            if is_below:
                self._below[listed[number].row.session_id] = group
            made = self._line(listed[number])
            group = made.group
            yield made

    async def search(self, words: str) -> tuple[Sequence[PickerLine], str]:
        if not terms(words):
            return (), ""
        found = await self._reader.search(Sought(words, limit=bounds.PICKER_HITS))
        of_each: dict[str, list[SearchHit]] = {}
        for hit in found:
            if self._has(hit.session_id):
                of_each.setdefault(hit.session_id, []).append(hit)
        lines = []
        for first, *others in of_each.values():
            shown = next((it for it in (first, *others) if not _is_title(it)), None)
            if shown is not None:
                lines.append(self._lines.of(shown, first.agent, first.at))
            else:  # its last words say more
                made = self._lines.of(first, first.agent, first.at)
                lines.append(made._replace(excerpt="", seq=0, said=None))
        return lines, describe_missing(found)

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        found = await self._reader.endings(session_ids)
        return {session_id: on_one_line(words) for session_id, words in found.items()}

    async def preview(self, session_id: str, seq: int) -> Sequence[str]:
        if seq:
            found: list[Entry] = []
            async for entry in self._reader.entries(session_id, seq - 1):
                found.append(entry)
                if len(found) == bounds.PREVIEW_ENTRIES:
                    break
        else:
            found = await last_entries(self._reader, session_id, bounds.PREVIEW_ENTRIES)
        text = io.StringIO()
        layout = LabelledText(text)
        live = await self._reader.live_state(session_id)
        for scene in turn_scenes(found):
            layout.put(passage(at_present(scene, live)))
        return text.getvalue().splitlines() or ["This session is empty."]


def _is_title(hit: SearchHit) -> bool:
    """Return True if what was found says hardly more than the title above it."""
    title = (hit.title or "").removesuffix("…").casefold()
    return bool(title) and title in hit.excerpt.casefold() and len(hit.excerpt) < 2 * len(title)


class _SessionsOfAgent(PickerSource):
    """The sessions that an agent lists, as the picker shows them."""

    def __init__(self, agent: RemoteAgent) -> None:
        self._agent = agent
        self.infos: dict[str, SessionInfo] = {}

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        lines = _LineMaker()
        async for info in self._agent.sessions():
            self.infos[info.session_id] = info
            agent = str((info.meta or {}).get(AGENT, self._agent.name))
            yield [
                lines.of(info, agent, milliseconds(info.updated_at) if info.updated_at else None)
            ]
