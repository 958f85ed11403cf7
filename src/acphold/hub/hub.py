"""The live sessions of one agent: opened, found again, adopted, closed, deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from acphold.agents import Agent, Listener
from acphold.errors import (
    AUTH_REQUIRED,
    AcpholdError,
    JournalError,
    LeaseLostError,
    RemoteError,
    SessionExistsError,
    UnknownSessionError,
)
from acphold.hub.attachment import Attachment, Client
from acphold.hub.backing import new_session_id
from acphold.hub.listing import Listing, milliseconds
from acphold.hub.marks import first_words
from acphold.hub.opening import Setup, check_folder, mend, settings_of
from acphold.hub.relay import Relay
from acphold.hub.routes import Routes
from acphold.hub.session import Session
from acphold.hub.turns import CANCEL_GRACE
from acphold.journal import LEASE_SECONDS, Journal, Lease, NewSession
from acphold.rpc.peer import Answer
from acphold.schema import (
    CLOSE_SESSION,
    DELETE_SESSION,
    LOAD_SESSION,
    NEW_SESSION,
    RESUME_SESSION,
    encode,
)
from acphold.schema.splice import splice

log = logging.getLogger(__name__)


CLOSE_TIMEOUT = 10.0
"""Seconds an agent has to answer `session/close`; the session is closed here all the same."""


class Hub:
    """See the module. Use it as `async with hub.open():`; leaving ends the agent and all turns."""

    def __init__(
        self,
        journal: Journal,
        make_agent: Callable[[Listener], Agent],
        owner: str,
        *,
        cancel_grace: float = CANCEL_GRACE,
    ) -> None:
        self.clients: list[Client] = []
        self.routes = Routes(lambda: self.agent.generation)
        self.providers: dict[str, Client] = {}  # of MCP servers over ACP, by `serverId`
        self.agent = make_agent(Relay(self.routes, self.clients, self.providers))
        self.listing = Listing(journal, self.agent)
        self._journal = journal
        self._owner = owner
        self._cancel_grace = cancel_grace
        self._live: dict[str, Session] = {}
        self._waking = asyncio.Lock()
        self._introduced: bytes | None = None
        self._introducing = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the leases of live sessions for the block; end everything after it."""
        renewing = asyncio.create_task(self._renew(), name="renew leases")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            await self._aclose()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for session in tuple(self._live.values()):
                try:
                    await session.renew()
                except LeaseLostError as exc:
                    await session.turns.fail(exc)
                except AcpholdError:
                    log.warning("the lease of session %s was not renewed", session.id)

    async def _aclose(self) -> None:
        sessions = tuple(self._live.values())
        # The agent ends right behind its turns: it is not to run on while we put things in order.
        await asyncio.gather(
            *(session.turns.aclose() for session in sessions), return_exceptions=True
        )
        await self.agent.aclose()
        results = await asyncio.gather(
            *(session.aclose() for session in sessions), return_exceptions=True
        )
        for session, result in zip(sessions, results, strict=True):
            if isinstance(result, Exception):
                log.error("session %s was not closed well", session.id, exc_info=result)

    async def initialize(self, params: bytes) -> bytes:
        """Introduce a client to the agent; only the first one starts it. Raises as the agent's."""
        async with self._introducing:
            if self._introduced is None:
                self._introduced = await self.agent.initialize(params)
            return self._introduced

    # -- finding --------------------------------------------------------------------------

    def held(self, session_id: str) -> Session:
        """A live session; UnknownSessionError when it is not open here."""
        try:
            return self._live[session_id]
        except KeyError:
            raise UnknownSessionError(
                session_id,
                f"session {session_id!r} is not open; call session/load or session/resume first",
            ) from None

    async def detach(self, client: Client) -> None:
        """Take a client that has gone off every session."""
        for session in tuple(self._live.values()):
            await session.detach(client)

    async def ready(self, session_id: str | None) -> None:
        """Have the agent run, with this session open there if it is open here."""
        session = self._live.get(session_id or "")
        await (self.agent.ensure() if session is None else session.backing.ready())

    async def agent_session(self, session_id: str) -> str | None:
        """The agent's id of one of our sessions; None when it has none."""
        session = self._live.get(session_id)
        if session is not None and session.backing.is_ready:
            return session.backing.agent_session
        known = await self._journal.downstream(session_id)
        if known and await self._journal.session_of(self.agent.key, known) == session_id:
            return known
        return None

    @property
    def held_ids(self) -> frozenset[str]:
        """The ids of the sessions that a client has open here."""
        return frozenset(key for key, session in self._live.items() if session.attachments)

    # -- opening --------------------------------------------------------------------------

    async def new(self, setup: Setup) -> tuple[Session, bytes]:
        """A new session, and the agent's answer under the id that clients are to use."""
        made: list[Session] = []

        async def answered(answer: Answer) -> None:
            if isinstance(answer, bytes):
                # In the inbound lane: an update that came behind the answer finds its session.
                made.append(await self._made(setup, answer))

        await self.agent.ensure()
        params = splice(setup.params, {"sessionId": None})
        result = await self.agent.ask(NEW_SESSION.name, params, answered)
        return made[0], splice(result, {"sessionId": encode(made[0].id)})

    async def _made(self, setup: Setup, answer: bytes) -> Session:
        agent_session = new_session_id(answer)
        try:
            session = await self._create(agent_session, setup)
        except SessionExistsError:
            session = await self._create(uuid4().hex, setup)
        await session.link(self.agent.key, agent_session)
        await session.publish("settings", [settings_of(answer)])
        await session.backing.opened(agent_session, answer)
        return session

    async def _create(self, session_id: str, setup: Setup) -> Session:
        if session_id in self._live:
            raise SessionExistsError(f"session {session_id!r} is open already")
        new = NewSession(session_id, self.agent.key, setup.cwd, setup.additional_directories)
        lease = await self._journal.create(new, self._owner)
        return await self._enter(lease, setup)

    async def load(self, client: Client, session_id: str, setup: Setup) -> Attachment:
        """Replay a session to `client` and restore the agent's side meanwhile.

        Returns when everything has been sent that was there when it was called. Raises
        UnknownSessionError, InvalidParamsError for another working directory, and RemoteError
        when the agent wants the person to sign in.
        """
        if not await self._knows(session_id):
            return await self._adopt(client, session_id, setup, replay=True)
        session = await self._wake(session_id, setup)
        end = session.last_seq
        restoring = asyncio.create_task(self._restore(session), name="restore")
        attachment = await session.attach(client, after=0)
        try:
            await attachment.reached(end)
            await restoring
        except BaseException:
            await session.drop(attachment)
            raise
        finally:
            restoring.cancel()
        return attachment

    async def resume(self, client: Client, session_id: str, setup: Setup) -> Attachment:
        """Restore a session without a replay; the attachment is not live yet."""
        if not await self._knows(session_id):
            return await self._adopt(client, session_id, setup, replay=False)
        session = await self._wake(session_id, setup)
        # What the agent tells while it is restored is new, and comes behind the answer.
        attachment = await session.attach(client, after=session.last_seq, live=False)
        try:
            await self._restore(session)
        except BaseException:
            await session.drop(attachment)
            raise
        return attachment

    async def _knows(self, session_id: str) -> bool:
        """Whether the journal has this session whole; a half-adopted one is adopted anew."""
        if session_id in self._live:
            return True
        try:
            row = await self._journal.session(session_id)
        except UnknownSessionError:
            return False
        # An adopted session has its "settings" entry last, any other has it first.
        first = await self._journal.read(session_id, 0, 1)
        if row.prompted or (first and first[0].kind == "settings"):
            return True
        await self._journal.delete(session_id)
        return False

    async def _wake(self, session_id: str, setup: Setup) -> Session:
        """A session of the journal, live; what a crash left open in it is closed."""
        async with self._waking:
            session = self._live.get(session_id)
            if session is None:
                row = await self._journal.session(session_id)
                check_folder(row.cwd, setup.cwd)
                lease = await self._journal.acquire(session_id, self._owner)
                session = await self._enter(lease, setup)
            else:
                check_folder(session.cwd, setup.cwd)
                with suppress(JournalError):  # then the next prompt tries again, and tells
                    await session.turns.mend()
            session.backing.setup = setup.params
            return session

    async def _enter(self, lease: Lease, setup: Setup) -> Session:
        row = await self._journal.session(lease.session_id)
        summary = await self._journal.summary(lease.session_id)
        session = Session(
            self._journal,
            lease,
            row,
            summary.standing,
            self.agent,
            self.routes,
            cancel_grace=self._cancel_grace,
        )
        session.backing.setup = setup.params
        session.backing.cut_off = summary.turn != "idle"
        if summary.turn == "running":
            await mend(session)
        self._live[session.id] = session
        return session

    async def _restore(self, session: Session) -> None:
        try:
            await session.backing.ready()
        except RemoteError as exc:
            if exc.code == AUTH_REQUIRED:
                raise
            log.warning("session %s: not restored yet: %s", session.id, exc)
        except AcpholdError as exc:
            # The history is there all the same; the next prompt tries again and tells.
            log.warning("session %s: not restored yet: %s", session.id, exc)

    # -- adopting -------------------------------------------------------------------------

    async def _adopt(
        self, client: Client, session_id: str, setup: Setup, *, replay: bool
    ) -> Attachment:
        """A session that only the agent knows: its replay is delivered and journalled."""
        can = self.agent.capabilities
        method = LOAD_SESSION if can.load_session else RESUME_SESSION
        if not can.load_session and can.session_capabilities.resume is None:
            raise UnknownSessionError(session_id)
        if await self._journal.is_forgotten(self.agent.key, session_id):
            raise UnknownSessionError(session_id, f"session {session_id!r} was deleted")
        if await self._journal.session_of(self.agent.key, session_id) is not None:
            raise UnknownSessionError(session_id)  # that is one of ours, under another id
        if (listed := self.listing.agents_own(session_id)) is not None:
            check_folder(listed.cwd, setup.cwd)
        session = await self._create(session_id, setup)
        try:
            if replay:
                await session.attach(client, after=0)
            await self._adopted(session, await session.backing.adopt(method.name, session_id))
            if not replay:
                return await session.attach(client, after=session.last_seq, live=False)
            attachment = session.attachment_of(client)
            await attachment.reached(session.last_seq)
        except BaseException as exc:
            await self._leave(session)
            await self._journal.delete(session_id)
            if isinstance(exc, RemoteError) and exc.code != AUTH_REQUIRED:
                raise UnknownSessionError(
                    session_id, f"no session {session_id!r} here, nor at the agent: {exc}"
                ) from exc
            raise
        return attachment

    async def _adopted(self, session: Session, result: bytes) -> None:
        await session.publish("settings", [settings_of(result)])
        found = self.listing.agents_own(session.id)
        title = None if found is None else found.title
        if title is None:
            title = first_words(await session.state(through=session.last_seq))
        if title is not None and session.settings.title is None:
            await self._journal.set_title(session.id, title)
        session.untitled = False
        await session.prompted(None if found is None else milliseconds(found.updated_at))
        await session.link(self.agent.key, session.id)
        session.rest()

    # -- closing --------------------------------------------------------------------------

    async def close(self, session_id: str) -> None:
        """Cancel its turn, free it here and at the agent; it can be loaded again."""
        session = self._live.get(session_id)
        if session is None:
            await self._journal.session(session_id)  # UnknownSessionError when there is none
            return
        agent_session = session.backing.agent_session if session.backing.is_ready else None
        if self.agent.reads_journal:
            # Its last words are part of the session; those of a program go to nobody.
            await session.turns.aclose()
            await self._close_at_agent(session_id, agent_session)
            await self._leave(session)
        else:
            await self._leave(session)
            await self._close_at_agent(session_id, agent_session)

    async def _close_at_agent(self, session_id: str, agent_session: str | None) -> None:
        if agent_session is None or self.agent.capabilities.session_capabilities.close is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.agent.ask(CLOSE_SESSION.name, encode({"sessionId": agent_session}))
        except (AcpholdError, TimeoutError) as exc:
            log.warning("session %s: not closed at the agent: %r", session_id, exc)

    async def _leave(self, session: Session) -> None:
        """No request finds it from now on; who loads it again waits until it is closed."""
        async with self._waking:
            if self._live.pop(session.id, None) is not None:
                await session.aclose()
                session.backing.close()

    async def delete(self, session_id: str) -> None:
        """Remove a session for good, here and, where it can, at the agent."""
        session = self._live.get(session_id)
        known = await self._known_at_agent(session_id)
        if session is not None:
            if session.backing.is_ready:
                known = session.backing.agent_session
            await self.close(session_id)
        await self._journal.delete(session_id)
        if known is None:
            return
        await self._journal.forget(self.agent.key, known)
        if self.agent.capabilities.session_capabilities.delete is None:
            return
        try:
            params = encode({"sessionId": known})
            await self.agent.ask(DELETE_SESSION.name, params)
        except AcpholdError as exc:
            log.info("session %s: not deleted at the agent: %s", session_id, exc)

    async def _known_at_agent(self, session_id: str) -> str | None:
        """The agent's id of a session, ours or its own; None when it has no such session."""
        known = await self._journal.downstream(session_id) or session_id
        owner = await self._journal.session_of(self.agent.key, known)
        if owner == session_id:
            return known
        try:
            await self._journal.session(session_id)
        except UnknownSessionError:
            return session_id if owner is None else None
        return None  # it has given the id to another session since, or never knew this one
