"""Short programs in one process group: started one after the other, with one guardian.

A guardian for each would cost more than such a program does. The leader of the group is a shell
that waits; everything ends with it, at the deadline at the latest. A program that only reads, and
starts nothing, has neither: if we are killed, it ends by itself.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from typing import BinaryIO, NamedTuple, Self

from acp_wire.processes.program import Program, launch, spawn

READ_SIZE = 256 * 1024
CHECKPOINT_SECONDS = 0.05
"""Seconds between two checkpoints."""

ERROR_BYTES = 8 * 1024
"""Bytes of a program's error output that are kept."""


KILLED_SECONDS = 1.0
"""Seconds that the end of a killed program is waited for."""


class Finished(NamedTuple):
    """The end of a short program: its status, -N for signal N, its output, and the beginning
    of its error output."""

    status: int | None
    output: bytes
    errors: bytes


class ProgramGroup:
    """Runs short programs until `deadline` (monotonic seconds); blocks. Use it as a context.

    After the deadline all of them, and what they have started, are killed, and TimeoutError is
    raised. Raises AgentStartError if nothing can be started here. With a `niceness` above 0 they
    leave the processors to others. `checkpoint` is called several times a second while one runs;
    what it raises ends them.
    """

    def __init__(
        self,
        deadline: float,
        *,
        niceness: int = 0,
        checkpoint: Callable[[], None] | None = None,
    ) -> None:
        self.deadline = deadline
        self._checkpoint = checkpoint
        self.niceness = niceness
        self._leader: Program | None = None
        self._running: int | None = None
        self._alone: int | None = None
        """The running program, if it is in no group with the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._alone is not None:
            pid = self._alone
            self._alone = None
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            until = time.monotonic() + KILLED_SECONDS
            with suppress(ChildProcessError):
                while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < until:
                    time.sleep(0.001)
        leader, self._leader = self._leader, None
        if leader is None:
            return
        for fd in leader.fds:
            os.close(fd)
        if kind is None:
            leader.await_end()  # the shell ends with its input
        else:
            leader.end(0.0)
        if self._running is not None:
            with suppress(ChildProcessError):
                os.waitpid(self._running, os.WNOHANG)
        leader.reap()

    def run(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: bytes | BinaryIO = b"",
        into: BinaryIO | None = None,
        most: int = 256 << 20,
        reads: bool = False,
    ) -> Finished:
        """Run a program to its end; `command` starts with an absolute path. It `reads` if it writes
        nothing but its output, and starts no others: it needs no guardian.

        `env` is its whole environment. Its output is written into the file `into`, if there is one,
        instead of being returned. Raises TimeoutError at the deadline, and BufferError once it
        has printed more than `most` bytes; leave the context then.
        """
        if self._leader is None and not reads:
            self._leader = launch(["/bin/sh", "-c", "read -r _; exit 0"], env={})
        leader = None if reads else self._leader
        if leader is None:
            pid, fds = spawn(command[0], command, env)
            self._alone = pid
        else:
            pid, fds = spawn(command[0], command, env, group=leader.pid, guard=leader.guard)
            self._running = pid
        ours = [*fds]
        if self.niceness:
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, pid, self.niceness)
        try:
            source = BytesIO(stdin) if isinstance(stdin, bytes) else stdin
            output, errors = self._talk(ours, source, into, most)
            # Its output has ended: wait for the program itself, and reap it.
            status: int | None = None
            ended = 0
            while not ended:
                try:
                    ended, raw = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    break
                if ended:
                    status = os.waitstatus_to_exitcode(raw)
                else:
                    self._milliseconds()
                    time.sleep(0.0005)
            self._running = self._alone = None
        finally:
            for fd in ours:
                with suppress(OSError):
                    os.close(fd)
        return Finished(status, output, errors)

    def _talk(
        self, ours: list[int], source: BinaryIO, into: BinaryIO | None, most: int
    ) -> tuple[bytes, bytes]:
        """Write its input and read its output to the end, both at once."""
        to_program, output_end, errors_end = ours
        waiting = memoryview(source.read(READ_SIZE))
        printed = 0
        found: dict[int, bytearray] = {output_end: bytearray(), errors_end: bytearray()}
        poll = select.poll()
        for fd in ours:
            os.set_blocking(fd, False)
            poll.register(fd, select.POLLOUT if fd == to_program else select.POLLIN)
        left = {*ours}
        if not waiting:
            poll.unregister(to_program)
            left.discard(to_program)
            os.close(to_program)
            ours.remove(to_program)
        while left:
            for fd, _ in poll.poll(self._milliseconds()):
                if fd == to_program:
                    try:
                        waiting = waiting[os.write(fd, waiting) :]
                        waiting = waiting or memoryview(source.read(READ_SIZE))
                    except BrokenPipeError:  # it has read what it wanted
                        waiting = memoryview(b"")
                    if waiting:
                        continue
                    os.close(fd)
                    ours.remove(fd)
                elif piece := os.read(fd, READ_SIZE):
                    printed += len(piece) if fd == output_end else 0
                    if printed > most:
                        raise BufferError("a program printed too much")
                    if fd == output_end and into is not None:
                        into.write(piece)
                    elif fd == output_end or len(found[fd]) < ERROR_BYTES:
                        found[fd] += piece
                    continue
                poll.unregister(fd)
                left.discard(fd)
        return bytes(found[output_end]), bytes(found[errors_end])

    def _milliseconds(self) -> int:
        """The time left until the deadline or the next checkpoint; raises TimeoutError if there is
        none, and what the checkpoint raises."""
        if (left := self.deadline - time.monotonic()) <= 0:
            raise TimeoutError("a program did not end in time")
        if self._checkpoint is not None:
            self._checkpoint()
            left = min(left, CHECKPOINT_SECONDS)
        return int(left * 1000) + 1


def read_within(fd: int, seconds: float, most: int) -> Iterator[bytes]:
    """Yield the pieces of output within this time, until there are `most` bytes; blocks."""
    until, size = time.monotonic() + seconds, 0
    while size < most and (left := until - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            if not (piece := os.read(fd, READ_SIZE)):
                return
            size += len(piece)
            yield piece
