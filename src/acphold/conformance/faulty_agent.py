"""Agents that break one rule each, so that a test can show that its check sees it.

Each is the exemplar with one thing changed, under the id of the rule that it breaks. Run one by
hand with `python -m acphold.conformance.faulty_agent RULE FILE`, where FILE keeps its sessions over
restarts. With "" for RULE it breaks none.
"""

from __future__ import annotations

import asyncio
import sys

from acphold.conformance import (
    connection_faults,
    server_faults,
    session_faults,
    tool_faults,
    turn_faults,
)
from acphold.conformance.exemplar import Exemplar
from acphold.conformance.exemplar_turns import Memory
from acphold.transports.stdio import stdio_transport

FAULTS: dict[str, type[Exemplar]] = {
    **connection_faults.FAULTS,
    **session_faults.FAULTS,
    **turn_faults.FAULTS,
    **tool_faults.FAULTS,
    **server_faults.FAULTS,
}
"""By the id of the rule that is broken."""


def main() -> None:
    """Serve on stdio, with the fault that the command line names."""
    name, path = (*sys.argv[1:3], "", "")[:2]
    agent = FAULTS[name] if name else Exemplar
    asyncio.run(_serve(agent, Memory.at(path) if path else Memory()))


async def _serve(agent: type[Exemplar], memory: Memory) -> None:
    await agent(stdio_transport(), memory).serve()


if __name__ == "__main__":
    main()
