"""`show` and `stop` on a session that is not live, or whose process does not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from acphold.conversation.history.decisions import AskedQuestion, answer_entry, question_entry
from acphold.faces.cli.front import daemon_lock
from acphold.faces.cli.journals import reading
from acphold.faces.cli.session_picker import _ReadSessions
from acphold.journal_location import VARIABLE
from acphold.live.reading.processes import silent_processes
from acphold.machine.addresses import unix_address
from acphold.machine.locked_file import hold
from acphold.machine.runtime_folder import daemon_socket
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.owners import OWNING
from tests.raw_entries import prompt, said, update

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
    with holding(journal, "unix:/nowhere.sock") as pid:
        yield pid


@contextmanager
def holding(journal: Path, address: str) -> Iterator[int]:
    remember(journal, "held", prompt("x"))
    words = [sys.executable, "-P", "-c", OWNING, str(journal), "held", address]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"owns\n"
        yield process.pid
        process.kill()


def test_show_follow_names_a_question_by_the_tool_call_that_it_is_about(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", said("earlier"), *LAST_TURN)
    done = acphold.run("show", "--follow", "s")
    assert "not answered yet" not in done.out  # it is over, by the same journal
    assert "asked: interrupted: Edit hello.py → it crashed" in done.out
    assert "earlier" not in done.out
    assert done.err == "Session s is not live.\n"


def test_show_knows_a_turn_that_runs_from_one_that_was_cut_off(
    acphold: CommandLine, journal: Path, silent: int
) -> None:
    assert "turn: running" in acphold.run("show", "held").out
    assert "turn: running" in acphold.run("show", "held@1").out
    assert previewed(journal)[-1] == "turn: running"
    os.kill(silent, signal.SIGKILL)
    os.waitpid(silent, 0)
    assert "turn: interrupted" in acphold.run("show", "held").out
    assert previewed(journal)[-1].startswith("turn: interrupted")


def previewed(journal: Path) -> Sequence[str]:
    """The end of the session `held`, as the picker shows it."""

    async def preview() -> Sequence[str]:
        async with reading() as reader:
            return await _ReadSessions(reader).preview("held", 0)

    with pytest.MonkeyPatch.context() as changed:
        changed.setenv(VARIABLE, str(journal))
        return asyncio.run(preview())


def test_stop_has_nothing_to_do_for_a_session_that_is_not_live(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", *LAST_TURN)
    done = acphold.run("agent", "stop", "s")
    assert (done.code, done.out) == (0, "")
    assert done.err == "Session s is not running: there is nothing to stop.\n"
    assert acphold.run("agent", "stop", "unknown").code == 3


def test_stop_says_that_the_process_of_a_session_does_not_answer(
    acphold: CommandLine, silent: int
) -> None:
    done = acphold.run("agent", "stop", "held")
    assert done.code == 1
    assert f"process {silent} on" in done.err
    assert "stop it where it runs" in done.err  # its own process id may belong to another process
    assert "kill -9" not in done.err


def test_the_number_that_a_person_is_told_to_kill_is_the_one_that_the_kernel_tells(
    acphold: CommandLine, journal: Path, deaf: str
) -> None:
    with holding(journal, unix_address(deaf)) as told:
        done = acphold.run("agent", "stop", "held")
    assert f"process {told} on" in done.err
    assert f"`kill -9 {os.getpid()}` ends it" in done.err


@pytest.fixture
def deaf(journal: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The socket of a daemon that listens and never answers: ours."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path has to be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        held = hold(daemon_lock(str(journal)))
        assert held is not None
        held.note(path := daemon_socket(held.mark))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            yield path
        held.release()


def test_a_daemon_that_does_not_answer_is_told(acphold: CommandLine, deaf: str) -> None:
    which = str(os.getpid()) if sys.platform == "linux" else f"at {deaf}"
    stopped = acphold.run("agent", "stop", "--all")
    assert stopped.code == 1
    assert f"daemon {which} does not answer" in stopped.err
    seen = acphold.run("doctor")
    assert seen.code == 1
    assert f"daemon {which} does not answer" in " ".join(seen.out.split())


def test_a_daemon_that_is_ending_is_not_nothing(
    acphold: CommandLine, deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.faces.cli.bounds.STOP_SECONDS", 0.0)
    os.unlink(deaf)  # as a process does first when it ends
    pid = os.getpid() if sys.platform == "linux" else None
    assert acphold.run("agent", "status").out.startswith(f"process {pid}: daemon, ends")
    stopped = acphold.run("agent", "stop", "--all")
    assert stopped.code == 1
    assert f"process {pid} is still ending" in stopped.err


def test_a_socket_that_was_left_behind_is_nobody(acphold: CommandLine, deaf: str) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{deaf[:-6]}.sock")
    assert [silent.path for silent in silent_processes([])] == [deaf]


def test_what_may_run_is_not_called_nothing_when_the_runtime_folder_cannot_be_trusted(
    acphold: CommandLine, deaf: str
) -> None:
    os.chmod(os.path.dirname(deaf), 0o755)
    for command in (["agent", "status"], ["agent", "stop"]):
        done = acphold.run(*command)
        assert done.code == 1
        assert "other users can open it; run `chmod 700` on it" in done.err
        assert "Nothing is running" not in done.out + done.err
