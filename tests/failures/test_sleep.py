"""A machine that sleeps in the middle of work: all of its processes stop, and wake later."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from acphold.faces.cli.front import daemon_lock, journal_of
from acphold.machine.locked_file import holder
from tests.editor import allow, introduced, scripted_agent, wrap_command
from tests.failures.outage import ASK, PACE, PERMISSION, numbers, own_server, was_asked
from tests.web.conftest import ACPHOLD, serving

SLEPT = 35.0
"""Longer than a process may be silent before another takes its sessions, and than any bound of a
wait for another process."""

NIGHT = 10 * 3600

APART = """
import time

def ahead(clock, unit, *only):
    def now(*which):
        try:
            with open({file!r}) as file:
                slept = int(file.read() or 0)
        except OSError:
            slept = 0
        return clock(*which) + slept * unit * (which == only)
    return now

time.time, time.time_ns = ahead(time.time, 1), ahead(time.time_ns, 10**9)
time.clock_gettime = ahead(time.clock_gettime, 1, time.CLOCK_BOOTTIME)
"""
"""A `sitecustomize` for the seconds in this file that the machine has slept: the clocks on the wall
and since the boot have gone on, and the one by which a program waits has not."""


class Night:
    """Clocks of programs with this environment: at `fall` ten hours go by for them at once."""

    def __init__(self, folder: Path) -> None:
        self._slept = folder / "slept"
        (folder / "sitecustomize.py").write_text(APART.format(file=str(self._slept)))
        self.env = {"PYTHONPATH": str(folder)}

    async def fall(self) -> None:
        self._slept.write_text(str(NIGHT))


@asynccontextmanager
async def asleep(*pids: int) -> AsyncIterator[None]:
    """Stop these processes and all that they have started for the block."""
    found = {it.pid for pid in pids for it in psutil.Process(pid).children(recursive=True)}
    for pid in (*pids, *(found := found - {*pids})):
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in (*pids, *found):
        os.kill(pid, signal.SIGCONT)


def daemon_of(journal: str | Path) -> int:
    daemon = holder(daemon_lock(journal_of(["--journal", str(journal)])))
    assert daemon is not None
    return daemon


async def live_through(
    journal: str | Path, sleep: Callable[[], Awaitable[None]], env: Mapping[str, str]
) -> None:
    """Sleep in the middle of a turn and of a question: front, daemon and all that it has started
    stop, and go on again."""
    command = wrap_command(scripted_agent())
    how: Any = {"journal": journal, "env": env}
    async with introduced(command, **how) as one, introduced(command, **how) as two:
        speaks, asks = await one.new(), await two.new()
        turn = one.begin_prompt(speaks, {"paced": [100, PACE]})
        decided = asyncio.Event()

        async def answer(params: Any) -> Any:
            await decided.wait()
            return allow(params)

        two.answers[PERMISSION] = answer
        asking = two.begin_prompt(asks, {"ask": [PERMISSION, ASK]}, {"say": "done"})
        await two.until(partial(was_asked, two))
        await one.until_text("#9 ")
        async with asleep(one.process.pid, two.process.pid, daemon_of(journal)):
            await sleep()
        assert await turn == {"stopReason": "end_turn"}
        assert numbers(one.text()) == [*range(100)]
        await asyncio.sleep(1)
        assert not asking.done()
        decided.set()
        assert await asking == {"stopReason": "end_turn"}
        assert "yes" in two.text()
        for editor, session in ((one, speaks), (two, asks)):
            assert await editor.prompt(session, {"say": "morning"}) == {"stopReason": "end_turn"}
            assert b"does not answer" not in editor.stderr


async def test_a_turn_and_a_question_go_on_and_nobody_is_told_of_a_silence(journal: Path) -> None:
    await live_through(journal, partial(asyncio.sleep, SLEPT), {})


@pytest.mark.postgresql
async def test_a_turn_and_a_question_go_on_though_the_database_did_not_sleep() -> None:
    with own_server() as server:
        await live_through(server.url(), partial(asyncio.sleep, SLEPT), {})


async def test_ten_hours_end_neither_a_turn_nor_a_question(journal: Path, tmp_path: Path) -> None:
    night = Night(tmp_path)
    await live_through(journal, night.fall, night.env)


@pytest.mark.postgresql
async def test_ten_hours_end_nothing_beside_a_database_that_did_not_sleep(tmp_path: Path) -> None:
    night = Night(tmp_path)
    slept = f"UPDATE acphold.owners SET renewed_at = renewed_at - interval '{NIGHT} s'"
    with own_server() as server:

        async def fall() -> None:  # and for the others time has passed
            await night.fall()
            with psycopg.connect(server.url(), autocommit=True) as line:
                line.execute(slept.encode())

        await live_through(server.url(), fall, night.env)


async def test_a_client_of_a_server_comes_back_when_both_wake(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("server", "laptop", "night")]
    for folder in folders:
        folder.mkdir()
    at_server, laptop, _ = folders
    night = Night(folders[2])
    with serving(at_server, agent=tuple(scripted_agent()), variables=night.env) as served:
        where = f"{served.url}#pair={served.pair}"
        env = {**night.env, "XDG_STATE_HOME": str(laptop)}
        command = [*ACPHOLD, "connect", where]
        async with introduced(command, journal=laptop / "journal.db", env=env) as editor:
            session = await editor.new(cwd=str(at_server))
            turn = editor.begin_prompt(session, {"paced": [100, PACE]})
            await editor.until_text("#9 ")
            async with asleep(editor.process.pid, served.process.pid, served.daemon.pid):
                await night.fall()
                await asyncio.sleep(60)
            assert await turn == {"stopReason": "end_turn"}
            assert numbers(editor.text()) == [*range(100)]
            assert await editor.prompt(session, {"say": "morning"}) == {"stopReason": "end_turn"}
