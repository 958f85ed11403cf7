"""The way between the agent and the sessions.

Each event of the agent goes to the session that it is about. From clients, extensions and newer
methods go to the agent.

An event about no known session goes to the client for which the agent is at work. If that is
unclear, it goes only to clients that may see every session: it may be about somebody else's. An
update that comes before its session is known is kept until then (`hub.routes`).
"""

# See docs/decisions.md, 3.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import assert_never
from weakref import WeakSet

from msgspec import Struct, field

from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.schema import encode, splice
from acp_wire.schema.splice import session_id_in
from acp_wire.tasks import end, timeout
from acphold import errors
from acphold.conversation.history.raw_update import OPENCODE_CHILD, members, string
from acphold.journal.journal import Journal, row_of, session_of
from acphold.live.agents import air
from acphold.live.agents.interface import (
    AgentCall,
    AgentExchange,
    AgentRequest,
    Event,
    HubAgent,
    Notified,
    Unheard,
    Updates,
)
from acphold.live.hub import bounds
from acphold.live.hub.annotations import missing_update
from acphold.live.hub.attachment import Attachment, Client, not_open
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.publication import Publication
from acphold.live.hub.questions import can_answer, refusal, unanswerable
from acphold.live.hub.routes import Routes
from acphold.live.hub.session import publish_together
from acphold.mcp_servers.servers import MCP_MESSAGE

log = logging.getLogger(__name__)


_under_way: ContextVar[AgentCall | None] = ContextVar("under_way", default=None)
"""The call that an agent in this process works on: its tasks begin in the context of the call."""


class Asker(Struct, frozen=True):
    """A client that requests something outside of sessions; the id of its request, as JSON."""

    client: Client
    request_id: bytes


class Router(Struct, eq=False):
    """The hub's listener at the agent (agents.interface.ListenerToMany).

    `clients` are the connected ones, `_providers` those of MCP servers over ACP, by `serverId`, and
    `_askers` those of each call that the agent works on outside of sessions. `subscriptions` are
    those to the agent's own list, by their ids there; each gets the params of a change.
    """

    _routes: Routes
    _conversations: Mapping[str, Conversation]
    _providers: Mapping[str, Client]
    _journal: Journal
    _tasks: EagerTasks
    clients: list[Client] = []
    subscriptions: dict[str, Callable[[bytes], None]] = {}
    _askers: dict[AgentCall, Asker] = {}
    _stuck: WeakSet[Client] = field(default_factory=WeakSet)

    @property
    def _agent(self) -> HubAgent:
        assert self._routes.agent is not None, "the hub makes it right after the router"
        return self._routes.agent

    @asynccontextmanager
    async def run_for(self, asker: Asker | None, exchange: AgentExchange) -> AsyncIterator[bytes]:
        """Run an exchange during which the agent may ask this client something."""
        if asker is not None:
            self._askers[exchange] = asker
        before = _under_way.set(exchange)
        try:
            async with exchange as answer:
                yield answer
        finally:
            _under_way.reset(before)
            self._askers.pop(exchange, None)

    async def hear(self, event: Event) -> None:
        """Handle one event, in wire order."""
        if isinstance(event, Unheard):
            event = Updates(event.session_id, "update", [missing_update(event.problem)])
        match event:
            case Updates():
                conversation = self._find(event.session_id)
                if conversation is None:
                    self._routes.keep(event)
                else:
                    await conversation.hear(event)
            case Notified():
                await self._on_notification(event)
            case _:
                assert_never(event)

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        """See agents.interface.ListenerToMany."""
        together: dict[Conversation, Publication] = {}
        heard: list[bool] = []
        for updates in said:
            conversation = self._find(updates.session_id)
            publication = None
            if conversation is not None and conversation not in together:
                publication = conversation.plain(updates)
                if publication is not None:
                    together[conversation] = publication
            heard.append(publication is not None)
        if together:
            published = [(each.session, publication) for each, publication in together.items()]
            failed = await publish_together(self._journal, published)
            for conversation, error in zip(together, failed, strict=True):
                if error is not None:
                    await conversation.fail(error)
        return heard

    async def _on_notification(self, event: Notified) -> None:
        if event.method == air.CHANGES:
            id_ = string(members(event.params).get("subscriptionId")) or ""
            if (hear := self.subscriptions.get(id_)) is not None:
                hear(event.params)
            return
        agent_session = session_id_in(event.params)
        if event.method == OPENCODE_CHILD:
            # It belongs to the session above the sub-agent.
            agent_session = string(members(event.params).get("rootSessionId"))
        conversation = self._find(agent_session)
        if conversation is not None:
            await self._make_room([item.client for item in conversation.session.attachments])
            await conversation.on_notification(event)
        elif self._routes.is_closed(agent_session) or event.method == OPENCODE_CHILD:
            log.info("%s for a session that is closed was dropped", event.method)
        else:
            clients = self._clients_for(self._asker())
            await self._make_room(clients)
            await self._flush(clients)
            for client in clients:
                lagging = self._lagging(client)
                has_room = client.buffered <= bounds.LAG_BYTES
                if not (has_room and all(each.has_room for each, _ in lagging)):
                    log.warning("%s dropped: a client lags", event.method)
                else:
                    when_all_reached(lagging, partial(client.tell, event.method, event.params))

    async def _flush(self, clients: Sequence[Client]) -> None:
        """Wait until everything that has arrived in the sessions that these clients have open is
        journalled.

        A commit that fails is not reported here: the caller's message belongs to no session.
        """
        for conversation in tuple(self._conversations.values()):
            session = conversation.session
            if any(each.client in clients for each in session.attachments):
                with suppress(errors.JournalError):
                    await session.flush()

    def _lagging(self, client: Client) -> list[tuple[Attachment, int]]:
        """Return the attachments where this client has not been sent all that was committed, and
        the end of that.

        Sessions that it is only now opening are left out: opening them may wait for this.
        """
        sessions = [each.session for each in self._conversations.values()]
        found = [(session.attachments.find(client), session.last_seq) for session in sessions]
        return [(each, seq) for each, seq in found if each is not None and each.lags]

    async def after_all_updates(self, client: Client, act: Callable[[], None]) -> None:
        """Call `act` after all updates that have arrived so far in this client's sessions.

        Waits for commits, but not for sending.
        """
        await self._flush([client])
        when_all_reached(self._lagging(client), act)

    async def _make_room(self, clients: Sequence[Client]) -> None:
        """Wait a moment for a slow client if it is the only one; one of several lags instead."""
        if len(clients) != 1:
            return
        [client] = clients
        if client.buffered <= bounds.LAG_BYTES:
            self._stuck.discard(client)
        elif client not in self._stuck:
            try:
                async with timeout(bounds.STUCK_SECONDS):
                    await client.drain()
            except TimeoutError:
                self._stuck.add(client)
            except errors.ConnectionLostError:
                pass  # it has gone, and is told nothing

    # -- what clients say to the agent itself ---------------------------------------------

    async def relay(
        self,
        method: str,
        params: bytes,
        session_id: str | None,
        asker: Asker,
        reply: Callable[[bytes], None],
        accept: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Pass on a request that is the agent's own: an extension's, or newer than this release.

        With `accept` it is about no session, whatever it names. That is called once the agent has
        accepted it, and what it returns is awaited before the reply.
        """
        conversation = self._conversations.get(session_id or "")
        if conversation is not None and accept is None:
            await conversation.relay(method, params, asker.client, reply)
            return
        agent = self._agent
        if not agent.alive and "prompt" not in asker.client.scopes_in(session_id or ""):
            raise errors.ForbiddenError(f"{method} while its agent does not run", "prompt")
        await agent.ensure()
        params = await self._under_agents_id(params, session_id)
        exchange = AgentExchange(agent, method, params, None)
        async with self.run_for(asker, exchange) as answer:
            if accept is None:
                await self.after_all_updates(asker.client, lambda: reply(answer))
                return
            accepted = accept()
        await accepted  # it may wait for another agent, and that for this one
        await self.after_all_updates(asker.client, lambda: reply(answer))

    async def tell(
        self, method: str, params: bytes, session_id: str | None, client: Client
    ) -> None:
        """Pass on a notification that is the agent's own."""
        if method == MCP_MESSAGE:
            provider = self._providers.get(string(members(params).get("serverId")) or "")
            if provider not in (None, client):
                log.info("%s was dropped: another client provides that server", method)
                return
        try:
            params_there = await self._under_agents_id(params, session_id)
        except errors.UnknownSessionError as exc:
            log.info("%s was dropped: %s", method, exc)
            return
        conversation = self._conversations.get(session_id or "")
        if conversation is not None:
            conversation.turns.hear(client)
        agent = self._agent if conversation is None else conversation.side.agent
        await agent.tell(method, params_there)
        if conversation is not None and conversation.side.is_open:
            await conversation.tell(method, params, client)

    async def _under_agents_id(self, params: bytes, session_id: str | None) -> bytes:
        """Return params with the agent's own id for a session of ours.

        UnknownSessionError if the agent has never known it, or another agent does: our id may mean
        something else to the agent.
        """
        if session_id is None:
            return params
        conversation = self._conversations.get(session_id)
        if conversation is not None and conversation.side.is_open:
            return conversation.side.under_its_id(params)
        if (row := await row_of(self._journal, session_id)) is None:
            return params  # the agent's own
        agent = self._agent if conversation is None else conversation.side.agent
        known = row.downstream_id
        if known and await session_of(self._journal, agent.key, known) == session_id:
            return splice(params, {"sessionId": encode(known)})
        raise not_open(session_id)

    # -- what the agent asks ------------------------------------------------------------------

    async def answer(self, asked: AgentRequest) -> bytes:
        """Return a client's answer to a request of the agent."""
        is_mcp = asked.method == MCP_MESSAGE
        if is_mcp and (server_id := string(members(asked.params).get("serverId"))) is not None:
            if (provider := self._providers.get(server_id)) is None:
                raise errors.ConnectionLostError(
                    f"no connected client provides MCP server {server_id!r}"
                )
            return await provider.ask(asked.method, asked.params)
        agent_session = session_id_in(asked.params)
        conversation = self._find(agent_session)
        if conversation is not None:
            return await conversation.answer(asked)
        if self._routes.is_closed(agent_session):
            raise errors.InvalidParamsError(
                f"session {agent_session!r} is closed", field="sessionId"
            )
        # It is outside of known sessions: a client that it may concern is asked. A form that
        # belongs to a request goes to the client that made the request, with the id it used, and
        # ends with that client (spec v1, elicitation, "Creating an elicitation").
        number = members(asked.params).get("requestId", b"")
        asker, params = self._asker(), asked.params
        if asked.is_decision and number.isdigit() and len(number) < 20:  # our ids are short
            if (call := self._agent.call_of(int(number))) is None:
                return refusal(asked, "cancelled")  # the client that made it has gone
            # One that we made has no client.
            if (asker := self._askers.get(call)) is not None:
                params = splice(params, {"requestId": asker.request_id})
        clients = self._clients_for(asker)
        client = next((known for known in clients if can_answer(known, asked)), None)
        if client is None:
            raise unanswerable(asked, (known.offer.capabilities for known in clients))
        try:
            return await self._put_to(client, asked.method, params)
        except errors.ConnectionLostError:
            if not asked.is_decision:
                raise
            return refusal(asked, "cancelled")

    async def _put_to(self, client: Client, method: str, params: bytes) -> bytes:
        """Return the answer of this client, which is asked after all earlier updates."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asking: asyncio.Task[None] | None = None

        async def ask() -> None:
            try:
                given = await client.ask(method, params)
            except Exception as exc:
                if not answer.done():
                    answer.set_exception(exc)
            else:
                if not answer.done():
                    answer.set_result(given)

        def put() -> None:  # in the step in which it is due, so that nothing later overtakes it
            nonlocal asking
            if not answer.done():
                asking = self._tasks.begin(ask(), f"ask {method}")

        await self.after_all_updates(client, put)
        try:
            return await answer
        finally:
            await end(asking)

    def _asker(self) -> Asker | None:
        """Return the client for which the agent is at work now; None if that cannot be told."""
        call = _under_way.get()
        return None if call is None else self._askers.get(call)

    def _clients_for(self, asker: Asker | None) -> list[Client]:
        """Return the clients that may hear, and answer, what belongs to no known session: those
        that came for this agent, and those of all agents with a session of it."""
        if asker is not None:
            return [asker.client]
        own = [it.session for it in self._conversations.values() if it.side.agent is self._agent]
        attached = [each.client for session in own for each in session.attachments]
        known = [*self.clients, *(it for it in attached if it.offer.all_agents)]
        return [it for it in dict.fromkeys(known) if it.sees_all]

    def _find(self, agent_session: str | None) -> Conversation | None:
        session_id = self._routes.find(agent_session)
        return None if session_id is None else self._conversations.get(session_id)


def when_all_reached(places: Sequence[tuple[Attachment, int]], act: Callable[[], None]) -> None:
    """Call `act` when each of these has been sent everything up to its place, before anything
    after the last place is sent."""
    if places:
        (first, seq), *others = places
        first.when_reached(seq, partial(when_all_reached, others, act))
    else:
        act()
