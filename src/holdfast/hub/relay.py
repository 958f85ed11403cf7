"""What the agent reports and asks, carried to the sessions and clients it is meant for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from holdfast.errors import InvalidParamsError, JournalError, MethodNotFoundError
from holdfast.journal.fold import update_kind
from holdfast.rpc import NotificationReceived
from holdfast.schema import (
    CREATE_ELICITATION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
)
from holdfast.schema.splice import members, splice

if TYPE_CHECKING:
    from holdfast.hub.attachment import Client
    from holdfast.hub.questions import Audience
    from holdfast.hub.routes import Routes
    from holdfast.hub.session import Session

log = logging.getLogger(__name__)

STATE_KINDS = frozenset(
    {
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    }
)
"""Updates that say how a session stands, whenever they come; the others belong to a turn."""

DECISIONS = frozenset({REQUEST_PERMISSION.name, CREATE_ELICITATION.name})
"""What any person attached may answer; everything else is for the client that prompted."""


class Relay:
    """The hub's ear at the agent (agents.Listener)."""

    def __init__(self, routes: Routes, clients: list[Client]) -> None:
        self._routes = routes
        self._clients = clients

    # -- told -----------------------------------------------------------------------------

    async def on_updates(self, agent_session: str, kind: str, raws: Sequence[bytes]) -> None:
        session = self._routes.find(agent_session)
        if session is None:
            self._routes.keep(agent_session, kind, raws)
            return
        if session.backing.replaying or session.turns.overdue:
            raws = _state_only(session, raws)
        if not raws:
            return
        try:
            if kind == "update" and any(b'"user_message_chunk"' in raw for raw in raws):
                await _publish_echoes(session, raws)
            else:
                await session.publish(kind, raws)
        except JournalError as exc:
            log.error("session %s: %s", session.id, exc)
            await session.turns.fail(exc)

    async def on_notification(self, notification: NotificationReceived) -> None:
        method, params = notification.method, notification.params
        session = self._session_in(params)
        if session is None:
            clients = list(self._clients)
        else:
            params = _under_our_id(params, session)
            clients = [attachment.client for attachment in session.attachments]
        for client in clients:
            client.tell(method, params)

    # -- asked ----------------------------------------------------------------------------

    async def on_request(self, method: str, params: bytes) -> bytes:
        session = self._session_in(params)
        if session is None:
            return await self._ask_anybody(method, params)
        audience = _audience(method, params, session)
        clients = [attachment.client for attachment in session.attachments]
        if clients and not any(map(audience, clients)):
            raise MethodNotFoundError(method)
        return await session.questions.ask(method, _under_our_id(params, session), audience)

    async def _ask_anybody(self, method: str, params: bytes) -> bytes:
        """A request outside of any session goes to the client that is here."""
        for client in self._clients:
            if _can(client, method, params):
                return await client.ask(method, params)
        raise MethodNotFoundError(method)

    def _session_in(self, params: bytes) -> Session | None:
        try:
            agent_session = msgspec.json.decode(params or b"{}", type=_SessionParams).sessionId
        except msgspec.MsgspecError:
            agent_session = _odd_session_id(params)
        if agent_session is None:
            return None
        session = self._routes.find(agent_session)
        if session is None:
            raise InvalidParamsError(f"no session {agent_session!r}", field="sessionId")
        return session


class _SessionParams(Struct):
    sessionId: str | None = None


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


def _state_only(session: Session, raws: Sequence[bytes]) -> list[bytes]:
    kept = [raw for raw in raws if update_kind(raw) in STATE_KINDS]
    if dropped := len(raws) - len(kept):
        why = "a replay of the agent's own" if session.backing.replaying else "a cancelled turn"
        log.info("session %s: %d updates of %s dropped", session.id, dropped, why)
    return kept


async def _publish_echoes(session: Session, raws: Sequence[bytes]) -> None:
    """Some agents send the prompt back: journalled as an echo, for the prompt is there already."""
    running = session.turns.running
    for raw in raws:
        content = members(raw).get("content", b"")
        echoed = (
            running is not None
            and update_kind(raw) == "user_message_chunk"
            and content in running.prompt
        )
        await session.publish("echo" if echoed else "update", [raw])
