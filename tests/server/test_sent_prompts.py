"""Prompts whose owner is killed run once or are reported; a cut connection does not end them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from acp_wire.rpc import Peer
from acphold.conversation.history.entries import Entry
from acphold.errors import InvalidParamsError
from acphold.journal.stores import open_journal
from acphold.live.server.far_line import FarLine
from acphold.live.server.positions import find_sent
from tests.editor import Editor, Refused, received, scripted_agent
from tests.owners import program
from tests.served import Guest, guest

pytestmark = pytest.mark.slow


@asynccontextmanager
async def sharing(
    journal: Path, asks_for: str = "nothing"
) -> AsyncIterator[tuple[Guest, Editor, str]]:
    """A client here, the client of the process that owns the session, and the session."""
    async with guest(scripted_agent(), journal) as other:
        await other.initialize(_meta={asks_for: True})
        async with program(journal) as owner:
            session = await owner.talk({"say": "hello "})
            await other.load(session)
            yield other, owner, session


async def entries(journal: Path, session: str) -> list[Entry]:
    reader = open_journal(journal)
    found: list[Entry] = []
    try:
        while page := await reader.read(session, found[-1].seq if found else 0):
            found += [entry for segment in page for entry in segment.entries()]
    finally:
        await reader.aclose()
    return found


async def prompts(journal: Path, session: str) -> list[str]:
    """The texts of the prompts, in order."""
    found = [entry.raw for entry in await entries(journal, session) if entry.kind == "prompt"]
    return [json.loads(raw)[0]["text"] for raw in found]


def steps(*each: dict[str, Any]) -> str:
    return json.dumps(each)


@pytest.mark.parametrize("asks_for", ["nothing", "acphold/begun", "acphold/positions"])
async def test_a_turn_that_its_owner_died_in_ends_at_once_with_an_error_that_says_so(
    journal: Path, asks_for: str
) -> None:
    async with sharing(journal, asks_for) as (other, owner, session):
        turn = other.begin_prompt(session, {"say": "half"}, {"until": "cancel"})
        await other.until_text("half")
        await owner.kill()
        with pytest.raises(Refused, match=r"interrupted.* has ended") as refused:
            await turn
        assert "is kept" in refused.value.message
        await other.prompt(session, {"say": "whole"})
        ends = [entry.raw for entry in await entries(journal, session) if entry.kind == "turn_end"]
        assert ends[1:] == [b'{"interrupted":true}', b'{"stopReason": "end_turn"}']


@pytest.mark.parametrize("end", ["kill", "leave"])
async def test_prompts_that_waited_at_the_dead_owner_are_sent_again_in_their_order(
    journal: Path, tmp_path: Path, end: str
) -> None:
    log = tmp_path / "log"
    async with guest(scripted_agent(log=str(log)), journal) as other:
        await other.initialize()
        async with program(journal) as owner:
            session = await owner.new()
            owner.begin_prompt(session, {"say": "half"}, {"until": "cancel"})
            await owner.until_text("half")
            await other.load(session)
            turns = [other.begin_prompt(session, {"say": f"{n} "}) for n in range(3)]
            other.tell("session/set_mode", {"sessionId": session, "modeId": "x"})
            await other.refused("no/such", {"sessionId": session})  # they are all there
            await (owner.kill() if end == "kill" else owner.leave())
            assert [await turn for turn in turns] == [{"stopReason": "end_turn"}] * 3
        await other.until_text("2 ")
        assert other.text().endswith("0 1 2 ")
        said = [steps({"say": f"{n} "}) for n in range(3)]
        assert (await prompts(journal, session))[1:] == said
        sent = [m["params"]["prompt"][-1]["text"] for m in received(log, "session/prompt")]
        assert sent == said
        assert not any(text in other.text("user_message_chunk") for text in said)


async def test_a_prompt_that_had_begun_without_a_word_of_it_is_not_run_again(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with sharing(journal) as (other, owner, session):
        other.reads.clear()  # so that no message of the owner arrives
        owner.begin_prompt(session, {"flood": [800, 5000]}, {"until": str(go)})
        await owner.until(lambda: len(owner.updates(session)) > 800)
        turn = other.begin_prompt(session, {"say": "begun"}, {"until": "cancel"})
        go.touch()
        await owner.until_text("begun")
        await owner.kill()
        other.reads.set()
        with pytest.raises(Refused, match="interrupted"):
            await turn
        await other.until_text("begun")
        assert (await prompts(journal, session))[2:] == [
            steps({"say": "begun"}, {"until": "cancel"})
        ]


async def test_two_clients_of_a_dead_owner_have_each_of_their_prompts_run_once(
    journal: Path,
) -> None:
    async with guest(scripted_agent(), journal) as left, guest(scripted_agent(), journal) as right:
        await left.initialize()
        await right.initialize()
        async with program(journal) as owner:
            session = await owner.new()
            owner.begin_prompt(session, {"say": "half"}, {"until": "cancel"})
            await owner.until_text("half")
            await left.load(session)
            await right.load(session)
            both = [
                left.begin_prompt(session, {"say": "from L "}),
                right.begin_prompt(session, {"say": "from R "}),
            ]
            await left.refused("no/such", {"sessionId": session})
            await right.refused("no/such", {"sessionId": session})
            await owner.kill()
            assert [await turn for turn in both] == [{"stopReason": "end_turn"}] * 2
        for client in (left, right):
            await client.until_text("from L ")
            await client.until_text("from R ")
            assert client.text().count("from ") == 2
        said = [steps({"say": f"from {name} "}) for name in "LR"]
        assert sorted((await prompts(journal, session))[1:]) == said


async def test_a_prompt_whose_request_was_cancelled_is_not_sent_again(journal: Path) -> None:
    async with sharing(journal) as (other, owner, session):
        os.kill(owner.process.pid, signal.SIGSTOP)
        turn = other.begin_prompt(session, {"say": "never"})
        other.tell("$/cancel_request", {"requestId": other.last_id})
        with pytest.raises(Refused, match="cancelled"):
            await turn
        await owner.kill()
        await other.prompt(session, {"say": "whole"})
        assert "never" not in other.text()
        assert steps({"say": "never"}) not in await prompts(journal, session)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Peer]:
    """The connections of lines to owners, as they are made."""
    made: list[Peer] = []
    restore = FarLine._restore

    async def noted(self: FarLine, server: Peer) -> None:
        made.append(server)
        await restore(self, server)

    monkeypatch.setattr(FarLine, "_restore", noted)
    return made


async def test_a_turn_goes_on_when_the_line_to_its_owner_is_cut(
    journal: Path, tmp_path: Path, lines: list[Peer]
) -> None:
    go = tmp_path / "go"
    async with sharing(journal) as (other, _, session):
        turn = other.begin_prompt(session, {"say": "half "}, {"until": str(go)}, {"say": "whole"})
        await other.until_text("half ")
        await lines[-1].aclose()
        go.touch()
        assert await turn == {"stopReason": "end_turn"}
        assert other.text().endswith("half whole")
        assert len(lines) == 2
        assert len(await prompts(journal, session)) == 2


async def test_prompts_that_wait_at_their_owner_run_once_when_the_line_to_it_is_cut(
    journal: Path, tmp_path: Path, lines: list[Peer]
) -> None:
    go = tmp_path / "go"
    async with sharing(journal) as (other, owner, session):
        first = owner.begin_prompt(session, {"say": "half "}, {"until": str(go)})
        await other.until_text("half ")
        turns = [other.begin_prompt(session, {"say": f"{n} "}) for n in range(3)]
        await other.refused("no/such", {"sessionId": session})  # they are all there
        await lines[-1].aclose()
        await other.refused("no/such", {"sessionId": session})  # and once more
        go.touch()
        assert [await turn for turn in (first, *turns)] == [{"stopReason": "end_turn"}] * 4
        await other.until_text("2 ")
        assert other.text().endswith("half 0 1 2 ")
        assert (await prompts(journal, session))[2:] == [steps({"say": f"{n} "}) for n in range(3)]
        assert not any(f"{n} " in other.text("user_message_chunk") for n in range(3))


async def test_a_turn_that_is_cancelled_while_the_line_to_its_owner_is_cut_ends_there(
    journal: Path, lines: list[Peer]
) -> None:
    async with sharing(journal) as (other, owner, session):
        turn = other.begin_prompt(session, {"say": "half "}, {"until": "cancel"})
        await other.until_text("half ")
        await lines[-1].aclose()
        other.tell("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}
        await owner.prompt(session, {"say": "next"})  # it waits for the end of the one before
        ends = [entry.raw for entry in await entries(journal, session) if entry.kind == "turn_end"]
        assert b"cancelled" in ends[1]


@pytest.mark.of_a_file
async def test_a_turn_that_ended_unseen_is_shown_before_its_answer_in_a_new_lineage_too(
    journal: Path, tmp_path: Path, lines: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, back, restore = tmp_path / "go", asyncio.Event(), FarLine._restore

    async def late(self: FarLine, server: Peer) -> None:
        await back.wait()
        await restore(self, server)

    async with sharing(journal) as (other, owner, session):
        turn = other.begin_prompt(session, {"say": "half "}, {"until": str(go)}, {"say": "whole"})
        await other.until_text("half ")
        monkeypatch.setattr(FarLine, "_restore", late)
        await lines[-1].aclose()
        go.touch()
        await owner.prompt(session, {"say": "next"})  # it waits for the end of the one before
        await owner.kill()
        with closing(sqlite3.connect(journal, isolation_level=None)) as kept:
            kept.execute("DELETE FROM meta WHERE name = 'era'")
        back.set()
        assert await turn == {"stopReason": "end_turn"}
        assert "half whole" in other.text()
        assert len(await prompts(journal, session)) == 3


@pytest.mark.parametrize("after", [-2, 1 << 32, 10**30, 0.5, "1"])
def test_a_position_that_no_entry_has_is_none(after: object) -> None:
    sent = {"acphold/sent": {"id": "a", "after": after}}
    with pytest.raises(InvalidParamsError, match="acphold/seq"):
        find_sent(json.dumps({"_meta": sent}).encode())
