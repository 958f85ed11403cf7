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

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from msgspec import Struct, json
from msgspec.structs import replace

from acp_wire.newest import Newest
from acp_wire.schema import SessionInfo, encode, splice
from acp_wire.schema.splice import json_value
from acp_wire.surroundings import Surroundings, is_same_folder, resolve_folder
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import iso
from acphold.conversation.history.raw_update import array, members, string, update_kind
from acphold.errors import InvalidParamsError
from acphold.journal import list_places
from acphold.journal.journal import Journal, Sessions, row_of, session_of
from acphold.journal.rows import TITLE, ListFilter, Marks, RowChange, SessionRow, as_tags
from acphold.live.agents.extensions import CopyRequest
from acphold.live.agents.interface import HubAgent
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import AgentSession, Setup
from acphold.live.hub.agents_list import AgentsList, ListLine, LookAt
from acphold.live.hub.annotations import AGENT, as_title, may_rename
from acphold.live.hub.attachment import Client
from acphold.live.hub.session import HubSession
from acphold.machine.addresses import is_node

if TYPE_CHECKING:
    from acphold.live.hub.forks import Forked
    from acphold.live.hub.kept_files import KeptThere


MESSAGE_COUNT = "acphold/messageCount"
"""The `_meta` key of the number of its messages."""

UNREAD = "acphold/unread"
"""The `_meta` key of a session that an import has only listed: it is read when it is opened."""

TAGS = "acphold/tags"
PINNED = "acphold/pinned"
BY_PROGRAM = "acphold/byProgram"
"""The `_meta` keys of its tags, and of one that this person has pinned, or that no person has
prompted."""

ORIGINS = "acphold/origins"
"""The `_meta` key of a session that was made of others, or went over to this agent."""


class SessionList(Struct, eq=False):
    """Pages of the list for one agent, or of the sessions of all.

    The agent's own sessions are fetched with every first page from its list, `agents`. `time_of`
    is `Hub.time_of`.
    """

    _journal: Journal
    _agent: HubAgent
    agents: AgentsList
    _all_agents: bool
    _time_of: Callable[[SessionRow], int]

    async def only(self, session_id: str, tenant: str | None) -> bytes:
        """Return the result of `session/list` for a client that may see only this session, if this
        tenant has access to it."""
        row = await _row_for(tenant, self._journal, session_id, as_guest=True)
        lines = [] if row is None else [(await self._ours(row)).raw]
        return splice(b"{}", {"sessions": array(lines)})

    async def page(
        self, filter: ListFilter, cursor: str | None, *, marked: bool, limit: int = bounds.LIST_PAGE
    ) -> bytes:
        """Return one page, newest first: the result of `session/list`. Raises CursorError.

        If they are `marked`, each session says whether it is archived.
        """
        if not self._all_agents:
            filter = replace(filter, agents=(self._agent.key,))
        after = None
        if cursor is not None:
            after = list_places.decode(cursor, filter, (await self._journal.identity()).secret)
        own = await self.agents.lines((filter.cwd, filter.beside), is_first=after is None)
        rows = await self._journal.page(filter, after, limit + 1)
        if [row for row in rows if await self.agents.follow(row)]:
            rows = await self._journal.page(filter, after, limit + 1)
        lines = [await self._ours(row.seen_by(filter.tenant)) for row in rows]
        if not filter.tenant:  # the agent's own have no tenant
            shelf, folders = filter.archived, ListedFolders(filter.cwd, filter.beside)
            own = {
                agents_id: line
                for agents_id, line in own.items()
                if shelf == "include" or line.archived == (shelf == "only")
            }
            linked = await self._journal.links.sessions_of(self._agent.key, own)
            lines += [
                line
                for agents_id, line in own.items()
                if agents_id not in (linked.keys() | filter.held)
                and line.has_folder
                and folders.have(line.info.cwd)
                and (after is None or after < line.key)
            ]
        return await _page(self._journal, filter, lines, limit, marked=marked)

    async def find(
        self, session_ids: Sequence[str], tenant: str | None, *, as_guest: bool
    ) -> list[bytes]:
        """Return these sessions, as far as the journal or the agent's own list has them for this
        tenant; each says whether it is archived."""
        found = []
        for session_id in session_ids:
            row = await _row_for(tenant, self._journal, session_id, as_guest=as_guest)
            if row is not None:
                if row.agent == self._agent.key or self._all_agents:
                    found.append(_mark(await self._ours(row)))
            elif (
                not tenant
                and (line := self.agents.line(session_id)) is not None
                and line.has_folder
                and await self.agents.only_its([session_id])
            ):
                found.append(_mark(line))
        return found

    async def _ours(self, row: SessionRow) -> ListLine:
        """Return a session of the journal, with the `_meta` that the agent's own list has for
        it."""
        at = self._time_of(row)
        if row.agent != self._agent.key:
            return _line(row, {AGENT: row.agent}, at)
        agents_id = row.downstream_id or row.session_id
        known = self.agents.line(agents_id)
        if known is None or known.info.meta is None:
            return _line(row, {}, at)
        owner = await session_of(self._journal, self._agent.key, agents_id)
        return _line(row, known.info.meta if owner == row.session_id else {}, at)


class ListedFolders:
    """A folder, None for all, and others beside it, as a list has them."""

    def __init__(self, cwd: str | None, beside: Sequence[str]) -> None:
        self._resolved = None if cwd is None else {*map(resolve_folder, (cwd, *beside))}
        self._known: Newest[str, bool] = Newest(bounds.AGENT_SESSIONS)

    def have(self, cwd: str) -> bool:
        """Return True if sessions of this folder are in the list."""
        if self._resolved is None or cwd in self._resolved:
            return True
        if (known := self._known.get(cwd)) is None:
            known = self._known[cwd] = resolve_folder(cwd) in self._resolved
        return known


def _mark(line: ListLine) -> bytes:
    return splice(line.raw, {"archived": encode(line.archived)})


async def page_of_all(
    journal: Sessions,
    filter: ListFilter,
    cursor: str | None,
    called: Callable[[SessionRow], str],
    time_of: Callable[[SessionRow], int],
) -> bytes:
    """Return one page of the journal's sessions, of any agent; each names its agent as `called`
    does, has the time of `Hub.time_of`, and says whether it is archived. Sessions that only an
    agent knows are left out. Raises CursorError."""
    secret = (await journal.identity()).secret
    after = None if cursor is None else list_places.decode(cursor, filter, secret)
    rows = await journal.page(filter, after, bounds.LIST_PAGE + 1)
    lines = [_line(row.seen_by(filter.tenant), {AGENT: called(row)}, time_of(row)) for row in rows]
    return await _page(journal, filter, lines, bounds.LIST_PAGE, marked=True)


async def _row_for(
    tenant: str | None, journal: Sessions, session_id: str, *, as_guest: bool
) -> SessionRow | None:
    """Return the row of a session as this tenant sees it, or a guest of one session; None if there
    is none for it."""
    row = await row_of(journal, session_id)
    is_there = row is not None and row.is_there_for(tenant)
    return row.seen_by(tenant, as_guest=as_guest) if row is not None and is_there else None


async def _page(
    journal: Sessions, filter: ListFilter, lines: list[ListLine], limit: int, *, marked: bool
) -> bytes:
    """Return the newest of these lines as the result of `session/list`. If they are `marked`, each
    says whether it is `archived` (unstable)."""
    # Ids from high to low, as the journal orders equal times.
    lines.sort(key=lambda it: (it.key.updated_at, it.key.session_id), reverse=True)
    shown = lines[:limit]
    page = {"sessions": array([_mark(line) if marked else line.raw for line in shown])}
    if len(lines) > limit:
        next_cursor = list_places.encode(shown[-1].key, filter, (await journal.identity()).secret)
        page["nextCursor"] = encode(next_cursor)
    return splice(b"{}", page)


def _line(row: SessionRow, meta: dict[str, object], updated_at: int) -> ListLine:
    info = SessionInfo(
        session_id=row.session_id,
        cwd=row.cwd,
        additional_directories=row.additional_directories,
        title=row.title,
        updated_at=iso(updated_at),
        meta={
            **(json_value(row.meta, dict[str, object]) or {}),
            **meta,
            MESSAGE_COUNT: row.message_count,
            **({ORIGINS: row.origins} if row.origins else {}),
            **({UNREAD: True} if row.is_unread else {}),
            **({TAGS: row.tags} if row.tags else {}),
            **({PINNED: True} if row.pins else {}),
            **({BY_PROGRAM: True} if row.by_program else {}),
        },
    )
    return ListLine(row.key, info, encode(info), row.archived)


def check_folder(known: str, asked: str) -> None:
    """Require a session's own working directory (spec v1, session setup); InvalidParamsError.

    If that folder is gone, renamed or on a disk that is not there, the new one is accepted.
    """
    if not is_same_folder(known, asked) and (os.path.isdir(known) or not os.path.isdir(asked)):
        raise InvalidParamsError(
            f"cwd: this session belongs to {known!r}, not to {asked!r}", field="cwd"
        )


class GivenTitle(Struct, eq=False):
    """The title that a person gave a live session, or its agent elsewhere, if any: see the
    module."""

    _session: HubSession
    _side: AgentSession
    _journal: Journal

    async def look(self) -> None:
        """Publish the title of the row, if clients do not have it; raises JournalError."""
        session = self._session
        async with session.writing:  # else one of both may have what is being committed
            is_late = session.row.has_late_title
            row, known = await row_of(self._journal, session.id), session.attributes.title
            if row is None or row.title in (None, known):
                return
            # If clients know of no title, that of the row is for lists only; and the agent may have
            # given a newer one, which the row does not have yet.
            if not row.renamed and (known is None or is_late):
                return
            update: dict[str, object] = {"sessionUpdate": "session_info_update", "title": row.title}
            if row.renamed:
                update["_meta"] = {TITLE: "person"}
            session.hold("update", [json.encode(update)])
        await session.release()

    async def without_worse_title(self, raw: bytes) -> bytes:
        """Return an update of the agent, without a title that may not replace ours."""
        if b'"title"' not in raw or update_kind(raw) != "session_info_update":
            return raw
        title = string(members(raw).get("title"))
        row = await row_of(self._journal, self._session.id)
        if row is None or title == self._session.attributes.title:
            return raw
        side = self._side
        if side.agent.reads_journal or not title:  # an agent of the library names what it wants
            stays = row.renamed
        else:
            stays = not await may_rename(self._journal, row, side.id, title)
        return splice(raw, {"title": None}) if stays else raw


class ListedSessions(Struct, eq=False):
    """Requests about any session in the list, at a desk, whose `keep` and `closing` these are; the
    surroundings are those of whoever asks."""

    _journal: Journal
    _keep: Callable[[str], Awaitable[None]]
    _closing: Callable[[str, Client], AbstractAsyncContextManager[None]]
    _look_at: LookAt
    _surroundings: Surroundings

    async def rename(self, session_id: str, title: str) -> str:
        """Give it a title and return it as kept. InvalidParamsError for one without a letter or
        digit."""
        kept = as_title(title)
        if kept is None:
            raise InvalidParamsError("title: at least one letter or digit is required", "title")
        await self._keep(session_id)
        await self._journal.change(session_id, RowChange(given=kept))
        await self._look_at(session_id)
        return kept

    async def mark(
        self, session_id: str, person: str, tags: Sequence[str] | None, *, pinned: bool | None
    ) -> SessionRow:
        """Give it these tags, and pin it for a person, or not; None leaves them. Return its row.
        InvalidParamsError for a word that is no tag."""
        await self._keep(session_id)
        try:
            whole = None if tags is None else as_tags(tags)
        except ValueError as exc:
            raise InvalidParamsError(f"tags: {exc}", "tags") from None
        await self._journal.mark(session_id, Marks(whole, person=person, pinned=pinned))
        return await self._journal.session(session_id)

    async def archive(
        self, session_id: str, client: Client, tell: Callable[[], Awaitable[None]]
    ) -> None:
        """Take it out of the lists; `client` closes it, and if that was the last client, so does
        this process. The agent is told by `tell` before it closes the session: while that is
        open, only the agent's own program can change how it is listed."""
        await self._keep(session_id)
        async with self._closing(session_id, client):
            await self._journal.change(session_id, RowChange(archived=True))
            await tell()
        await self._look_at(session_id)  # others may still have it open, and prompt it back

    async def unarchive(self, session_id: str) -> None:
        """Put it back into the lists."""
        await self._keep(session_id)
        await self._journal.change(session_id, RowChange(archived=False))

    async def fork(self, session_id: str, setup: Setup, at: int | None) -> str:
        """Make a session of its turns up to the one with entry `at`, in the folders of `setup`;
        return its id.

        Raises NothingSaidError, and InvalidParamsError if this is one of several machines and the
        folder is not on it: the new session lives here.
        """
        if is_node() and not await Threads(1).run(os.path.isdir, setup.cwd):
            raise InvalidParamsError(
                f"cwd: there is no folder {setup.cwd!r} on this machine ({socket.gethostname()}), "
                "where the copy would be made; name a folder of this machine, or copy the session "
                "on the machine that has the folder",
                field="cwd",
            )
        row = await self._whole(session_id)
        folders = (setup.cwd, *setup.additional_directories)
        from acphold.live.hub.forks import fork  # late: few clients do this

        made = await fork(self._journal, row, at=at, folders=folders)
        return made.session_id

    async def copy(
        self, wanted: CopyRequest, agent: str | None = None
    ) -> tuple[Forked, KeptThere | None]:
        """Make a copy of a session in the same folder, or with its files in another one; for the
        agent with this key, by default its own.

        Raises what `hub.kept_files.fork_with_files` raises.
        """
        row = await self._whole(wanted.session_id)
        at, before = wanted.at, wanted.before
        if not wanted.files:
            from acphold.live.hub.forks import fork

            return await fork(self._journal, row, at=at, before=before, agent=agent), None
        from acphold.live.hub.kept_files import fork_with_files

        there, made = await fork_with_files(
            *(self._journal, row, self._surroundings, wanted.folder),
            at=at,
            before=before,
            agent=agent,
            include=wanted.include,
        )
        return made, there

    async def _whole(self, session_id: str) -> SessionRow:
        await self._keep(session_id)
        await self._journal.complete(session_id)
        return await self._journal.session(session_id)
