"""A client on the official Python SDK: `python sdk_client.py rate N ROUNDS CMD...`, or `load ID CMD...`.

Prints one JSON object. `rate`: updates a second in each round. `load`: seconds until the last
update of a `session/load` had been handled.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import Any

import acp


class Counting(acp.Client):
    """Counts updates; `enough` is set at the one that is waited for."""

    def __init__(self) -> None:
        self.seen = 0
        self._awaited = -1
        self.enough = asyncio.Event()
        self.last = 0.0

    def wait_for(self, number: int) -> None:
        self.seen, self._awaited = 0, number
        self.enough.clear()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.seen += 1
        self.last = perf_counter()
        if self.seen == self._awaited:
            self.enough.set()


async def main() -> None:
    """Run what the arguments say."""
    way, argument, *rest = sys.argv[1:]
    command = rest[1:] if way == "rate" else rest
    client = Counting()
    async with acp.spawn_agent_process(
        lambda _: client, *command, transport_kwargs={"stderr": None}
    ) as (agent, _):
        await agent.initialize(protocol_version=1)
        if way == "rate":
            print(json.dumps(await rates(agent, client, int(argument), int(rest[0]))))
        else:
            print(json.dumps(await load_time(agent, client, argument)))


async def rates(agent: Any, client: Counting, number: int, rounds: int) -> list[float]:
    """Updates a second in each of `rounds` turns of `number` updates."""
    session = (await agent.new_session(cwd="/tmp", mcp_servers=[])).session_id
    await agent.prompt(session_id=session, prompt=[acp.text_block("flood 500")])
    found = []
    for _ in range(rounds):
        client.wait_for(number)
        began = perf_counter()
        await agent.prompt(session_id=session, prompt=[acp.text_block(f"flood {number}")])
        await client.enough.wait()
        found.append(number / (perf_counter() - began))
    return found


async def load_time(agent: Any, client: Counting, session: str) -> float:
    """Seconds from `session/load` to its answer, with every update handled."""
    began = perf_counter()
    await agent.load_session(cwd="/tmp", session_id=session, mcp_servers=[])
    # The SDK handles updates in tasks of their own: the answer may overtake some.
    seen = -1
    while seen != client.seen:
        seen = client.seen
        await asyncio.sleep(0.2)
    return client.last - began


asyncio.run(main())
