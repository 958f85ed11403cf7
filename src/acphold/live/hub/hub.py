"""The live sessions of a process, and the desks of the agents that answer in them.

A process has one hub on a journal. A session is live from when the first client opens it here until
it is closed, or another process takes it over (`hub.ownership`). Each belongs to the desk of one
agent (`hub.desk`); any client of the hub can have it open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from acp_wire.newest import Newest
from acp_wire.rpc.eager_tasks import EagerTasks, Turnstile
from acp_wire.schema import CLOSE_SESSION
from acp_wire.tasks import TaskSet, beside, end, finish, tick
from acphold import errors
from acphold.journal.journal import Journal
from acphold.journal.rows import Archived, ListFilter, SessionRow
from acphold.live.agents.interface import HubAgent, ask
from acphold.live.hub import bounds
from acphold.live.hub.alerts import Activity
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import Client, not_open
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.outages import Outage
from acphold.live.hub.ownership import Ownership, Pause
from acphold.live.hub.session import CommonRelease

log = logging.getLogger(__name__)

ENDED = "acphold has stopped"
ENDED_HOW = (
    "The process that ran this session was stopped, or its editor was closed. The conversation is "
    "saved; load the session again to continue."
)

if TYPE_CHECKING:  # only for types: making such classes would delay an editor's start
    from acp_wire.surroundings import Surroundings
    from acphold.live.hub.router import Router
    from acphold.live.hub.session_list import SessionList
    from acphold.machine.unix import Front

    class DeskInHub(Protocol):
        """A desk, as the hub sees it."""

        hub: Hub
        agent: HubAgent
        surroundings: Surroundings | None
        router: Router
        sessions: SessionList
        closed: asyncio.Event

        @property
        def is_closing(self) -> bool:
            """True once its agent is being ended."""

        @property
        def conversations(self) -> Collection[Conversation]:
            """The live sessions that its agent answers in."""

        def start_alike(self, agent: HubAgent) -> bool:
            """Return True if an agent has the surroundings of its editor."""

        def sign_in_changed(self) -> None:
            """Have sessions opened again before they are used: somebody signed in or out."""

        def forget(self, client: Client) -> None:
            """Count no more on a client that has gone."""

        async def aclose(self) -> None:
            """End its agent, its turns and its sessions, once."""


class Hub:
    """See the module. Use it as `async with hub.open():`; leaving ends all desks and turns.

    `adopting` are the adoptions under way, by session.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.live: dict[str, Conversation] = {}
        self.desks: list[DeskInHub] = []
        self.fronts: set[Front] = set()
        self.places: Newest[str, str] = Newest(bounds.PLACES)
        """Other places from which processes came, by name, with a description."""
        self.adopting: dict[str, asyncio.Task[None]] = {}
        self.tasks = EagerTasks()
        self.release = CommonRelease(journal, self.tasks)
        self.activity = Activity()
        outage = Outage(journal)
        pause = Pause(self.live, outage, is_shared=journal.file is None)
        self.ownership = Ownership(self.live, journal, outage, pause)
        self.undoing = TaskSet()
        """Work at agents that undoes something, for seconds after their desks."""
        self._closing = TaskSet()
        self._waking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.opening = Turnstile(bounds.OPENED_AT_ONCE)
        """Paces new clients and sessions that are opened."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the leases of live sessions for the block; end everything after it."""
        try:
            async with beside(self.ownership.keep(), "renew leases"):
                yield
        finally:
            await finish(self._close)

    async def _close(self) -> None:
        try:
            await self.journal.renew(retiring=True)
        except errors.JournalError as exc:  # others wait until we have ended
            log.info("cannot announce that this process is ending: %s", exc)
        await asyncio.gather(*(desk.aclose() for desk in tuple(self.desks)))
        await self.release.aclose()
        await self.ownership.aclose()
        self.tasks.close()
        await self.undoing.finish(bounds.AGENT_CLOSE_SECONDS)

    async def end_turns(self, conversations: Collection[Conversation] | None = None) -> None:
        """Cancel the turns of these sessions, or of all, and tell their clients that what ran them
        ends.

        Call it while their connections are open. No turn begins any more in these sessions.
        """
        ending = tuple(self.live.values() if conversations is None else conversations)
        for attachment in chain.from_iterable(it.session.attachments for it in ending):
            attachment.client.part()
        for conversation in ending:
            if conversation.shared.options.keep_prompts:
                for attachment in conversation.session.attachments:
                    conversation.waiting.keep(attachment.client)
            conversation.waiting.process_ends()
        await asyncio.gather(
            *(conversation.turns.aclose(with_process=True) for conversation in ending),
            return_exceptions=True,
        )
        for conversation in ending:
            conversation.tell_end(notice(ENDED, ENDED_HOW, "warning"))

    async def close_conversations(self, conversations: Collection[Conversation]) -> None:
        """Close these sessions, whose turns have ended; they can be loaded again."""
        closed = tuple(conversations)
        results = await asyncio.gather(
            *(conversation.aclose() for conversation in closed), return_exceptions=True
        )
        for conversation, result in zip(closed, results, strict=True):
            if self.live.get(conversation.id) is conversation:
                del self.live[conversation.id]
            if isinstance(result, Exception):
                log.error("session %s: closing it failed", conversation.id, exc_info=result)

    @property
    def agents(self) -> str:
        """The keys of all agents here, for people."""
        return ", ".join(sorted({desk.agent.key for desk in self.desks} - {""}))

    def number_of_agent(self, conversation: Conversation) -> int:
        """Return the number of the agent that answers in a live session, counted from 1; 0 if it is
        just ending."""
        agents = [desk.agent for desk in self.desks]
        agent = conversation.side.agent
        return agents.index(agent) + 1 if agent in agents else 0

    async def stop_agent(self, session_id: str) -> None:
        """End the agent that answers in a session, with its turns and all of its sessions.

        Raises UnknownSessionError if it is not live here.
        """
        agent = self.conversation(session_id).side.agent
        await asyncio.gather(*(desk.aclose() for desk in tuple(self.desks) if desk.agent is agent))

    # -- finding --------------------------------------------------------------------------

    def conversation(self, session_id: str) -> Conversation:
        """Return a live session; UnknownSessionError if it is not open here."""
        conversation = self.live.get(session_id)
        if conversation is None and session_id in self.ownership.deleted:
            raise errors.UnknownSessionError(session_id, f"session {session_id!r} was deleted")
        if conversation is None or session_id in self.adopting:
            raise not_open(session_id)
        return conversation

    def holds(self, session_id: str) -> bool:
        """Return True if a session is live and fully adopted."""
        return session_id in self.live and session_id not in self.adopting

    def desk_of(self, session_id: str) -> DeskInHub | None:
        """Return the desk at which a session is live; None if it is not live here."""
        live = self.live.get(session_id)
        its = (desk for desk in self.desks if live is not None and desk.agent is live.side.agent)
        return next(its, None)

    def is_asleep(self, session_id: str) -> bool:
        """Return True if a session is live only for clients that may not prompt."""
        return self.holds(session_id) and self.live[session_id].is_asleep

    async def look_at(self, session_id: str) -> None:
        """Look at the row of a session again: it may have changed, or be gone. Raises
        JournalError."""
        self.activity.stir()
        conversation = self.live.get(session_id)
        if conversation is not None:
            conversation.session.row.on_changed_elsewhere()
            with suppress(errors.LeaseLostError):  # then it leaves, and its clients are told
                await conversation.session.verify()
                await conversation.title.look()

    def detach(self, client: Client) -> None:
        """Detach a client that has gone from everything here, and from every session."""
        for desk in self.desks:
            desk.forget(client)
        for conversation in tuple(self.live.values()):
            for attachment in conversation.session.attachments:
                if attachment.client is client:
                    in_turn = conversation.turns.running is not None
                    if conversation.shared.options.keep_prompts:
                        conversation.waiting.keep(client)
                    if attachment.positions:
                        conversation.session.rest.leave_bookmark(in_turn=in_turn)
                    conversation.detach(attachment)

    @property
    def open_ids(self) -> frozenset[str]:
        """The ids of the sessions that a client has open here."""
        return frozenset(key for key, item in self.live.items() if item.session.attachments)

    def list_filter(
        self, cwd: str | None, archived: Archived, tenant: str | None, beside: tuple[str, ...] = ()
    ) -> ListFilter:
        """Return the filter of a list that a client asks for here."""
        return ListFilter(
            cwd=cwd, beside=beside, held=self.open_ids, archived=archived, tenant=tenant
        )

    def time_of(self, row: SessionRow) -> int:
        """Return the time of a session's last activity, in ms since the epoch: its row says it late
        if the session is live here."""
        live = self.live.get(row.session_id)
        late = None if live is None else live.session.row.late_time
        return row.updated_at if late is None else late

    # -- closing --------------------------------------------------------------------------

    def alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock for making this session live here or closing it; closing may take
        seconds."""
        return self._waking.setdefault(session_id, asyncio.Lock())

    async def close(self, session_id: str, client: Client | None = None) -> None:
        """Cancel its turn, free it here and at the agent; it can be loaded again.

        If clients other than `client` have it open, only `client` leaves, with its own turns.
        """
        async with self.closing(session_id, client):
            pass

    @asynccontextmanager
    async def closing(self, session_id: str, client: Client | None = None) -> AsyncIterator[None]:
        """Do the same around a block, which runs once it is free here; then the agent closes it.

        An agent of ours has closed it before the block."""
        conversation, at_agent = self.live.get(session_id), None
        if (adopting := self.adopting.get(session_id)) is not None:
            conversation = None
            await end(adopting)
        elif conversation is None:
            await self.journal.session(session_id)  # UnknownSessionError when there is none
        elif any(it.client is not client for it in conversation.session.attachments) and client:
            await conversation.close_for(client)
        else:
            side = conversation.side
            at_agent = side.params_to_close
            if side.agent.reads_journal:
                # The last words of an agent of ours are part of the session; those of a program are
                # dropped.
                await conversation.turns.aclose()
                await close_at(side.agent, session_id, at_agent)
                at_agent = None
            await self.close_live(conversation)
        try:
            yield
        finally:
            if conversation is not None:
                await close_at(conversation.side.agent, session_id, at_agent)

    async def close_live(self, conversation: Conversation) -> None:
        """Close it to the end, even if the request for that is cancelled."""

        async def close() -> None:
            # Requests no longer find it; a load waits until it is closed.
            async with self.alone(conversation.id):
                await self._end(conversation)

        # Begin at once: a load right after this call has to wait for it.
        closing = self.tasks.begin(close(), "close session")
        if closing is not None:
            self._closing.add(closing)
            await asyncio.shield(closing)

    def _is_left(self, conversation: Conversation) -> bool:
        is_live = self.live.get(conversation.id) is conversation
        return is_live and not (conversation.session.attachments or conversation.is_busy)

    async def close_left(self, most: int, seconds: float) -> None:
        """Close, every so many seconds, the sessions at agents of ours that no client has open and
        in which nothing goes on; but for those that were left last, at most."""
        left: dict[Conversation, None] = {}
        while True:
            await tick(seconds)
            left = dict.fromkeys(it for it in (*left, *self.live.values()) if self._is_left(it))
            for conversation in [*left][: max(0, len(left) - most)]:
                async with self.alone(conversation.id):  # whoever loads it waits
                    if self._is_left(conversation):
                        side = conversation.side
                        await close_at(side.agent, conversation.id, side.params_to_close)
                        try:
                            await self._end(conversation)
                        except errors.JournalError as exc:
                            log.warning("session %s: closing it failed: %s", conversation.id, exc)

    async def _end(self, conversation: Conversation) -> None:
        if self.live.get(conversation.id) is conversation:
            del self.live[conversation.id]
            self.activity.stir()
            await conversation.aclose()

    async def end_closing(self) -> None:
        """Wait until the sessions that are being closed are closed."""
        await self._closing.finish()


def can_close(agent: HubAgent) -> bool:
    """Return True if the agent can close a session."""
    return agent.capabilities.session_capabilities.close is not None


async def close_at(agent: HubAgent, session_id: str, params: bytes | None) -> None:
    """Have the agent close a session, if it can and has it open: then `params` are for that."""
    if params is None or not can_close(agent):
        return
    try:
        await ask(agent, CLOSE_SESSION.name, params, bounds.AGENT_CLOSE_SECONDS)
    except errors.AcpError as exc:
        log.warning("session %s: the agent did not close it: %s", session_id, exc)
