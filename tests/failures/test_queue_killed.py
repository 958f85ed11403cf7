"""`kill -9` of the process that has a queue of prompts: each begins at most once, in order, and
none is lost."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Editor, introduced, received, scripted_agent
from tests.owners import lone_command
from tests.queues import QUEUE, told_queues

pytestmark = pytest.mark.slow

PROMPTS = 30
LASTING = {"4", "11", "17", "23", "29"}
"""Prompts whose turns last until acphold is killed, so that it is killed often enough."""


async def change(client: Editor, session: str, **fields: Any) -> Any:
    return await client.call(QUEUE, {"sessionId": session, "change": fields})


def number(prompt: list[dict[str, Any]]) -> int | None:
    """The number of a prompt of this test; it is in the last block, after the prompt's text."""
    try:
        return int(json.loads(prompt[-1]["text"])[0]["say"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


@pytest.mark.parametrize("seed", range(3))
async def test_prompts_that_wait_begin_once_and_in_order_whenever_acphold_is_killed(
    journal: Path, tmp_path: Path, seed: int
) -> None:
    chance, log = random.Random(seed), tmp_path / "log"
    command = lone_command(scripted_agent(log=str(log)))
    asks = {"client": {"_meta": {"acphold/queue": True}}}
    async with introduced(command, journal=journal, **asks) as first:
        session = await first.new()
        await change(first, session, do="hold")
        for count in range(PROMPTS):
            stays = [{"until": str(tmp_path / "never")}] if str(count) in LASTING else []
            text = json.dumps([{"say": str(count)}, *stays])
            await change(
                first, session, do="add", id=str(count), prompt=[{"type": "text", "text": text}]
            )
        await first.kill()
    waiting = [str(count) for count in range(PROMPTS)]
    kills = 0
    while waiting:
        async with introduced(command, journal=journal, **asks) as client:
            await client.load(session)
            asked = {"sessionId": session}
            queue = (await client.call(QUEUE, asked))["queue"]
            left = [prompt["id"] for prompt in queue.get("waiting", [])]
            assert waiting[len(waiting) - len(left) :] == left, "lost, or out of order"
            waiting = left
            if waiting:
                assert queue["held"] in ("reopened", "interrupted", "person")
                going = asyncio.ensure_future(change(client, session, do="go"))
                await until_told(client, chance.randrange(1, 25))
                await client.kill()
                kills += 1
                going.cancel()
    assert kills >= len(LASTING)
    sent = [number(message["params"]["prompt"]) for message in received(log, "session/prompt")]
    numbers = [it for it in sent if it is not None]
    assert numbers == sorted(set(numbers)), "begun twice, or out of order"
    async with introduced(command, journal=journal, **asks) as last:
        await last.load(session)
        said = [u for u in last.updates(session) if u["sessionUpdate"] == "user_message_chunk"]
        kept = [int(json.loads(u["content"]["text"])[0]["say"]) for u in said]
        assert kept == list(range(PROMPTS)), "each is in the history, once"


async def until_told(client: Editor, more: int) -> None:
    """Wait until so many more messages have come, or a turn lasts, or nothing waits any more."""
    enough = len(client.messages) + more

    def is_told() -> bool:
        told = told_queues(client.messages)
        is_over = bool(told) and not told[-1].get("waiting") and "begun" not in told[-1]
        lasts = bool(told) and told[-1].get("begun", {}).get("id") in LASTING
        return is_over or lasts or len(client.messages) >= enough

    await client.until(is_told)
