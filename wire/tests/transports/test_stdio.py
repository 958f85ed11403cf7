"""Our own stdin and stdout: reserved for the protocol, and kept from everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.watched_processes import lives

CLAIM = """
import os, sys
from acp_wire.transports.stdio import claim_stdio
reading, writing = claim_stdio()
"""

ECHO = """
import asyncio
from acp_wire.transports.pipes import PipeTransport
from acp_wire.transports.stdio import claim_stdio

fds = claim_stdio()

async def echo():
    transport = PipeTransport(*fds)
    while data := await transport.receive():
        transport.send(data)
    await transport.aclose()

asyncio.run(echo())
"""


def script(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(code: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    # Buffered as by default: else a print is out before anybody can claim anything.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        script(code), input=text, env=env, capture_output=True, timeout=20, check=True
    )


def test_bytes_go_through_untouched() -> None:
    data = os.urandom(1_000_000)
    assert run(ECHO, data).stdout == data


def test_a_stray_print_lands_on_stderr() -> None:
    done = run(CLAIM + "print('stray'); os.write(writing, b'wire')")
    assert done.stdout == b"wire"
    assert b"stray" in done.stderr


def test_a_stray_print_is_not_kept_until_the_end() -> None:
    done = run(CLAIM + "print('stray'); os._exit(0)")
    assert b"stray" in done.stderr


def test_what_was_printed_before_the_claim_lands_on_stderr_too() -> None:
    done = run("print('early')" + CLAIM)
    assert (done.stdout, b"early" in done.stderr) == (b"", True)


def test_output_of_c_code_and_of_children_lands_on_stderr() -> None:
    done = run(CLAIM + "os.write(1, b'from C'); os.system('echo from a child')")
    assert done.stdout == b""
    assert b"from C" in done.stderr
    assert b"from a child" in done.stderr


def test_children_cannot_take_what_the_client_says() -> None:
    done = run(CLAIM + "os.system('cat >&2'); os.write(writing, os.read(reading, 99))", b"for us")
    assert (done.stdout, done.stderr) == (b"for us", b"")


def test_children_do_not_hold_the_protocol_open() -> None:
    done = run(CLAIM + "os.system('ls /dev/fd >&2'); os.write(writing, b'wire')")
    # 0, 1, 2, and the one with which ls reads the folder (and macOS may list one more).
    assert len(done.stderr.split()) <= 5


def test_files_serve_as_stdin_and_stdout(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a line\n")
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("ab") as sink:
        sink.write(b"before\n")
        sink.flush()
        subprocess.run(script(ECHO), stdin=source, stdout=sink, timeout=20, check=True)
    assert (tmp_path / "out").read_bytes() == b"before\na line\n"


def test_dev_null_as_stdin_is_the_end_at_once() -> None:
    done = subprocess.run(
        script(ECHO), stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_read_as_the_end_and_swallow_output(closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *script(ECHO)]
    subprocess.run(command, input=b"", timeout=20, check=True)


WAIT = (
    CLAIM
    + "from acp_wire.transports.pipes import PipeTransport\n"
    + """
import asyncio

async def wait():
    transport = PipeTransport(reading, writing)
    transport.send(b"ready\\n")
    await transport.receive()

asyncio.run(wait())
"""
)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a pipe can be opened anew")
def test_pipes_shared_with_others_stay_blocking_even_when_we_are_killed() -> None:
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    process = subprocess.Popen(script(WAIT), stdin=their_in, stdout=their_out)
    assert os.read(our_in, 99) == b"ready\n"
    assert os.get_blocking(their_in)
    assert os.get_blocking(their_out)
    process.kill()
    process.wait()
    assert os.get_blocking(their_in)
    assert os.get_blocking(their_out)
    for fd in (their_in, our_out, our_in, their_out):
        os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a terminal can be opened anew")
def test_a_terminal_shared_with_the_shell_stays_blocking() -> None:
    screen, terminal = os.openpty()
    process = subprocess.Popen(script(WAIT), stdin=terminal, stdout=terminal)
    assert os.read(screen, 99).strip() == b"ready"
    assert os.get_blocking(terminal)
    os.write(screen, b"go\n")
    assert process.wait(timeout=20) == 0
    assert os.get_blocking(terminal)
    os.close(screen)
    os.close(terminal)


def test_the_end_of_acphold_is_the_end_of_its_streams_though_the_guardian_lives(
    agent: Callable[[str], list[str]],
    until: Callable[..., None],
) -> None:
    code = f"""
import os, signal
from acp_wire.processes.program import launch
program = launch({agent("time.sleep(60)")!r})
print(program.pid, program.guard.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # `run` returns at the end of stdout and stderr; nobody may hold them for as long as the
    # guardian waits.
    done = subprocess.run(script(code), capture_output=True, timeout=20, check=False)
    program, guardian = map(int, done.stdout.split())
    assert lives(guardian)
    until(lambda: not lives(program) and not lives(guardian))
