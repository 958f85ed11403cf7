"""Agents that break one rule each, so that a test can show that its check sees it.

Each is the exemplar with one thing changed, under the id of the rule that it breaks. Run one by
hand with `python tests/faulty_agent.py RULE FILE`, where FILE keeps its sessions over
restarts. With "" for RULE it breaks none.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path, from any folder
    sys.path.insert(0, str(Path(__file__).parents[1]))

from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_wire.transports.stdio import stdio_transport
from tests.faults import connections, hours, servers, sessions, tools, turns, wider

FAULTS: dict[str, type[Exemplar]] = {
    **connections.FAULTS,
    **sessions.FAULTS,
    **hours.FAULTS,
    **turns.FAULTS,
    **tools.FAULTS,
    **servers.FAULTS,
    **wider.FAULTS,
}
"""By the id of the rule that is broken."""


def command(fault: str = "") -> list[str]:
    """The command that starts such an agent."""
    return [sys.executable, __file__, fault]


def main() -> None:
    """Serve on stdio, with the fault that the command line names."""
    name, path = (*sys.argv[1:3], "", "")[:2]
    agent = FAULTS[name] if name else Exemplar
    asyncio.run(_serve(agent, Memory.at(path) if path else Memory()))


async def _serve(agent: type[Exemplar], memory: Memory) -> None:
    await agent(stdio_transport(), memory).serve()


if __name__ == "__main__":
    main()
