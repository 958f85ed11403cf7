"""The screen, the model's memory and the list agree, whatever happened to a conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.interop.client import opening
from tests.interop.conversations_held import HABITS, Habits, Held, Mind, Table, delete
from tests.interop.place import Place
from tests.interop.real_agents import CODEX, CODEX_OF_OPENAI, GOOSE

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

FIRST = "Find out why the image is so big:"

KEYS = (
    "heron",
    "egret",
    "stork",
    "crane",
    "plover",
    "curlew",
    "godwit",
    "dunlin",
    "knot",
    "teal",
    "rail",
)


@pytest.fixture
def mind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mind]:
    with Mind().running(monkeypatch) as found:
        yield found


AT_THE_AGENT = ("nothing", "clear", "compact", "by itself", "plan")
ELSEWHERE = ("forked", "continued with another", "deleted", "grown elsewhere")


def happens(event: str, habits: Habits) -> bool:
    if event == "deleted" and habits.agent is CODEX_OF_OPENAI:
        return False  # it opens what it has lost, and refuses the first prompt there
    ways = {"clear": habits.clear, "compact": habits.compact, "by itself": habits.full}
    return bool(ways.get(event, event != "plan" or habits.has_plan))


async def before_the_restart(table: Table, habits: Habits) -> dict[str, Held]:
    """One conversation for each event."""
    agent = habits.agent
    other = next(it for it in HABITS if it.agent is (CODEX if agent is GOOSE else GOOSE))
    held: dict[str, Held] = {}
    keys = iter(KEYS)
    async with table.front(other.agent) as client:
        held["begun with another"] = it = await table.begin(client, next(keys), other)
        await table.say(client, it, FIRST)
        await table.say(client, it, "And then?")
    async with table.front(agent) as client:
        for event in filter(lambda event: happens(event, habits), (*AT_THE_AGENT, *ELSEWHERE)):
            held[event] = it = await table.begin(client, next(keys), habits)
            await table.say(client, it, FIRST)
            await table.happen(event, client, it)
            await table.say(client, it, "And what is left?")
    async with table.front(agent) as client:
        held["killed"] = it = await table.begin(client, next(keys), habits)
        await table.say(client, it, FIRST)
        await table.die_in(client, it)
    await table.first_day(agent)
    it.title = ""  # opencode made one, which is seen only when it is back
    if "deleted" in held:
        delete(held["deleted"], table.place.home)
    async with table.front(agent, bare=True) as client:
        it = held["grown elsewhere"]
        await client.call("session/load", opening(table.place.work, it.session_id))
        await table.say(client, it, "Said elsewhere:")
    held["the fork"] = await table.fork(held["forked"])
    async with table.front(other.agent, "--all-agents") as client:
        await table.load(client, it := held["continued with another"])
        await table.say(client, it, "Said to the other one:")
    return held


@pytest.mark.parametrize("habits", HABITS, ids=lambda habits: habits.agent.name)
async def test_each_event_and_a_restart(habits: Habits, place: Place, mind: Mind) -> None:
    table = Table(place, mind)
    held = await before_the_restart(table, habits)
    for _ in range(2):
        async with table.front(habits.agent, "--all-agents") as client:
            for it in held.values():
                await table.load(client, it)
                await table.say(client, it, "And now?")
    await table.count(habits.agent)
    sys.stdout.writelines(
        f"| {habits.agent.name} | {event} | {' / '.join(it.given)} | {len(it.lines)} |"
        f" {'; '.join(it.faults) or 'ok'} |\n"
        for event, it in held.items()
    )
    assert [fault for it in table.held for fault in it.faults] == []
