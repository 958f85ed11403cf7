"""Short programs in one group: their answers, their deadline, and their remains."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from acphold.machine.program_group import READ_SIZE, Finished, ProgramGroup

ENV = {"PATH": os.environ["PATH"]}


def shell(group: ProgramGroup, script: str, stdin: bytes = b"") -> Finished:
    return group.run(["/bin/sh", "-c", script], ENV, stdin=stdin)


def soon(seconds: float = 30.0) -> float:
    return time.monotonic() + seconds


def test_each_gives_its_status_and_both_its_outputs() -> None:
    with ProgramGroup(soon()) as group:
        assert shell(group, "echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")
        assert shell(group, "kill -9 $$")[0] == -9


def test_much_goes_in_and_comes_out_at_once() -> None:
    much = os.urandom(3 << 20)
    with ProgramGroup(soon()) as group:
        assert shell(group, "cat", much).output == much


def test_one_that_does_not_read_its_input_is_no_failure() -> None:
    with ProgramGroup(soon()) as group:
        assert shell(group, "exit 0", b"x" * (1 << 20))[0] == 0


def test_all_have_one_guardian_and_those_that_only_read_need_none() -> None:
    def children() -> set[int]:
        return {child.pid for child in psutil.Process().children()}

    before = children()
    with ProgramGroup(soon()) as group:
        group.run(["/bin/echo"], ENV, reads=True)
        assert children() == before
        shell(group, "exit 0")
        guarded = children()
        assert guarded > before
        shell(group, "exit 0")
        assert children() == guarded
    assert children() == before


def test_all_leave_the_processor_to_others_if_the_group_is_to() -> None:
    group = ProgramGroup(soon(), niceness=os.nice(0) + 3)
    with group:
        # It waits for its input, which comes once it runs as it is to.
        told = shell(group, "read -r _; nice", b"now\n").output
    assert int(told) == os.nice(0) + 3


def test_at_the_deadline_all_are_ended_with_what_they_started() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError), ProgramGroup(soon(0.5)) as group:
        shell(group, "sleep 1000.25 & sleep 1000.25")
    assert time.monotonic() - began < 10
    left = subprocess.run(["ps", "-eo", "stat,ppid,args"], capture_output=True, text=True).stdout
    assert "sleep 1000.25\n" not in left
    ours = ["Z", str(os.getpid())]
    for name in ("[sh]", "[sleep]"):
        assert [*ours, name] not in [line.split()[:3] for line in left.splitlines()]


def test_one_that_only_reads_is_ended_at_the_deadline_too() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError), ProgramGroup(soon(0.5)) as group:
        group.run(["/bin/sh", "-c", "sleep 1000.5 & sleep 1000.5"], ENV, reads=True)
    assert time.monotonic() - began < 10
    left = subprocess.run(["ps", "-eo", "stat,ppid,args"], capture_output=True, text=True).stdout
    assert "sleep 1000.5\n" not in left
    assert ["Z", str(os.getpid()), "[sh]"] not in [line.split()[:3] for line in left.splitlines()]


def test_one_that_prints_too_much_is_ended() -> None:
    with pytest.raises(BufferError), ProgramGroup(soon()) as group:
        group.run(["/bin/sh", "-c", "yes"], ENV, most=1 << 20)


def test_input_and_output_may_be_files(tmp_path: Path) -> None:
    size = 3 * READ_SIZE + 7
    with ProgramGroup(soon()) as group, (tmp_path / "a").open("w+b") as source:
        source.write(b"x" * size)
        source.seek(0)
        with (tmp_path / "b").open("w+b") as into:
            ended = group.run(["/bin/cat"], {}, stdin=source, into=into)
            assert (ended.status, ended.output) == (0, b"")
            assert into.tell() == size
        source.seek(0)
        with (tmp_path / "b").open("w+b") as into, pytest.raises(BufferError):
            group.run(["/bin/cat"], {}, stdin=source, into=into, most=size - 1)
