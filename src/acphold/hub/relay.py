"""What the agent reports and asks, carried to the sessions and clients it is meant for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from acphold.errors import (
    ConnectionLostError,
    InvalidParamsError,
    JournalError,
    MethodNotFoundError,
)
from acphold.hub.attachment import LAG
from acphold.hub.choices import keep_in_step
from acphold.hub.questions import CANCELLED
from acphold.hub.updates import for_session, holds_context, repeats_prompt, update_in
from acphold.journal.raw_update import update_kind
from acphold.mcp.servers import MCP_MESSAGE
from acphold.rpc import NotificationReceived
from acphold.schema import (
    CREATE_ELICITATION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
)
from acphold.schema.splice import members, splice

if TYPE_CHECKING:
    from acphold.hub.attachment import Client
    from acphold.hub.questions import Audience
    from acphold.hub.routes import Routes
    from acphold.hub.session import Session

log = logging.getLogger(__name__)

DECISIONS = frozenset({REQUEST_PERMISSION.name, CREATE_ELICITATION.name})
"""What any person attached may answer; everything else is for the client that prompted."""


class Relay:
    """The hub's ear at the agent (agents.Listener)."""

    def __init__(self, routes: Routes, clients: list[Client], providers: dict[str, Client]) -> None:
        self._routes = routes
        self._clients = clients
        self._providers = providers

    # -- told -----------------------------------------------------------------------------

    async def on_updates(self, agent_session: str, kind: str, raws: Sequence[bytes]) -> None:
        session = self._routes.find(agent_session)
        if session is None:
            self._routes.keep(agent_session, kind, raws)
            return
        raws = for_session(session, kind, raws)
        if not raws:
            return
        before = session.settings
        try:
            if any(b'"user_message_chunk"' in raw for raw in raws):
                await _publish_user_messages(session, kind, raws)
            else:
                await session.publish(kind, raws)
            if session.settings is not before:
                await keep_in_step(session, before)
        except JournalError as exc:
            log.error("session %s: %s", session.id, exc)
            await session.turns.fail(exc)

    async def on_notification(self, notification: NotificationReceived) -> None:
        method, params = notification.method, notification.params
        agent_session = _session_id(params)
        session = self._routes.find(agent_session)
        if session is not None:
            await _make_room([attachment.client for attachment in session.attachments])
            session.tell(method, _under_our_id(params, session))
        elif self._routes.is_closed(agent_session):
            log.info("%s for a session that is closed was dropped", method)
        else:
            await _make_room(self._clients)
            for client in self._clients:
                client.tell(method, params)

    # -- asked ----------------------------------------------------------------------------

    async def on_request(self, method: str, params: bytes) -> bytes:
        if method == MCP_MESSAGE and (server_id := _server_id(params)) is not None:
            return await self._ask_provider(server_id, params)
        agent_session = _session_id(params)
        session = self._routes.find(agent_session)
        if session is None:
            if self._routes.is_closed(agent_session):
                raise InvalidParamsError(f"session {agent_session!r} is closed", field="sessionId")
            return await self._ask_anybody(method, params)
        if method == REQUEST_PERMISSION.name and session.turns.cancelling:
            return CANCELLED
        audience = _audience(method, params, session)
        clients = [attachment.client for attachment in session.attachments]
        if clients and not any(map(audience, clients)):
            raise MethodNotFoundError(method)
        return await session.questions.ask(method, _under_our_id(params, session), audience)

    async def _ask_provider(self, server_id: str, params: bytes) -> bytes:
        if (provider := self._providers.get(server_id)) is None:
            raise ConnectionLostError(f"no client here provides MCP server {server_id!r}")
        return await provider.ask(MCP_MESSAGE, params)

    async def _ask_anybody(self, method: str, params: bytes) -> bytes:
        """A request outside of the sessions we know goes to the client that is here."""
        for client in self._clients:
            if _can(client, method, params):
                return await client.ask(method, params)
        raise MethodNotFoundError(method)


def _server_id(params: bytes) -> str | None:
    try:
        return msgspec.json.decode(params or b"{}", type=_McpParams).serverId
    except msgspec.MsgspecError:
        return None


class _McpParams(Struct):
    serverId: str | None = None


class _SessionParams(Struct):
    sessionId: str | None = None


def _session_id(params: bytes) -> str | None:
    """The agent's id of the session these params are about; None when they are about none."""
    try:
        return msgspec.json.decode(params or b"{}", type=_SessionParams).sessionId
    except msgspec.MsgspecError:
        return _odd_session_id(params)


def _odd_session_id(params: bytes) -> str | None:
    try:
        raw = members(params).get("sessionId")
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except (InvalidParamsError, msgspec.MsgspecError):
        return None


def _under_our_id(params: bytes, session: Session) -> bytes:
    if session.id == session.backing.agent_session:
        return params
    return splice(params, {"sessionId": msgspec.json.encode(session.id)})


def _audience(method: str, params: bytes, session: Session) -> Audience:
    """Who may answer: everybody for a decision, else the client that prompted."""
    running = session.turns.running
    if method in DECISIONS or running is None:
        return lambda client: _can(client, method, params)
    author = running.author.client
    return lambda client: client is author and _can(client, method, params)


def _can(client: Client, method: str, params: bytes) -> bool:
    """Whether this client advertised what answering `method` takes (spec v1, initialization)."""
    can = client.capabilities
    if method == READ_TEXT_FILE.name:
        return can.fs.read_text_file
    if method == WRITE_TEXT_FILE.name:
        return can.fs.write_text_file
    if method.startswith("terminal/"):
        return can.terminal
    if method == CREATE_ELICITATION.name:
        modes = can.elicitation
        wants_url = members(params).get("mode") == b'"url"'
        return modes is not None and (modes.url if wants_url else modes.form) is not None
    return True


async def _make_room(clients: Sequence[Client]) -> None:
    """A client that alone is too slow slows the agent; one of several only lags."""
    if len(clients) == 1 and clients[0].buffered > LAG:
        with suppress(ConnectionLostError):
            await clients[0].drain()


async def _publish_user_messages(session: Session, kind: str, raws: Sequence[bytes]) -> None:
    """Some agents send the prompt back: journalled as an echo, for the prompt is there already."""
    running = session.turns.running
    for raw in raws:
        update = update_in(raw) if kind == "params" else raw
        if update_kind(update) != "user_message_chunk":
            await session.publish(kind, [raw])
        elif holds_context(update):
            log.info("session %s: its context came back and was dropped", session.id)
        elif running is not None and repeats_prompt(update, running.prompt):
            await session.publish("echo", [update])
        else:
            await session.publish(kind, [raw])
