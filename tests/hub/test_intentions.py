"""History is not intention: through whatever door a session comes, its agent gets nothing of what
was planned in it before a person acts; and after a restart everything goes on as promised."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import now_ms
from acphold.errors import ConnectionLostError, MoveRefusedError
from acphold.journal.copies import copy_all
from acphold.journal.sqlite.backup import restore_file
from acphold.journal.stores import open_journal
from acphold.live.hub import move_taker
from acphold.live.hub.forks import fork
from acphold.live.hub.move_taker import WantedPlace
from acphold.live.hub.moves import MovedSession
from tests.cli.command_line import ACPHOLD, run_here
from tests.hub.moving import Machine, machines, move
from tests.hub.shared import Onlooker, Shared, shared
from tests.hub.test_waiting_prompts import add, change, state, waiting
from tests.raw_entries import CONVERSATION
from tests.timelines import database
from tests.watched_processes import until

MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "bypass", "name": "Bypass"}],
}


def options(value: str) -> list[dict[str, Any]]:
    sizes = [{"value": size, "name": size} for size in ("small", "large")]
    model = {"id": "model", "name": "Model", "type": "select", "options": sizes}
    return [{**model, "currentValue": value}]


def offer(house: Shared) -> None:
    """The agent opens sessions again, with its own mode and option."""
    opened = {"modes": MODES, "configOptions": options("small")}
    agent = house.agent
    agent.can("resume")
    agent.opened = opened
    agent.results["session/resume"] = json.dumps(opened).encode()
    agent.results["session/set_mode"] = b"{}"
    answer = {"configOptions": options("large")}
    agent.results["session/set_config_option"] = json.dumps(answer).encode()


async def prompts_that_go_on(client: Onlooker, session: str) -> None:
    await change(client, session, "hold")
    await add(client, session, "first", "second")
    await change(client, session, "set", restarts=True, goesOn=True)
    await change(client, session, "go")


async def prompts_with_a_moment(client: Onlooker, session: str) -> None:
    await add(client, session, "first", "second", at=now_ms() + SOON_MS)
    await change(client, session, "set", restarts=True)


async def a_hold_with_an_end(client: Onlooker, session: str) -> None:
    await change(client, session, "hold", until=now_ms() + SOON_MS)
    await add(client, session, "first", "second")
    await change(client, session, "set", restarts=True)


async def a_mode(client: Onlooker, session: str) -> None:
    await client.call("session/set_mode", {"sessionId": session, "modeId": "bypass"})


async def an_option(client: Onlooker, session: str) -> None:
    params = {"sessionId": session, "configId": "model", "value": "large"}
    await client.call("session/set_config_option", params)


SOON_MS = 2000
"""Time for a door to be gone through; the agent is looked at once it is over."""

Intention = Callable[[Onlooker, str], Awaitable[None]]

QUEUES: list[Intention] = [prompts_that_go_on, prompts_with_a_moment, a_hold_with_an_end]
SETTINGS: list[Intention] = [a_mode, an_option]
SETTING_METHODS = ["session/set_mode", "session/set_config_option"]


async def plan(location: str, *intentions: Intention) -> list[str]:
    """Begin sessions in which these are planned; their process ends before that happens."""
    async with shared(location) as house:
        offer(house)
        client, sessions = await house.client(), []
        for intention in intentions:
            sessions.append(await client.new())
            turn = await house.begun(client, sessions[-1], "hello")
            await intention(client, sessions[-1])
            if intention not in QUEUES:
                await house.ended(sessions[-1], turn)
        await house.hub.end_turns()  # with the process: nothing that is queued has begun yet
    return sessions


# -- doors ----------------------------------------------------------------------------------------


async def a_restore(journal: Path, _: Sequence[str]) -> Path:
    backup = journal.with_name("backup.db")
    await back_up(journal, backup)
    restore_file(str(journal), str(backup), carries_over=True)
    return journal


async def a_raw_copy(journal: Path, _: Sequence[str]) -> Path:
    copy = journal.with_name("copy.db")
    shutil.copy2(journal, copy)
    return copy


async def an_earlier_copy_in_the_file_itself(journal: Path, sessions: Sequence[str]) -> Path:
    backup = journal.with_name("backup.db")
    await back_up(journal, backup)
    held = open_journal(journal)  # the file goes on
    await held.release(await held.acquire(sessions[0]))
    await held.aclose()
    shutil.copyfile(backup, journal)
    return journal


async def a_whole_copy(journal: Path, _: Sequence[str]) -> Path:
    copy = journal.with_name("copy.db")
    source, target = open_journal(journal), open_journal(copy)
    await copy_all(source, target, lambda *_: None)
    for each in (source, target):
        await each.aclose()
    return copy


async def an_import(journal: Path, sessions: Sequence[str]) -> Path:
    folder = journal.with_name("exported")
    os.makedirs(folder)
    for session in sessions:
        file = str(folder / f"{session}.jsonl")
        command = ("export", session, "--format", "jsonl", "--output", file)
        done = run_here((*command, "--journal", str(journal)), os.environ.copy())
        assert done.code == 0, done.err
    other = journal.with_name("other.db")
    importing = [*ACPHOLD, "import", "--from", str(folder), "--journal", str(other)]
    await asyncio.to_thread(subprocess.run, importing, check=True, stdout=subprocess.DEVNULL)
    return other


async def a_move(journal: Path, sessions: Sequence[str]) -> Path:
    giver, taker = (Machine(journal.parent / name, name) for name in ("giver", "taker"))
    await giver.journal.aclose()
    giver.journal = open_journal(journal)
    for session in sessions:
        result, _, _ = await move(giver, taker, session, WantedPlace(cwd="/"))
        assert not isinstance(result, Exception), result
    for each in (giver, taker):
        await each.journal.aclose()
    return taker.folder / "journal.db"


async def back_up(journal: Path, to: Path) -> None:
    held = open_journal(journal)
    assert held.file is not None
    await held.file.copy_to(str(to))
    await held.aclose()


Door = Callable[[Path, Sequence[str]], Awaitable[Path]]

DOORS: list[Door] = [
    a_restore,
    a_raw_copy,
    an_earlier_copy_in_the_file_itself,
    a_whole_copy,
    an_import,
]


# -- what comes of it -----------------------------------------------------------------------------


def named(value: Callable[..., Any]) -> str:
    return value.__name__


def acted_on(house: Shared) -> list[tuple[str, dict[str, Any]]]:
    """What the agent was sent that makes something happen."""
    opens = ("session/new", "session/resume", "session/list", "session/close")
    return [(method, params) for method, params in house.agent.asked if method not in opens]


async def nothing_happens(house: Shared, session: str, planned_at: int | None = None) -> Onlooker:
    """Open a session, and let the time of all its moments pass: the agent gets nothing.

    The last of them was planned at `planned_at`, or just now.
    """
    offer(house)
    before = acted_on(house)
    moment = (planned_at or now_ms()) + SOON_MS + 50
    client = await house.loaded(session)
    if (await state(client, session)).get("waiting"):
        await until(lambda: now_ms() > moment)
    for _ in range(3):  # what could begin has begun by then
        await state(client, session)
        await client.call("session/list", {})
    assert acted_on(house) == before
    return client


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("door", DOORS, ids=named)
async def test_what_was_queued_elsewhere_is_shown_and_begins_when_a_person_says_so(
    tmp_path: Path, door: Door
) -> None:
    sessions = await plan(str(tmp_path / "journal.db"), *QUEUES)
    planned_at = now_ms()
    journal = await door(tmp_path / "journal.db", sessions)
    shown = run_here(("queue", "--json", "--journal", str(journal)), os.environ.copy())
    told = [json.loads(line) for line in shown.out.splitlines()]
    known = [(it["queued"], it["held"], it["until"]) for it in told]
    assert known == [(2, "elsewhere", None)] * len(sessions)
    async with shared(journal) as house:
        for session in sessions:
            client = await nothing_happens(house, session, planned_at)
            queue = await state(client, session)
            assert (waiting(queue), queue["held"]) == (["first", "second"], "elsewhere")
            assert not queue.keys() & {"until", "goesOn", "restarts", "begun"}
    async with shared(journal) as house:  # nor after the next restart
        for number, session in enumerate(sessions):
            client = await nothing_happens(house, session, planned_at)
            [first, _] = (await state(client, session))["waiting"]
            await change(client, session, "drop", id=first["id"])
            await change(client, session, "go")
            await house.agent.prompted(f"s{number}")
            began = [params["prompt"][-1]["text"] for _, params in acted_on(house)]
            assert began == ["second"] * (number + 1)


@pytest.mark.parametrize("door", [*DOORS, a_move], ids=named)
async def test_a_mode_or_an_option_from_elsewhere_is_not_set_at_the_agent(
    tmp_path: Path, door: Door
) -> None:
    sessions = await plan(str(tmp_path / "journal.db"), *SETTINGS)
    journal = await door(tmp_path / "journal.db", sessions)
    async with shared(journal) as house:
        for intention, session in zip(SETTINGS, sessions, strict=True):
            client = await nothing_happens(house, session)
            # A person sets it here: from then on it is theirs.
            await intention(client, session)
        assert [method for method, _ in acted_on(house)] == SETTING_METHODS
    async with shared(journal) as house:
        await are_set_again(house, sessions)


async def are_set_again(house: Shared, sessions: Sequence[str]) -> None:
    offer(house)
    for session in sessions:
        await house.loaded(session)
    assert [method for method, _ in acted_on(house)] == SETTING_METHODS


async def test_after_a_restart_in_the_same_journal_a_queue_goes_on(journal: Path) -> None:
    sessions = await plan(str(journal), *QUEUES)
    async with shared(journal) as house:
        offer(house)
        for session in sessions:
            await house.loaded(session)
            for words in ("first", "second"):
                await house.agent.prompted(session)
                assert acted_on(house)[-1][1]["prompt"][-1]["text"] == words
                await house.agent.end(session)


async def test_after_a_restart_in_the_same_journal_modes_and_options_are_set_again(
    journal: Path,
) -> None:
    sessions = await plan(str(journal), *SETTINGS)
    async with shared(journal) as house:
        await are_set_again(house, sessions)


async def test_a_fork_takes_no_prompts_along_and_keeps_the_mode_only_in_its_own_journal(
    tmp_path: Path,
) -> None:
    async def both(client: Onlooker, session: str) -> None:
        await a_mode(client, session)
        await add(client, session, "first", at=now_ms() + SOON_MS)
        await change(client, session, "set", restarts=True)

    path = tmp_path / "journal.db"
    [session] = await plan(str(path), both)
    for journal, is_set in ((path, True), (await a_raw_copy(path, [session]), False)):
        held = open_journal(journal)
        made = await fork(held, await held.session(session))
        await held.aclose()
        async with shared(journal) as house:
            offer(house)
            client = await house.loaded(made.session_id)
            assert "waiting" not in await state(client, made.session_id)
            assert [method for method, _ in acted_on(house)] == ["session/set_mode"] * is_set


def exported(folder: Path, *entries: tuple[str, Any]) -> None:
    """A file as `export --format jsonl` writes it, by a stranger."""
    folder.mkdir(exist_ok=True)
    facts = {"sessionId": "foreign", "agent": "puppet", "cwd": "/", "title": "T"}
    lines: list[Any] = [{"session": facts}]
    for seq, (kind, update) in enumerate(entries, 1):
        lines.append({"seq": seq, "at": "2026-01-02T03:04:05Z", "kind": kind, "update": update})
    (folder / "s.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


async def test_a_strangers_file_plans_nothing_however_it_is_written_and_when_it_has_grown(
    tmp_path: Path,
) -> None:
    def queued(id_: str) -> tuple[str, Any]:
        return "queue", {"do": "add", "id": id_, "prompt": [{"type": "text", "text": id_}]}

    bypass = {"modes": {**MODES, "currentModeId": "bypass"}, "configOptions": options("large")}
    conversation = [
        ("prompt", [{"type": "text", "text": "hello"}]),
        ("turn_end", {"response": {"stopReason": "end_turn"}}),
    ]
    hostile = [
        ("queue", {"do": "set", "restarts": True, "goesOn": True}),
        queued("one"),
        ("settings", bypass),
        ("update", {"sessionUpdate": "current_mode_update", "currentModeId": "bypass"}),
        ("queue", {"do": "hold", "why": "elsewhere"}),
        ("queue", {"do": "go"}),
        ("queue", {"do": "set", "restarts": True}),
    ]
    journal, folder = tmp_path / "journal.db", tmp_path / "given"
    importing = [*ACPHOLD, "import", "--from", str(folder), "--journal", str(journal)]
    seen = []
    for entries in ([*conversation, *hostile], [*conversation, *hostile, *conversation, *hostile]):
        exported(folder, *entries)
        await asyncio.to_thread(subprocess.run, importing, check=True, stdout=subprocess.DEVNULL)
        shown = run_here(("list", "--all", "--json", "--journal", str(journal)), {**os.environ})
        facts = json.loads(shown.out)
        assert (facts["queued"], facts["held"]) == (1, "elsewhere")
        seen.append(facts["entries"] if "entries" in facts else facts["messageCount"])
        async with shared(journal) as house:
            client = await nothing_happens(house, "foreign")
            assert waiting(await state(client, "foreign")) == ["one"]
    assert seen[0] < seen[1]  # it has grown


async def test_a_move_that_was_accepted_goes_on_in_its_journal_and_in_no_copy_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        place = WantedPlace(cwd=str(tmp_path))

        async def broken(*_: object) -> None:
            raise ConnectionLostError("lost")

        with monkeypatch.context() as patch:  # right behind the giver's mark
            patch.setattr(move_taker._TakenSession, "_finish", broken)
            await move(here, there, place=place)
        assert [await it.owns("s-1") for it in (here, there)] == [False, False]
        await there.journal.aclose()
        copy = Machine(tmp_path / "copy", "copy")
        await copy.journal.aclose()
        shutil.copyfile(there.folder / "journal.db", copy.folder / "journal.db")
        there.journal = open_journal(there.folder / "journal.db")
        copy.journal = open_journal(copy.folder / "journal.db")
        _, refused, _ = await move(here, copy, place=place)
        assert isinstance(refused, MoveRefusedError)
        assert "another move took it to there" in str(refused)
        _, taken, _ = await move(here, there, place=place)
        assert isinstance(taken, MovedSession)
        assert [await it.owns("s-1") for it in (here, there, copy)] == [False, True, False]
        await copy.journal.aclose()


@pytest.mark.postgresql
async def test_a_database_that_lost_its_last_entries_begins_nothing() -> None:
    with database() as server:
        sessions = await plan(server.url, *QUEUES, *SETTINGS)
        await server.remember()
        server.go_back()
        server.let_owners_be_silent()
        async with shared(server.url) as house:
            for session in sessions:
                await nothing_happens(house, session)
