"""The list of sessions, and requests about any session in it: rename, archive, fork.

Source: spec v1, session list. Nobody loses a conversation by installing acphold: the agent's own
sessions are in the same list, each session once.

A request about a session does not make this process its owner. A session that only the agent has is
adopted first, because the result is kept in our journal.

A person's title for a session wins over the agent's own. It is given in the row of the
session, which takes no lease: with the command line, say, while the session is live in another
process. Where it is live, the row is looked at

- when the session is opened from the journal,
- when the agent names it,
- with the renewal of its lease, if its row has changed since the last one, and
- when somebody says that it has changed (`Hub.look_at`).

A new title is published as an update, so that clients and replays have it. An agent's title is
removed from its updates before they are published.

What the agent's own list says of a session is told here, too. Its title there replaces one that is
only the beginning of the first prompt, and an earlier one of that list. If it archives a session,
or puts it back, we follow. A change that is made here is told to an agent that has a method for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Raw, Struct, json
from msgspec.structs import replace

from acp_wire.schema import LIST_SESSIONS, SessionInfo, decode, encode
from acp_wire.schema.splice import array, splice
from acp_wire.surroundings import Surroundings
from acp_wire.transports.addresses import is_node
from acphold.errors import AcpError, InvalidParamsError, UnknownSessionError
from acphold.journal_location import is_same_folder, resolve_folder
from acphold.live.agents import HubAgent, air, ask
from acphold.live.agents.extensions import CopyRequest
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.annotations import AGENT, first_words, iso_time
from acphold.live.hub.attachment import Client
from acphold.live.hub.session import HubSession
from acphold.newest import Newest
from acphold.record.history.entries import Segment, milliseconds
from acphold.record.history.raw_update import storable, update_kind
from acphold.record.journal import (
    Archived,
    Entries,
    HasLinks,
    Journal,
    ListFilter,
    ListKey,
    RowChange,
    SessionRow,
    Sessions,
    list_places,
    session_of,
)
from acphold.record.journal.copies import TITLE
from acphold.record.journal.rows import NO_CHANGE

if TYPE_CHECKING:
    from acphold.live.hub.forks import Forked
    from acphold.live.hub.kept_files import KeptThere


log = logging.getLogger(__name__)


MESSAGE_COUNT = "acphold/messageCount"
"""The `_meta` key of the number of its messages."""

UNREAD = "acphold/unread"
"""The `_meta` key of a session that an import has only listed: it is read when it is opened."""

ORIGINS = "acphold/origins"
"""The `_meta` key of a session that was made of others, or went over to this agent."""

NOTHING = b'{"sessions":[]}'
"""A list for a client that may see no session."""


class AgentsWord(Struct, frozen=True):
    """What the agent's own list said last of a session: its title, and if it is archived; and
    whether ours was compared with it."""

    title: str | None
    archived: bool
    is_compared: bool = False


class ListLine(Struct, frozen=True):
    """One line of the list: its place, and its JSON."""

    key: ListKey
    info: SessionInfo
    raw: bytes

    @property
    def updated_at(self) -> int | None:
        """The time of the last activity, in ms since the epoch; None if unknown."""
        return self.key.updated_at or None


if TYPE_CHECKING:  # only for types: making such classes would delay an editor's start

    class ListedJournal(Entries, HasLinks, Sessions, Protocol):
        """The seams of a journal that the list needs."""


class SessionList:
    """Pages of the list for one agent, or of the sessions of all.

    The agent's own sessions are fetched with every first page and kept for the pages after it.
    """

    def __init__(
        self,
        journal: ListedJournal,
        agent: HubAgent,
        live: LiveRows,
        *,
        all_agents: bool = False,
    ) -> None:
        self._journal = journal
        self._agent = agent
        self._all_agents = all_agents
        self._live = live
        self._agents_own: Newest[str | None, dict[str, ListLine]] = Newest(bounds.AGENT_LISTS)
        self._told: Newest[str, ListLine] = Newest(bounds.AGENT_SESSIONS)
        self._heard: Newest[str, AgentsWord] = Newest(bounds.AGENT_SESSIONS)
        self._asked = 0.0

    async def only(self, session_id: str, tenant: str | None = None) -> bytes:
        """Return the result of `session/list` for a client that may see only this session, if this
        tenant has access to it."""
        row = await _row_for(tenant, self._journal, session_id)
        return NOTHING if row is None else _result([await self._ours(row)])

    async def page(
        self,
        cwd: str | None,
        cursor: str | None,
        held: frozenset[str],
        archived: Archived | None = None,
        tenant: str | None = None,
        *,
        limit: int = bounds.LIST_PAGE,
        beside: tuple[str, ...] = (),
    ) -> bytes:
        """Return one page, newest first: the result of `session/list` for this tenant. Raises
        CursorError.

        With `archived` each session says whether it is archived; without it, archived ones are left
        out. `beside` are more folders whose sessions are in the list of `cwd`.
        """
        agents = () if self._all_agents else (self._agent.key,)
        filter = ListFilter(
            agents=agents,
            cwd=cwd,
            beside=beside,
            held=held,
            archived=archived or "exclude",
            tenant=tenant,
        )
        after = None
        if cursor is not None:
            after = list_places.decode(cursor, filter, (await self._journal.identity()).secret)
        if after is None or cwd not in self._agents_own:
            await self._ask_agent(cwd, beside)
            await self._follow_changes(self._agents_own[cwd].values())
            # A session of ours that went on outside acphold moves to the time in the agent's list.
            times = {key: line.key.updated_at for key, line in self._agents_own[cwd].items()}
            await self._journal.links.went_on(self._agent.key, times)
        rows = await self._journal.page(filter, after, limit + 1)
        if [row for row in rows if await self._follow_agent(row)]:
            rows = await self._journal.page(filter, after, limit + 1)
        lines = [await self._ours(row) for row in rows]
        put_away = {row.session_id for row in rows if row.archived}
        if not tenant:  # the agent's own have no tenant
            own = self._agents_own.get(cwd, {}).values()
            agents_lines = [it for it in own if _is_on_shelf(it, filter.archived)]
            put_away |= {it.info.session_id for it in agents_lines if _is_put_away(it)}
            agents_ids = [line.info.session_id for line in agents_lines]
            linked = await self._journal.links.sessions_of(self._agent.key, agents_ids)
            lines += [
                line
                for line in agents_lines
                if line.info.session_id not in (linked.keys() | held)
                and filter.has_folder(line.info.cwd)
                and (after is None or after < line.key)
            ]
        marks = put_away if archived is not None else None
        return await _page(self._journal, filter, lines, marks, limit)

    async def find(self, session_ids: Sequence[str], tenant: str | None) -> list[bytes]:
        """Return these sessions, as far as the journal or the agent's own list has them for this
        tenant; each says whether it is archived."""
        found = []
        for session_id in session_ids:
            if (row := await _row_for(tenant, self._journal, session_id)) is not None:
                if row.agent == self._agent.key or self._all_agents:
                    found.append(_mark((await self._ours(row)).raw, row.archived))
            elif (
                not tenant
                and (line := self.agents_own(session_id)) is not None
                and await self.only_agents([session_id])
            ):
                found.append(_mark(line.raw, _is_put_away(line)))
        return found

    async def only_agents(self, agents_ids: Sequence[str]) -> list[str]:
        """Return those of the agent's own ids that no session of the journal has."""
        linked = await self._journal.links.sessions_of(self._agent.key, agents_ids)
        return [it for it in agents_ids if it not in linked]

    def agents_own(self, session_id: str) -> ListLine | None:
        """Return what the agent last said of a session of its own."""
        if (told := self._told.get(session_id)) is not None:
            return told
        for lines in self._agents_own.values():
            if (line := lines.get(session_id)) is not None:
                return line
        return None

    async def look_up(self, session_id: str) -> ListLine | None:
        """Return what the agent says of a session of its own; ask it, unless it was asked just
        now."""
        if self._agent.reads_journal:
            return None
        if (
            self.agents_own(session_id) is None
            or monotonic() - self._asked > bounds.FRESH_LIST_SECONDS
        ):
            await self._ask_agent(None)
        return self.agents_own(session_id)

    async def _ours(self, row: SessionRow) -> ListLine:
        """Return a session of the journal, with the `_meta` that the agent's own list has for
        it."""
        if row.agent != self._agent.key:
            return _line(row, {AGENT: row.agent})
        if not self._told and not any(self._agents_own.values()):
            return _line(row, {})
        agents_id = row.downstream_id or row.session_id
        known = self.agents_own(agents_id)
        if known is None or known.info.meta is None:
            return _line(row, {})
        owner = await session_of(self._journal, self._agent.key, agents_id)
        return _line(row, known.info.meta if owner == row.session_id else {})

    async def follow_agent(self, cwd: str) -> None:
        """Have sessions follow what the agent's own list says of the newest in this folder; raises
        AcpError."""
        params = encode({"cwd": cwd})
        raw = await ask(self._agent, LIST_SESSIONS.name, params, bounds.AGENT_LIST_SECONDS)
        await self.hear(decode(_AgentsPage, raw).value.sessions)

    async def hear(self, infos: Sequence[bytes]) -> tuple[list[str], list[bytes]]:
        """Take sessions as the agent tells them beside its list; return the ids of ours, and those
        that only it has."""
        heard = [line for raw in infos if (line := _read_line(raw)) is not None]
        ids = [line.info.session_id for line in heard]
        linked = await self._journal.links.sessions_of(self._agent.key, ids)
        for line in heard:
            self._told[line.info.session_id] = line
            if (session_id := linked.get(line.info.session_id)) is not None:
                with suppress(UnknownSessionError):
                    await self._follow_agent(await self._journal.session(session_id), line)
        others = [line.raw for line in heard if line.info.session_id not in linked]
        return [it for it in linked.values() if it is not None], others

    async def _follow_changes(self, lines: Iterable[ListLine]) -> None:
        """Have sessions follow what the agent's own list says of them otherwise than before."""
        changed = dict[str, ListLine]()
        for line in lines:
            id_, word = line.info.session_id, _word(line)
            before = self._heard.get(id_)
            if before is None:
                self._heard[id_] = word
            elif (before.title, before.archived) != (word.title, word.archived):
                changed[id_] = line
        linked = await self._journal.links.sessions_of(self._agent.key, changed)
        for id_, session_id in linked.items():
            with suppress(UnknownSessionError):
                row = await self._journal.session(session_id or "")
                await self._follow_agent(row, changed[id_])

    async def _follow_agent(self, row: SessionRow, line: ListLine | None = None) -> bool:
        """Give a session the title and the place that the agent's own list has for it, if that is
        news; return True if the row has changed.

        The first time that we hear of it, the title counts if ours is only the beginning of the
        first prompt.
        """
        line = line or self.agents_own(row.downstream_id or row.session_id)
        if line is None or row.agent != self._agent.key or self._agent.reads_journal:
            return False
        word = _word(line)
        before = self._heard.get(line.info.session_id, word)
        self._heard[line.info.session_id] = replace(word, is_compared=True)
        change = NO_CHANGE
        title = as_title(word.title or "") or ""
        is_other = before.title != word.title
        if (
            (is_other or not before.is_compared)
            and title not in ("", row.title)
            and not row.renamed
        ):
            first = await self._first_words(row)
            replaces = is_other or row.title is None or _are_alike(row.title, first)
            if replaces and not _are_alike(title, first):
                change = replace(change, title=title)
        if before.archived != word.archived != row.archived:
            change = replace(change, archived=word.archived)
        if change == NO_CHANGE:
            return False
        await self._journal.change(row.session_id, change)
        await self._live.look_at(row.session_id)
        return True

    async def _first_words(self, row: SessionRow) -> str:
        async def begin() -> AsyncIterator[Segment]:
            for segment in await self._journal.read(row.session_id, 0, bounds.FIRST_PAGE_BYTES):
                yield segment

        return await first_words(begin()) or ""

    async def tell_agent(self, session_id: str, title: str | None, *, archived: bool) -> None:
        """Have the agent's own list follow a change that was made here, if the agent runs and has a
        method for it: a title, or else whether the session is archived."""
        ways = air.ARCHIVING if archived else air.UNARCHIVING
        if title is not None:
            ways = air.NAMING
        method = next((it for it in ways if it in self._agent.index_methods), None)
        if method is None or not self._agent.alive:
            return
        row = await self._journal.session(session_id)
        if row.agent != self._agent.key or (agents_id := row.downstream_id) is None:
            return
        params = {"sessionId": agents_id, **({} if title is None else {"title": title})}
        try:
            await ask(self._agent, method, encode(params), bounds.AGENT_LIST_SECONDS)
        except AcpError as exc:
            log.info("session %s: the agent's own list does not follow: %s", session_id, exc)

    async def _ask_agent(self, cwd: str | None, beside: Sequence[str] = ()) -> None:
        """Fetch the agent's list; if that fails, ours goes without."""
        found: dict[str, ListLine] = {}
        self._agents_own.pop(cwd, None)
        self._agents_own[cwd] = {}
        self._asked = monotonic()
        if not self._agent.alive or self._agent.capabilities.session_capabilities.list is None:
            return
        try:
            async with asyncio.timeout(bounds.AGENT_LIST_SECONDS):
                for folder in (*_spellings(cwd), *beside):
                    await self._collect(folder, found)
        except TimeoutError:
            log.warning(
                "the agent did not list all its sessions within %s s", bounds.AGENT_LIST_SECONDS
            )
        except AcpError as exc:
            log.warning("the agent could not list its sessions: %s", exc)
        self._agents_own[cwd] = found
        for session_id in self._told.keys() & found.keys():
            del self._told[session_id]

    async def _collect(self, cwd: str | None, found: dict[str, ListLine]) -> None:
        params: dict[str, object] = {} if cwd is None else {"cwd": cwd}
        if air.INDEX in self._agent.index_methods:
            params["_meta"] = air.EVERY_SESSION
        seen_cursors: set[str] = set()
        while len(found) < bounds.AGENT_SESSIONS:
            raw = await ask(self._agent, LIST_SESSIONS.name, msgspec.json.encode(params))
            page = decode(_AgentsPage, raw).value
            for line in map(_read_line, page.sessions):
                if line is not None:
                    found[line.info.session_id] = line
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors:
                return
            seen_cursors.add(cursor)
            params = {**params, "cursor": cursor}


def _read_line(raw: bytes) -> ListLine | None:
    """Return a line of the agent's list; None if it cannot be read."""
    try:
        read = decode(SessionInfo, raw)
    except InvalidParamsError:
        return None
    info = read.value
    key = ListKey(milliseconds(info.updated_at), info.session_id)
    return ListLine(key, info, encode(info) if read.flaws else bytes(raw))


def _word(line: ListLine) -> AgentsWord:
    return AgentsWord(line.info.title, _is_put_away(line))


def _mark(raw: bytes, archived: bool) -> bytes:
    return splice(raw, {"archived": encode(archived)})


def _is_put_away(line: ListLine) -> bool:
    """Return True if the agent says of a session in its own list that it is archived."""
    return air.fields_in(line.raw).get("archived") == b"true"


def _is_on_shelf(line: ListLine, archived: Archived) -> bool:
    return archived == "include" or _is_put_away(line) == (archived == "only")


def _are_alike(title: str, first: str) -> bool:
    """Return True if a title is only the first words of a prompt; either may be cut off."""
    begun = title.rstrip("….").rstrip().casefold()
    first = first.rstrip("…").rstrip().casefold()
    return bool(begun and first) and (first.startswith(begun) or begun.startswith(first))


def _spellings(cwd: str | None) -> Sequence[str | None]:
    """Return the folders to ask an agent for: it may compare paths letter by letter."""
    if cwd is None:
        return [None]
    return [*dict.fromkeys((os.path.normpath(cwd), resolve_folder(cwd)))]


async def page_of_all(
    journal: Sessions,
    filter: ListFilter,
    cursor: str | None,
    called: Callable[[SessionRow], str],
    *,
    marked: bool,
) -> bytes:
    """Return one page of the journal's sessions, of any agent; each names its agent as `called`
    does. Sessions that only an agent knows are left out. Raises CursorError."""
    secret = (await journal.identity()).secret
    after = None if cursor is None else list_places.decode(cursor, filter, secret)
    rows = await journal.page(filter, after, bounds.LIST_PAGE + 1)
    lines = [_line(row, {AGENT: called(row)}) for row in rows]
    put_away = {row.session_id for row in rows if row.archived}
    return await _page(journal, filter, lines, put_away if marked else None, bounds.LIST_PAGE)


async def only_of_all(
    journal: Sessions,
    session_id: str,
    called: Callable[[SessionRow], str],
    tenant: str | None = None,
) -> bytes:
    """Return the same for a client that may see only this session, if this tenant has access to
    it."""
    row = await _row_for(tenant, journal, session_id)
    return NOTHING if row is None else _result([_line(row, {AGENT: called(row)})])


async def _row_for(tenant: str | None, journal: Sessions, session_id: str) -> SessionRow | None:
    """Return the row of a session; None if there is none, or none for this tenant."""
    with suppress(UnknownSessionError):
        row = await journal.session(session_id)
        if row.is_there_for(tenant):
            return row
    return None


def _result(lines: Sequence[ListLine]) -> bytes:
    return splice(b"{}", {"sessions": array([line.raw for line in lines])})


async def _page(
    journal: Sessions,
    filter: ListFilter,
    lines: list[ListLine],
    put_away: Collection[str] | None,
    limit: int,
) -> bytes:
    """Return the newest of these lines as the result of `session/list`.

    Unless `put_away` is None, each says if it is `archived` (unstable): those are.
    """
    lines.sort(key=lambda line: (-line.key.updated_at, _backwards(line.key.session_id)))
    shown, more = lines[:limit], len(lines) > limit
    raws = [line.raw for line in shown]
    if put_away is not None:
        raws = [_mark(line.raw, line.info.session_id in put_away) for line in shown]
    page = {"sessions": array(raws)}
    if more:
        next_cursor = list_places.encode(shown[-1].key, filter, (await journal.identity()).secret)
        page["nextCursor"] = encode(next_cursor)
    return splice(b"{}", page)


class _AgentsPage(Struct, rename="camel"):
    """A page of the agent's list; its lines stay raw, so that fields newer than this release
    survive."""

    sessions: list[Raw] = []
    next_cursor: str | None = None


def _line(row: SessionRow, meta: dict[str, object]) -> ListLine:
    info = SessionInfo(
        session_id=row.session_id,
        cwd=row.cwd,
        additional_directories=row.additional_directories,
        title=row.title,
        updated_at=iso_time(row.updated_at),
        meta={
            **(msgspec.json.decode(row.meta, type=dict[str, object]) if row.meta else {}),
            **meta,
            MESSAGE_COUNT: row.message_count,
            **({ORIGINS: row.origins} if row.origins else {}),
            **({UNREAD: True} if row.is_unread else {}),
        },
    )
    return ListLine(row.key, info, encode(info))


def check_folder(known: str, asked: str) -> None:
    """Require a session's own working directory (spec v1, session setup); InvalidParamsError.

    If that folder is gone, renamed or on a disk that is not there, the new one is accepted.
    """
    if not is_same_folder(known, asked) and (os.path.isdir(known) or not os.path.isdir(asked)):
        raise InvalidParamsError(
            f"cwd: this session belongs to {known!r}, not to {asked!r}", field="cwd"
        )


def _backwards(text: str) -> tuple[int, ...]:
    """Return a sort key that orders strings from high to low, as the journal orders equal times."""
    return (*(-ord(letter) for letter in text), 1)


GIVEN_LENGTH = 200
"""Most characters of a given title: one line wherever it is shown."""


def as_title(text: str) -> str | None:
    """Return `text` as a title, on one line and cut to GIVEN_LENGTH; None without a letter or
    digit."""
    line = " ".join(storable(text).split())
    if not any(map(str.isalnum, line)):
        return None
    return line if len(line) <= GIVEN_LENGTH else line[: GIVEN_LENGTH - 1].rstrip() + "…"


class GivenTitle:
    """The title that a person gave a live session, or its agent elsewhere, if any: see the
    module."""

    def __init__(self, session: HubSession, journal: Sessions) -> None:
        self._session = session
        self._journal = journal

    async def look(self) -> None:
        """Publish the title of the row, if clients do not have it; raises JournalError."""
        known = self._session.attributes.title
        row = await self._row()
        if row is None or row.title in (None, self._session.attributes.title):
            return
        # Without a title that clients know it has one for lists only; and the agent may have given
        # a newer one by now.
        if row.renamed or known == self._session.attributes.title is not None:
            update: dict[str, object] = {"sessionUpdate": "session_info_update", "title": row.title}
            if row.renamed:
                update["_meta"] = {TITLE: "person"}
            await self._session.publish("update", [json.encode(update)])

    async def without_overridden_title(self, raw: bytes) -> bytes:
        """Return an update of the agent, without its title if a person has given one."""
        if b'"title"' not in raw or update_kind(raw) != "session_info_update":
            return raw
        row = await self._row()
        return raw if row is None or not row.renamed else splice(raw, {"title": None})

    async def _row(self) -> SessionRow | None:
        try:
            return await self._journal.session(self._session.id)
        except UnknownSessionError:  # deleted meanwhile
            return None


if TYPE_CHECKING:  # only for types: making such classes would delay an editor's start

    class SessionKeeper(Protocol):
        """A desk, as requests about listed sessions need it."""

        async def keep(self, session_id: str) -> None:
            """Have a session in the journal; raises UnknownSessionError."""

        async def close(self, session_id: str, client: Client) -> None:
            """Free a session that is live here, if no other client than this one has it open."""

    class LiveRows(Protocol):
        """A hub, as they need it."""

        async def look_at(self, session_id: str) -> None:
            """Read the row of a live session again: it has changed."""


class ListedSessions:
    """Requests about any session in the list; `surroundings` are those of whoever asks."""

    def __init__(
        self,
        journal: Journal,
        keeper: SessionKeeper,
        live: LiveRows,
        surroundings: Surroundings,
    ) -> None:
        self._surroundings = surroundings
        self._journal = journal
        self._keeper = keeper
        self._live = live

    async def rename(self, session_id: str, title: str) -> str:
        """Give it a title and return it as kept. InvalidParamsError for one without a letter or
        digit."""
        kept = as_title(title)
        if kept is None:
            raise InvalidParamsError("title: at least one letter or digit is required", "title")
        await self._keeper.keep(session_id)
        await self._journal.change(session_id, RowChange(given=kept))
        await self._live.look_at(session_id)
        return kept

    async def archive(self, session_id: str, client: Client) -> None:
        """Take it out of the lists; `client` closes it, and if that was the last client, so does
        this process."""
        await self._keeper.keep(session_id)
        await self._keeper.close(session_id, client)
        await self._journal.change(session_id, RowChange(archived=True))
        await self._live.look_at(session_id)  # others may still have it open, and prompt it back

    async def unarchive(self, session_id: str) -> None:
        """Put it back into the lists."""
        await self._keeper.keep(session_id)
        await self._journal.change(session_id, RowChange(archived=False))

    async def fork(self, session_id: str, setup: Setup, at: int | None) -> str:
        """Make a session of its turns up to the one with entry `at`, in the folders of `setup`;
        return its id.

        Raises NothingSaidError, and InvalidParamsError if this is one of several machines and the
        folder is not on it: the new session lives here.
        """
        if is_node() and not await asyncio.to_thread(os.path.isdir, setup.cwd):
            raise InvalidParamsError(
                f"cwd: there is no folder {setup.cwd!r} on this machine ({socket.gethostname()}), "
                "where the copy would be made; name a folder of this machine, or copy the session "
                "on the machine that has the folder",
                field="cwd",
            )
        row = await self._whole(session_id)
        folders = setup.additional_directories
        from acphold.live.hub.forks import fork  # late: few clients do this

        made = await fork(self._journal, row, at=at, cwd=setup.cwd, additional_directories=folders)
        return made.session_id

    async def copy(self, wanted: CopyRequest) -> tuple[Forked, KeptThere | None]:
        """Make a copy of a session in the same folder, or with its files in another one.

        Raises what `hub.kept_files.fork_with_files` raises.
        """
        row = await self._whole(wanted.session_id)
        at, before = wanted.at, wanted.before
        if not wanted.files:
            from acphold.live.hub.forks import fork

            return await fork(self._journal, row, at=at, before=before), None
        from acphold.live.hub.kept_files import fork_with_files

        there, made = await fork_with_files(
            *(self._journal, row, self._surroundings, wanted.folder),
            at=at,
            before=before,
            include=wanted.include,
        )
        return made, there

    async def _whole(self, session_id: str) -> SessionRow:
        await self._keeper.keep(session_id)
        await self._journal.complete(session_id)
        return await self._journal.session(session_id)
