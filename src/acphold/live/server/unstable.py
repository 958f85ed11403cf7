"""Methods that are not yet part of the protocol, answered in front of every agent.

The journal answers them; an agent that has such methods, too, is told of the changes. They are
offered only with `unstable`, if the agent offers them, or to AIR with a session index
(`agents.air`).

Source: ACP v1 schema with its unstable parts: `ForkSessionRequest`, `SetSessionTitleRequest`,
`ArchiveSessionRequest`, `UnarchiveSessionRequest`, `SessionArchiveFilter`, `SessionStatusRequest`;
RFD session fork. Without the option no answer has a member of theirs that was not asked for: strict
clients drop an answer with members that they do not know.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from acp_wire.rpc.requests import Request
from acp_wire.schema import ResumeSessionRequest, decode, encode, splice
from acp_wire.schema.methods import FORK_SESSION
from acp_wire.schema.shapes import Extensible
from acphold.errors import (
    InvalidParamsError,
    MethodNotFoundError,
    NothingSaidError,
    UnknownSessionError,
)
from acphold.journal.journal import is_live, row_of
from acphold.journal.rows import Archived, RowChange
from acphold.live.agents import air, extensions
from acphold.live.agents.extensions import CopiedFiles, CopyRequest, MarkRequest, SessionCopy
from acphold.live.agents.interface import ask
from acphold.live.hub.attachment import Client
from acphold.live.hub.desk import Desk
from acphold.live.reading.one_question import telling_owners
from acphold.live.server.checked_params import decode_params, require_absolute, session_id_of
from acphold.live.server.directory import Directory
from acphold.live.server.open_params import OpenParams
from acphold.live.server.principals import Entrance, Note
from acphold.live.server.session_opener import SessionOpener

AT = "acphold/at"
"""Our `_meta` key in a fork: the number of an entry; the copy ends with the turn of that entry."""

FILTERS: tuple[Archived, ...] = ("exclude", "include", "only")


class ArchiveFilter(Extensible, frozen=True):
    """Params of `session/list` besides `cwd` and `cursor`."""

    archived: str | None = None


def archive_filter(params: bytes) -> Archived | None:
    """Return which sessions `session/list` asks for, None if it does not say; InvalidParamsError if
    unknown."""
    asked = decode(ArchiveFilter, params).value.archived
    if asked is None:
        return None
    for known in FILTERS:
        if asked == known:
            return known
    raise InvalidParamsError(f"archived: {asked!r} is not one of {', '.join(FILTERS)}", "archived")


class UnstableMethods:
    """One client's requests of these methods."""

    def __init__(
        self,
        directory: Directory,
        client: Client,
        opener: SessionOpener,
        entrance: Entrance,
        note: Note,
    ) -> None:
        self._directory = directory
        self._client = client
        self._opener = opener
        self._entrance = entrance
        self._note = note

    async def answer(self, request: Request) -> bytes | None:
        """Answer one of these methods; None if it is answered already."""
        match request.method:
            case air.SET_TITLE | air.RENAME:
                return await self._set_title(request)
            case method if method in air.ARCHIVING:
                return await self.archive(request)
            case method if method in air.UNARCHIVING:
                return await self.archive(request, archived=False)
            case air.STATUS:
                return await self._status(request)
            case extensions.FORK_METHOD:
                return await self._copy(request)
            case extensions.MARK_METHOD:
                return await self._mark(request)
            case extensions.TREE_METHOD:
                from acphold.live.server.tree_requests import answer_tree  # late: it brings git

                return await answer_tree(self._directory, self._client, request)
            case FORK_SESSION.name:
                await self._opener.until_sign_out(request, self._fork)
                return None
            case other:
                raise MethodNotFoundError(other)

    async def _set_title(self, request: Request) -> bytes:
        session_id = session_id_of(request.params)
        async with self._directory.of(
            request, session_id, self._client.scopes_in(session_id)
        ) as desk:
            answer = await self._answer_of_agent(desk, request, archived=False)
            if answer is None:
                asked = decode_params(request.params, air.RenameRequest)
                async with telling_owners(self._directory.hub.journal, [session_id]):
                    title = await desk.listed.rename(session_id, asked.title)
                await desk.sessions.agents.tell(session_id, title, archived=False)
                answer = encode({"title": title})
        return b"{}" if request.method == air.RENAME else answer

    async def _mark(self, request: Request) -> bytes:
        """Give a session tags, or pin it for the person who asks; a guest is none."""
        asked = decode_params(request.params, MarkRequest)
        person = self._entrance.principal.person
        if person is None and asked.pinned is not None:
            raise InvalidParamsError("pinned: only somebody with a list can pin", "pinned")
        scopes = self._client.scopes_in(asked.session_id)
        async with self._directory.of(request, asked.session_id, scopes) as desk:
            row = await desk.listed.mark(
                asked.session_id, person or "", asked.tags, pinned=asked.pinned
            )
        return encode({"tags": row.tags, "pinned": person in row.pins})

    async def _answer_of_agent(
        self, desk: Desk, request: Request, *, archived: bool
    ) -> bytes | None:
        """Let the agent answer about a session that only it has: it need not be taken over for
        that. None if it is ours, or the agent has no such method."""
        agent, session_id = desk.agent, session_id_of(request.params)
        if request.method not in agent.index_methods or not agent.alive:
            return None
        if await row_of(self._directory.hub.journal, session_id) is not None:
            return None
        agents = desk.sessions.agents
        if not await agents.only_its([session_id]):
            return None
        answer = await ask(agent, request.method, request.params)
        is_named = request.method in air.NAMING
        title = decode_params(request.params, air.RenameRequest).title if is_named else None
        agents.note(session_id, title, archived=archived)
        return answer

    async def archive(self, request: Request, *, archived: bool = True) -> bytes:
        """Take a session out of the lists, and close it; or put it back into them."""
        session_id = session_id_of(request.params)
        async with self._directory.of(
            request, session_id, self._client.scopes_in(session_id)
        ) as desk:
            answer = await self._answer_of_agent(desk, request, archived=archived)
            if answer is not None:
                return answer
            # The agent that has it open knows it best.
            its = self._directory.hub.desk_of(session_id) or desk
            journal = self._directory.hub.journal
            async with AsyncExitStack() as owners:
                telling = telling_owners(journal, [session_id], archived=archived)
                await owners.enter_async_context(telling)

                async def tell() -> None:
                    await owners.aclose()  # first: an agent may hang, or its client leave
                    await its.sessions.agents.tell(session_id, None, archived=archived)

                if archived:
                    await self._opener.remote.archive(session_id)
                    await desk.listed.archive(session_id, self._client, tell)
                else:
                    await desk.listed.unarchive(session_id)
                    await tell()
        return b"{}"

    async def _status(self, request: Request) -> bytes:
        """Answer if any process has the session open; changes nothing."""
        session_id = session_id_of(request.params)
        is_open = self._directory.hub.holds(session_id)
        if not is_open:
            try:
                is_open = await is_live(self._directory.hub.journal, session_id)
            except UnknownSessionError:
                scopes = self._client.scopes_in(session_id)
                async with self._directory.of(request, session_id, scopes) as desk:
                    if await desk.sessions.agents.look_up(session_id) is None:
                        raise
        return encode({"status": "open" if is_open else "saved"})

    async def _fork(self, request: Request) -> None:
        """Fork a session: copy it in the journal; the agent forks its own when the copy is opened.

        An agent that can fork also forks one without a finished turn, of which the journal has
        nothing to copy.
        """
        session_id = session_id_of(request.params)
        asked = decode(FORK_SESSION.params, request.params).value
        at = (asked.meta or {}).get(AT)
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 1):
            problem = f"{AT}: {at!r} is not the number of an entry"
            raise InvalidParamsError(problem, field=f"_meta.{AT}")
        opening, scopes = OpenParams.decode(request.params), self._client.scopes_in("")
        agent = (await self._directory.find(session_id, opening)).agent_for(scopes)
        if self._directory.are_many:
            opening = opening.naming(agent)
        async with self._directory.at(request, agent, scopes) as desk:
            setup = await self._opener.setup(desk, ResumeSessionRequest, opening)
            try:
                copy_id = await desk.listed.fork(session_id, setup, at)
            except NothingSaidError:
                row = await self._directory.hub.journal.session(session_id)
                known = row.downstream_id if row.agent == desk.agent.key else None
                if at is not None or known is None or not desk.agent.can_fork:
                    raise
                await self._opener.make(desk, request, known)
                return
            self._note(request.method, copy_id)
            try:
                conversation, attachment = await desk.resume(self._client, copy_id, setup)
            except BaseException:  # delete a copy that could not be opened
                await desk.delete(copy_id, self._client)
                raise
            result = splice(conversation.load_result, {"sessionId": encode(copy_id)})
            request.answer(self._opener.answer(result, conversation, attachment))
            self._opener.go_live(conversation, attachment, setup)

    async def _copy(self, request: Request) -> bytes:
        """Copy a session, perhaps with the files of a moment.

        A client on this machine may name the folder of the files; for any other it is one beside
        the project. Raises InvalidParamsError, WorkspaceError and what `hub.forks.fork` raises.
        """
        asked = decode_params(request.params, CopyRequest)
        if asked.at is not None and asked.at < 1:
            raise InvalidParamsError(f"at: {asked.at} is not the number of an entry", "at")
        if asked.folder is not None:
            if not self._entrance.principal.is_here:
                only = "files: only clients on this machine can name a folder"
                raise InvalidParamsError(only, "files")
            require_absolute(asked.folder, "files")
        scopes = self._client.scopes_in(asked.session_id)
        agent = start = None
        if (named := self._directory.require_served(asked.agent, "agent")) is not None:
            async with self._directory.at(request, named, scopes) as its:
                agent, start = its.agent.key, its.agent.start
        async with self._directory.of(request, asked.session_id, scopes) as desk:
            copy, folder = await desk.listed.copy(asked, agent)
        if start is not None:  # by which its agent is known, also before its first turn
            change = RowChange(start=start)
            await self._directory.hub.journal.change(copy.session_id, change)
        self._note(request.method, copy.session_id)
        if folder is None:
            row = await self._directory.hub.journal.session(copy.session_id)
            return encode(SessionCopy(copy.session_id, row.cwd, copy.turns))
        files = CopiedFiles(
            folder.laid.folder,
            folder.laid.why_plain,
            folder.snapshot.state,
            folder.snapshot.left_out_count,
            folder.included.count,
        )
        return encode(SessionCopy(copy.session_id, folder.cwd, copy.turns, files))
