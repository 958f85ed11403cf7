"""Starting a program: its environment, the parts withheld from it, and the errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from acp_wire.errors import AgentStartError
from acp_wire.processes.program import Program, launch

Start = Callable[..., Program]
Agent = Callable[[str], list[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """`launch`, with the programs ended after the test."""
    launched = []

    def launch_it(command: Sequence[str], **options: str | dict[str, str]) -> Program:
        program = launch(command, **options)  # type: ignore[arg-type]
        launched.append(program)
        return program

    yield launch_it
    for program in launched:
        program.abandon()


def all_of(fd: int) -> str:
    """Read all of `fd`."""
    data = b""
    while piece := os.read(fd, 65536):
        data += piece
    return data.decode()


def output(program: Program) -> str:
    """All that it writes to stdout."""
    return all_of(program.fds[1])


def test_the_program_talks_through_its_three_pipes(start: Start, agent: Agent) -> None:
    program = start(agent("print(input()); print('oops', file=sys.stderr)"))
    os.write(program.fds[0], b"hello\n")
    assert output(program) == "hello\n"
    assert all_of(program.fds[2]) == "oops\n"


def test_the_program_leads_a_process_group_of_its_own(start: Start, agent: Agent) -> None:
    program = start(agent("print(os.getpid(), os.getpgrp())"))
    assert output(program).split() == [str(program.pid)] * 2
    assert os.getpgrp() != program.pid


def test_no_other_descriptor_reaches_the_program(start: Start, agent: Agent) -> None:
    leak, other = os.pipe()
    os.set_inheritable(leak, True)
    listed = output(start(agent("print(*os.listdir('/dev/fd'))"))).split()
    assert {"0", "1", "2"} <= set(listed)
    assert len(listed) == 4  # and the one with which it reads the folder
    os.close(leak)
    os.close(other)


def test_signals_that_we_ignore_have_their_default_in_the_program(start: Start) -> None:
    # Not a Python program: Python itself ignores SIGPIPE.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        program = start(["sh", "-c", "kill -INT $$; echo alive"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert output(program) == ""
    endless = start(["sh", "-c", "(while :; do echo; done) | head -1; echo done"])
    assert output(endless) == "\ndone\n"


def test_an_environment_that_is_given_replaces_ours(start: Start, agent: Agent) -> None:
    code = "print(*sorted(name for name in os.environ if name[:3] not in ('LC_', '__C')))"
    program = start(agent(code), env={"ONLY": "this"})
    assert output(program).split() == ["ACPHOLD_GUARD", "ONLY"]


def test_the_program_is_searched_on_the_path_that_it_is_given(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "my-agent"
    path.write_text("#!/bin/sh\necho found\n")
    path.chmod(0o755)
    assert output(start(["my-agent"], env={"PATH": str(tmp_path)})) == "found\n"


def test_a_program_starts_in_the_folder_that_is_given(start: Start, tmp_path: Path) -> None:
    (folder := tmp_path / "with space").mkdir()
    (folder / "here.sh").write_text("#!/bin/sh\npwd\necho $1\n")
    (folder / "here.sh").chmod(0o755)
    program = start(["./here.sh", "a  b"], cwd=str(folder))
    assert output(program) == f"{folder}\na b\n"


def test_pipes_do_not_land_on_standard_streams_that_are_closed(agent: Agent) -> None:
    code = f"""
import os
from acp_wire.processes.program import launch
program = launch({agent("os.write(1, b'hello')")!r})
assert min(program.fds[0], program.fds[1], program.fds[2]) > 2
assert os.read(program.fds[1], 99) == b'hello'
program.abandon()
"""
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    subprocess.run(command, timeout=20, check=True)


def fails(command: Sequence[str], cwd: str | None = None, env: dict[str, str] | None = None) -> str:
    before = sorted(os.listdir("/dev/fd"))
    with pytest.raises(AgentStartError) as caught:
        launch(command, cwd=cwd, env=env)
    assert sorted(os.listdir("/dev/fd")) == before
    return str(caught.value)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-agent", "no such program on PATH"),
        ("./no/such/agent", "the file does not exist"),
        ("./text", "is not executable; run `chmod +x`"),
        ("./empty", "is its first line missing the #!"),
        ("./said", "is its first line missing the #!"),
        ("./script", "the interpreter in the first line of"),
        ("./", "it is a folder"),
    ],
)
def test_a_program_that_cannot_run_is_named_with_the_reason(
    command: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "text").touch(0o644)
    for name, content in (
        ("empty", b"\x01\x02"),
        ("said", b"print('hello')\n"),
        ("script", b"#!/no/such/interpreter\n"),
    ):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    message = fails([command, "--acp"], cwd=str(tmp_path))
    assert message.startswith(f"cannot start {command!r}: ")
    assert reason in message


def test_a_folder_to_start_in_that_is_missing_is_named() -> None:
    assert "'/no/such/folder'" in fails(["sh"], cwd="/no/such/folder")


@pytest.mark.parametrize("cwd", [None, "/"])
@pytest.mark.parametrize("word", ["s3cret\0", "s3cret\ud800"])
def test_what_no_program_can_be_given_is_told_without_saying_it(word: str, cwd: str | None) -> None:
    for message in (
        fails(["/bin/sh", word], cwd),
        fails(["/bin/sh"], cwd, {"A": word}),
        fails(["/bin/sh"], cwd, {f"{word}A": "a"}),
    ):
        assert "contain a NUL, or are not Unicode" in message
        assert "s3cret" not in message
    assert "no such program" in fails(["a\0b"], cwd)
    assert "there is no such folder" in fails(["sh"], word)


def test_an_empty_command_is_refused() -> None:
    assert "no command" in fails([])
