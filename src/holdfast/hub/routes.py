"""Which live session an id of the agent belongs to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.hub.session import Session

log = logging.getLogger(__name__)

EARLY_BYTES = 1024 * 1024
"""Bytes of updates that are kept for sessions nobody knows yet; beyond it they are dropped."""


class Routes:
    """Agent session ids to live sessions.

    Some agents send updates of a session before they answer `session/new`: those are kept until
    the id is bound.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._early: dict[str, list[tuple[str, list[bytes]]]] = {}
        self._early_bytes = 0

    def bind(self, agent_session: str, session: Session) -> list[tuple[str, list[bytes]]]:
        """From now on this id is `session`; returns what came for it before, in order."""
        self._sessions[agent_session] = session
        early = self._early.pop(agent_session, [])
        self._early_bytes -= sum(len(raw) for _, raws in early for raw in raws)
        return early

    def unbind(self, session: Session) -> None:
        """Forget every id of this session."""
        for agent_session in [key for key, value in self._sessions.items() if value is session]:
            del self._sessions[agent_session]

    def find(self, agent_session: str) -> Session | None:
        """The live session behind an id of the agent."""
        return self._sessions.get(agent_session)

    def sessions(self) -> set[Session]:
        """All live sessions that the agent knows."""
        return set(self._sessions.values())

    def keep(self, agent_session: str, kind: str, raws: Sequence[bytes]) -> None:
        """Updates for an id that is not bound yet."""
        self._early_bytes += sum(map(len, raws))
        if self._early_bytes > EARLY_BYTES:
            log.warning("updates for an unknown session %r were dropped", agent_session)
            self._early.clear()
            self._early_bytes = 0
            return
        self._early.setdefault(agent_session, []).append((kind, list(raws)))
