"""An agent of the library keeps its own sessions; here acphold, which keeps them too, wraps it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

import acphold as library
from acphold.sync import connect
from tests.cli.command_line import CommandLine

pytestmark = pytest.mark.slow

AGENT = """\
import acphold

agent = acphold.Agent("counter", version="1")


@agent.prompt
async def count(turn: acphold.Turn) -> None:
    history = await turn.history()
    turn.session.store["said"] = turn.session.store.get("said", 0) + 1
    await turn.say(f"{turn.session.store['said']} of {history.turns}, {turn.text}")


agent.run()
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """The command of an agent that counts."""
    (file := tmp_path / "counter.py").write_text(AGENT)
    return [sys.executable, str(file)]


def listed(acphold: CommandLine, *options: str) -> list[str]:
    """The agents of the sessions in the list."""
    done = acphold.run("list", "--json", *options)
    return [json.loads(line)["agent"] for line in done.out.splitlines()]


def test_a_conversation_is_listed_found_and_counted_once_and_goes_on(
    acphold: CommandLine, program: list[str]
) -> None:
    assert acphold.run("ask", "pelican", "--", *program).out == "1 of 0, pelican\n"
    assert listed(acphold) == ["counter"]
    again = acphold.run("ask", "heron", "--continue", "--", *program)
    assert again.out == "2 of 1, heron\n", again.err
    assert listed(acphold) == ["counter"]
    found = acphold.run("search", "--json", "pelican").out.splitlines()
    assert {json.loads(line)["agent"] for line in found} == {"counter"}
    counted = acphold.run("usage", "--json").out
    assert "(library)" not in counted


def test_with_a_journal_of_its_own_each_has_its_own_list(
    acphold: CommandLine, program: list[str], tmp_path: Path
) -> None:
    own = f"journal={str(tmp_path / 'own.db')!r}"
    Path(program[1]).write_text(AGENT.replace("agent.run()", f"agent.run({own})"))
    assert acphold.run("ask", "hi", "--", *program).out == "1 of 0, hi\n"
    assert listed(acphold) == ["counter"]
    assert listed(acphold, "--journal", str(tmp_path / "own.db")) == ["counter (library)"]


async def test_while_it_is_live_it_is_in_the_list_once(
    acphold: CommandLine, program: list[str], journal: Path
) -> None:
    async with library.connect(*program, durable=True, journal=journal) as agent:
        session = await agent.new_session()
        assert (await session.prompt("hi")).text == "1 of 0, hi"
        assert await asyncio.to_thread(listed, acphold) == ["counter"]


def test_what_is_prompted_in_the_agents_own_record_is_listed_from_then_on(
    acphold: CommandLine, program: list[str]
) -> None:
    acphold.run("ask", "hi", "--", *program)
    all_of_it = acphold.run("list", "--all", "--json").out.splitlines()
    ids = {each["agent"]: each["sessionId"] for each in map(json.loads, all_of_it)}
    with connect(*program, env=acphold.environment) as agent:
        session = agent.load_session(ids["counter (library)"])
        assert session.prompt("and more").wait().text == "2 of 1, and more"
    assert sorted(listed(acphold)) == ["counter", "counter (library)"]
