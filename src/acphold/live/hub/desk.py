"""The desk of one agent: the agent, and what the hub has for it alone.

Sessions are opened at a desk: for clients, found again, closed, deleted. A new session, and one of
the journal that is not live, is answered by the desk's agent from then on. One that is live keeps
its own: clients of other desks join it. One that is only read moves to whoever continues it.

A client that loads a session sees its history in any case. If the agent is late, or cannot open the
session, the next prompt waits or tries again, and reports the problem. Only if the agent asks a
person to sign in first, nothing is shown before.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from uuid import uuid4

from acp_wire import schema
from acp_wire.schema import splice
from acp_wire.schema.methods import FORK_SESSION
from acp_wire.surroundings import Surroundings, is_same_folder
from acp_wire.tasks import TaskSet, end, finish
from acphold import errors
from acphold.journal.journal import session_of, tails_of
from acphold.journal.owners import refuse_held
from acphold.journal.rows import NewSession
from acphold.known_agents import short_name
from acphold.live.agents.capabilities import answer_without_agent
from acphold.live.agents.interface import AgentExchange, HubAgent, ListenerToMany, ask
from acphold.live.hub import bounds
from acphold.live.hub.adoption import Adoption
from acphold.live.hub.agent_session import Setup, new_session_id
from acphold.live.hub.agents_list import AgentsList
from acphold.live.hub.alerts import NO_ALERTS, Alerts
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.choices import settings_in
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.hub import Hub, can_close, close_at
from acphold.live.hub.router import Asker, Router
from acphold.live.hub.routes import Routes
from acphold.live.hub.session_list import ListedSessions, SessionList, check_folder
from acphold.live.hub.shared_parts import SharedParts
from acphold.live.hub.terms_in_use import forget_sign_in, takes_over
from acphold.live.hub.turn_files import FileKeeper
from acphold.serve_options import ServeOptions

log = logging.getLogger(__name__)

HELD_OUTSIDE = "The agent has this conversation open in another process"
HELD_OUTSIDE_HOW = (
    "You can read what acphold has of it. To continue, close it there first, or continue a copy: "
    "acphold continue {} --from last"
)

FOLDER_ELSEWHERE = "The folder of this session is on another machine"


class Desk:
    """See the module. `aclose` ends the agent with its turns, and closes its sessions; so does the
    end of the hub. With `only_joins` no session is made live here. `surroundings` are those of the
    editor that it is for, None if it is for no single one."""

    def __init__(
        self,
        hub: Hub,
        make_agent: Callable[[ListenerToMany], HubAgent],
        options: ServeOptions,
        *,
        alerts: Alerts = NO_ALERTS,
        only_joins: bool = False,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.hub = hub
        self.surroundings = surroundings
        self.only_joins = only_joins
        self._journal = journal = hub.journal
        self._routes = Routes()
        providers: dict[str, Client] = {}
        self.router = Router(self._routes, hub.live, providers, journal, hub.tasks)
        self.agent = self._routes.agent = make_agent(self.router)
        self.agent.newest_surroundings = self._newest_surroundings
        self.agent.is_attended = lambda: self.has_clients
        agents = AgentsList(journal, self.agent, hub.look_at)
        self.sessions = SessionList(journal, self.agent, agents, options.all_agents, hub.time_of)
        self._shared = SharedParts(
            agent=self.agent,
            journal=journal,
            routes=self._routes,
            release=hub.release,
            tasks=hub.tasks,
            options=options,
            files=FileKeeper(journal, options.snapshots, self.agent),
            alerts=alerts,
            activity=hub.activity,
            providers=providers,
            follow_title=self._follow_title,
            made_titles=agents.made,
            other_ids=agents.others_since,
        )
        self._following = TaskSet()
        self._taking = TaskSet()
        self._adoption = Adoption(hub, agents, self._shared)
        self.listed = ListedSessions(
            journal, self.keep, hub.closing, hub.look_at, self.agent.surroundings
        )
        self._introducing = asyncio.Lock()
        self.start_failed = asyncio.Event()
        """Set once the agent could not be started for a client, and never ran before."""
        self._signed_in = False  # the agent has let a session be used since it started
        self._closing: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        """Set once its agent has ended with its sessions."""
        hub.desks.append(self)

    @property
    def conversations(self) -> Collection[Conversation]:
        """The live sessions that this agent answers in."""
        return [it for it in self.hub.live.values() if self._is_own(it)]

    @property
    def has_clients(self) -> bool:
        """True if a client came for this agent, or has a session of it open."""
        return bool(self.router.clients) or any(it.session.attachments for it in self.conversations)

    @property
    def is_busy(self) -> bool:
        """True while a turn of it runs, it waits for an answer, or a prompt waits for its time."""
        return any(conversation.is_busy for conversation in self.conversations)

    @property
    def is_closing(self) -> bool:
        """True once its agent is being ended."""
        return self._closing is not None

    async def aclose(self) -> None:
        """End the agent with its turns, and close its sessions; they stay in the journal."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close desk")
        closing = self._closing

        async def wait() -> None:
            await closing

        await finish(wait)

    async def _close(self) -> None:
        await self._adoption.under_way.aclose()
        await self.hub.end_closing()
        leaving = self._joined()
        # The agent ends right after its turns: it must not run on meanwhile.
        await self.hub.end_turns(self.conversations)
        await end(*self._following, *self._taking)  # the end of a turn begins them
        for conversation in self.conversations:
            # A restoring that starts the agent would hold up the agent's end until it has
            # started.
            conversation.restoration.stop()
        await self.agent.aclose()
        leaving |= self._joined()
        await self.hub.close_conversations(self.conversations)
        await asyncio.gather(*(it.hang_up() for it in leaving))
        await self._shared.files.aclose()
        self.hub.desks.remove(self)
        self.closed.set()

    def _joined(self) -> set[Client]:
        """Return the clients that have a session open here, and come to no desk of their own."""
        attached = (each.client for it in self.conversations for each in it.session.attachments)
        return {client for client in attached if client.only_joins}

    async def initialize(self, params: bytes, *, starts: bool = True, anew: bool = False) -> bytes:
        """Introduce a client to the agent; only the first client that `starts` it does so. Raises
        the agent's errors.

        `anew` means that the client introduced itself differently before: the agent is told again,
        if this client is the only one and has opened nothing. Before the agent is started, others
        are answered for it.
        """
        async with self._introducing:
            if self._shared.introduced is None and not starts:
                return answer_without_agent()
            is_alone = not self.conversations and len(self.router.clients) <= 1
            if self._shared.introduced is None or (anew and is_alone):
                try:
                    self._shared.introduced = await self.agent.initialize(params)
                except errors.AcpError as exc:
                    if isinstance(exc, errors.AgentError):
                        log.error("%s", exc)  # also for people who can only see the log
                    if self._shared.introduced is None:
                        self.start_failed.set()
                    raise
                self._shared.offered = schema.decode(
                    schema.InitializeRequest, params
                ).value.client_capabilities
            return self._shared.introduced

    def sign_in_changed(self) -> None:
        """Have sessions opened again before they are used: somebody signed in or out."""
        self._signed_in = False
        for conversation in self.conversations:
            conversation.side.distrust()

    async def on_sign_in_outside(self) -> None:
        """Restart the agent so that it notices a sign-in with its own program, unless it is at
        work.

        Raises AgentError.
        """
        self.sign_in_changed()
        forget_sign_in(self)
        if not self.is_busy:
            await self.agent.restart()

    def _newest_surroundings(self) -> Surroundings | None:
        """Return those of the editor that is there and has opened a session of this agent last;
        without any, those of its own editor, if that is there; None for those that it has."""
        of = {client: it.surroundings for it in self.hub.desks for client in it.router.clients}
        attached = [each for it in self.conversations for each in it.session.attachments]
        for each in sorted(attached, key=lambda it: it.number, reverse=True):
            if (its := of.get(each.client)) is not None:
                return its
        return self.surroundings if self.router.clients else None

    def _is_own(self, conversation: Conversation) -> bool:
        return conversation.side.agent is self.agent

    def _find_awake(self, session_id: str | None, client: Client | None) -> Conversation | None:
        """Return a live session that stays at its desk when a client opens it here to act."""
        conversation = self.hub.live.get(session_id or "")
        if conversation is None or self.only_joins:
            return conversation
        moves = conversation.is_asleep or takes_over(conversation, self, client)
        return None if moves else conversation

    def start_alike(self, agent: HubAgent) -> bool:
        """Return True if an agent has the surroundings of this desk's editor."""
        return self.surroundings is not None and self.surroundings.start_alike(agent.surroundings)

    async def _take_over(self, conversation: Conversation, setup: Setup) -> None:
        """Move a session here from the agent that has it open; end that one if it cannot close it,
        and so has no other."""
        side = conversation.side
        at_agent = side.params_to_close
        services = conversation.services
        conversation.move(self._shared, setup)  # in the same step as the check that nothing runs
        await services.aclose()
        if at_agent is not None and not can_close(side.agent):
            await side.agent.aclose()
        else:
            await close_at(side.agent, conversation.id, at_agent)

    def agent_in(self, session_id: str | None, client: Client) -> HubAgent:
        """Return the agent that answers in a session, once a client has opened it here."""
        conversation = self._find_awake(session_id, client)
        return self.agent if conversation is None else conversation.side.agent

    def _follow_title(self, cwd: str) -> None:
        """Take the agent's title for a session of this folder from its list, if it tells it nowhere
        else: OpenCode makes one beside the first turn."""

        async def look() -> None:
            for seconds in bounds.TITLE_LOOKS_SECONDS:
                await asyncio.sleep(seconds)
                try:
                    await self.sessions.agents.look_for_news(cwd)
                except errors.AcpError as exc:
                    log.info("no title in the agent's own list: %s", exc)
                    return

        listing = self.agent.capabilities.session_capabilities.list
        if listing is not None and not self.agent.reads_journal and not self._following:
            self._following.start(look(), "look for a title")

    def provide(self, server_id: str, client: Client, session_id: str | None) -> None:
        """Note that this client provides an MCP server to the agent in a session."""
        conversation = self._find_awake(session_id, client)
        own = self._shared.providers
        (own if conversation is None else conversation.shared.providers)[server_id] = client

    def forget(self, client: Client) -> None:
        """Count no more on a client that has gone."""
        if client in self.router.clients:
            self.router.clients.remove(client)
        providers = self._shared.providers
        for server_id in [key for key, value in providers.items() if value is client]:
            del providers[server_id]

    # -- opening --------------------------------------------------------------------------

    async def new(
        self, setup: Setup, asker: Asker | None = None, fork_of: str | None = None
    ) -> tuple[Conversation, bytes]:
        """Create a session; return it and the agent's answer under the id that clients are to use.

        With `fork_of`, the agent's id of another one, it is the agent's own fork of that.
        """
        await self.agent.ensure()
        method = schema.NEW_SESSION.name if fork_of is None else FORK_SESSION.name
        source = None if fork_of is None else schema.encode(fork_of)
        params = splice(setup.params_for(self.agent), {"sessionId": source})
        exchange = AgentExchange(self.agent, method, params)
        async with self.router.run_for(asker, exchange) as answer:
            # Inside the block: updates that came right after the answer then find their session.
            try:
                await self.hub.opening.enter()
                agent_session = new_session_id(answer)
                try:
                    conversation = await self._create(agent_session, setup)
                except errors.SessionExistsError:
                    conversation = await self._create(uuid4().hex, setup)
                try:
                    await conversation.session.link(self.agent.key, agent_session)
                    await conversation.session.publish("settings", [settings_in(answer)])
                    conversation.side.on_opened(answer, setup)
                    for early in conversation.side.bind(agent_session):
                        await conversation.hear(early)
                except BaseException:
                    self.hub.ownership.abandon(conversation)
                    raise
            except BaseException:
                # No client gets the session that the agent made: close it, it may have started
                # servers.
                with suppress(errors.RemoteError):
                    made = schema.encode({"sessionId": new_session_id(answer)})
                    closing = close_at(self.agent, "new", made)
                    self.hub.undoing.start(closing, "undo new session")
                raise
        self._signed_in = True
        return conversation, splice(answer, {"sessionId": schema.encode(conversation.id)})

    async def _create(self, session_id: str, setup: Setup) -> Conversation:
        if session_id in self.hub.live:
            raise errors.SessionExistsError(f"session {session_id!r} is already open")
        new = NewSession(
            session_id,
            self.agent.key,
            setup.cwd,
            setup.additional_directories,
            tenant=setup.tenant,
        )
        lease = await self._journal.create(new)
        row = await self._journal.session(session_id)
        conversation = await self.hub.ownership.enter(lease, row, setup, self._shared)
        await conversation.waiting.wake()
        await conversation.waiting.note_terms()
        return conversation

    async def load(
        self, client: Client, session_id: str, setup: Setup
    ) -> tuple[Conversation, Attachment]:
        """Replay a session to `client` and restore the agent's side meanwhile.

        The attachment is held: call `open_to` when the client has its answer. Raises
        UnknownSessionError, InvalidParamsError for another working directory, RemoteError if the
        agent asks the person to sign in, HeldElsewhereError if another process has it live, and
        StoppedError if the session is closed meanwhile because this process ends.
        """
        conversation = await self._open(client, session_id, setup)
        session = conversation.session
        end = session.last_seq
        attachment = session.attachments.attach(client, after=0, live_after=end)
        async with self._restoring(conversation, attachment) as restoring:
            try:
                await session.note_follower(attachment)
                await conversation.questions.report_missed()
                if self._is_own(conversation) and self.agent.has_sign_in and not self._signed_in:
                    await self._wait_for(restoring)
                await attachment.replay(end)
                await self._wait_for(restoring)
                await attachment.replay(session.last_seq)
                session.require_owned()
            except (errors.LeaseLostError, errors.ConnectionLostError) as exc:
                if session.is_lost and attachment.cursor:  # in part: only the client can restart
                    why = f"another acphold process took over session {session_id!r}; load it again"
                    raise errors.ConnectionLostError(why) from exc
                session.require_owned()
                if not attachment.is_fed:
                    await self._journal.session(session_id)  # UnknownSessionError: it was deleted
                    raise errors.StoppedError from exc
                raise
        return conversation, attachment

    async def resume(
        self,
        client: Client,
        session_id: str,
        setup: Setup,
        *,
        after: int | None = None,
        lineage: str | None = None,
    ) -> tuple[Conversation, Attachment]:
        """Restore a session without a replay; otherwise like `load`.

        With `after` the client already has everything up to that position, of this `lineage`. It
        gets the rest after the answer, as it would have live. Raises InvalidParamsError if it
        cannot go on there.
        """
        conversation = await self._open(client, session_id, setup)
        session = conversation.session
        # Updates of the agent during the restoring are new, and come after the answer.
        start = session.last_seq if after is None else after
        attachment = session.attachments.attach(client, start, start, positions=after is not None)
        async with self._restoring(conversation, attachment) as restoring:
            if after is not None:
                await session.require_exact(after, lineage)
            await session.note_follower(attachment)
            await conversation.questions.report_missed()
            await self._wait_for(restoring)
            session.require_owned()
        return conversation, attachment

    @asynccontextmanager
    async def _restoring(
        self, conversation: Conversation, attachment: Attachment
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Have the agent open the session during the block, in a task for `_wait_for`.

        For a client that may not prompt, the agent does nothing. If the block fails, the client
        gets its former attachment back.
        """
        starts = "prompt" in attachment.client.scopes_in(conversation.id)
        opening = self._restore(conversation) if starts else asyncio.sleep(0)
        restoring = asyncio.create_task(opening, name="agent opens session")
        try:
            yield restoring
        except BaseException:
            conversation.put_back(attachment)
            raise
        finally:
            restoring.cancel()

    async def _restore(self, conversation: Conversation) -> None:
        """Have the agent open it, after checking whether it has gone on outside acphold."""
        restoration, session = conversation.restoration, conversation.session
        try:
            known = None if conversation.side.is_open else await restoration.downstream_id()
            if known is not None and session.last_seq:
                is_own = self._is_own(conversation)
                listed = await self.sessions.agents.look_up(known) if is_own else None
                if listed is not None and listed.updated_at is not None:
                    [last] = await session.read(session.last_seq - 1, 1)
                    restoration.went_on = listed.updated_at > last.at + bounds.AHEAD_MS
            await restoration.ready()
            # While the agent works in the session, it is not asked to open it.
            if conversation.side.is_open and self._is_own(conversation):
                self._signed_in = True
        except (errors.HeldOutsideError, errors.FolderElsewhereError) as exc:
            title, how = FOLDER_ELSEWHERE, str(exc)
            if isinstance(exc, errors.HeldOutsideError):
                title, how = HELD_OUTSIDE, HELD_OUTSIDE_HOW.format(conversation.id)
            await conversation.session.publish("update", [notice(title, how, "warning")])
            log.warning("session %s: %s", conversation.id, exc)
        except errors.AcpError as exc:
            # An agent of the library raises in our process: its error is the answer.
            if isinstance(exc, errors.RemoteError) and (
                exc.code == errors.AUTH_REQUIRED or conversation.side.agent.reads_journal
            ):
                raise
            # The history is shown all the same; the next prompt tries again and reports.
            log.warning("session %s: not restored yet: %s", conversation.id, exc)

    async def _wait_for(self, restoring: asyncio.Task[None]) -> None:
        """Wait for the agent to have the session open, but not for ever."""
        await asyncio.wait([restoring], timeout=bounds.LOAD_SECONDS)
        if not restoring.done():
            restoring.cancel()
            log.warning("opening a session that the agent does not have open yet")
        elif not restoring.cancelled():  # an earlier wait may have given up on it
            restoring.result()

    async def _open(self, client: Client | None, session_id: str, setup: Setup) -> Conversation:
        """Return the session, live here: as it is, or opened from the journal, or adopted from the
        agent for a client that may prompt."""
        starts = client is None or "prompt" in client.scopes_in(session_id)
        await self.hub.opening.enter()
        other = self.hub.desk_of(session_id)
        if other is not None and other.is_closing and other is not self:
            await other.closed.wait()  # its agent would soon be gone
        await self._journal.complete(session_id)
        if session_id not in self.hub.adopting:
            async with self.hub.alone(session_id):
                if session_id in self.hub.live or await self._adoption.is_known(session_id):
                    return await self._wake(client, session_id, setup, starts=starts)
            if not starts:
                raise errors.UnknownSessionError(session_id)
        is_set_up = await self._adoption.once(session_id, setup)
        async with self.hub.alone(session_id):
            # Others may want another setup than the first client, and be here before it.
            is_set_up = is_set_up and session_id in self.hub.live
            return await self._wake(client, session_id, setup, starts=not is_set_up)

    async def keep(self, session_id: str) -> None:
        """Have a session in the journal, adopting it if only the agent has it;
        UnknownSessionError."""
        if await self._adoption.is_known(session_id):
            return
        listed = await self.sessions.agents.look_up(session_id)
        if listed is None:
            raise errors.UnknownSessionError(session_id)
        cwd = listed.info.cwd
        params = schema.encode({"sessionId": session_id, "cwd": cwd, "mcpServers": []})
        await self._open(None, session_id, Setup(cwd, (), params))
        await self.hub.close(session_id)

    async def folders(self, session_id: str) -> tuple[str, tuple[str, ...]]:
        """Return the folder and the additional folders of a session, in the journal or only the
        agent's; UnknownSessionError."""
        try:
            row = await self._journal.session(session_id)
        except errors.UnknownSessionError:
            if (listed := await self.sessions.agents.look_up(session_id)) is None:
                raise
            return listed.info.cwd, ()
        return row.cwd, row.additional_directories

    async def _wake(
        self, client: Client | None, session_id: str, setup: Setup, *, starts: bool
    ) -> Conversation:
        """Make a session of the journal live and owned; close in it what a crash left open.

        Its queued prompts begin once a client that `starts` the agent has it open.
        """
        conversation = self.hub.live.get(session_id)
        if conversation is not None:
            await self.hub.ownership.confirm(conversation)
            conversation = self.hub.live.get(session_id)
        if conversation is None and self.only_joins:
            raise errors.HeldElsewhereError(session_id, "no process, so none can be joined")
        moves = False
        if conversation is None or (starts and self._find_awake(session_id, client) is None):
            row = await self._journal.session(session_id)
            is_same = is_same_folder(row.cwd, setup.cwd)
            if not is_same and not await self._adoption.may_correct_folder(session_id):
                check_folder(row.cwd, setup.cwd)
            if setup.stays and row.agent != self.agent.key:
                # If it is live elsewhere, its own agent may be at work: the client then joins it
                # there.
                refuse_held(session_id, await self._journal.owner(session_id))
                raise errors.OtherAgentError(session_id, short_name(row.agent))
            moves = setup.moves or row.agent == self.agent.key
        else:
            check_folder(conversation.session.row.cwd, setup.cwd)
        if conversation is None:
            conversation = await self.hub.ownership.take(row, setup, self._shared)
        else:
            stays = self._find_awake(session_id, client) is not None
            if moves and not stays and not self._is_own(conversation):
                # It has only been read at another desk, that one is left, or on other terms.
                await self._take_over(conversation, setup)
            try:
                await conversation.turns.record_failure()
            except errors.AcpError as exc:  # the next prompt tries again and reports it
                log.warning("session %s: %s", conversation.id, exc)
            if starts and not setup.joins:
                conversation.side.open_with(setup)
            if starts and client is not None and self.agent.key in client.terms:
                is_here = self._is_own(conversation)
                again = None if is_here else partial(self._take_at_rest, client, session_id, setup)
                conversation.when_at_rest = again
        if not setup.joins:
            await conversation.session.row.open_in(setup.cwd, setup.additional_directories)
        if starts:
            await conversation.waiting.wake()
            # What the session stood on says nothing about another agent, which it comes to.
            is_moved = moves and row.agent != self.agent.key and self._is_own(conversation)
            await conversation.waiting.note_terms(anew=is_moved)
        return conversation

    def _take_at_rest(self, client: Client, session_id: str, setup: Setup) -> None:
        """Have a session come here that was busy when a client with other terms opened it, if
        nothing runs in it now, and the client still has it open."""

        async def take() -> None:
            async with self.hub.alone(session_id):
                live = self.hub.live.get(session_id)
                if live is None or self.is_closing or not takes_over(live, self, client):
                    return
                if any(it.client is client for it in live.session.attachments):
                    try:
                        await self._wake(client, session_id, setup, starts=True)
                    except errors.AcpError as exc:  # a prompt of the client is refused
                        log.warning("session %s stays where it is: %s", session_id, exc)

        self._taking.start(take(), "take a session at rest")

    # -- closing --------------------------------------------------------------------------

    async def delete(self, session_id: str, client: Client | None = None) -> None:
        """Delete a session for good, here and, if possible, at the agent.

        Its clients other than `client` are told.
        """
        if session_id in self.hub.adopting:
            await self.hub.close(session_id)  # then only the agent has it
        conversation = self.hub.live.get(session_id)
        agent = self.agent if conversation is None else conversation.side.agent
        try:
            known: str | None = (await self._journal.session(session_id)).downstream_id
            known = known or session_id
            # The agent may have given the id to another session since, or never had this one.
            if await session_of(self._journal, agent.key, known) != session_id:
                known = None
        except errors.UnknownSessionError:  # it may be the agent's own, unless that is one of ours
            is_ours = await session_of(self._journal, agent.key, session_id) is not None
            known = None if is_ours else session_id
        if conversation is not None:
            if conversation.side.is_open:
                known = conversation.side.id
            conversation.session.attachments.tell_deleted(client)
            await self.hub.close(session_id)
        await self._journal.delete(session_id, *await tails_of(self._journal, session_id))
        self._shared.files.tidy()
        if known is None:
            return
        await self._journal.links.link(None, agent.key, known)
        if agent.capabilities.session_capabilities.delete is None:
            return
        try:
            params = schema.encode({"sessionId": known})
            await ask(agent, schema.DELETE_SESSION.name, params, bounds.AGENT_CLOSE_SECONDS)
        except errors.AcpError as exc:
            log.info("session %s: the agent did not delete it: %s", session_id, exc)
