"""Requests of this user's other processes: see `reading.processes`.

Over a network a client may ask for the sessions that are live, as far as it may list them. What
restarts or ends an agent is for processes of ours, and for whoever sees all sessions.
"""

from __future__ import annotations

import os

from msgspec import Struct

from acp_wire import schema
from acp_wire.processes.limits import shortfalls
from acp_wire.rpc.requests import Request
from acp_wire.schema import encode
from acphold.conversation.history.raw_update import members
from acphold.errors import MethodNotFoundError
from acphold.live.hub.attachment import Client
from acphold.live.hub.hub import Hub
from acphold.live.reading import one_question
from acphold.live.reading.processes import AgentProgram, EditorFront, LiveSession, Process
from acphold.live.server.checked_params import session_id_of
from acphold.live.server.directory import Directory
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Entrance, OwnSessions, Principal
from acphold.machine.installation import is_kept, is_replaced
from acphold.version import __version__


class ProcessRequests(Struct, eq=False):
    """Those of one client, which came as `_came_as`."""

    _directory: Directory
    _client: Client
    _entrance: Entrance
    _own: OwnSessions
    _came_as: Principal

    async def answer(self, request: Request) -> bytes:
        """Answer one of these methods."""
        match request.method:
            case one_question.PRESENCE:
                return self._presence()
            case one_question.CHANGED:
                await self._on_changed(request.params)
            case one_question.SIGNED_IN if self._entrance.principal.sees_all:
                async with self._directory.of(request, None, self._client.scopes_in("")) as desk:
                    await desk.on_sign_in_outside()
            case one_question.STOP if self._is_ours:
                await self._directory.hub.stop_agent(session_id_of(request.params))
            case other:
                raise MethodNotFoundError(other)
        return b"{}"

    @property
    def _is_ours(self) -> bool:
        """True for a process of this user in this place on this machine."""
        came = self._came_as
        return came.vouches and came.is_here and not came.place

    def _presence(self) -> bytes:
        principal, came = self._entrance.principal, self._came_as
        return presence(self._directory.hub, principal, came.place, is_ours=self._is_ours)

    async def _on_changed(self, params: bytes) -> None:
        session_id, hub = session_id_of(params), self._directory.hub
        await self._own.require(Asked.read(schema.LOAD_SESSION.name, params))
        await hub.look_at(session_id)
        archived = {b"true": True, b"false": False}.get(members(params).get("archived", b""))
        for desk in hub.desks:
            telling = desk.sessions.agents.tell_changes(session_id, archived=archived)
            hub.undoing.start(telling, "tell the agent")


def presence(
    hub: Hub, principal: Principal, onlooker: str = "", hangs: str = "", *, is_ours: bool
) -> bytes:
    """Return what runs in this process, as far as this principal may know; only one that `is_ours`
    hears of fronts and places. See `reading.processes.Process` for the rest."""
    live = [
        LiveSession(
            conversation.id,
            len(conversation.session.attachments),
            conversation.turns.running is not None,
            bool(conversation.questions.waiting),
            sum(it.client.only_watches(conversation.id) for it in conversation.session.attachments),
            tuple(question.entry.id for question in conversation.questions.waiting),
            hub.number_of_agent(conversation),
            conversation.turns.at_work,
        )
        for conversation in hub.live.values()
        if principal.owns(conversation.session.tenant)
        and not conversation.session.row.is_kept_in_front
        and principal.session_id in (None, conversation.id)
    ]
    desks = tuple(hub.desks) if is_ours else ()
    programs = [
        AgentProgram(number, desk.agent.key, pid)
        for number, desk in enumerate(desks, 1)
        if (pid := desk.agent.pid) is not None
    ]
    fronts = [
        EditorFront(
            front.pid,
            within.folder,
            front.frame.kind,
            shortfalls(within.limits),
            within.own_homes,
            next((n for n, it in enumerate(desks, 1) if it.surroundings is within), 0),
        )
        for front in (hub.fronts if is_ours else ())
        for within in (front.frame.surroundings,)
    ]
    places = hub.places if is_ours else {}
    return encode(
        Process(
            os.getpid(),
            hub.agents,
            live,
            release=__version__,
            keeps_code=is_kept(),
            is_replaced=is_replaced(),
            fronts=tuple(fronts),
            programs=tuple(programs),
            places=dict(places),
            onlooker=onlooker,
            hangs=hangs,
        )
    )
