"""Messages between a client and the agent, passed on: extensions, and newer methods."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from acphold.agents import AgentExchange, HubAgent
from acphold.errors import UnknownSessionError
from acphold.hub.attachment import Client
from acphold.hub.conversation import Conversation
from acphold.hub.router import Asker, Router
from acphold.journal import HasLinks, Sessions, session_of
from acphold.mcp.servers import MCP_MESSAGE
from acphold.schema import encode
from acphold.schema.splice import splice

log = logging.getLogger(__name__)


class RelayJournal(HasLinks, Sessions, Protocol):
    """The seams of a journal that a relay needs."""


class Relay:
    """See the module. `live` is the hub's own table of its sessions."""

    def __init__(
        self,
        agent: HubAgent,
        live: Mapping[str, Conversation],
        router: Router,
        journal: RelayJournal,
    ) -> None:
        self._agent = agent
        self._live = live
        self._router = router
        self._journal = journal

    async def request(
        self,
        method: str,
        params: bytes,
        session_id: str | None,
        asker: Asker,
        reply: Callable[[bytes], None],
    ) -> None:
        """Pass on a request that is the agent's own: an extension's, or newer than this release."""
        conversation = self._live.get(session_id or "")
        if conversation is not None:
            await conversation.relay(method, params, asker.client, reply)
            return
        await self._agent.ensure()
        params = await self._for_agent(params, session_id)
        exchange = AgentExchange(self._agent, method, params, None)
        async with self._router.asked_by(asker, exchange) as answer:
            await self._router.behind_all(asker.client, lambda: reply(answer))

    async def tell(
        self, method: str, params: bytes, session_id: str | None, client: Client
    ) -> None:
        """Pass on a notification that is the agent's own."""
        if method == MCP_MESSAGE and not self._router.may_tell(client, params):
            log.info("%s was dropped: another client provides that server", method)
            return
        try:
            params_there = await self._for_agent(params, session_id)
        except UnknownSessionError as exc:
            log.info("%s was dropped: %s", method, exc)
            return
        await self._agent.tell(method, params_there)
        conversation = self._live.get(session_id or "")
        if conversation is not None and conversation.side.is_open:
            await conversation.tell(method, params, client)

    async def _for_agent(self, params: bytes, session_id: str | None) -> bytes:
        """Return params with the agent's own id for a session of ours.

        UnknownSessionError if the agent has never known it, or another agent does: our id may mean
        something else to the agent.
        """
        if session_id is None:
            return params
        conversation = self._live.get(session_id)
        if conversation is not None and conversation.side.is_open:
            return conversation.side.under_its_id(params)
        try:
            known = (await self._journal.session(session_id)).downstream_id
        except UnknownSessionError:
            return params  # the agent's own
        if known and await session_of(self._journal, self._agent.key, known) == session_id:
            return splice(params, {"sessionId": encode(known)})
        reason = f"session {session_id!r} is not open; call session/load or session/resume first"
        raise UnknownSessionError(session_id, reason)
