"""The way of one client to its agents: the desk that it came for, or that of each session.

A client of one agent has its desk from `initialize` on. A client of all agents of a server comes to
the desk of an agent when it needs that one: `server.server_agents`.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from acp_wire.rpc.requests import Request
from acphold.errors import InvalidParamsError, OtherAgentError
from acphold.journal.access import Scope
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.server.open_params import OpenParams
from acphold.live.server.principals import Principal


class FoundSession(Struct, frozen=True):
    """A session as it is found for a client of all agents: its `agent`, None if that is not served
    here, or at work at another desk; the one that is `acting` for who prompts it, or the refusal of
    that until a client has chosen one; and its `name` for the client."""

    agent: str | None = None
    acting: str | OtherAgentError | None = None
    name: str | None = None

    def agent_for(self, scopes: frozenset[Scope]) -> str | None:
        """Return the agent for a client with these scopes there: who only reads it chooses none.
        Raises OtherAgentError."""
        agent = self.acting if "prompt" in scopes else self.agent
        if isinstance(agent, OtherAgentError):
            raise agent
        return agent


class Directory:
    """See the module. This is the desk of one agent, for any client of it.

    With `only_joins` no session is made live there, and the journal `has_all` if the agent has no
    other sessions. For a client of all agents they `are_many`.
    """

    are_many = False

    def __init__(self, desk: Desk) -> None:
        self.hub: Hub = desk.hub
        self.only_joins = desk.only_joins
        self.has_all = desk.agent.reads_journal
        self._desk: Desk | None = desk

    async def come(self, offer: ClientOffer, principal: Principal, params: bytes) -> Desk | None:
        """Let the client come with its `initialize`; return the desk that it came for, None for
        those of all agents."""
        return self._desk

    def present(self, answer: bytes, principal: Principal) -> bytes:
        """Return the answer to `initialize` with the names of many agents."""
        return answer

    async def page(self, principal: Principal, params: bytes) -> bytes:
        """Return the result of `session/list` over many agents."""
        raise NotImplementedError

    async def find(self, session_id: str, asked: OpenParams | None = None) -> FoundSession:
        """Return where a session is opened; InvalidParamsError for an agent that is not served."""
        return FoundSession()

    def require_served(self, name: str | None, field: str = "agent") -> str | None:
        """Return the name of an agent, or None; InvalidParamsError for the field of the params if
        it is not served."""
        if name is not None:
            raise InvalidParamsError(f"{field}: only a client of all agents can name one", field)
        return None

    @asynccontextmanager
    async def at(
        self,
        request: Request,
        agent: str | None,
        scopes: frozenset[Scope],
        name: str | None = None,
    ) -> AsyncIterator[Desk]:
        """Yield the desk of an agent, for a request of a client with these scopes, which is
        introduced there; without `prompt` it starts nothing. `name` is that of the session's agent,
        if it is another one. Raises AcpError."""
        assert self._desk is not None, "the client has introduced itself"
        yield self._desk

    @asynccontextmanager
    async def of(
        self,
        request: Request,
        session_id: str | None,
        scopes: frozenset[Scope],
        *,
        acts: bool = False,
    ) -> AsyncIterator[Desk]:
        """Yield the desk of a session, as in `at`; without a session that of the agent that the
        request names, or of the default one. With `acts` the agent is to do something in it: raises
        OtherAgentError if it is not served."""
        async with self.at(request, None, scopes) as desk:
            yield desk

    @property
    def opened(self) -> Desk | None:
        """The desk for notifications outside of live sessions; None if there is none now."""
        return self._desk

    def conversation(self, session_id: str, request: Request) -> Conversation:
        """Return a live session, for a request in it; UnknownSessionError if it is not open."""
        return self.hub.conversation(session_id)
