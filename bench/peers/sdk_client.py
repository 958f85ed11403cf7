"""A client on the official Python SDK; prints what it measured as JSON.

`python sdk_client.py rate N ROUNDS CMD...`: updates a second in each of ROUNDS turns of N updates.
`python sdk_client.py trip N ROUNDS CMD...`: microseconds of a prompt and its answer, the median of
N in each of ROUNDS.
`python sdk_client.py say PROMPT CMD...`: what the agent says to it, as it comes.
`python sdk_client.py load ID CMD...`: seconds until it had handled all that `session/load` brought.
"""

# mypy: disable-error-code="abstract, override"
# Only what is measured is implemented; the SDK asks for no more at run time.

from __future__ import annotations

import asyncio
import json
import sys
from statistics import median
from time import perf_counter
from typing import Any

import acp


class Watching(acp.Client):
    """Counts updates; `all_of_it` is set by the one that ends a flood, joined or not."""

    def __init__(self) -> None:
        self.seen = 0
        self.last = 0.0
        self.shows = False
        self.all_of_it = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.seen += 1
        if self.shows:
            print(update.content.text, end="", flush=True)
        self.last = perf_counter()
        if update.session_update == "agent_message_chunk" and update.content.text.endswith("!"):
            self.all_of_it.set()


async def main() -> None:
    """Run what the arguments say."""
    way, argument, *rest = sys.argv[1:]
    command = rest[1:] if way in ("rate", "trip") else rest
    client = Watching()
    async with acp.spawn_agent_process(
        lambda _: client, *command, transport_kwargs={"stderr": None}
    ) as (agent, _):
        await agent.initialize(protocol_version=1)
        if way == "rate":
            print(json.dumps(await rates(agent, client, int(argument), int(rest[0]))))
        elif way == "trip":
            print(json.dumps(await trips(agent, int(argument), int(rest[0]))))
        elif way == "say":
            await say(agent, client, argument)
        else:
            print(json.dumps(await load_time(agent, client, argument)))


async def rates(agent: Any, client: Watching, number: int, rounds: int) -> list[float]:
    """Updates a second in each of `rounds` turns of `number` updates."""
    session = (await agent.new_session(cwd="/tmp", mcp_servers=[])).session_id
    await agent.prompt(session_id=session, prompt=[acp.text_block("flood 500")])
    found = []
    for _ in range(rounds):
        client.all_of_it.clear()
        began = perf_counter()
        await agent.prompt(session_id=session, prompt=[acp.text_block(f"flood {number}")])
        await client.all_of_it.wait()
        found.append(number / (perf_counter() - began))
    return found


async def trips(agent: Any, number: int, rounds: int) -> list[float]:
    """The median of `number` prompts that are answered at once, in each round; microseconds."""
    session = (await agent.new_session(cwd="/tmp", mcp_servers=[])).session_id
    await agent.prompt(session_id=session, prompt=[acp.text_block("flood 500")])
    found = []
    for _ in range(rounds):
        taken = []
        for _ in range(number):
            began = perf_counter()
            await agent.prompt(session_id=session, prompt=[acp.text_block("flood 0")])
            taken.append((perf_counter() - began) * 1e6)
        found.append(median(taken))
    return found


async def say(agent: Any, client: Watching, prompt: str) -> None:
    """Show what the agent says, until it has said all of it."""
    client.shows = True
    session = (await agent.new_session(cwd="/tmp", mcp_servers=[])).session_id
    await agent.prompt(session_id=session, prompt=[acp.text_block(prompt)])
    await client.all_of_it.wait()


async def load_time(agent: Any, client: Watching, session: str) -> float:
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
