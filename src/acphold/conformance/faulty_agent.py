"""Agents that break one rule each, so that a test can show that its check sees it.

Each is the exemplar with one thing changed, under the id of the rule that it breaks. Run one by
hand with `python -m acphold.conformance.faulty_agent RULE`; without a rule it breaks none.
"""

from __future__ import annotations

import asyncio
import sys

from acphold.conformance import connection_faults, session_faults, tool_faults, turn_faults
from acphold.conformance.exemplar import Exemplar
from acphold.conformance.exemplar_turns import Memory
from acphold.transports.stdio import stdio_transport

FAULTS: dict[str, type[Exemplar]] = {
    **connection_faults.FAULTS,
    **session_faults.FAULTS,
    **turn_faults.FAULTS,
    **tool_faults.FAULTS,
}
"""By the id of the rule that is broken."""


def main() -> None:
    """Serve on stdio, with the fault that the command line names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    agent = FAULTS[name] if name else Exemplar
    asyncio.run(_serve(agent))


async def _serve(agent: type[Exemplar]) -> None:
    await agent(stdio_transport(), Memory()).serve()


if __name__ == "__main__":
    main()
