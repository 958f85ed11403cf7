"""From the agent to the sessions: each event of it is handed to the session that it is about.

What belongs to no session that is known goes to the client for whom the agent is at work; where
that cannot be told, to those clients alone for whom every session is there: it may be about one of
somebody else's. An update that comes before its session is known here is kept until it is
(`hub.routes`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, assert_never
from weakref import WeakSet

import msgspec
from msgspec import Struct

from acphold.agents import Answered, Asked, Call, Event, Exchange, Notified, Unheard, Updates
from acphold.errors import ConnectionLostError, InvalidParamsError, JournalError
from acphold.history.raw_update import members as members_of
from acphold.history.raw_update import string
from acphold.hub.annotations import left_out
from acphold.hub.attachment import LAG, Attachment, Client
from acphold.hub.client_request import can_answer, unanswerable
from acphold.hub.common_commit import publish_together
from acphold.hub.conversation import Conversation
from acphold.hub.publication import Publication
from acphold.hub.questions import is_decision, refusal
from acphold.hub.routes import Routes
from acphold.journal import Entries
from acphold.mcp.servers import MCP_MESSAGE
from acphold.rpc.eager_tasks import EagerTasks
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import splice
from acphold.schema.update_kinds import OPENCODE_CHILD

log = logging.getLogger(__name__)

ROOM_SECONDS = 5.0
"""How long the agent, and every session with it, is held up for a client that is slow. One that
has not caught up by then is stuck, and not waited for again before it has."""


_under_way: ContextVar[Call | None] = ContextVar("under_way", default=None)
"""What an agent in this process is at work for: its own tasks begin in the context of the call."""


class Asker(NamedTuple):
    """The client that asks for something outside of sessions; the id of its request, as JSON."""

    client: Client
    request_id: bytes


class Router:
    """The hub's ear at the agent (agents.Listener).

    `clients` are those that are connected; `providers` those of MCP servers over ACP, by
    `serverId`.
    """

    def __init__(
        self,
        routes: Routes,
        conversations: Mapping[str, Conversation],
        journal: Entries,
        tasks: EagerTasks,
    ) -> None:
        self.clients: list[Client] = []
        self.providers: dict[str, Client] = {}
        # For whom the agent is at work outside of sessions.
        self._askers: dict[Call, Asker] = {}
        self._stuck: WeakSet[Client] = WeakSet()
        self._routes = routes
        self._conversations = conversations
        self._journal = journal
        self._tasks = tasks

    @asynccontextmanager
    async def asked_by(self, asker: Asker | None, exchange: Exchange) -> AsyncIterator[bytes]:
        """An exchange during which the agent may have to ask this client something."""
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
        """One event after the other, in the order of the wire."""
        if isinstance(event, Unheard):
            event = Updates(event.session_id, "update", [left_out(event.problem)])
        match event:
            case Updates():
                conversation = self._find(event.session_id)
                if conversation is None:
                    self._routes.keep(event)
                else:
                    await conversation.hear(event)
            case Answered(call=call, answer=answer):
                await call.take(answer)
            case Notified():
                await self._notified(event)
            case _:
                assert_never(event)

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        """See agents.Listener."""
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
                    await conversation.failed(error)
        return heard

    async def _notified(self, event: Notified) -> None:
        agent_session = session_id_in(event.params)
        if event.method == OPENCODE_CHILD:
            # Of the session of whose sub-agent it tells.
            agent_session = string(members_of(event.params).get("rootSessionId"))
        conversation = self._find(agent_session)
        if conversation is not None:
            await self._make_room([item.client for item in conversation.session.attachments])
            await conversation.notified(event)
        elif self._routes.is_closed(agent_session) or event.method == OPENCODE_CHILD:
            log.info("%s for a session that is closed was dropped", event.method)
        else:
            clients = self._concerned(self._asker())
            await self._make_room(clients)
            await self._come_behind(clients)
            for client in clients:
                lagging = self._lagging(client)
                if client.buffered > LAG or not all(each.has_room for each, _ in lagging):
                    log.warning("%s dropped: a client lags", event.method)
                else:
                    when_all_reached(lagging, partial(client.tell, event.method, event.params))

    async def _come_behind(self, clients: Sequence[Client]) -> None:
        """Wait until what was said before, in whatever they have open, is in the journal.

        It is in no session, so nobody is told here of what could not be committed.
        """
        for conversation in tuple(self._conversations.values()):
            session = conversation.session
            if any(each.client in clients for each in session.attachments):
                with suppress(JournalError):
                    await session.come_behind()

    def _lagging(self, client: Client) -> list[tuple[Attachment, int]]:
        """Where this client has not been sent all that was committed, and up to where that is.

        What it is only now opening is not waited for: that may wait for this.
        """
        sessions = [each.session for each in self._conversations.values()]
        found = [(session.find(client), session.last_seq) for session in sessions]
        return [(each, seq) for each, seq in found if each is not None and each.lags]

    async def behind_all(self, client: Client, act: Callable[[], None]) -> None:
        """Do `act` behind all that the agent has said until now in what this client has open.

        What has to be committed is waited for; what only has to be sent is not.
        """
        await self._come_behind([client])
        when_all_reached(self._lagging(client), act)

    async def _make_room(self, clients: Sequence[Client]) -> None:
        """A client that alone is slow slows the agent, but not for long; one of several lags."""
        if len(clients) != 1:
            return
        [client] = clients
        if client.buffered <= LAG:
            self._stuck.discard(client)
        elif client not in self._stuck:
            try:
                async with asyncio.timeout(ROOM_SECONDS):
                    await client.drain()
            except TimeoutError:
                self._stuck.add(client)
            except ConnectionLostError:
                pass  # it has gone, and is told nothing

    def may_tell(self, client: Client, params: bytes) -> bool:
        """Whether nobody but this client provides the MCP server that params name."""
        return self.providers.get(_named(params).serverId or "") in (None, client)

    async def answer(self, asked: Asked) -> bytes:
        """The answer of a client to what the agent asks."""
        is_mcp = asked.method == MCP_MESSAGE
        if is_mcp and (server_id := _named(asked.params).serverId) is not None:
            if (provider := self.providers.get(server_id)) is None:
                raise ConnectionLostError(f"no client here provides MCP server {server_id!r}")
            return await provider.ask(asked.method, asked.params)
        agent_session = session_id_in(asked.params)
        conversation = self._find(agent_session)
        if conversation is not None:
            return await conversation.answer(asked)
        if self._routes.is_closed(agent_session):
            raise InvalidParamsError(f"session {agent_session!r} is closed", field="sessionId")
        return await self._ask_outside(asked)

    async def _ask_outside(self, asked: Asked) -> bytes:
        """A request outside of the sessions we know goes to a client that it may concern.

        A form that belongs to a request is for the client that made it, under the id that it gave
        it, and ends with that client (spec v1, elicitation, "Creating an elicitation").
        """
        agent, number = self._routes.agent, _named(asked.params).requestId
        asker, params = self._asker(), asked.params
        if is_decision(asked) and isinstance(number, int) and agent is not None:
            if (call := agent.call_of(number)) is None:
                return refusal(asked, "cancelled")  # whoever made it has gone
            # One of our own making, where it is of no client.
            if (asker := self._askers.get(call)) is not None:
                params = splice(params, {"requestId": asker.request_id})
        clients = self._concerned(asker)
        client = next((known for known in clients if can_answer(known, asked)), None)
        if client is None:
            raise unanswerable(asked, (known.offer.capabilities for known in clients))
        try:
            return await self._put_to(client, asked.method, params)
        except ConnectionLostError:
            if not is_decision(asked):
                raise
            return refusal(asked, "cancelled")

    async def _put_to(self, client: Client, method: str, params: bytes) -> bytes:
        """The answer of this client, which is asked behind all that was said before."""
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

        def put() -> None:  # in the step in which it is due: what comes behind it is told behind it
            nonlocal asking
            if not answer.done():
                asking = self._tasks.begin(ask(), f"ask {method}")

        await self.behind_all(client, put)
        try:
            return await answer
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.wait([asking])

    def _asker(self) -> Asker | None:
        """For whom the agent is at work as it says this; None where that cannot be told."""
        call = _under_way.get()
        return None if call is None else self._askers.get(call)

    def _concerned(self, asker: Asker | None) -> list[Client]:
        """Who may hear, and answer, what belongs to no session that is known.

        Behind a line may be a client that is let into one session only; its own process serves it.
        """
        if asker is not None:
            return [asker.client]
        return [known for known in self.clients if known.sees_all and not known.offer.is_line]

    def _find(self, agent_session: str | None) -> Conversation | None:
        session_id = self._routes.find(agent_session)
        return None if session_id is None else self._conversations.get(session_id)


def when_all_reached(places: Sequence[tuple[Attachment, int]], act: Callable[[], None]) -> None:
    """Do `act` when each of these has been sent all up to there, before anything behind that of
    the last is."""
    if places:
        (first, seq), *others = places
        first.when_reached(seq, partial(when_all_reached, others, act))
    else:
        act()


class _Named(Struct):
    """What a request of the agent may name outside of sessions.

    `requestId` is one of ours, and a number, or the agent's own for a request to an MCP server.
    """

    serverId: str | None = None
    requestId: int | str | None = None


def _named(params: bytes) -> _Named:
    try:
        return msgspec.json.decode(params or b"{}", type=_Named)
    except msgspec.MsgspecError:
        return _Named()
