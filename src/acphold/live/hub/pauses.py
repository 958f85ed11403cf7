"""The pause while the journal is out of reach, until all goes on where it was.

    after                        what happens
    ---------------------------  -----------------------------------------------------------
    nothing                      an update that cannot be written is waited for: what the agent
                                 says after it is not read (`hub.outages`)
    UNANSWERED_SECONDS           clients of running turns and open questions are told
    PAUSE_SECONDS since we were  every process of the agents is stopped: soon another place may
    last heard in a database     take the sessions, and we could not know. Agents of a library in
                                 this process wait where they next say or ask anything
    `max_outage`                 the turns end, and so do their agents

When the journal is back, the leases are renewed first. An agent with a session that another place
has taken meanwhile is killed while it is stopped; all others continue. Nothing is lost: what the
agents said stands in their pipes.
"""

# See docs/decisions.md, 17.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from acp_wire.tasks import TaskSet
from acphold import errors
from acphold.live.agents.interface import HubAgent
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.outages import Outage

log = logging.getLogger(__name__)

AWAY = "The database of the conversations cannot be reached"
AWAY_HOW = (
    "This session waits for it, and goes on by itself. Nothing is lost. If it is not back within "
    "{:g} minutes, the turn ends."
)
LOCKED = "Another program locks the file of the conversations"
BACK = "The conversations can be written again"

NOT_OURS = "the journal has been out of reach for so long that another machine may own the session"
TOO_LONG = "the journal has been out of reach for {:g} s (max_outage)"


class Pause:
    """See the module. `_stopped` are the agents that are stopped, with their generation."""

    def __init__(
        self, live: Mapping[str, Conversation], outage: Outage, *, is_shared: bool
    ) -> None:
        self._live = live
        self._away = AWAY if is_shared else LOCKED
        self._outage = outage
        self._told: set[Conversation] = set()
        self._stopped: dict[HubAgent, int] = {}
        self._ending = TaskSet()

    async def look(self, unheard: float) -> None:
        """Do what is due: see the table. The journal has not heard of us for `unheard` seconds."""
        self._outage.begin()
        due = {it: it.shared.options.max_outage for it in self._live.values()}
        for conversation in due:
            if conversation.is_busy and conversation not in self._told:
                self._told.add(conversation)
                how = AWAY_HOW.format(due[conversation] / 60)
                conversation.session.attachments.tell_aside(notice(self._away, how, "warning"))
        if unheard >= bounds.PAUSE_SECONDS:
            self._outage.is_paused = True
            await asyncio.gather(*map(self._stop, due))
        for conversation, seconds in due.items():
            if self._outage.lasted >= seconds:
                await self._end(conversation, TOO_LONG.format(seconds))

    async def _stop(self, conversation: Conversation) -> None:
        agent = conversation.side.agent
        await conversation.services.stop()
        if self._stopped.get(agent) != agent.generation and await agent.stop():
            log.warning("session %s: its agent is stopped: %s", conversation.id, NOT_OURS)
            self._stopped[agent] = agent.generation

    async def _end(self, conversation: Conversation, why: str) -> None:
        if conversation.turns.running is not None:
            await conversation.fail(
                errors.JournalUnavailableError(
                    f"the turn of session {conversation.id!r} was stopped: {why}"
                )
            )
        self.end_agent(conversation)

    def end_agent(self, conversation: Conversation) -> None:
        """End the agent of a session that is no longer ours, or has waited for too long, if it is
        stopped: it must not run again."""
        agent = conversation.side.agent
        if self._stopped.pop(agent, None) is not None:
            self._ending.start(agent.aclose(), "end a stopped agent")

    async def end(self) -> None:
        """Have everything continue: the journal has answered, and what is still live is ours."""
        if not self._outage.begun.is_set():
            return
        live = tuple(self._live.values())
        await asyncio.gather(
            *(agent.go_on() for agent in self._stopped), *(it.services.go_on() for it in live)
        )
        self._stopped.clear()
        self._outage.end()
        for conversation in self._told.intersection(live):
            conversation.session.attachments.tell_aside(notice(BACK, ""))
        self._told.clear()

    async def aclose(self) -> None:
        """Wait until agents that have to end have ended."""
        await self._ending.finish()
