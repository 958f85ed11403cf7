"""A client on acphold; prints what it measured as JSON.

`python acphold_client.py rate N ROUNDS CMD...`: updates a second in each of ROUNDS turns.
`python acphold_client.py trip N ROUNDS CMD...`: microseconds of a prompt and its answer, the median
of N in each of ROUNDS.
"""

from __future__ import annotations

import asyncio
import json
import sys
from statistics import median
from time import perf_counter

import acphold
from acp_wire.schema import AgentMessageChunk, TextContent


async def main() -> None:
    """Run what the arguments say."""
    way, number, rounds, *command = sys.argv[1:]
    async with acphold.connect(*command) as agent:
        session = await agent.new_session("/tmp")
        await session.prompt("flood 500")
        measure = rate if way == "rate" else trip
        print(json.dumps([await measure(session, int(number)) for _ in range(int(rounds))]))


async def rate(session: acphold.RemoteSession, number: int) -> float:
    """Updates a second in a turn of `number` updates, each looked at."""
    seen, last, began = 0, "", perf_counter()
    async for update in session.prompt(f"flood {number}"):
        match update:
            case AgentMessageChunk(content=TextContent(text=last)):
                seen += 1
    taken = perf_counter() - began
    assert (seen, last[-1:]) == (number, "!")
    return number / taken


async def trip(session: acphold.RemoteSession, number: int) -> float:
    """The median of `number` prompts that are answered at once; microseconds."""
    taken = []
    for _ in range(number):
        began = perf_counter()
        await session.prompt("flood 0")
        taken.append((perf_counter() - began) * 1e6)
    return median(taken)


asyncio.run(main())
