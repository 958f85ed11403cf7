"""The agent's own list of sessions, and how ours follow it.

What the agent says of a session is kept, the newest of it: from its answers to `session/list`, and
from the changes that it tells beside them. A session of ours follows when that is news:

- a title replaces one that is only the first words of the first prompt, or an earlier one of this
  list, if the agent held the conversation from that prompt and says more than one of its prompts;
  a person's title stays;
- a session that the agent archives leaves our list, and one that it puts back returns.

A session of its own without an absolute folder, which the protocol asks for, is not handed on: a
client would open it in some folder of its own.

The first time that we hear of a session, it may have been archived here meanwhile: then only the
title counts. A change that is made here is told to an agent that has a method for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from time import monotonic

from msgspec import Raw, Struct
from msgspec.structs import replace

from acp_wire.newest import Newest
from acp_wire.schema import LIST_SESSIONS, SessionInfo, decode, encode, splice
from acp_wire.surroundings import resolve_folder
from acp_wire.tasks import timeout
from acphold.conversation.history.entries import milliseconds
from acphold.conversation.history.handovers import is_named_by_it
from acphold.conversation.history.raw_update import may_have_marks, members, meta_without_marks
from acphold.conversation.history.titles import is_own, title_of_words
from acphold.errors import AcpError, InvalidParamsError, UnknownSessionError
from acphold.journal.journal import Journal
from acphold.journal.rows import NO_CHANGE, ListKey, SessionRow
from acphold.live.agents import air
from acphold.live.agents.interface import HubAgent, ask
from acphold.live.hub import bounds
from acphold.live.hub.annotations import as_title, first_page, first_words, may_rename
from acphold.live.hub.routes import is_usable_id

log = logging.getLogger(__name__)


class ListLine(Struct, frozen=True):
    """One line of a list: its place, its JSON, and whether it is archived."""

    key: ListKey
    info: SessionInfo
    raw: bytes
    archived: bool

    @property
    def has_folder(self) -> bool:
        """True if its folder is an absolute path, here or on Windows."""
        if os.path.isabs(cwd := self.info.cwd):
            return True
        import ntpath  # late: it looks for modules of another system

        drive, rest = ntpath.splitdrive(cwd)
        return bool(drive) and rest.startswith(("\\", "/"))

    @property
    def updated_at(self) -> int | None:
        """The time of the last activity, in ms since the epoch; None if unknown."""
        return self.key.updated_at or None


class AgentsWord(Struct, frozen=True):
    """The part of a line that a session of ours follows."""

    title: str | None
    archived: bool


class _Known(Struct, eq=False):
    """A session of the agent's: the newest line of it, and the number of the news with which that
    came; and the word that ours was compared with last, `first` if it never was.

    `as_told` is True if we last had the agent archive the session, False if we had it put back,
    None if neither, or if its list has said otherwise since. If its list says otherwise before
    it has kept that for a while (`told_at`, in seconds), the agent is told once more: until then
    it `can_repeat`.
    """

    line: ListLine
    number: int
    first: AgentsWord
    compared: AgentsWord | None = None
    as_told: bool | None = None
    can_repeat: bool = False
    told_at: float = 0.0

    @property
    def is_news(self) -> bool:
        """True if the agent says something else than ours was compared with."""
        return _word(self.line) != (self.compared or self.first)


Place = tuple[str | None, tuple[str, ...]]
"""A folder, None for all, and more folders whose sessions are in its list."""


LookAt = Callable[[str], Awaitable[None]]
"""Reads the row of a live session again: it has changed."""


class AgentsList:
    """See the module. A list is kept for the pages after the first one."""

    def __init__(self, journal: Journal, agent: HubAgent, look_at: LookAt) -> None:
        self._journal = journal
        self._agent = agent
        self._look_at = look_at
        self._lists: Newest[Place, dict[str, ListLine]] = Newest(bounds.AGENT_LISTS)
        self._known: Newest[str, _Known] = Newest(bounds.AGENT_SESSIONS)
        self.made: Newest[str, str] = Newest(bounds.AGENT_SESSIONS)
        """Titles that the person's command made, by session; the agent's own is better."""
        self._number = 0
        self._asked = 0.0

    # -- what the agent says --------------------------------------------------------------

    def line(self, agents_id: str) -> ListLine | None:
        """Return what the agent said last of a session of its own."""
        known = self._known.get(agents_id)
        return None if known is None else known.line

    async def look_up(self, agents_id: str) -> ListLine | None:
        """Return the same; ask the agent, unless it was asked just now."""
        if self._agent.reads_journal:
            return None
        is_fresh = monotonic() - self._asked <= bounds.FRESH_LIST_SECONDS
        if self.line(agents_id) is None or not is_fresh:
            await self._ask((None, ()))
        return self.line(agents_id)

    async def lines(self, place: Place, *, is_first: bool) -> dict[str, ListLine]:
        """Return the agent's list for a page of ours, asked for with the first page."""
        kept = self._lists.get(place)
        if kept is not None and not is_first:
            return kept
        found = await self._ask(place)
        await self._follow_news(found)
        # A session of ours that went on outside acphold moves to the time in the agent's list.
        times = {agents_id: line.key.updated_at for agents_id, line in found.items()}
        await self._journal.links.went_on(self._agent.key, times)
        return found

    async def only_its(self, agents_ids: Sequence[str]) -> list[str]:
        """Return those of the agent's own ids that no session of the journal has."""
        linked = await self._journal.links.sessions_of(self._agent.key, agents_ids)
        return [it for it in agents_ids if it not in linked]

    async def others_since(self, cwd: str, at: int) -> list[str]:
        """Return the agent's own ids of sessions in a folder, used since then (ms since the epoch),
        that no session of the journal has; the newest first."""
        found = await self._ask((cwd, ()))
        times = {its: line.updated_at or 0 for its, line in found.items()}
        newest = sorted(times, key=lambda its: -times[its])
        return await self.only_its([its for its in newest if times[its] >= at])

    async def hear(
        self, infos: Sequence[bytes], removed: Sequence[str] = ()
    ) -> tuple[list[str], list[bytes]]:
        """Take what the agent tells beside its list: sessions, and ids of those that left it.

        Return the ids of ours among the former, and the sessions that only the agent has.
        """
        self._number += 1
        heard = _by_id(infos)
        for agents_id in removed:
            self._known.pop(agents_id, None)
        in_doubt: set[str] = set()
        for agents_id, line in heard.items():
            known = self._known.get(agents_id)
            if known is not None and known.as_told not in {None, line.archived}:
                in_doubt.add(line.info.cwd)  # maybe said before it made our change
            else:
                self._note(agents_id, line, self._number)
        for cwd in in_doubt:
            await self._ask((cwd, ()))
        linked = await self._follow_news(heard, with_first=True)
        others = [
            (self.line(agents_id) or line).raw
            for agents_id, line in heard.items()
            if agents_id not in linked and line.has_folder
        ]
        return [it for it in linked.values() if it is not None], others

    async def look_for_news(self, cwd: str) -> None:
        """Ask for the newest sessions in a folder, and have ours follow; raises AcpError."""
        self._number += 1
        number = self._number
        params = encode({"cwd": cwd})
        raw = await ask(self._agent, LIST_SESSIONS.name, params, bounds.AGENT_LIST_SECONDS)
        listed = _by_id(decode(_Page, raw).value.sessions)
        for agents_id, line in listed.items():
            self._note(agents_id, line, number)
        await self._follow_news(listed, with_first=True)

    def _note(self, agents_id: str, line: ListLine, number: int) -> None:
        known = self._known.get(agents_id)
        if known is None:
            self._known[agents_id] = _Known(line, number, _word(line))
        elif known.number <= number:  # else something newer came while the list was on its way
            known.line, known.number = line, number
            if known.as_told is line.archived:
                known.can_repeat &= monotonic() - known.told_at < bounds.UNSURE_SECONDS
            elif not known.can_repeat:
                known.as_told = None

    async def _ask(self, place: Place) -> dict[str, ListLine]:
        """Fetch the agent's list; if that fails, ours goes without."""
        cwd, beside = place
        self._asked = monotonic()
        self._number += 1
        number = self._number
        found: dict[str, ListLine] = {}
        is_whole = False
        can_list = self._agent.capabilities.session_capabilities.list is not None
        try:
            if self._agent.alive and can_list:
                async with timeout(bounds.AGENT_LIST_SECONDS):
                    for folder in (*_spellings(cwd), *beside):
                        await self._collect(folder, found)
                is_whole = True
        except TimeoutError:
            seconds = bounds.AGENT_LIST_SECONDS
            log.warning("the agent did not list all its sessions within %s s", seconds)
        except AcpError as exc:
            log.warning("the agent could not list its sessions: %s", exc)
        for agents_id in self._lists.pop(place, {}).keys() - found.keys():
            known = self._known.get(agents_id)
            if is_whole and known is not None and known.number < number:
                del self._known[agents_id]
        self._lists[place] = found
        if lost := sum(not line.has_folder for line in found.values()):
            log.info("the agent lists %s sessions without an absolute folder: left out", lost)
        for agents_id, line in found.items():
            self._note(agents_id, line, number)
        return found

    async def _collect(self, cwd: str | None, found: dict[str, ListLine]) -> None:
        params: dict[str, object] = {} if cwd is None else {"cwd": cwd}
        if air.INDEX in self._agent.index_methods:
            params["_meta"] = air.EVERY_SESSION
        seen_cursors: set[str] = set()
        while len(found) < bounds.AGENT_SESSIONS:
            raw = await ask(self._agent, LIST_SESSIONS.name, encode(params))
            page = decode(_Page, raw).value
            for line in map(_read, page.sessions):
                if line is not None:
                    found[line.info.session_id] = line
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors:
                return
            seen_cursors.add(cursor)
            params = {**params, "cursor": cursor}

    # -- what ours do ---------------------------------------------------------------------

    async def _follow_news(
        self, agents_ids: Collection[str], *, with_first: bool = False
    ) -> dict[str, str | None]:
        """Have sessions follow of which the agent says something new; return the sessions of all
        these ids, as `Links.sessions_of` does. `with_first` also those it never spoke of before."""
        linked = await self._journal.links.sessions_of(self._agent.key, agents_ids)
        for agents_id, session_id in linked.items():
            known = self._known.get(agents_id)
            if known is None or session_id is None:
                continue
            if known.is_news or (with_first and known.compared is None):
                with suppress(UnknownSessionError):
                    await self.follow(await self._journal.session(session_id))
        return linked

    async def follow(self, row: SessionRow) -> bool:
        """Have a session follow what the agent says of it, if that is news; return True if its row
        has changed."""
        known = self._known.get(row.downstream_id or row.session_id)
        if known is None or row.agent != self._agent.key or self._agent.reads_journal:
            return False
        word, before, is_first = _word(known.line), known.compared or known.first, False
        if known.compared is None:
            is_first = before == word
        elif before == word and not known.as_told:
            return False
        known.compared = word
        change = NO_CHANGE
        if (is_first or before.title != word.title) and not row.renamed:
            title = as_title(word.title or "")
            if title is not None and await self._replaces(title, row, is_first=is_first):
                change = replace(change, title=title)
        if known.as_told not in {None, word.archived} and row.archived is known.as_told:
            # An agent that wrote its own files at the same time has lost our change.
            known.can_repeat, known.as_told = False, None
            await self._tell(row, None, archived=row.archived)
        elif before.archived != word.archived != row.archived:
            change = replace(change, archived=word.archived)
        elif known.as_told and not row.archived:  # a prompt has put it back
            await self._tell(row, None, archived=False)
        if change == NO_CHANGE:
            return False
        await self._journal.change(row.session_id, change)
        await self._look_at(row.session_id)
        return True

    async def _replaces(self, title: str, row: SessionRow, *, is_first: bool) -> bool:
        """Return True if a title of the agent's list is better than that of a session."""
        if title == row.title or is_named_by_it(title):
            return False
        words = await first_words(first_page(self._journal, row.session_id)) or ""
        ours = (None, title_of_words(words), self.made.get(row.session_id))
        if is_first and row.title not in ours and is_own(row.title or "", [words]):
            return False
        return await may_rename(self._journal, row, row.downstream_id or row.session_id, title)

    # -- what the agent is told -----------------------------------------------------------

    async def tell(self, session_id: str, title: str | None, *, archived: bool) -> None:
        """Have the agent's own list follow a change that was made here, if the agent runs and has a
        method for it: a title, or else whether the session is archived."""
        row = await self._journal.session(session_id)
        if title is not None or row.archived == archived:  # else it has been changed again
            await self._tell(row, title, archived=archived, can_repeat=True)

    async def _tell(
        self, row: SessionRow, title: str | None, *, archived: bool, can_repeat: bool = False
    ) -> None:
        ways = air.ARCHIVING if archived else air.UNARCHIVING
        if title is not None:
            ways = air.NAMING
        method = next((it for it in ways if it in self._agent.index_methods), None)
        if method is None or not self._agent.alive:
            return
        if row.agent != self._agent.key or (agents_id := row.downstream_id) is None:
            return
        params = {"sessionId": agents_id, **({} if title is None else {"title": title})}
        try:
            await ask(self._agent, method, encode(params), bounds.AGENT_LIST_SECONDS)
        except AcpError as exc:
            log.info("session %s: the agent's list does not follow: %s", row.session_id, exc)
        else:
            self.note(agents_id, title, archived=archived, can_repeat=can_repeat)

    async def tell_changes(self, session_id: str, *, archived: bool | None) -> None:
        """Have the agent's own list follow what another process has changed in a session of ours,
        if it is this agent's: its title, and whether it is `archived`, unless that is None."""
        try:
            row = await self._journal.session(session_id)
            known = self._known.get(row.downstream_id or "")
            word = None if known is None else _word(known.line)
            if row.renamed and (word is None or row.title != word.title):
                await self.tell(session_id, row.title, archived=False)
            if archived is not None and (word is None or archived != word.archived):
                await self.tell(session_id, None, archived=archived)
        except AcpError as exc:
            log.info("session %s: the agent is not told of its change: %s", session_id, exc)

    def note(
        self, agents_id: str, title: str | None, *, archived: bool, can_repeat: bool = False
    ) -> None:
        """Note a change that the agent has made at our request, which we can repeat."""
        if (known := self._known.get(agents_id)) is None:
            return
        raw = known.line.raw
        if title is not None:
            raw = splice(raw, {"title": encode(title)})
        elif air.INDEX in self._agent.index_methods:
            raw = air.with_fields(raw, {"archived": encode(archived)})
            known.as_told, known.told_at, known.can_repeat = archived, monotonic(), can_repeat
        self._number += 1
        known.line, known.number = _read(raw) or known.line, self._number
        known.compared = _word(known.line)


class _Page(Struct, rename="camel"):
    """A page of the agent's list; its lines stay raw, so that fields newer than this release
    survive."""

    sessions: list[Raw] = []
    next_cursor: str | None = None


def _by_id(infos: Sequence[bytes | Raw]) -> dict[str, ListLine]:
    return {line.info.session_id: line for raw in infos if (line := _read(raw)) is not None}


def _read(raw: bytes | Raw) -> ListLine | None:
    """Return a line of the agent's list, without our marks; None if it cannot be read, or if its id
    cannot be used."""
    raw = bytes(raw)
    if may_have_marks(raw) and "_meta" in (parts := members(raw)):
        raw = splice(raw, {"_meta": meta_without_marks(parts["_meta"])})
    try:
        read = decode(SessionInfo, raw)
    except InvalidParamsError:
        return None
    info = read.value
    if not is_usable_id(info.session_id):
        return None
    key = ListKey(milliseconds(info.updated_at), info.session_id)
    archived = air.fields_in(raw).get("archived") == b"true"
    return ListLine(key, info, encode(info) if read.flaws else raw, archived)


def _word(line: ListLine) -> AgentsWord:
    return AgentsWord(line.info.title, line.archived)


def _spellings(cwd: str | None) -> Sequence[str | None]:
    """Return the folders to ask an agent for: it may compare paths letter by letter."""
    if cwd is None:
        return [None]
    return [*dict.fromkeys((os.path.normpath(cwd), resolve_folder(cwd)))]
