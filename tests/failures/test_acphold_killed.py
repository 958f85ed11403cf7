"""`kill -9` of acphold: whatever any client had seen is there, and the turn is marked."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from acphold.faces.cli.front import daemon_lock
from acphold.machine.locked_file import holder
from tests.editor import Editor, introduced, scripted_agent, wrap_command
from tests.owners import lone_command
from tests.watched_processes import below, gone


class Acphold:
    """The program that an editor starts, and the process that keeps its sessions.

    That is the daemon, or the program itself.
    """

    def __init__(self, journal: Path, *, has_daemon: bool) -> None:
        self.command = (wrap_command if has_daemon else lone_command)(scripted_agent())
        self._held = daemon_lock(os.path.realpath(journal)) if has_daemon else None

    def pid(self, client: Editor) -> int:
        """The process that keeps the sessions."""
        pid = client.process.pid if self._held is None else holder(self._held)
        assert pid is not None
        return pid

    async def kill(self, client: Editor) -> None:
        """SIGKILL it."""
        os.kill(self.pid(client), signal.SIGKILL)
        await client.process.wait()
        await client.ended()


@pytest.fixture(params=[True, False], ids=["daemon", "alone"])
def acphold(request: pytest.FixtureRequest, journal: Path) -> Acphold:
    """Both ways to keep sessions."""
    return Acphold(journal, has_daemon=request.param)


SPOKEN = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"}


def conversation(updates: list[dict[str, Any]]) -> list[Any]:
    """The updates a client saw, with the chunks of each message joined: a replay may do so."""
    seen: list[Any] = []
    for update in updates:
        kind = update["sessionUpdate"]
        if "/without-history" in str(update.get("content")):
            continue  # the agent has lost it: the line is a new one, of the load
        if kind not in SPOKEN or update["content"]["type"] != "text":
            seen.append(update)
        elif seen and isinstance(seen[-1], list) and seen[-1][0] == kind:
            seen[-1][1] += update["content"]["text"]
        else:
            seen.append([kind, update["content"]["text"]])
    return seen


def is_beginning(part: list[Any], whole: list[Any]) -> bool:
    """True if `whole` begins with `part`. The last message of `part` may be longer in `whole`."""
    if not part:
        return True
    *before, last = part
    if whole[: len(before)] != before or len(whole) < len(part):
        return False
    other = whole[len(before)]
    if isinstance(last, list) and isinstance(other, list):
        return bool(other[0] == last[0] and other[1].startswith(last[1]))
    return bool(other == last)


def long_turn() -> list[Any]:
    steps: list[Any] = []
    for number in range(400):
        tool = {"sessionUpdate": "tool_call", "toolCallId": f"t{number}", "title": "Look"}
        steps += [
            {"think": f"thought {number}; "},
            {"say": f"word {number} "},
            {"update": {**tool, "status": "pending"}},
            {"say": f"more {number} "},
        ]
    return [*steps, {"until": "cancel"}]


def folded_tools(updates: list[dict[str, Any]]) -> dict[str, str]:
    return {u["toolCallId"]: u["status"] for u in updates if "status" in u}


async def killed_somewhere(
    acphold: Acphold, client: Editor, session: str, after: int, delay: float
) -> None:
    """SIGKILL once so many updates have come, and a moment later."""
    client.begin_prompt(session, *long_turn())
    await client.until(lambda: len(client.updates(session)) >= after)
    await asyncio.sleep(delay)  # anywhere between two reads of ours, not only right behind one
    await acphold.kill(client)


@pytest.mark.parametrize("seed", range(4))
async def test_the_next_load_shows_all_that_any_client_had_seen(
    journal: Path, acphold: Acphold, seed: int
) -> None:
    chance = random.Random(seed)
    async with introduced(acphold.command, journal=journal) as client:
        session = await client.talk({"say": "first answer"})
        agents = below(acphold.pid(client))
        await killed_somewhere(
            acphold, client, session, chance.randrange(1, 1200), chance.random() / 50
        )
        seen = conversation(client.updates(session))
    await gone(agents, 5)
    async with introduced(acphold.command, journal=journal) as again:
        await again.load(session)
        updates = again.updates(session)
        replayed = conversation(updates)
        spoken = [part for part in replayed if not _is_user(part)]
        assert replayed[0] == ["user_message_chunk", json.dumps([{"say": "first answer"}])]
        expected = [part for part in seen if not _is_title(part)]
        assert is_beginning(expected, [part for part in spoken if not _is_title(part)])
        assert _mark(updates) == {"outcome": "interrupted"}
        statuses = set(folded_tools(updates).values())
        assert statuses <= {"failed"}
        assert await again.prompt(session, {"say": "on"}) == {"stopReason": "end_turn"}
        place = len(again.updates(session))
        await again.load(session)
        assert conversation(again.updates(session)[place:])[: len(replayed)] == replayed
    with sqlite3.connect(journal) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def _is_user(part: Any) -> bool:
    return isinstance(part, list) and part[0] == "user_message_chunk"


def _is_title(part: Any) -> bool:
    return isinstance(part, dict) and part["sessionUpdate"] == "session_info_update"


def _mark(updates: list[dict[str, Any]]) -> Any:
    marks = [u["_meta"]["acphold/turn"] for u in updates if "acphold/turn" in u.get("_meta", {})]
    return marks[-1] if marks else None


async def test_a_turn_that_was_answered_is_not_marked_interrupted(
    journal: Path, acphold: Acphold
) -> None:
    async with introduced(acphold.command, journal=journal) as client:
        session = await client.talk({"say": "whole"})
        await acphold.kill(client)
    async with introduced(acphold.command, journal=journal) as client:
        await client.load(session)
        assert client.text() == "whole"
        assert _mark(client.updates()) is None


async def test_killed_again_and_again_nothing_is_lost_and_each_turn_is_marked_once(
    journal: Path,
    acphold: Acphold,
) -> None:
    said, prompted = "", ""
    session = ""
    for round_ in range(4):
        async with introduced(acphold.command, journal=journal) as client:
            if session:
                assert [info["sessionId"] for info in await client.sessions()] == [session]
                await client.load(session)
                assert client.text() == said
                assert client.text("user_message_chunk") == prompted
                marks = [u for u in client.updates() if "acphold/turn" in u.get("_meta", {})]
                assert len(marks) == round_
            else:
                session = await client.new()
            steps = [{"say": f"round {round_}. "}, {"until": "cancel"}]
            client.begin_prompt(session, *steps)
            prompted += json.dumps(steps)
            said += f"round {round_}. "
            await client.until_text(f"round {round_}. ")
            await acphold.kill(client)
