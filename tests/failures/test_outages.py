"""A PostgreSQL that is away for a while: what runs waits, and goes on where it was."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from acphold.live.hub.ownership import AWAY, BACK
from tests.conftest import Defaults
from tests.editor import SCRIPTED, Editor, Refused, wrapped
from tests.failures.outage import (
    ASK,
    KINDS,
    PACE,
    PERMISSION,
    PIECES,
    away,
    failed_over,
    live_through,
    numbers,
    was_asked,
)
from tests.timelines import database
from tests.watched_processes import lives, until
from tests.web.network import network, own_port

pytestmark = pytest.mark.postgresql

STOPS = 40.0
"""Seconds after which an agent is stopped at the latest, on a busy machine."""


@pytest.mark.parametrize(
    ("kind", "seconds"), [*product(KINDS, (2.0, 8.0)), ("stalled", 30.0), ("pooled ended", 30.0)]
)
async def test_turns_questions_and_prompts_go_on_behind_an_outage(
    kind: str, seconds: float, tmp_path: Path
) -> None:
    found = await live_through(kind, seconds, tmp_path)
    assert {**found} == dict.fromkeys(found, "goes on")


def writing(file: Path) -> dict[str, str]:
    """A step: a shell with a session of its own writes a line to the file ten times a second; the
    first one is its pid."""
    loop = f"echo $$ >{file}; while :; do echo x >>{file}; sleep 0.1; done"
    return {"spawn": f"setsid sh -c {shlex.quote(loop)}"}


def first_line(file: Path) -> str:
    text = file.read_text() if file.exists() else ""
    return text.partition("\n")[0] if "\n" in text else ""


async def pids_behind(file: Path) -> tuple[int, int, int]:
    """The shell that writes to the file, the agent that has started it, and the daemon."""
    shell = int(await until(lambda: first_line(file)))
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or []
        if SCRIPTED in words[:4] and str(file) in words[-1]:
            return shell, each.pid, each.ppid()
    raise AssertionError("no agent runs")


def are_stopped(*pids: int) -> bool:
    return all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids)


@pytest.mark.parametrize("kind", ["ended", "pooled frozen"])
async def test_an_agent_is_stopped_with_all_that_it_has_started_and_goes_on(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    async with away(kind) as there, wrapped(there.url, steps=[writing(file)]) as editor:
        session = await editor.new()
        await editor.prompt(session, "begin")
        turn = editor.begin_prompt(session, {"paced": [300, PACE]})
        await editor.until_text("#9 ")
        shell, agent, _ = await pids_behind(file)
        with there.outage():
            await until(lambda: are_stopped(shell, agent), STOPS)
            assert AWAY in editor.text()
            size = file.stat().st_size
        assert await turn == {"stopReason": "end_turn"}
        assert numbers(editor.text()) == [*range(300)]
        assert editor.text().count(AWAY) == editor.text().count(BACK) == 1
        await until(lambda: file.stat().st_size > size)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_an_agent_whose_daemon_ends_while_it_is_stopped_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    async with away("ended") as there, wrapped(there.url, steps=[writing(file)]) as editor:
        session = await editor.new()
        await editor.prompt(session, "begin")
        pids = await pids_behind(file)
        with there.outage():
            await until(lambda: are_stopped(*pids[:2]), STOPS)
            size = file.stat().st_size
            os.kill(pids[2], number)
            await until(lambda: not any(map(lives, pids)))
            assert file.stat().st_size == size


async def test_a_turn_whose_database_does_not_come_back_in_time_ends_with_its_agent(
    tmp_path: Path, defaults: Defaults
) -> None:
    defaults(max_outage=25.0)
    file = tmp_path / "written"
    async with away("ended") as there, wrapped(there.url, steps=[writing(file)]) as editor:
        session = await editor.new()
        await editor.prompt(session, "begin")
        turn = editor.begin_prompt(session, {"paced": [300, PACE]})
        await editor.until_text("#9 ")
        pids = await pids_behind(file)
        with there.outage():
            with pytest.raises(Refused, match="max_outage"):
                await turn
            await until(lambda: not any(map(lives, pids[:2])))
            with pytest.raises(Refused):  # no prompt waits for ever
                await editor.prompt(session, "too early")
        await editor.until_text(BACK)
        assert await editor.prompt(session, {"say": "again"}) == {"stopReason": "end_turn"}
        said = numbers(editor.text())
        assert said == [*range(len(said))]


async def test_an_agent_whose_session_was_taken_meanwhile_writes_nothing_afterwards(
    tmp_path: Path,
) -> None:
    file = tmp_path / "written"
    async with away("stalled") as there, wrapped(there.url, steps=[writing(file)]) as cut:
        session = await cut.new()
        await cut.prompt(session, "begin")
        turn = cut.begin_prompt(session, {"paced": [1000, PACE]})
        await cut.until_text("#9 ")
        pids = await pids_behind(file)
        async with wrapped(there.direct) as other:
            with there.outage():
                # As on another machine: its socket is nowhere here.
                with psycopg.connect(there.direct, autocommit=True) as line:
                    line.execute("UPDATE acphold.owners SET addresses = '[]'")
                    await taken(other, session)
                size = file.stat().st_size
                assert are_stopped(*pids[:2])
                await other.prompt(session, {"say": "mine"})
            with pytest.raises(Refused):
                await turn
            await until(lambda: not any(map(lives, pids[:2])))
            assert file.stat().st_size == size
            await other.load(session)
            assert "mine" in other.text()


async def test_an_agent_stays_stopped_where_a_standby_lacks_the_takeover_of_its_session(
    tmp_path: Path,
) -> None:
    file, ports = tmp_path / "written", (own_port(), own_port())
    with database(*map(str, ports)) as lagging:
        async with network() as net:
            net.to = ports[0]
            url = f"postgresql://owner@127.0.0.1:{net.port}/postgres"
            async with wrapped(url, steps=[writing(file)]) as cut, wrapped(lagging.url) as other:
                session = await cut.new()
                await cut.prompt(session, "begin")
                turn = cut.begin_prompt(session, {"paced": [1000, PACE]})
                await cut.until_text("#9 ")
                pids = await pids_behind(file)
                await lagging.remember()
                net.stall()
                lagging.execute("UPDATE acphold.owners SET addresses = '[]'")
                await taken(other, session)
                await other.prompt(session, {"say": "mine"})
                size = file.stat().st_size
                with failed_over(lagging):
                    net.to = ports[1]
                net.cut()
                net.come_up()  # it may come before the one who has taken its session
                with pytest.raises(Refused):
                    await turn
                await until(lambda: not any(map(lives, pids[:2])))
                assert file.stat().st_size == size
                await other.load(session)
                assert "mine" in other.text()


async def test_a_cancel_reaches_the_agent_while_the_database_is_away(tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with away("stalled") as there, wrapped(there.url) as editor:
        session = await editor.new()
        steps: list[Any] = [{"say": "begun"}, {"until": "cancel"}, {"touch": str(told)}]
        turn = editor.begin_prompt(session, *steps, {"stop": "cancelled"})
        await editor.until_text("begun")
        with there.outage():
            editor.tell("session/cancel", {"sessionId": session})
            await until(told.exists)
        assert await turn == {"stopReason": "cancelled"}


async def test_a_turn_goes_on_whose_client_leaves_while_the_database_is_away(
    tmp_path: Path,
) -> None:
    async with away("frozen") as there, wrapped(there.url) as other:
        async with wrapped(there.url) as one:
            session = await one.new()
            await one.prompt(session, {"say": "hello"})
            await other.load(session)
            one.begin_prompt(session, {"paced": [PIECES, PACE]})
            await other.until_text("#9 ")
            with there.outage():
                await one.until_text(AWAY)
                await one.kill()
        await other.until_text(f"#{PIECES - 1} ")
        async with wrapped(there.url) as again:
            await again.load(session)
            for each in (other, again):
                assert numbers(each.text()) == [*range(PIECES)]


async def test_of_two_clients_that_answer_while_the_database_is_away_the_first_one_counts(
    tmp_path: Path,
) -> None:
    async with away("ended") as there, wrapped(there.url) as one, wrapped(there.url) as other:
        session = await one.new()
        await one.prompt(session, {"say": "hello"})
        await other.load(session)
        now, late = asyncio.Event(), asyncio.Event()
        one.answers[PERMISSION] = answering("no", late)
        other.answers[PERMISSION] = answering("yes", now)
        turn = one.begin_prompt(session, {"ask": [PERMISSION, ASK]})
        for each in (one, other):
            await each.until(partial(was_asked, each))
        with there.outage():
            now.set()
            await one.until_text(AWAY)
            late.set()
            await other.until_text(AWAY)
        assert await turn == {"stopReason": "end_turn"}
        await other.until_text(BACK)
        for each in (one, other):
            assert '"optionId": "yes"' in each.text()
            assert '"no"' not in each.text()


def answering(option: str, when: asyncio.Event) -> Any:
    """An answer that a person gives then."""

    async def answer(_: Any) -> Any:
        await when.wait()
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return answer


async def taken(editor: Editor, session: str) -> None:
    """Load a session as soon as its owner has been silent for long."""
    while True:
        try:
            await editor.load(session)
            return
        except Refused:
            await asyncio.sleep(0.5)
