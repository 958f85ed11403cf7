"""The live sessions of one agent: opened for clients, found again, closed, deleted.

A process has one hub, with one agent. A session is live from when the first client opens it here
until it is closed, or another process takes it over (`hub.ownership`).

A client that loads a session sees its history in any case. If the agent is late, or cannot open the
session, the next prompt waits or tries again, and reports the problem. Only if the agent asks a
person to sign in first, nothing is shown before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from uuid import uuid4
from weakref import WeakValueDictionary

from acp_wire import schema
from acp_wire.rpc.eager_tasks import EagerTasks, Turnstile
from acp_wire.schema.splice import splice
from acp_wire.tasks import END_SECONDS, TaskSet, beside, end, finish
from acphold import errors
from acphold.live.agents import AgentExchange, HubAgent, ListenerToMany, ask
from acphold.live.agents.capabilities import answer_without_agent
from acphold.live.hub import bounds
from acphold.live.hub.adoption import Adoption
from acphold.live.hub.agent_session import Setup, new_session_id
from acphold.live.hub.alerts import NO_ALERTS, Activity, Alerts
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.choices import settings_in
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.ownership import Ownership, Whereabouts
from acphold.live.hub.router import Asker, Router
from acphold.live.hub.routes import Routes
from acphold.live.hub.session import CommonRelease
from acphold.live.hub.session_list import ListedSessions, SessionList, check_folder
from acphold.live.hub.turn_files import FileKeeper
from acphold.live.hub.turns import SharedParts
from acphold.record.journal import Journal, NewSession, session_of
from acphold.record.journal.lineage import identity
from acphold.record.journal.location import is_same_folder
from acphold.serve_options import ServeOptions

log = logging.getLogger(__name__)

ENDED = "acphold has stopped"
ENDED_HOW = (
    "The process that ran this session was stopped, or its editor was closed. The conversation is "
    "saved; load the session again to continue."
)

HELD_OUTSIDE = "The agent has this conversation open in another process"
HELD_OUTSIDE_HOW = (
    "You can read what acphold has of it. To continue, close it there first, or continue a copy: "
    "acphold fork"
)

FOLDER_ELSEWHERE = "The folder of this session is on another machine"


class Hub:
    """See the module. Use it as `async with hub.open():`; leaving ends the agent and all turns."""

    def __init__(
        self,
        journal: Journal,
        make_agent: Callable[[ListenerToMany], HubAgent],
        options: ServeOptions,
        *,
        alerts: Alerts = NO_ALERTS,
        activity: Activity | None = None,
    ) -> None:
        self._live: dict[str, Conversation] = {}
        self._routes = Routes()
        self._tasks = EagerTasks()
        self.router = Router(self._routes, self._live, journal, self._tasks)
        self.agent = self._routes.agent = make_agent(self.router)
        self.sessions = SessionList(journal, self.agent, all_agents=options.all_agents)
        self._journal = journal
        self.whereabouts = Whereabouts(journal)
        self._shared = SharedParts(
            self.agent,
            journal,
            self._routes,
            CommonRelease(journal, self._tasks),
            self._tasks,
            options,
            FileKeeper(journal, options.snapshots),
            alerts,
            activity or Activity(),
        )
        self._ownership = Ownership(self._live, journal, self._shared)
        self._adoption = Adoption(journal, self.agent, self.sessions, self._ownership)
        self.listed = ListedSessions(journal, self)
        self._undoing = TaskSet()
        self._closing = TaskSet()
        self._waking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.opening = Turnstile(bounds.OPENED_AT_ONCE)
        """Paces new clients and sessions that are opened."""
        self._ends = False
        self._introduced: bytes | None = None
        self._introducing = asyncio.Lock()
        self.start_failed = asyncio.Event()
        """Set once the agent could not be started for a client, and never ran before."""
        self._signed_in = False  # the agent has let a session be used since it started

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the leases of live sessions for the block; end everything after it."""
        try:
            async with beside(self._ownership.keep(), "renew leases"):
                yield
        finally:
            await finish(self._close)

    async def _close(self) -> None:
        try:
            await self._journal.renew(retiring=True)
        except errors.JournalError as exc:  # others wait until we have ended
            log.info("cannot announce that this process is ending: %s", exc)
        await end(*self._adoption.under_way.values())
        await self._closing.aclose(END_SECONDS)
        # The agent ends right after its turns: it must not run on meanwhile.
        await self.end_turns()
        conversations = tuple(self._live.values())
        for conversation in conversations:
            # A restoring that starts the agent would hold up the agent's end until it has
            # started.
            conversation.restoration.stop()
        await self.agent.aclose()
        results = await asyncio.gather(
            *(conversation.aclose() for conversation in conversations), return_exceptions=True
        )
        for conversation, result in zip(conversations, results, strict=True):
            if isinstance(result, Exception):
                log.error("session %s: closing it failed", conversation.id, exc_info=result)
        await self._shared.files.aclose()
        await self._shared.release.aclose()
        await self._ownership.aclose()
        self._tasks.close()
        await self._undoing.aclose(bounds.AGENT_CLOSE_SECONDS)

    async def end_turns(self) -> None:
        """Cancel all turns and tell clients that this process ends.

        Call it while their connections are open. Lines are told nothing: they look for the next
        owner themselves. No turn begins any more.
        """
        conversations = tuple(self._live.values())
        for conversation in conversations:
            if self._shared.options.keep_prompts:
                for attachment in conversation.session.attachments:
                    conversation.waiting.keep(attachment.client)
            conversation.waiting.process_ends()
        await asyncio.gather(
            *(conversation.turns.aclose(with_process=True) for conversation in conversations),
            return_exceptions=True,
        )
        if not self._ends:
            self._ends = True
            for conversation in conversations:
                conversation.session.attachments.tell_last(
                    notice(ENDED, ENDED_HOW, "warning"), lambda client: client.offer.is_line
                )

    async def initialize(self, params: bytes, *, starts: bool = True, anew: bool = False) -> bytes:
        """Introduce a client to the agent; only the first client that `starts` it does so. Raises
        the agent's errors.

        `anew` means that the client introduced itself differently before: the agent is told again,
        if this client is the only one and has opened nothing. Before the agent is started, others
        are answered for it.
        """
        async with self._introducing:
            if self._introduced is None and not starts:
                return answer_without_agent()
            is_alone = not self._live and len(self.router.clients) <= 1
            if self._introduced is None or (anew and is_alone):
                try:
                    self._introduced = await self.agent.initialize(params)
                except errors.AcpError:
                    if self._introduced is None:
                        self.start_failed.set()
                    raise
                self._shared.offered = schema.decode(
                    schema.InitializeRequest, params
                ).value.client_capabilities
            return self._introduced

    async def kept_in(self) -> str | None:
        """Return the identity of the journal; None if it has none."""
        return await identity(self._journal)

    # -- finding --------------------------------------------------------------------------

    def held(self, session_id: str) -> Conversation:
        """Return a live session; UnknownSessionError if it is not open here."""
        conversation = self._live.get(session_id)
        if conversation is None and session_id in self._ownership.deleted:
            raise errors.UnknownSessionError(session_id, f"session {session_id!r} was deleted")
        if conversation is None or session_id in self._adoption.under_way:
            raise errors.UnknownSessionError(
                session_id,
                f"session {session_id!r} is not open; call session/load or session/resume first",
            )
        return conversation

    def was_deleted(self, session_id: str) -> None:
        """Remember that a session open elsewhere was deleted: requests for it will say so."""
        self._ownership.deleted.add(session_id)

    def holds(self, session_id: str) -> bool:
        """Return True if a session is live and fully adopted."""
        return session_id in self._live and session_id not in self._adoption.under_way

    def is_asleep(self, session_id: str) -> bool:
        """Return True if a session is live only for clients that may not prompt."""
        return self.holds(session_id) and not self._live[session_id].waiting.is_awake

    async def look_at(self, session_id: str) -> None:
        """Look at the row of a session again: it may have changed, or be gone. Raises
        JournalError."""
        conversation = self._live.get(session_id)
        if conversation is not None:
            conversation.session.row.changed_elsewhere()
            with suppress(errors.LeaseLostError):  # then it leaves, and its clients are told
                await conversation.session.verify()
                await conversation.title.look()

    def detach(self, client: Client) -> None:
        """Detach a client that has gone from every session."""
        for conversation in tuple(self._live.values()):
            for attachment in conversation.session.attachments:
                if attachment.client is client:
                    in_turn = conversation.turns.running is not None
                    if self._shared.options.keep_prompts:
                        conversation.waiting.keep(client)
                    if attachment.positions:
                        conversation.session.rest.leave_bookmark(in_turn=in_turn)
                    conversation.detach(attachment)

    def sign_in_changed(self) -> None:
        """Have sessions opened again before they are used: somebody signed in or out."""
        self._signed_in = False
        for conversation in self._live.values():
            conversation.side.distrust()

    async def signed_in_outside(self) -> None:
        """Restart the agent so that it notices a sign-in with its own program, unless it is at
        work.

        Raises AgentError.
        """
        self.sign_in_changed()
        if not self.is_busy:
            await self.agent.restart()

    @property
    def held_ids(self) -> frozenset[str]:
        """The ids of the sessions that a client has open here."""
        return frozenset(key for key, item in self._live.items() if item.session.attachments)

    @property
    def is_busy(self) -> bool:
        """True while a turn runs, the agent waits for an answer, or a prompt waits for its
        time."""
        return any(
            conversation.turns.running is not None
            or conversation.questions.are_open
            or (conversation.waiting.is_awake and conversation.session.queue.wakes_at is not None)
            for conversation in self._live.values()
        )

    @property
    def conversations(self) -> Collection[Conversation]:
        """All sessions that are live here."""
        return self._live.values()

    # -- opening --------------------------------------------------------------------------

    async def new(self, setup: Setup, asker: Asker | None = None) -> tuple[Conversation, bytes]:
        """Create a session; return it and the agent's answer under the id that clients are to
        use."""
        await self.agent.ensure()
        params = splice(setup.told(self.agent), {"sessionId": None})
        exchange = AgentExchange(self.agent, schema.NEW_SESSION.name, params)
        async with self.router.asked_by(asker, exchange) as answer:
            # Inside the block: updates that came right after the answer then find their session.
            try:
                await self.opening.enter()
                agent_session = new_session_id(answer)
                try:
                    conversation = await self._create(agent_session, setup)
                except errors.SessionExistsError:
                    conversation = await self._create(uuid4().hex, setup)
                try:
                    await conversation.session.link(self.agent.key, agent_session)
                    await conversation.session.publish("settings", [settings_in(answer)])
                    conversation.side.opened(answer, setup)
                    for early in conversation.side.bind(agent_session):
                        await conversation.hear(early)
                except BaseException:
                    self._ownership.abandon(conversation)
                    raise
            except BaseException:
                # No client gets the session that the agent made: close it, it may have started
                # servers.
                with suppress(errors.RemoteError):
                    made = schema.encode({"sessionId": new_session_id(answer)})
                    closing = self._close_at_agent("new", made)
                    self._undoing.start(closing, "undo new session")
                raise
        self._signed_in = True
        return conversation, splice(answer, {"sessionId": schema.encode(conversation.id)})

    async def _create(self, session_id: str, setup: Setup) -> Conversation:
        if session_id in self._live:
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
        conversation = await self._ownership.enter(lease, row, setup)
        await conversation.waiting.wake()
        return conversation

    async def load(
        self, client: Client, session_id: str, setup: Setup, over: int | None = None
    ) -> tuple[Conversation, Attachment]:
        """Replay a session to `client` and restore the agent's side meanwhile.

        The attachment is held: call `open_to` when the client has its answer. Raises
        UnknownSessionError, InvalidParamsError for another working directory, RemoteError if the
        agent asks the person to sign in, and HeldElsewhereError if another process that may be
        reachable has it live, unless `over` is the epoch of that process's lease.
        """
        conversation = await self._opened(client, session_id, setup, over)
        session = conversation.session
        end = session.last_seq
        attachment = session.attachments.attach(client, after=0, live_after=end)
        async with self._restoring(conversation, attachment) as restoring:
            try:
                await session.note_follower(attachment)
                await conversation.questions.report_missed()
                if self.agent.has_sign_in and not self._signed_in:
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
                raise
        return conversation, attachment

    async def resume(
        self,
        client: Client,
        session_id: str,
        setup: Setup,
        over: int | None = None,
        *,
        after: int | None = None,
        lineage: str | None = None,
    ) -> tuple[Conversation, Attachment]:
        """Restore a session without a replay; otherwise like `load`.

        With `after` the client already has everything up to that position, of this `lineage`. It
        gets the rest after the answer, as it would have live. Raises InvalidParamsError if it
        cannot go on there.
        """
        conversation = await self._opened(client, session_id, setup, over)
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
        opening = self._restored(conversation) if starts else asyncio.sleep(0)
        restoring = asyncio.create_task(opening, name="agent opens session")
        try:
            yield restoring
        except BaseException:
            conversation.put_back(attachment)
            raise
        finally:
            restoring.cancel()

    async def _restored(self, conversation: Conversation) -> None:
        """Have the agent open it, after checking whether it has gone on outside acphold."""
        restoration, session = conversation.restoration, conversation.session
        try:
            known = None if conversation.side.is_open else await restoration.known_as()
            if known is not None and session.last_seq:
                listed = await self.sessions.look_up(known)
                if listed is not None and listed.updated_at is not None:
                    [last] = await session.read(session.last_seq - 1, 1)
                    restoration.went_on = listed.updated_at > last.at + bounds.AHEAD_MS
            await restoration.ready()
            # While the agent works in the session, it is not asked to open it.
            self._signed_in = self._signed_in or conversation.side.is_open
        except errors.RemoteError as exc:
            # An agent of the library raises in our process: its error is the answer.
            if exc.code == errors.AUTH_REQUIRED or self.agent.reads_journal:
                raise
            log.warning("session %s: not restored yet: %s", conversation.id, exc)
        except errors.HeldOutsideError as exc:
            update = notice(HELD_OUTSIDE, f"{HELD_OUTSIDE_HOW} {conversation.id}", "warning")
            await conversation.session.publish("update", [update])
            log.warning("session %s: %s", conversation.id, exc)
        except errors.FolderElsewhereError as exc:
            update = notice(FOLDER_ELSEWHERE, str(exc), "warning")
            await conversation.session.publish("update", [update])
            log.warning("session %s: %s", conversation.id, exc)
        except errors.AcpError as exc:
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

    async def _opened(
        self, client: Client | None, session_id: str, setup: Setup, over: int | None
    ) -> Conversation:
        """Return the session, live here: as it is, or opened from the journal, or adopted from the
        agent for a client that may prompt."""
        starts = client is None or "prompt" in client.scopes_in(session_id)
        await self.opening.enter()
        await self._journal.complete(session_id)
        if session_id not in self._adoption.under_way:
            async with self._alone(session_id):
                if session_id in self._live or await self._adoption.is_known(session_id):
                    return await self._wake(session_id, setup, over, starts=starts)
            if not starts:
                raise errors.UnknownSessionError(session_id)
        await self._adoption.once(session_id, setup)
        async with self._alone(session_id):
            # It was adopted with the setup of the first client; others may want another one.
            return await self._wake(session_id, setup, over, starts=starts)

    def _alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock for making this session live here or closing it; closing may take
        seconds."""
        return self._waking.setdefault(session_id, asyncio.Lock())

    async def keep(self, session_id: str) -> None:
        """Have a session in the journal, adopting it if only the agent has it;
        UnknownSessionError."""
        if await self._adoption.is_known(session_id):
            return
        listed = await self.sessions.look_up(session_id)
        if listed is None:
            raise errors.UnknownSessionError(session_id)
        cwd = listed.info.cwd
        params = schema.encode({"sessionId": session_id, "cwd": cwd, "mcpServers": []})
        await self._opened(None, session_id, Setup(cwd, (), params), None)
        await self.close(session_id)

    async def folders(self, session_id: str) -> tuple[str, tuple[str, ...]]:
        """Return the folder and the additional folders of a session, in the journal or only the
        agent's; UnknownSessionError."""
        try:
            row = await self._journal.session(session_id)
        except errors.UnknownSessionError:
            if (listed := await self.sessions.look_up(session_id)) is None:
                raise
            return listed.info.cwd, ()
        return row.cwd, row.additional_directories

    async def _wake(
        self, session_id: str, setup: Setup, over: int | None, *, starts: bool
    ) -> Conversation:
        """Make a session of the journal live and owned; close in it what a crash left open.

        Its queued prompts begin once a client that `starts` the agent has it open.
        """
        conversation = self._live.get(session_id)
        if conversation is not None:
            await self._ownership.confirm(conversation)
            conversation = self._live.get(session_id)
        if conversation is None:
            row = await self._journal.session(session_id)
            is_same = is_same_folder(row.cwd, setup.cwd)
            if not is_same and not await self._adoption.may_correct_folder(session_id):
                check_folder(row.cwd, setup.cwd)
            if setup.stays and row.agent != self.agent.key:
                # If it is live elsewhere, its own agent may be at work: the client then joins it
                # there.
                await self._ownership.require_free(session_id, over)
                raise errors.OtherAgentError(session_id, row.agent)
            conversation = await self._ownership.take(row, setup, over)
        else:
            check_folder(conversation.session.row.cwd, setup.cwd)
            try:
                await conversation.turns.record_failure()
            except errors.AcpError as exc:  # the next prompt tries again and reports it
                log.warning("session %s: %s", conversation.id, exc)
            if starts and not setup.joins:
                conversation.side.open_with(setup)
        if not setup.joins:
            await conversation.session.row.open_in(setup.cwd, setup.additional_directories)
        if starts:
            await conversation.waiting.wake()
        return conversation

    # -- closing --------------------------------------------------------------------------

    async def close(self, session_id: str, client: Client | None = None) -> None:
        """Cancel its turn, free it here and at the agent; it can be loaded again.

        If clients other than `client` have it open, only `client` leaves, with its own turns.
        """
        if (adopting := self._adoption.under_way.get(session_id)) is not None:
            await end(adopting)
            return
        conversation = self._live.get(session_id)
        if conversation is None:
            await self._journal.session(session_id)  # UnknownSessionError when there is none
            return
        here = [attachment.client for attachment in conversation.session.attachments]
        if client is not None and any(other is not client for other in here):
            await conversation.close_for(client)
            return
        side = conversation.side
        at_agent = side.under_its_id(b"{}") if side.is_open else None
        if self.agent.reads_journal:
            # The last words of an agent of ours are part of the session; those of a program are
            # dropped.
            await conversation.turns.aclose()
            await self._close_at_agent(session_id, at_agent)
            await self._close_live(conversation)
        else:
            await self._close_live(conversation)
            await self._close_at_agent(session_id, at_agent)

    async def _close_at_agent(self, session_id: str, params: bytes | None) -> None:
        if params is None or self.agent.capabilities.session_capabilities.close is None:
            return
        try:
            await ask(self.agent, schema.CLOSE_SESSION.name, params, bounds.AGENT_CLOSE_SECONDS)
        except errors.AcpError as exc:
            log.warning("session %s: the agent did not close it: %s", session_id, exc)

    async def _close_live(self, conversation: Conversation) -> None:
        """Close it to the end, even if the request for that is cancelled."""

        async def close() -> None:
            # Requests no longer find it; a load waits until it is closed.
            async with self._alone(conversation.id):
                if self._live.get(conversation.id) is conversation:
                    del self._live[conversation.id]
                    self._shared.activity.stir()
                    await conversation.aclose()

        # Begin at once: a load right after this call has to wait for it.
        closing = self._tasks.begin(close(), "close session")
        if closing is not None:
            self._closing.add(closing)
            await asyncio.shield(closing)

    async def delete(self, session_id: str, client: Client | None = None) -> None:
        """Delete a session for good, here and, if possible, at the agent.

        Its clients other than `client` are told.
        """
        if session_id in self._adoption.under_way:
            await self.close(session_id)  # then only the agent has it
        conversation = self._live.get(session_id)
        known = await self._known_at_agent(session_id)
        if conversation is not None:
            if conversation.side.is_open:
                known = conversation.side.id
            conversation.session.attachments.tell_deleted(client)
            await self.close(session_id)
        await self._journal.delete(session_id)
        self._shared.files.tidy()
        if known is None:
            return
        await self._journal.links.link(None, self.agent.key, known)
        if self.agent.capabilities.session_capabilities.delete is None:
            return
        try:
            params = schema.encode({"sessionId": known})
            await ask(self.agent, schema.DELETE_SESSION.name, params, bounds.AGENT_CLOSE_SECONDS)
        except errors.AcpError as exc:
            log.info("session %s: the agent did not delete it: %s", session_id, exc)

    async def _known_at_agent(self, session_id: str) -> str | None:
        """Return the agent's id of a session, ours or its own; None if it has no such session."""
        try:
            known = (await self._journal.session(session_id)).downstream_id or session_id
        except errors.UnknownSessionError:
            is_ours = await session_of(self._journal, self.agent.key, session_id) is not None
            return None if is_ours else session_id
        # The agent may have given the id to another session since, or never had this one.
        owner = await session_of(self._journal, self.agent.key, known)
        return known if owner == session_id else None
