"""A session that goes over from one agent to another.

That happens when it is opened with another agent than the one that it was held with: with
`--all-agents`, because a client knows its id, or because a client has named this agent to continue
it (`Setup.stays`). The other agent is handed the conversation like one that has lost it
(`hub.restoration`), and gets none of the modes and options of the first.

    state     what it means                              next
    --------  -----------------------------------------  ----------------------------------------
    none      the session is one of the agent's own      due, when another agent opens it
    due       another agent has it open                  none, with the first prompt to that one:
                                                         the session is listed with it, and
                                                         remembers the agent it was held with
"""

# See docs/decisions.md, 24.

from __future__ import annotations

from acphold.history.attributes import Attributes
from acphold.hub.agent_session import AgentSession
from acphold.hub.choices import settings_in
from acphold.hub.session import HubSession
from acphold.journal import Origin, RowChange, Sessions
from acphold.schema.splice import splice

NO_COMMANDS = b'{"sessionUpdate":"available_commands_update","availableCommands":[]}'


class Transfer:
    """See the module.

    `held_with` is another agent that the conversation began with, here or in the session that this
    one was copied from; `is_new` says that the agent has not held it itself.
    """

    def __init__(self, session: HubSession, side: AgentSession, journal: Sessions) -> None:
        self.held_with: str | None = None
        self.is_new = False
        self._session = session
        self._side = side
        self._journal = journal
        self._due: Origin | None = None

    @property
    def is_due(self) -> bool:
        """True if another agent has it open than the one it was held with."""
        return self._due is not None

    async def begin(self) -> None:
        """Look up the session's agents: this agent is about to open it. Raises JournalError."""
        session, key = self._session, self._side.agent.key
        row = await self._journal.session(session.id)
        agents = [origin.agent for origin in row.origins[-1:]] + [row.agent]
        others = [agent for agent in agents if agent != key]
        self.held_with = others[-1] if others else None
        self.is_new = bool(row.origins or others) or row.downstream_id is None
        self._due = None
        if row.agent != key:
            self._due = Origin(session.id, row.agent, session.last_seq)

    async def settle_in(self, before: Attributes, opened: bytes) -> None:
        """Journal the agent's modes and options in place of those of the agent before."""
        entry = splice(settings_in(opened), {"anew": b"true"})
        await self._session.publish("settings", [entry])
        if before.commands is not None and self._session.attributes.commands == before.commands:
            await self._session.publish("update", [NO_COMMANDS])

    async def done(self) -> None:
        """Make the session the agent's own: it gets a prompt, and with it the conversation.

        Not only once it has answered: its requests until then are made under its own name.
        """
        if (due := self._due) is not None:
            row = await self._journal.session(self._session.id)
            agent = self._side.agent
            change = RowChange(agent=agent.key, origins=(*row.origins, due), start=agent.start)
            await self._session.row.change(change)
            self._session.agent = agent.key
            self._due = None
