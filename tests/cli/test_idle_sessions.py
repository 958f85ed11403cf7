"""What `tail`, `show` and `stop` say of a session that is not live, or whose process is silent."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acphold.hub.owners import owner_name
from acphold.journal import NewSession, SqliteJournal
from acphold.journal.decisions import AskedQuestion, answer_entry, question_entry
from acphold.server.neighbours import silent_processes
from acphold.transports.runtime_folder import background_socket, lock
from tests.cli.command_line import CommandLine
from tests.cli.conversation import prompt, remember, said, update

ASKED = AskedQuestion("q", "session/request_permission", b'{"toolCall":{"toolCallId":"t"}}')

LAST_TURN = (
    prompt("Make it friendlier"),
    update("tool_call", toolCallId="t", title="Edit hello.py"),
    ("question", question_entry(ASKED)),
    ("answer", answer_entry("q", "interrupted", message="it crashed")),
)


@pytest.fixture
def silent(journal: Path) -> Iterator[int]:
    """The session `held`, in a process that does not answer; its id."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        host = owner_name().partition(":")[0]
        asyncio.run(_hold(journal, f"{host}:{process.pid}:/nowhere.sock"))
        yield process.pid
        process.kill()


async def _hold(path: Path, owner: str) -> None:
    journal = SqliteJournal.open(path)
    try:
        lease = await journal.create(NewSession("held", "scripted", "/home/me"), owner)
        await journal.append(lease, *_listed(prompt("x")))
    finally:
        await journal.aclose()


def _listed(raw: tuple[str, bytes]) -> tuple[str, list[bytes]]:
    return raw[0], [raw[1]]


def test_tail_names_a_question_by_the_tool_call_that_it_is_about(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", said("earlier"), *LAST_TURN)
    done = acphold.run("tail", "s")
    assert "asked: Edit hello.py → not answered yet" in done.out
    assert "asked: Edit hello.py → interrupted: it crashed" in done.out
    assert "earlier" not in done.out
    assert done.err == "Session s is not live.\n"


def test_show_knows_a_turn_that_runs_from_one_that_was_cut_off(
    acphold: CommandLine, journal: Path, silent: int
) -> None:
    assert "turn: still runs" in acphold.run("show", "held").out
    assert "turn: still runs" in acphold.run("show", "held@1").out
    os.kill(silent, signal.SIGKILL)
    os.waitpid(silent, 0)
    assert "turn: cut off by a crash or a kill" in acphold.run("show", "held").out


def test_stop_has_nothing_to_do_for_a_session_that_is_not_live(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", *LAST_TURN)
    done = acphold.run("stop", "s")
    assert (done.code, done.out) == (0, "")
    assert done.err == "Session s is not live: there is nothing to stop.\n"
    assert acphold.run("stop", "unknown").code == 3


def test_stop_says_that_the_process_of_a_session_does_not_answer(
    acphold: CommandLine, silent: int
) -> None:
    done = acphold.run("stop", "held")
    assert done.code == 1
    assert f"process {silent} on" in done.err
    assert f"kill -9 {silent}" in done.err


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The socket of a process in the background that listens and never answers: ours."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path has to be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        path = background_socket("deaf")
        held = lock(path)
        assert held is not None
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            yield path
        os.close(held)


def test_a_process_in_the_background_that_does_not_answer_is_told(
    acphold: CommandLine, deaf: str
) -> None:
    which = f"process {os.getpid()}" if sys.platform == "linux" else f"the process at {deaf}"
    stopped = acphold.run("stop", "--all")
    assert stopped.code == 1
    assert f"{which} in the background does not answer" in stopped.err
    seen = acphold.run("doctor")
    assert seen.code == 1
    assert f"{which} in the background does not answer" in " ".join(seen.out.split())


def test_a_socket_that_was_left_behind_is_nobody(acphold: CommandLine, deaf: str) -> None:
    shutil.copyfile(f"{deaf}.lock", deaf.replace("deaf", "gone") + ".lock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(deaf.replace("deaf", "gone"))
    assert [silent.path for silent in silent_processes([])] == [deaf]
