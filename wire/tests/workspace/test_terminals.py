"""Commands run in the roots, are heard to the end, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acp_wire.errors import (
    InvalidParamsError,
    MissingFileError,
    OutsideRootsError,
    TerminalStartError,
)
from acp_wire.schema import TerminalExitStatus
from acp_wire.surroundings import Limits, Surroundings
from acp_wire.workspace import bounds
from acp_wire.workspace.roots import Roots
from acp_wire.workspace.terminals import OutputTail, TerminalCommand, Terminals
from acp_wire.workspace.workspace import Workspace
from tests.watched_processes import family, lives, pids, until

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")


@pytest.fixture
def terminals(workspace: Workspace) -> Terminals:
    return workspace.terminals


class SlowRoots(Roots):
    """Roots on a disk that does not answer before it is told to."""

    def __init__(self, cwd: str) -> None:
        super().__init__(cwd)
        self.asked = False
        self.answer = threading.Event()

    def folder(self, path: str) -> str:
        self.asked = True
        self.answer.wait(20)
        return super().folder(path)


async def ended(terminal: TerminalCommand) -> TerminalExitStatus:
    async with asyncio.timeout(10):
        return await terminal.wait()


async def ran(terminals: Terminals, command: str, *args: str, **options: Any) -> str:
    """The whole output of a command."""
    terminal = await terminals.create(command, args, **options)
    await ended(terminal)
    return terminal.output().output


def python(code: str) -> tuple[str, list[str]]:
    return sys.executable, ["-S", "-c", code]


async def test_a_commands_output_on_both_streams_comes_in_order_with_its_exit_code(
    terminals: Terminals,
) -> None:
    script = "echo out; echo err >&2; echo out again; exit 3"
    terminal = await terminals.create("sh", ["-c", script])
    assert await ended(terminal) == TerminalExitStatus(exit_code=3)
    output = terminal.output()
    assert output.output == "out\nerr\nout again\n"
    assert not output.truncated
    assert output.exit_status == TerminalExitStatus(exit_code=3)


async def test_stdin_is_empty_so_that_no_command_waits_for_a_person(terminals: Terminals) -> None:
    assert await ended(await terminals.create("cat")) == TerminalExitStatus(exit_code=0)


async def test_a_command_line_without_arguments_is_run_by_a_shell(terminals: Terminals) -> None:
    assert await ran(terminals, "echo one && echo two | tr w W") == "one\ntWo\n"


async def test_a_program_with_a_space_in_its_name_is_not_taken_for_a_command_line(
    terminals: Terminals, project: Path
) -> None:
    program = project / "my tool"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    for name in ("./my tool", str(program)):
        assert await ran(terminals, name) == "ran\n"


async def test_arguments_and_variables_reach_the_command_as_they_are(
    project: Path,
) -> None:
    here = Surroundings.here()
    within = Surroundings({**here.env, "OURS": "kept"}, here.folder)
    terminals = Terminals(Roots(str(project)), within)
    code = "import os, sys; print(sys.argv[1:], os.environ['OURS'], os.environ['a.b'])"
    said = await ran(terminals, sys.executable, "-c", code, "$x", "", "a b", env={"a.b": "*"})
    assert said == "['$x', '', 'a b'] kept *\n"
    await terminals.aclose()


async def test_a_command_has_the_umask_and_the_limits_of_its_surroundings(project: Path) -> None:
    here = Surroundings.here()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits: Limits = ((resource.RLIMIT_NOFILE, 77, most),), 0, 0, None
    within = Surroundings(here.env, here.folder, 0o027, limits)
    terminals = Terminals(Roots(str(project)), within)
    assert await ran(terminals, "until [ $(ulimit -n) = 77 ]; do :; done; umask") == "0027\n"
    await terminals.aclose()


async def test_commands_start_in_the_roots_and_nowhere_else(
    terminals: Terminals, project: Path, outside: Path
) -> None:
    (project / "sub").mkdir()
    (project / "link").symlink_to(outside)
    for cwd, folder in ((None, project), ("sub", project / "sub"), (str(project), project)):
        assert await ran(terminals, "pwd", "-P", cwd=cwd) == f"{folder}\n"
    for cwd in ("..", "/", "link", str(outside)):
        with pytest.raises(OutsideRootsError):
            await terminals.create("pwd", cwd=cwd)
    with pytest.raises(MissingFileError, match="no folder 'missing'"):
        await terminals.create("pwd", cwd="missing")


async def test_a_command_that_cannot_run_is_refused_with_the_reason(terminals: Terminals) -> None:
    with pytest.raises(
        TerminalStartError, match=r"^cannot start '\./none': the file does not exist"
    ):
        await terminals.create("./none", ["x"])


async def test_arguments_that_no_program_can_be_given_are_refused_without_repeating_values(
    terminals: Terminals,
) -> None:
    for env in ({"A": "s3cret\0"}, {"A=B": "s3cret"}, {"": "s3cret"}):
        with pytest.raises(InvalidParamsError) as caught:
            await terminals.create("true", env=env)
        assert caught.value.field == "env"
        assert "s3cret" not in str(caught.value)
    for command, args in (("", []), ("a\0", []), ("a", ["\0"]), ("a", ["\ud800"])):
        with pytest.raises(InvalidParamsError):
            await terminals.create(command, args)


async def test_the_end_of_a_long_output_is_kept_from_a_characters_beginning(
    terminals: Terminals,
) -> None:
    code = "print('start' + '\\u20ac' * 100000, end='')"
    terminal = await terminals.create(
        sys.executable, ["-X", "utf8", "-c", code], output_byte_limit=100
    )
    await ended(terminal)
    output = terminal.output()
    assert output.output == "\u20ac" * 33
    assert output.truncated


async def test_a_killed_commands_output_can_still_be_read(
    terminals: Terminals, pid_file: Path
) -> None:
    terminal = await terminals.create(*python(family(pid_file)))
    await until(lambda: len(pids(pid_file)) == 2)
    await terminal.kill()
    assert not any(map(lives, pids(pid_file)))
    assert await ended(terminal) == TerminalExitStatus(signal="SIGTERM")
    assert terminal.output().exit_status == TerminalExitStatus(signal="SIGTERM")
    await terminal.kill()
    await terminals.release(terminal.id)


@pytest.mark.parametrize("setsid", [False, pytest.param(True, marks=linux_only)])
async def test_a_command_that_ignores_sigterm_is_ended_with_its_children(
    terminals: Terminals,
    pid_file: Path,
    setsid: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acp_wire.workspace.terminals.GRACE_SECONDS", 0.2)
    code = family(pid_file, ignore_term=True, setsid=setsid)
    terminal = await terminals.create(*python(code))
    await until(lambda: len(pids(pid_file)) == 2)
    waiting = asyncio.create_task(terminal.wait())
    await terminals.release(terminal.id)
    assert not any(map(lives, pids(pid_file)))
    assert await waiting == TerminalExitStatus(signal="SIGKILL")


async def test_processes_that_a_command_left_running_end_with_the_release(
    terminals: Terminals, pid_file: Path
) -> None:
    script = f"sleep 60 & echo $! > {pid_file}; echo done"
    terminal = await terminals.create("sh", ["-c", script])
    assert await ended(terminal) == TerminalExitStatus(exit_code=0)
    assert terminal.output().output == "done\n"
    assert lives(pids(pid_file)[0])
    await terminals.release(terminal.id)
    assert not lives(pids(pid_file)[0])


@linux_only
async def test_an_orphan_without_its_environment_and_session_ends_with_its_own_terminal(
    terminals: Terminals, tmp_path: Path
) -> None:
    orphan = "env -i setsid sh -c 'echo $$ > {}; exec sleep 60' > /dev/null 2>&1 &"
    files = [tmp_path / "one", tmp_path / "other"]
    one, other = [await terminals.create("sh", ["-c", orphan.format(file)]) for file in files]
    assert [(await ended(terminal)).exit_code for terminal in (one, other)] == [0, 0]
    await until(lambda: all(file.exists() and file.read_text() for file in files))
    (first,), (second,) = map(pids, files)
    await terminals.release(one.id)
    assert (lives(first), lives(second)) == (False, True)
    await terminals.release(other.id)
    assert not lives(second)


@linux_only
async def test_a_command_that_ended_alone_leaves_no_zombie_and_no_guardian(
    terminals: Terminals,
) -> None:
    terminal = await terminals.create("true")
    await ended(terminal)
    await until(lambda: not Path(f"/proc/{terminal.pid}").exists())
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    await until(lambda: "acphold-guard" not in _commands(children.read_text().split()))
    assert terminal.output().exit_status == TerminalExitStatus(exit_code=0)


def _commands(numbers: list[str]) -> str:
    return " ".join(
        path.read_text() for number in numbers if (path := Path(f"/proc/{number}/cmdline")).exists()
    )


async def test_closing_ends_all_with_their_children_and_starts_no_more(
    project: Path, pid_file: Path
) -> None:
    before = len(os.listdir("/dev/fd"))
    terminals = Terminals(Roots(str(project)), Surroundings.here())
    for _ in range(5):
        await terminals.create(*python(family(pid_file)))
    await until(lambda: len(pids(pid_file)) == 10)
    late = asyncio.create_task(terminals.create("sleep", ["60"]))
    await asyncio.sleep(0)
    await terminals.aclose()
    with pytest.raises(TerminalStartError, match="closed"):
        await late
    assert not any(map(lives, pids(pid_file)))
    with pytest.raises(TerminalStartError, match="closed"):
        await terminals.create("true")
    await terminals.aclose()
    assert len(os.listdir("/dev/fd")) == before


async def test_a_start_that_is_cancelled_leaves_no_command(project: Path, pid_file: Path) -> None:
    terminals = Terminals(Roots(str(project)), Surroundings.here())
    starting = asyncio.create_task(
        terminals.create("sh", ["-c", f"echo $$ > {pid_file}; exec sleep 60"])
    )
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await terminals.aclose()
    assert not any(map(lives, pids(pid_file)))


async def test_a_release_that_is_cancelled_goes_on(terminals: Terminals, pid_file: Path) -> None:
    terminal = await terminals.create(*python(family(pid_file)))
    await until(lambda: len(pids(pid_file)) == 2)
    releasing = asyncio.create_task(terminals.release(terminal.id))
    await asyncio.sleep(0)
    releasing.cancel()
    assert await ended(terminal) == TerminalExitStatus(signal="SIGTERM")
    await until(lambda: not Path(f"/proc/{terminal.pid}").exists())
    assert not any(map(lives, pids(pid_file)))


async def test_closing_does_not_wait_for_a_start_that_hangs(
    project: Path, pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "START_SECONDS", 0.05)
    roots = SlowRoots(str(project))
    terminals = Terminals(roots, Surroundings.here())
    script = f"echo $$ > {pid_file}; exec sleep 60"
    starting = asyncio.create_task(terminals.create("sh", ["-c", script]))
    await until(lambda: roots.asked)
    async with asyncio.timeout(10):
        await terminals.aclose()
    assert not starting.done()
    roots.answer.set()
    with pytest.raises(TerminalStartError, match="closed"):
        await starting
    assert not any(map(lives, pids(pid_file)))


async def test_waiting_can_be_given_up_without_ending_the_command(terminals: Terminals) -> None:
    terminal = await terminals.create("sleep", ["60"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await terminal.wait()
    assert terminal.output().exit_status is None


async def test_a_command_that_prints_without_end_stalls_nobody(terminals: Terminals) -> None:
    flood = await terminals.create("yes", output_byte_limit=1000)
    await until(lambda: flood.output().truncated)
    spent = time.process_time()
    assert await ran(terminals, "echo", "hi") == "hi\n"
    assert time.process_time() - spent < 2
    await flood.kill()
    assert flood.output().output == "y\n" * 500


async def followed(terminal: TerminalCommand) -> str:
    """All that `follow` yields."""
    async with asyncio.timeout(10):
        return "".join([piece async for piece in terminal.follow()])


async def test_output_is_followed_piece_by_piece_while_the_command_runs(
    terminals: Terminals, project: Path
) -> None:
    script = "echo one; until [ -e go ]; do sleep 0.01; done; echo two"
    terminal = await terminals.create("sh", ["-c", script])
    pieces = terminal.follow()
    async with asyncio.timeout(10):
        assert await anext(pieces) == "one\n"
        assert terminal.output().exit_status is None
        (project / "go").touch()
        assert [piece async for piece in pieces] == ["two\n"]
    assert await ended(terminal) == TerminalExitStatus(exit_code=0)


async def test_each_follower_gets_all_of_the_output_also_after_its_end(
    terminals: Terminals,
) -> None:
    terminal = await terminals.create("sh", ["-c", "echo a; sleep 0.05; printf '\\342\\202'"])
    both = await asyncio.gather(followed(terminal), followed(terminal))
    assert list(both) == ["a\n\ufffd"] * 2
    await terminals.release(terminal.id)
    assert await followed(terminal) == "a\n\ufffd"


async def test_output_that_was_followed_stays_when_the_command_is_killed(
    terminals: Terminals,
) -> None:
    terminal = await terminals.create("sh", ["-c", "echo so far; exec sleep 60"])
    pieces = terminal.follow()
    async with asyncio.timeout(10):
        assert await anext(pieces) == "so far\n"
        waiting = asyncio.ensure_future(anext(pieces, None))
        await terminal.kill()
        assert await waiting is None
    assert terminal.output().output == "so far\n"


async def test_following_ends_with_the_command_though_a_child_holds_its_output(
    terminals: Terminals,
) -> None:
    terminal = await terminals.create("sh", ["-c", "sleep 60 & echo done"])
    assert await followed(terminal) == "done\n"


async def test_a_follower_that_is_slow_misses_the_middle_and_holds_up_nobody(
    terminals: Terminals,
) -> None:
    code = "print('a' * 999_999); print('b' * 99)"
    terminal = await terminals.create(*python(code), output_byte_limit=1000)
    await ended(terminal)
    text = await followed(terminal)
    assert 1000 <= len(text) < 100_000
    assert text.endswith("a\n" + "b" * 99 + "\n")


async def test_many_terminals_run_at_once(terminals: Terminals) -> None:
    many = await asyncio.gather(*(ran(terminals, "echo", str(n)) for n in range(40)))
    assert many == [f"{n}\n" for n in range(40)]


async def test_only_so_many_terminals_are_kept(
    terminals: Terminals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_TERMINALS", 2)
    first = await terminals.create("true")
    await terminals.create("true")
    with pytest.raises(TerminalStartError, match="there are already 2 terminals; release some"):
        await terminals.create("true")
    await terminals.release(first.id)
    await terminals.create("true")


# -- keeping an output, without I/O -------------------------------------------------------------

STREAMS = st.text("a\u00e9\u20ac\U0001f600\n", max_size=40).map(str.encode) | st.binary(max_size=60)


@given(STREAMS, st.integers(0, 50), st.integers(1, 7))
def test_the_tail_is_the_longest_end_of_the_output_that_fits(
    stream: bytes, limit: int, size: int
) -> None:
    tail = OutputTail(limit)
    for start in range(0, len(stream), size):
        tail.feed(stream[start : start + size])
        assert len(tail.text.encode()) <= limit
    tail.feed(b"", final=True)
    whole = stream.decode(errors="replace")
    assert whole.endswith(tail.text)
    longer = whole[len(whole) - len(tail.text) - 1 :]
    assert tail.is_truncated == (len(tail.text) < len(whole))
    if tail.is_truncated:
        assert len(longer.encode()) > limit
