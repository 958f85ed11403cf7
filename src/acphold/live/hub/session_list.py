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
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Raw, Struct, json

from acp_wire.schema import LIST_SESSIONS, SessionInfo, decode, encode
from acp_wire.schema.splice import array, splice
from acp_wire.surroundings import Surroundings
from acp_wire.transports.addresses import is_node
from acphold.errors import AcpError, InvalidParamsError, UnknownSessionError
from acphold.journal_location import is_same_folder, resolve_folder
from acphold.live.agents import HubAgent, ask
from acphold.live.agents.extensions import CopyRequest
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.annotations import AGENT, iso_time
from acphold.live.hub.attachment import Client
from acphold.live.hub.session import HubSession
from acphold.newest import Newest
from acphold.record.history.entries import milliseconds
from acphold.record.history.raw_update import storable, update_kind
from acphold.record.journal import (
    Archived,
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

if TYPE_CHECKING:
    from acphold.live.hub.forks import Forked
    from acphold.live.hub.kept_files import KeptThere


log = logging.getLogger(__name__)


UNREAD = "acphold/unread"
"""The `_meta` key of a session that an import has only listed: it is read when it is opened."""

ORIGINS = "acphold/origins"
"""The `_meta` key of a session that was made of others, or went over to this agent."""

NOTHING = b'{"sessions":[]}'
"""A list for a client that may see no session."""


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

    class ListedJournal(HasLinks, Sessions, Protocol):
        """The seams of a journal that the list needs."""


class SessionList:
    """Pages of the list for one agent, or of the sessions of all.

    The agent's own sessions are fetched with every first page and kept for the pages after it.
    """

    def __init__(
        self, journal: ListedJournal, agent: HubAgent, *, all_agents: bool = False
    ) -> None:
        self._journal = journal
        self._agent = agent
        self._all_agents = all_agents
        self._agents_own: Newest[str | None, dict[str, ListLine]] = Newest(bounds.AGENT_LISTS)
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
    ) -> bytes:
        """Return one page, newest first: the result of `session/list` for this tenant. Raises
        CursorError.

        With `archived` each session says whether it is archived; without it, archived ones are left
        out.
        """
        agents = () if self._all_agents else (self._agent.key,)
        shelf = archived or "exclude"
        filter = ListFilter(agents=agents, cwd=cwd, held=held, archived=shelf, tenant=tenant)
        after = None
        if cursor is not None:
            after = list_places.decode(cursor, filter, (await self._journal.identity()).secret)
        if after is None or cwd not in self._agents_own:
            await self._ask_agent(cwd)
            # A session of ours that went on outside acphold moves to the time in the agent's list.
            times = {key: line.key.updated_at for key, line in self._agents_own[cwd].items()}
            await self._journal.links.went_on(self._agent.key, times)
        rows = await self._journal.page(filter, after, bounds.LIST_PAGE + 1)
        lines = [await self._ours(row) for row in rows]
        if archived != "only" and not tenant:  # the agent's own have no tenant
            agents_lines = self._agents_own.get(cwd, {}).values()
            agents_ids = [line.info.session_id for line in agents_lines]
            linked = await self._journal.links.sessions_of(self._agent.key, agents_ids)
            lines += [
                line
                for line in agents_lines
                if line.info.session_id not in (linked.keys() | held)
                and (cwd is None or is_same_folder(cwd, line.info.cwd))
                and (after is None or after < line.key)
            ]
        return await _page(self._journal, filter, rows, lines, marked=archived is not None)

    def agents_own(self, session_id: str) -> ListLine | None:
        """Return what the agent last said of a session of its own."""
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
        if not any(self._agents_own.values()):
            return _line(row, {})
        agents_id = row.downstream_id or row.session_id
        known = self.agents_own(agents_id)
        if known is None or known.info.meta is None:
            return _line(row, {})
        owner = await session_of(self._journal, self._agent.key, agents_id)
        return _line(row, known.info.meta if owner == row.session_id else {})

    async def _ask_agent(self, cwd: str | None) -> None:
        """Fetch the agent's list; if that fails, ours goes without."""
        found: dict[str, ListLine] = {}
        self._agents_own.pop(cwd, None)
        self._agents_own[cwd] = {}
        self._asked = monotonic()
        if not self._agent.alive or self._agent.capabilities.session_capabilities.list is None:
            return
        try:
            async with asyncio.timeout(bounds.AGENT_LIST_SECONDS):
                for folder in _spellings(cwd):
                    await self._collect(folder, found)
        except TimeoutError:
            log.warning(
                "the agent did not list all its sessions within %s s", bounds.AGENT_LIST_SECONDS
            )
        except AcpError as exc:
            log.warning("the agent could not list its sessions: %s", exc)
        self._agents_own[cwd] = found

    async def _collect(self, cwd: str | None, found: dict[str, ListLine]) -> None:
        params: dict[str, str] = {} if cwd is None else {"cwd": cwd}
        seen_cursors: set[str] = set()
        while len(found) < bounds.AGENT_SESSIONS:
            raw = await ask(self._agent, LIST_SESSIONS.name, msgspec.json.encode(params))
            page = decode(_AgentsPage, raw).value
            for line in page.sessions:
                with suppress(InvalidParamsError):  # skip a line that cannot be read
                    read = decode(SessionInfo, line)
                    info = read.value
                    key = ListKey(milliseconds(info.updated_at), info.session_id)
                    raw = encode(info) if read.flaws else bytes(line)
                    found[info.session_id] = ListLine(key, info, raw)
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors:
                return
            seen_cursors.add(cursor)
            params = {**params, "cursor": cursor}


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
    return await _page(journal, filter, rows, lines, marked=marked)


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
    rows: Sequence[SessionRow],
    lines: list[ListLine],
    *,
    marked: bool,
) -> bytes:
    """Return the newest of these lines as the result of `session/list`.

    With `marked` each says if it is `archived` (unstable).
    """
    put_away = {row.session_id for row in rows if row.archived}
    lines.sort(key=lambda line: (-line.key.updated_at, _backwards(line.key.session_id)))
    shown, more = lines[: bounds.LIST_PAGE], len(lines) > bounds.LIST_PAGE
    raws = [line.raw for line in shown]
    if marked:
        marks = [encode(line.info.session_id in put_away) for line in shown]
        raws = [splice(raw, {"archived": mark}) for raw, mark in zip(raws, marks, strict=True)]
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
            **meta,
            "acphold/messageCount": row.message_count,
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
    """The title that a person gave a live session, if any: see the module."""

    def __init__(self, session: HubSession, journal: Sessions) -> None:
        self._session = session
        self._journal = journal

    async def look(self) -> None:
        """Publish the given title, if clients do not have it; raises JournalError."""
        given = await self._read()
        if given is not None and given != self._session.attributes.title:
            meta = {TITLE: "person"}
            update = {"sessionUpdate": "session_info_update", "title": given, "_meta": meta}
            await self._session.publish("update", [json.encode(update)])

    async def without_overridden_title(self, raw: bytes) -> bytes:
        """Return an update of the agent, without its title if a person has given one."""
        if b'"title"' not in raw or update_kind(raw) != "session_info_update":
            return raw
        given = await self._read()
        return raw if given is None else splice(raw, {"title": None})

    async def _read(self) -> str | None:
        try:
            row = await self._journal.session(self._session.id)
        except UnknownSessionError:  # deleted meanwhile
            return None
        return row.title if row.renamed else None


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
