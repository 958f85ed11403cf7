"""acphold as another process: helpers beside us or outliving us, and commands others start for us.

Such a process begins in our folder, or an agent's. That is mostly a project, and Python looks there
first for every import, `acphold` itself included: so ours are told not to (`-P`). If one of
Python's own variables leads there as well, as a PYTHONPATH with an empty part does, they are told
to ignore them all (`-E`).
"""

# See docs/decisions.md, 26.

from __future__ import annotations

import os

from acp_wire.processes.descriptors import close_others_on_exec
from acp_wire.processes.own_python import own_python

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    import signal
    from asyncio.subprocess import Process
    from collections.abc import Mapping, Sequence
else:
    import _signal as signal

STREAMS_SECONDS = 1.0
"""Seconds after the end of a program beside us in which its output may still come."""

STREAM_BYTES = 64 * 1024
"""Bytes of its output that are read ahead."""


def own_command(*words: str) -> tuple[str, ...]:
    """Return the command line of `acphold` with these arguments."""
    return own_python("-m", "acphold", *words)


async def start_beside(
    command: Sequence[str],
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start a program as our child; streams as in asyncio. Raises OSError."""
    import asyncio

    return await asyncio.create_subprocess_exec(
        *command, stdin=stdin, stdout=stdout, stderr=stderr, env=env
    )


async def run_beside(
    command: Sequence[str],
    seconds: float | None = None,
    *,
    env: Mapping[str, str] | None = None,
    niceness: int = 0,
) -> tuple[int | None, bytes, bytes]:
    """Run a program beside us, without input, to its end; return its exit status, and what it
    prints on stdout and stderr. With a `niceness` above 0 it leaves the processors to others.

    It is killed if this is cancelled, and after `seconds`, with TimeoutError. A child of its own
    that keeps its streams is waited for STREAMS_SECONDS. Raises OSError.
    """
    import asyncio
    from asyncio.subprocess import DEVNULL, Process, SubprocessStreamProtocol

    from acp_wire.tasks import timeout

    loop = asyncio.get_running_loop()

    class BoundedStreams(SubprocessStreamProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.made = transport

        def process_exited(self) -> None:  # maybe before `subprocess_exec` returns
            super().process_exited()
            loop.call_later(STREAMS_SECONDS, self.made.close)

    transport, protocol = await loop.subprocess_exec(
        lambda: BoundedStreams(limit=STREAM_BYTES, loop=loop), *command, stdin=DEVNULL, env=env
    )
    process = Process(transport, protocol, loop)
    try:
        if niceness:
            try:
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
            except OSError:
                pass  # it has ended
        async with timeout(seconds):
            output, errors = await process.communicate()
        return process.returncode, output, errors
    finally:
        try:
            process.kill()
        except ProcessLookupError:
            pass  # it has ended by itself
        await process.wait()


def leave_parent() -> None:
    """Go on in a child that is nobody's: editors end programs with all that descends from them."""
    if os.fork():
        os._exit(0)


def start_detached(
    command: tuple[str, ...], streams: Mapping[int, int], env: Mapping[str, str] | None = None
) -> int:
    """Start one of the above in its own session, to outlive us; return its pid.

    It gets those of our descriptors that `streams` names, each under the key's number, and
    /dev/null for any of stdin, stdout and stderr not among these. Raises OSError.
    """
    close_others_on_exec()
    taken = [(os.POSIX_SPAWN_DUP2, ours, number) for number, ours in streams.items()]
    empty = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0)
        for number in range(3)
        if number not in streams
    ]
    return os.posix_spawn(
        command[0],
        command,
        os.environ if env is None else env,
        file_actions=[*taken, *empty],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )
