"""Which live session an id of the agent belongs to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acphold.hub.session import Session

log = logging.getLogger(__name__)

EARLY_BYTES = 1024 * 1024
"""Bytes of updates that are kept for sessions nobody knows yet; beyond it they are dropped."""


class Routes:
    """Agent session ids to live sessions.

    Some agents send updates of a session before they answer `session/new`: those are kept until
    the id is bound. An agent that was started anew (`generation`) knows none of its ids any more,
    and may give them out again.
    """

    def __init__(self, generation: Callable[[], int]) -> None:
        self._now = generation
        self._generation = 0
        self._sessions: dict[str, Session] = {}
        self._closed: set[str] = set()
        self._early: dict[str, list[tuple[str, list[bytes]]]] = {}
        self._early_bytes = 0

    def bind(self, agent_session: str, session: Session) -> list[tuple[str, list[bytes]]]:
        """From now on this id is `session`; returns what came for it before, in order."""
        self._look()
        self._sessions[agent_session] = session
        self._closed.discard(agent_session)
        early = self._early.pop(agent_session, [])
        self._early_bytes -= sum(len(raw) for _, raws in early for raw in raws)
        return early

    def unbind(self, session: Session) -> None:
        """Forget every id of this session."""
        for agent_session in [key for key, value in self._sessions.items() if value is session]:
            del self._sessions[agent_session]
            self._closed.add(agent_session)

    def find(self, agent_session: str | None) -> Session | None:
        """The live session behind an id of the agent."""
        self._look()
        return None if agent_session is None else self._sessions.get(agent_session)

    def is_closed(self, agent_session: str | None) -> bool:
        """Whether this id was that of a session and is no longer."""
        return agent_session in self._closed

    def sessions(self) -> set[Session]:
        """All live sessions that the agent knows."""
        self._look()
        return set(self._sessions.values())

    def _look(self) -> None:
        if self._generation != self._now():
            self._generation = self._now()
            self._sessions.clear()
            self._closed.clear()
            self._early.clear()
            self._early_bytes = 0

    def keep(self, agent_session: str, kind: str, raws: Sequence[bytes]) -> None:
        """Updates for an id that is not bound yet; those for one that no longer is are dropped."""
        if agent_session in self._closed:
            log.info("%d updates for a session that is closed were dropped", len(raws))
            return
        self._early_bytes += sum(map(len, raws))
        if self._early_bytes > EARLY_BYTES:
            log.warning("updates for an unknown session %r were dropped", agent_session)
            self._early.clear()
            self._early_bytes = 0
            return
        self._early.setdefault(agent_session, []).append((kind, list(raws)))
