"""The agent of a desk where clients only join sessions that are live at others."""

from __future__ import annotations

from acp_wire.schema import AgentCapabilities
from acp_wire.surroundings import Surroundings
from acphold.errors import AgentExitedError, AgentStartError
from acphold.live.agents.capabilities import answer_without_agent
from acphold.live.agents.interface import AgentCall

NO_AGENT = "no agent is started here: name the session that you want to join"


class AbsentAgent:
    """See the module; an `agents.HubAgent`. Everything that needs an agent is refused."""

    key = known_as = shell = own_name = ""
    capabilities = AgentCapabilities()
    has_sign_in = can_fork = reads_journal = takes_a_moment = False
    index_methods: frozenset[str] = frozenset()
    start: str | None = None
    generation = 0
    alive = False

    def __init__(self) -> None:
        self.surroundings = Surroundings({}, "/")

    async def initialize(self, params: bytes) -> bytes:
        return answer_without_agent()

    async def ensure(self) -> None:
        raise AgentStartError(NO_AGENT)

    async def restart(self) -> None:
        return None

    def send(self, call: AgentCall) -> None:
        raise AgentExitedError(NO_AGENT, "", "")

    def withdraw(self, call: AgentCall) -> None:
        return None

    def call_of(self, number: int) -> AgentCall | None:
        return None

    async def tell(self, method: str, params: bytes) -> None:
        return None

    async def aclose(self) -> None:
        return None
