"""A daemon that is silent is named by the fronts that are connected to it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from acphold.faces.cli import bounds, heartbeat
from tests.cli.test_shared_daemon import Home, home
from tests.editor import Editor
from tests.watched_processes import gone, until

__all__ = ["home"]


class Fronts:
    """Some that watch one socket, and what each has told."""

    def __init__(self, socket: Path, number: int) -> None:
        self.socket = socket
        self.told: list[list[bool]] = [[] for _ in range(number)]
        for each in self.told:
            threading.Thread(target=self._watch, args=[each.append], daemon=True).start()

    def _watch(self, say: Callable[[bool], object]) -> None:
        with suppress(FileNotFoundError):  # the folder, once the test is over
            heartbeat.watch(str(self.socket), say)

    def all_told(self, *words: bool) -> bool:
        return all(each == [*words] for each in self.told)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs twenty times as often."""
    for name in ("BEAT_SECONDS", "LATE_SECONDS", "AGAIN_SECONDS"):
        monkeypatch.setattr(bounds, name, getattr(bounds, name) / 20)


async def beating(fronts: Fronts, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        heartbeat.beat(str(fronts.socket))
        await asyncio.sleep(bounds.BEAT_SECONDS)


async def test_all_fronts_tell_a_silence_and_its_end_once_each(quick: None, tmp_path: Path) -> None:
    (socket := tmp_path / "daemon.sock").touch()
    fronts = Fronts(socket, 5)
    await beating(fronts, 3)
    assert fronts.all_told()
    await until(lambda: fronts.all_told(True))
    heartbeat.beat(str(socket))
    await until(lambda: fronts.all_told(True, False))
    await beating(fronts, 2)
    await until(lambda: fronts.all_told(True, False, True))


async def test_a_clock_that_jumps_is_no_silence(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (socket := tmp_path / "daemon.sock").touch()
    fronts = Fronts(socket, 2)
    for hours in (10, -10):
        monkeypatch.setattr(time, "time", lambda hours=hours: time.time_ns() / 1e9 + hours * 3600)
        await beating(fronts, 1.5)
    assert fronts.all_told()


async def test_a_socket_that_is_gone_is_no_silence(quick: None, tmp_path: Path) -> None:
    (socket := tmp_path / "daemon.sock").touch()
    fronts = Fronts(socket, 2)
    await beating(fronts, 1)
    socket.unlink()
    await asyncio.sleep(2)
    assert fronts.all_told()


@pytest.mark.slow
async def test_each_editor_hears_of_a_stopped_daemon_in_15_seconds_and_when_it_goes_on(
    home: Home,
) -> None:
    async with home.editor() as one, home.editor() as other:
        session = await one.talk({"say": "kept"})
        [daemon] = home.daemons()
        await asyncio.sleep(bounds.BEAT_SECONDS)  # both look by now
        os.kill(daemon, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            for each in (one, other):
                await until(partial(_has_said, each, b"does not answer: it is stopped"))
            assert time.monotonic() - stopped < 15 * 2  # on a busy machine
            assert f"kill -CONT {daemon}".encode() in one.stderr
        finally:
            os.kill(daemon, signal.SIGCONT)
        for each in (one, other):
            await until(partial(_has_said, each, b"the daemon answers again"))
        await one.prompt(session, {"say": "and more"})


@pytest.mark.slow
async def test_an_editor_that_was_told_of_a_silence_sees_its_front_end_with_the_daemon(
    home: Home,
) -> None:
    async with home.editor() as one:
        await one.talk({"say": "kept"})
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGSTOP)
        await until(partial(_has_said, one, b"does not answer: it is stopped"))
        os.kill(daemon, signal.SIGKILL)
        await one.ended()
        assert b"the acphold daemon ended" in one.stderr


@pytest.mark.slow
async def test_a_daemon_leaves_no_file_behind_by_which_its_fronts_have_watched_it(
    home: Home,
) -> None:
    async with home.editor() as one:
        await one.talk({"say": "kept"})
        [daemon] = home.daemons()
        Fronts(Path(home.socket()), 1)
        folder = home.folder / "acphold"
        await until(lambda: [*folder.glob("*.watch")])
        os.kill(daemon, signal.SIGTERM)
        await gone({daemon})
        assert [*folder.iterdir()] == []


def _has_said(each: Editor, words: bytes) -> bool:
    return words in each.stderr


@pytest.mark.slow
async def test_fronts_at_rest_look_six_times_a_minute_together(home: Home) -> None:
    async with home.editor() as one, home.editor() as two, home.editor() as three:
        await one.talk({"say": "kept"})
        await asyncio.sleep(2 * bounds.BEAT_SECONDS)
        watching = [psutil.Process(each.process.pid) for each in (one, two, three)]

        def woken() -> int:
            return sum(it.num_threads() and switches(it.pid) for it in watching)

        before = woken()
        await asyncio.sleep(3 * bounds.BEAT_SECONDS)
        assert woken() - before <= 4


def switches(pid: int) -> int:
    """How often all threads of a process have gone to sleep so far."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found += int(line.split()[1])
    return found
