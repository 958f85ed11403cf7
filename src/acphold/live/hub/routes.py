"""The sessions and sub-agents behind the ids of the agent, and the turns that it works on in them.

A restarted agent (`generation`) no longer knows its ids, and may reuse them: then everything kept
here is forgotten.
"""

# See docs/decisions.md, 9.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from msgspec import Struct, field

from acp_wire.newest import Newest
from acphold.live.agents.interface import HubAgent, Updates
from acphold.live.hub import bounds

log = logging.getLogger(__name__)


class Child(Struct, frozen=True):
    """A sub-agent of session `session_id`; clients know it as `id`. `depth` is 1 directly below the
    session."""

    session_id: str
    id: str
    depth: int


class AgentTurn(asyncio.Event):
    """A turn that the agent has got; set when the agent has answered it.

    `is_awaited` is False once it was answered for: then the agent may be ended in it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = True


class _Known(Struct):
    """Everything that is known of the agent's ids while it runs."""

    sessions: dict[str, str] = {}
    children: dict[str, Child] = {}
    children_of: dict[str, dict[str, Child]] = {}
    closed: Newest[str, None] = field(default_factory=lambda: Newest(bounds.CLOSED_SESSIONS))
    early: dict[str, list[Updates]] = {}
    early_bytes: int = 0
    at_work: dict[str, AgentTurn] = {}


class Routes:
    """Ids of the agent to ids of ours.

    Some agents send updates of a session before they answer `session/new`: those are kept until the
    id is bound.
    """

    def __init__(self) -> None:
        self.agent: HubAgent | None = None
        self._generation = 0
        self._known_then = _Known()

    @property
    def _known(self) -> _Known:
        generation = 0 if self.agent is None else self.agent.generation
        if self._generation != generation:
            self._generation, self._known_then = generation, _Known()
        return self._known_then

    def bind(self, agent_session: str, session_id: str) -> list[Updates]:
        """Bind this id to that session; return the updates that came before, in order."""
        known = self._known
        known.sessions[agent_session] = session_id
        if (child := known.children.pop(agent_session, None)) is not None:
            del known.children_of[child.session_id][agent_session]
        return self._early_of(agent_session)

    def bind_child(self, agent_session: str, child: Child) -> list[Updates]:
        """Bind this id to that child; return the updates that came before, in order."""
        known = self._known
        known.children[agent_session] = child
        known.children_of.setdefault(child.session_id, {})[agent_session] = child
        return self._early_of(agent_session)

    def _early_of(self, agent_session: str) -> list[Updates]:
        known = self._known
        known.closed.pop(agent_session, None)
        early = known.early.pop(agent_session, [])
        known.early_bytes -= sum(map(_size, early))
        return early

    def unbind(self, session_id: str) -> None:
        """Forget every id of this session; later updates for them are dropped."""
        known = self._known
        for agent_session in [key for key, value in known.sessions.items() if value == session_id]:
            del known.sessions[agent_session]
            known.closed[agent_session] = None
        for agent_session in known.children_of.pop(session_id, ()):
            del known.children[agent_session]
            known.closed[agent_session] = None
        for agent_session in [key for key, turn in known.at_work.items() if turn.is_set()]:
            del known.at_work[agent_session]

    def find(self, agent_session: str | None) -> str | None:
        """Return the session behind an id of the agent, also behind a child's; None if it is not
        bound."""
        if agent_session is None:
            return None
        known = self._known
        if (found := known.sessions.get(agent_session)) is not None:
            return found
        child = known.children.get(agent_session)
        return None if child is None else child.session_id

    def child(self, agent_session: str) -> Child | None:
        """Return the child behind an id of the agent; None if it is a session's, or not bound."""
        return self._known.children.get(agent_session)

    def children_of(self, session_id: str) -> Mapping[str, Child]:
        """Return the children of a session by the agent's ids."""
        return self._known.children_of.get(session_id, {})

    def is_closed(self, agent_session: str | None) -> bool:
        """Return True if this id was once bound and is no longer; the newest are known."""
        return agent_session in self._known.closed

    def keep(self, updates: Updates) -> None:
        """Keep updates for an id that is not bound yet; drop those for one that no longer is."""
        known = self._known
        if updates.session_id in known.closed:
            log.info("dropped %d updates for a closed session", len(updates.raws))
            return
        known.early_bytes += _size(updates)
        if known.early_bytes > bounds.EARLY_BYTES:
            log.warning("dropped updates for an unknown session %r", updates.session_id)
            known.early, known.early_bytes = {}, 0
            return
        known.early.setdefault(updates.session_id, []).append(updates)

    # -- turns ----------------------------------------------------------------------------

    def begin_turn(self, agent_session: str) -> AgentTurn:
        """Note that the agent gets a prompt; the caller sets the event that is returned once it has
        answered.

        This outlives the session here: an agent that ignores a cancellation goes on after the
        session was closed, and must not see a second prompt.
        """
        turn = self._known.at_work[agent_session] = AgentTurn()
        return turn

    def turn_at_work(self, agent_session: str | None) -> AgentTurn | None:
        """Return the turn the agent still works on in this session of its own; None if it is
        free."""
        ended = self._known.at_work.get(agent_session or "")
        return None if ended is None or ended.is_set() else ended

    def is_at_work_in_another(self, agent_session: str | None) -> bool:
        """Return True if the agent works on a turn of another session that is waited for."""
        return any(
            turn.is_awaited and not turn.is_set() and key != agent_session
            for key, turn in self._known.at_work.items()
        )


def is_usable_id(agent_session: str) -> bool:
    """Return False for an id of the agent that is none: an empty one, one that no store can look
    up, or one that would fill every message and list."""
    return 0 < len(agent_session) <= bounds.SESSION_ID_CHARACTERS and "\0" not in agent_session


def _size(updates: Updates) -> int:
    return sum(map(len, updates.raws))
