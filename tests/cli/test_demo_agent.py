"""The demo's agent: words in a prompt steer it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.editor import Editor, introduced

COMMAND = [sys.executable, "-m", "acphold", "agent", "demo"]


@pytest.fixture
async def client(journal: Path) -> AsyncIterator[Editor]:
    """A client directly at the agent; it permits everything."""
    async with introduced(COMMAND, journal=journal) as made:
        yield made


async def test_it_leaves_the_file_alone_when_it_is_not_permitted(client: Editor) -> None:
    client.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "cancelled"}}
    await client.talk("hello")
    assert client.text().endswith("I left it as it was.")
    assert "newText" not in json.dumps(client.updates())


async def test_each_edit_goes_on_where_the_one_before_ended(client: Editor) -> None:
    session = await client.talk("hello")
    first = len(client.updates())
    await client.prompt(session, "hello")
    before, after = (
        json.dumps(part) for part in (client.updates()[:first], client.updates()[first:])
    )
    assert "Hello, friend!" in before
    assert "Hello, dear friend!" not in before
    assert "Hello, friend!" in after
    assert "Hello, dear friend!" in after


async def test_quick_is_an_echo_and_recall_repeats_the_conversation(client: Editor) -> None:
    session = await client.talk("quick one")
    await client.prompt(session, "recall")
    assert client.text() == "You said: quick oneI know: quick one"


async def test_slow_goes_on_until_it_is_cancelled(client: Editor) -> None:
    session = await client.new()
    turn = client.begin_prompt(session, "slow")
    await client.until_text("tick 3 ")
    client.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}


async def test_crash_ends_it_in_mid_turn(client: Editor) -> None:
    client.begin_prompt(await client.new(), "crash")
    assert await client.process.wait() == 3
    await client.ended()
    assert "about to crash" in client.text()


async def test_what_the_checker_asks_for_it_does(client: Editor, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a word")
    prompt = "Read the file `note.txt` with your tool for reading files, and repeat what it says."
    await client.talk(prompt, cwd=tmp_path)
    assert client.text() == "It says: a word"
