"""One client's requests that open a session: here, or at the process that owns it.

A session has one owner. If a client opens a session that another process owns, its requests go over
a line to that owner (`server.remote_sessions`), which also follows the session to its next owner.

A line leads to the owner itself. A process that is asked over a line to open a session that it does
not own refuses, and the client's own process looks for the owner. Otherwise a prompt could reach an
owner by two ways.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from math import inf

from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire import schema
from acp_wire.rpc.requests import Request
from acp_wire.schema import (
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    encode,
    members,
)
from acp_wire.tasks import end
from acphold import errors
from acphold.conversation.history.entries import milliseconds
from acphold.conversation.history.raw_update import with_meta
from acphold.journal.lineage import identity
from acphold.journal.owners import clock
from acphold.live.agents import air
from acphold.live.agents.capabilities import INTRODUCTION, KEPT_IN_FRONT, answer_without_agent
from acphold.live.agents.interface import HubAgent
from acphold.live.agents.terms import is_chosen
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.annotations import AGENT, notice, time_update
from acphold.live.hub.attachment import Acts, Attachment, Client
from acphold.live.hub.choices import without_booleans
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.hub.frames import Frames
from acphold.live.hub.ownership import end_of_sent, find_accepted
from acphold.live.hub.prompt_turn import CANCELLED
from acphold.live.hub.questions import SENT
from acphold.live.hub.router import Asker
from acphold.live.reading.one_question import OwnerAwayError
from acphold.live.server import bounds
from acphold.live.server.checked_params import OpenRequest, read_setup
from acphold.live.server.directory import Directory
from acphold.live.server.open_params import CWD, READS, RESUMING, WORKTREE, OpenParams
from acphold.live.server.positions import (
    AFTER,
    ANSWERED,
    LINEAGE,
    Resuming,
    resuming_in,
    with_lineage,
)
from acphold.live.server.principals import Entrance, Principal
from acphold.live.server.remote_sessions import RemoteSessions
from acphold.mcp_servers.servers import ProvidedServers, server_ids

log = logging.getLogger(__name__)

NO_SERVERS = "MCP servers of this session were left out"
NO_SERVERS_HOW = (
    "Only its owner's client can give it MCP servers, and their secrets are kept nowhere else. "
    "They are there again once the owner has opened it."
)

ON_TERMS = "This session works on {}"
ON_TERMS_HOW = "Another client has chosen that for its agent; so your prompts go there, too."

LOST_TERMS = "This session stood on {}, which its agent has no longer"
LOST_TERMS_HOW = "Your prompts use what the agent has by itself, unless you choose that again."
LOST_CHOICE_HOW = (
    "So nothing is sent to it until a client chooses that again. You can read it, or continue a "
    "copy on what the agent has by itself: acphold continue {} --from last"
)

OpenAtDesk = Callable[[Client, str, Setup], Awaitable[tuple[Conversation, Attachment]]]
"""`Desk.load` or `Desk.resume`."""


def as_readable(result: bytes, client: Client) -> bytes:
    """Return the result of a request without options that this client cannot read."""
    return result if client.offer.booleans else without_booleans(result)


async def refuse(requests: Iterable[Request], error: errors.AcpError) -> None:
    """Refuse requests in progress, and wait until nothing is done for them any more."""
    tasks = []
    for request in tuple(requests):
        request.refuse(error)
        if request.task is not None:
            tasks.append(request.task)
    await end(*tasks)


class Opening(Struct, eq=False):
    """The `requests` that are opening one session, of which one goes on at a time, in the order in
    which they came, and holds `turn`. The prompts wait until all are `over`; before them, `then` is
    done, which is told if the client has closed the session meanwhile: then it `is_left`."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    requests: set[Request] = set()
    prompts: set[Request] = set()
    then: list[Callable[[bool], None]] = []
    is_left: bool = False


class Openings:
    """The sessions that a client is opening, its prompts that wait for them, and the sessions that
    it opens only for `reading`: it may not prompt there, and starts no agent.

    A client can prompt before it has the answer to `session/load`: its messages for the session
    wait until the session is open, or failed to open. Several requests may be opening one session
    at once.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, Opening] = {}
        self._waiting_bytes = 0
        self.reading: set[str] = set()

    @asynccontextmanager
    async def track(self, session_id: str, request: Request) -> AsyncIterator[None]:
        """Note that the block opens a session; entered once earlier ones for it have ended. If it
        fails, a former attachment is there again, and reads only if it did."""
        opening = self._under_way.setdefault(session_id, Opening())
        opening.requests.add(request)
        try:
            async with opening.turn:
                was_reading = session_id in self.reading
                try:
                    yield
                except BaseException:
                    (self.reading.add if was_reading else self.reading.discard)(session_id)
                    raise
        finally:
            opening.requests.discard(request)
            if not opening.requests:
                del self._under_way[session_id]
                for act in opening.then:
                    act(opening.is_left)
                opening.over.set()

    def has(self, session_id: str) -> bool:
        """Return True if the session is being opened."""
        return session_id in self._under_way

    def then(self, session_id: str, act: Callable[[bool], None]) -> None:
        """Call `act` once the session, which is being opened, is open, or failed to open; with True
        if the client has closed it."""
        self._under_way[session_id].then.append(act)

    async def wait(self, session_id: str, prompt: Request | None = None) -> None:
        """Wait until the session is open, or failed to open.

        A prompt that is cancelled meanwhile is answered at once, and gets into the history if the
        session is opened before the client leaves. Raises AcpError if the client's prompts that
        wait are too long.
        """
        size = 0 if prompt is None or not self.has(session_id) else prompt.size
        if size and self._waiting_bytes > bounds.KEPT_PROMPTS_BYTES:
            raise errors.AcpError("too many prompts wait for their sessions; try again later")
        self._waiting_bytes += size
        try:
            while (opening := self._under_way.get(session_id)) is not None:
                if prompt is not None:
                    opening.prompts.add(prompt)
                await opening.over.wait()
        finally:
            self._waiting_bytes -= size

    async def abandon(self, session_id: str) -> None:
        """Refuse the requests that are opening the session: `session/close` has come behind
        them."""
        if (opening := self._under_way.get(session_id)) is not None:
            opening.is_left = True
            await refuse(opening.requests, errors.AcpError("the session was closed meanwhile"))

    def cancel(self, session_id: str) -> None:
        """Cancel the prompts that wait for the session: `session/cancel` has arrived."""
        if (opening := self._under_way.get(session_id)) is not None:
            for prompt in opening.prompts:
                prompt.answer(CANCELLED)


class WantedSession(Struct, frozen=True):
    """A request to open a session that exists: its params, where the client resumes, and the setup.
    `open` opens it here. The client has all entries up to `after`; with None it gets only new
    ones."""

    request: Request
    asked: OpenParams
    said: Resuming
    setup: Setup
    open: OpenAtDesk
    after: int | None

    @property
    def session_id(self) -> str:
        return self.asked.session_id or ""


class SessionOpener(Struct, eq=False):
    """Opens sessions for one client.

    `introduction` is the client's own, as JSON. If the client is the line of another process,
    `introduce` makes its introduction of the agent's answer to `initialize`.
    """

    _directory: Directory
    _client: Client
    _entrance: Entrance
    _principal: Principal
    remote: RemoteSessions
    introduction: bytes = b"{}"
    introduce: Callable[[bytes, HubAgent], bytes] | None = None
    openings: Openings = field(default_factory=Openings)
    _in_progress: set[Request] = set()

    # -- requests -------------------------------------------------------------------------

    async def open(self, request: Request) -> None:
        """Answer session/new, load or resume."""
        opens = {schema.NEW_SESSION.name: self.new, schema.LOAD_SESSION.name: self.load}
        await self.until_sign_out(request, opens.get(request.method, self.resume))

    async def until_sign_out(
        self, request: Request, open_: Callable[[Request], Awaitable[None]]
    ) -> None:
        """Answer a request that opens a session by `open_`, which is cancelled if the client signs
        out meanwhile."""
        self._in_progress.add(request)
        try:
            await open_(request)
        finally:
            self._in_progress.discard(request)

    async def new(self, request: Request) -> None:
        async with self._directory.of(request, None, self._client.scopes_in("")) as desk:
            await self.make(desk, request)

    async def make(self, desk: Desk, request: Request, fork_of: str | None = None) -> None:
        """Answer with a new session, or with the agent's own fork of the one that it knows by the
        id `fork_of`."""
        kind = NewSessionRequest if fork_of is None else ResumeSessionRequest
        made: str | None = None
        try:
            if "prompt" not in self._client.scopes_in(""):
                raise errors.ForbiddenError(request.method, "prompt")  # it starts the agent
            asker = Asker(self._client, request.id)
            async with self._in_place(desk, OpenParams.decode(request.params)) as asked:
                setup = await self.setup(desk, kind, asked)
                conversation, result = await desk.new(setup, asker, fork_of)
            if asked.worktree is not None:
                result = with_meta(result, CWD, encode(asked.cwd))
            made = conversation.session.id
        finally:
            self._principal.note(request.method, made)
        conversation.session.row.is_kept_in_front = setup.is_kept_in_front
        attachment = conversation.session.attachments.attach(self._client, after=0, live_after=0)
        await conversation.session.note_follower(attachment)
        request.answer(self.answer(result, conversation, attachment))
        self.go_live(conversation, attachment, setup)

    @asynccontextmanager
    async def _in_place(self, desk: Desk, asked: OpenParams) -> AsyncIterator[OpenParams]:
        """Yield the params of a new session in its folder, a new work tree if that is wanted; if
        the block fails, nothing is left of it."""
        if (wanted := asked.worktree) is None:
            yield asked
            return
        if "files" not in self._client.scopes_in(""):
            raise errors.ForbiddenError("a session in a copy of the repository", "files")
        from acphold.live.hub.session_trees import make_tree  # late: it brings git

        journal, within = self._directory.hub.journal, desk.agent.surroundings
        made = await make_tree(journal, asked.cwd or "", within, include=wanted.include)
        try:
            yield asked.having(cwd=encode(made.tree.cwd))
        except BaseException:
            await asyncio.to_thread(made.tree.remove)
            raise

    async def load(self, request: Request) -> None:
        async with self._track(request) as (desk, asked):
            setup = await self.setup(desk, LoadSessionRequest, asked)
            # A new set, because open sessions keep theirs: a replay has the client's own prompts,
            # too.
            self._client.known_prompts = set()
            said = resuming_in(asked.meta)
            await self._open(WantedSession(request, asked, said, setup, desk.load, 0))

    async def resume(self, request: Request) -> None:
        async with self._track(request) as (desk, asked):
            said, plain = resuming_in(asked.meta), asked
            if said.after is not None:
                self._client.known_prompts |= set(said.sent[: bounds.SENT_PROMPTS])
                if said.lineage is None and said.sent:
                    said = await self._complete(asked.require_session(), said)
                plain = asked.without(AFTER, LINEAGE, SENT, ANSWERED)
            setup = await self.setup(desk, ResumeSessionRequest, plain)
            resume = partial(desk.resume, after=said.after, lineage=said.lineage)
            await self._open(WantedSession(request, asked, said, setup, resume, said.after))

    async def _complete(self, session_id: str, said: Resuming) -> Resuming:
        """Return where a client resumes that names no lineage; with the present one if the journal
        has its oldest prompt, for then it has not gone back to before that."""
        journal = self._directory.hub.journal
        if await end_of_sent(journal, session_id, said.sent[0], 0) is None:
            return said
        return replace(said, lineage=(await journal.session(session_id)).lineage)

    @asynccontextmanager
    async def _track(self, request: Request) -> AsyncIterator[tuple[Desk, OpenParams]]:
        """Yield the desk of a session, and so much of a request as the client may say in it, which
        is being opened for the block: one request after the other, for attaching anew ends the
        replay of the one before.

        A session that is open to act stays so when it is opened again to read. Whoever may not set
        it up gets its folders as they are. What is left out goes to no owner either. Raises
        OtherAgentError, and UnknownSessionError if neither the journal nor the agent has the
        session.
        """
        asked = OpenParams.decode(request.params)
        session_id = asked.require_session()
        async with self.openings.track(session_id, request):
            found = await self._directory.find(session_id, asked)
            is_held = isinstance(found.acting, errors.OtherAgentError)
            if not (asked.reads or (is_held and self._client.offer.watches)):
                self.openings.reading.discard(session_id)
            elif not self.is_open(session_id):
                self.openings.reading.add(session_id)
            scopes = self._client.scopes_in(session_id)  # without `prompt` for one that reads
            agent = found.agent_for(scopes)
            if self._directory.are_many:
                if "prompt" not in scopes:  # once it may, it has to say that it continues it
                    self.openings.reading.add(session_id)
                asked = asked.naming(agent)
            async with self._directory.at(request, agent, scopes, found.name) as desk:
                if "manage" not in scopes:
                    asked = asked.joining(*await desk.folders(session_id))
                    self._principal.leaves_out(request.method, session_id, asked.left_out)
                request.params = asked.params
                yield desk, asked

    async def _open(self, wanted: WantedSession) -> None:
        """Open a session: here if it is free, otherwise at its owner. One that cannot be reached is
        silent in the end, and the session is free; or it has reported, and lives."""
        session_id, until = wanted.session_id, inf
        while not self.remote.has(session_id):
            try:
                await self._open_here(wanted)
                return
            except (errors.HeldElsewhereError, errors.LeaseLostError) as exc:
                # The client has seen nothing of it. A line's own process looks for the owner.
                if exc.code != errors.HELD_ELSEWHERE or self._client.offer.is_line:
                    raise  # or it was deleted
                held = exc
            asked = clock()
            try:
                if await self.remote.reach(session_id):
                    break
                if self._directory.only_joins:
                    raise held
            except OwnerAwayError as away:
                if asked > (until := min(until, away.until)):
                    raise away.held from away
                await asyncio.sleep(0.1)
        await self._open_at_owner(wanted)

    async def _open_here(self, wanted: WantedSession) -> None:
        """Open a session in this process. Raises HeldElsewhereError, and LeaseLostError if the
        client has seen nothing of the session yet."""
        session_id, said, setup = wanted.session_id, wanted.said, wanted.setup
        conversation, attachment = await wanted.open(self._client, session_id, setup)
        if not setup.joins:
            conversation.session.row.is_kept_in_front = setup.is_kept_in_front
        try:
            result = self.answer(conversation.load_result, conversation, attachment)
            if said.after is not None and said.answered:  # report which of them were accepted
                ids = {*said.answered[: bounds.SENT_PROMPTS]}
                journal = self._directory.hub.journal
                accepted = await find_accepted(journal, conversation.id, ids, said.after)
                result = with_meta(result, ANSWERED, encode(accepted))
            if wanted.after == 0:
                await self._end_replay(conversation)
        except BaseException:
            conversation.put_back(attachment)
            raise
        wanted.request.answer(result)
        lacks_servers = conversation.side.setup.joins and conversation.waiting.is_awake
        if setup.joins and (lacks_servers or "mcpServers" in wanted.asked.left_out):
            self._tell_of_servers(session_id)
        self.go_live(conversation, attachment, setup)

    async def _end_replay(self, conversation: Conversation) -> None:
        """Tell what comes behind the replay of a load: the time of the last activity, if the replay
        had one that is not that of the list; and to AIR, that this is the end."""
        session, frames = conversation.session, Frames(conversation.id, self._client.offer)
        if (told := session.attributes.updated_at) is not None:
            hub = self._directory.hub
            at = hub.time_of(await hub.journal.session(conversation.id))
            if at != milliseconds(told):
                self._client.send(frames.aside(time_update(at)))
        if air.REPLAY_END in (self._client.offer.air or ()):
            self._client.send(frames.aside(air.REPLAY_ENDED))

    async def _open_at_owner(self, wanted: WantedSession) -> None:
        """Open a session over the client's line for it."""
        session_id, after = wanted.session_id, wanted.after
        if after is None:  # it must not miss an entry from now on, even if the owner ends at once
            after = (await self._directory.hub.journal.session(session_id)).last_seq
        from acphold.live.lines.line import OpenSession  # late: an editor waits for the start

        opening = OpenSession(wanted.request.params, after, wanted.said.lineage)
        await self.remote.open(wanted.request, session_id, opening)
        if "mcpServers" in wanted.asked.left_out and self.remote.has(session_id):
            self._tell_of_servers(session_id)

    async def setup(self, desk: Desk, kind: type[OpenRequest], asked: OpenParams) -> Setup:
        """Return the setup in the params of a request that opens a session; raises
        InvalidParamsError."""
        are_many = self._directory.are_many
        scopes = self._client.scopes_in(asked.session_id or "")
        joins = "manage" not in scopes
        watches = self._client.offer.watches
        # Another agent reads the whole conversation: a guest takes it nowhere.
        is_moved = are_many and asked.agent is not None and not joins
        known = RESUMING if joins else (AGENT,) if are_many else ()
        ours = (*known, KEPT_IN_FRONT, READS, WORKTREE)
        in_front = asked.journal_in_front
        provided = ProvidedServers(self._entrance.tenant)
        agent = desk.agent_in(asked.session_id, self._client)
        path = agent.surroundings.path
        plain = asked.without(*ours)
        setup = read_setup(kind, plain, agent.capabilities, provided, path)
        if b'"acp"' in setup.params:
            for server_id in server_ids(members(setup.params).get("mcpServers", b"null")):
                desk.provide(server_id, self._client, asked.session_id)
        return replace(
            setup,
            tenant=self._entrance.tenant or "",
            introduction=self.introduction,
            is_kept_in_front=in_front is not None
            and in_front == await identity(self._directory.hub.journal),
            stays=are_many and not is_moved and "prompt" in scopes,
            moves=is_moved or not (joins or watches),
            joins=joins,
        )

    def _tell_of_servers(self, session_id: str) -> None:
        """Tell the client that MCP servers were left out."""
        update = notice(NO_SERVERS, NO_SERVERS_HOW)
        self._client.send(Frames(session_id, self._client.offer).aside(update))

    def _tell_of_terms(self, conversation: Conversation) -> None:
        """Tell a client that has chosen nothing what others have chosen for a session's agent."""
        agent, client = conversation.side.agent, self._client
        its, update = conversation.session.queue.terms, None
        if agent.key in client.terms:
            return
        if its and not agent.terms.stand_for(its):
            how = LOST_CHOICE_HOW.format(conversation.id) if is_chosen(its) else LOST_TERMS_HOW
            update = notice(LOST_TERMS.format(its), how, "warning")
        elif agent.terms.choices:
            update = notice(ON_TERMS.format(agent.terms.label), ON_TERMS_HOW)
        if update is not None:
            client.send(Frames(conversation.id, client.offer).aside(update))

    async def abandon(self) -> None:
        """Refuse the requests in progress: the client has signed out."""
        error = errors.AuthRequiredError("this client has signed out meanwhile")
        await refuse(self._in_progress, error)

    def go_live(self, conversation: Conversation, attachment: Attachment, setup: Setup) -> None:
        """Let the client's attachment go live: it has the answer. If the session moves, the client
        follows it."""
        lineage, agent = conversation.session.lease.lineage, conversation.side.agent.key

        session_id = conversation.id

        def follow(told: int, due: Acts, is_left: bool = False) -> None:
            from acphold.live.lines.line import OpenSession

            if self.openings.has(session_id):
                self.openings.then(session_id, partial(follow, told, due))
                return
            opened = OpenSession(setup.params, told, lineage, due)
            if is_left or self.is_open(session_id):
                opened.act()
            else:
                self.remote.follow(session_id, opened, agent)

        attachment.on_moved = follow
        conversation.open_to(attachment)
        self._tell_of_terms(conversation)

    def is_open(self, session_id: str) -> bool:
        """Return True if the client has the session open, here or at its owner."""
        if not self._directory.hub.holds(session_id):
            return self.remote.has(session_id)
        session = self._directory.hub.conversation(session_id).session
        return session.attachments.find(self._client) is not None

    # -- answers --------------------------------------------------------------------------

    def answer(self, result: bytes, conversation: Conversation, attachment: Attachment) -> bytes:
        """Return the answer that opens a session, for a client with this attachment."""
        result = as_readable(result, self._client)
        if self.introduce is not None:  # `initialize` may have introduced another agent
            agent, introduced = conversation.side.agent, conversation.shared.introduced
            introduced = self.introduce(introduced or answer_without_agent(), agent)
            result = with_meta(result, AGENT, encode(agent.key))
            result = with_meta(result, INTRODUCTION, introduced)
        if not attachment.positions:
            return result
        return with_lineage(result, conversation.session.lease.lineage)
