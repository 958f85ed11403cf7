"""The agent that a daemon begins before it reads its own code."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from acphold.faces.cli.front import FRAME, LISTENS, REPORT, TAKEN, first_frame
from acphold.machine.first_frame import SERVER
from acphold.machine.own_program import own_command, start_detached
from tests.cli.test_shared_daemon import Home, home
from tests.editor import scripted_agent
from tests.watched_processes import lives, until

__all__ = ["home"]

NOTES = 'echo $$ >> "$0"; exec "$@"'
"""An agent that writes down each start."""


def noting(file: Path, *command: str) -> tuple[str, ...]:
    return "sh", "-c", NOTES, str(file), *(command or scripted_agent())


def started(file: Path) -> list[int]:
    """The numbers of the agents that were started."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.mark.slow
async def test_it_is_the_one_that_the_editor_talks_to(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with home.editor(agent=[*noting(file)]) as client:
        session = await client.new()
        await client.prompt(session, "hello")
        assert len(started(file)) == 1
        async with home.editor(agent=[*noting(file)]) as other:  # to a daemon that is there
            await other.new()
        assert len(started(file)) == 2


def start(home: Home, frame: bytes) -> str:
    """Start a daemon as a front does, with this frame, but hand nothing over; what it reports."""
    its_frame, giving = os.pipe()
    report, reporting = os.pipe()
    os.write(giving, frame)
    streams = {FRAME: its_frame, REPORT: reporting}
    try:
        parent = start_detached(own_command("daemon", home.lock), streams, home.env)
    finally:
        for descriptor in (giving, its_frame, reporting):
            os.close(descriptor)
    os.waitpid(parent, 0)
    with os.fdopen(report) as lines:
        return lines.readline().strip()


@pytest.mark.slow
async def test_it_has_ended_when_the_daemon_ends_whose_front_never_came(
    home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "starts"
    stubborn = noting(file, "sh", "-c", 'trap "" TERM; while :; do sleep 1; done')
    assert start(home, first_frame(["--"], stubborn)) == LISTENS
    await until(lambda: len(started(file)) == 1)
    [daemon], [agent] = home.daemons(), started(file)
    assert lives(agent)
    os.kill(daemon, signal.SIGTERM)
    await until(lambda: not lives(daemon))
    assert not lives(agent)  # not only some seconds later, by its guardian


@pytest.mark.slow
async def test_it_ends_with_a_daemon_that_is_killed(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "starts"
    assert start(home, first_frame(["--"], noting(file))) == LISTENS
    await until(lambda: len(started(file)) == 1)
    [daemon], [agent] = home.daemons(), started(file)
    os.kill(daemon, signal.SIGKILL)
    await until(lambda: not lives(agent))


@pytest.mark.slow
async def test_a_daemon_that_is_not_needed_begins_none(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with home.editor():
        assert start(home, first_frame(["--"], noting(file))) == TAKEN
    assert started(file) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["server", "none", "cut", "long"])
async def test_a_frame_that_names_no_agent_keeps_no_daemon_from_starting(
    home: Home, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "starts"
    frame = first_frame(["--"], noting(file))
    frames = {
        "server": first_frame([], noting(file), kind=SERVER),
        "none": b"",
        "cut": frame[:-9],
        "long": b"\0" * (1 << 15),
    }
    assert start(home, frames[kind]) == LISTENS
    assert started(file) == []


@pytest.mark.slow
async def test_it_ends_if_the_words_of_its_front_cannot_be_used(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "starts"
    words = ["--linger", "soon", "--", *noting(file)]
    assert start(home, first_frame(words, noting(file), home.env)) == LISTENS
    await until(lambda: len(started(file)) == 1)
    async with home.editor() as client:  # the daemon stays
        await client.new()
        refused = await asyncio.to_thread(home.run, "wrap", *words)
        assert refused.returncode != 0
        await until(lambda: not lives(started(file)[0]))


@pytest.mark.slow
async def test_another_front_that_comes_first_leaves_it_to_its_own(
    home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "starts"
    assert start(home, first_frame(["--"], noting(file))) == LISTENS
    await until(lambda: len(started(file)) == 1)
    async with home.editor() as client:  # with another agent
        await client.new()
        assert lives(started(file)[0])
