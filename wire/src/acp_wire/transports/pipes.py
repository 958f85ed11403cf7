"""The transport over two file descriptors: pipes, sockets, terminals and files.

Reading and writing do not wait for each other, but the end of one side affects the other. So the
reading side has a state, until its descriptor ends or is closed:

| state | what is received | becomes |
|---|---|---|
| OPEN | what the other side writes | LOST if it no longer reads us, HUNG_UP if we stop writing |
| LOST | what has arrived; more is not waited for | HUNG_UP |
| HUNG_UP | what `receive` waits for | CUT if something came without a waiting `receive` |
| CUT | nothing more; later bytes are thrown away | |
"""

from __future__ import annotations

import asyncio
import enum
import os
import socket
import stat
import sys
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from acp_wire.errors import ConnectionLostError
from acp_wire.tasks import timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    Readable: TypeAlias = Callable[[int], bytes]
    Writable: TypeAlias = Callable[[bytes | bytearray | memoryview], int]

READ_SIZE = 64 * 1024
"""Bytes of one read: what a Linux pipe holds. With 256 KiB, glibc maps and unmaps a buffer for each
short message, which then costs ten times as much."""

LOW_WATER = 64 * 1024
"""Bytes queued below which `drain` returns."""

FLUSH_SECONDS = 1.0
"""Seconds that closing waits for the other side to take what is queued."""

TURN_BYTES = 64 * 1024
READ_COST = 4 * 1024
"""After TURN_BYTES without a wait, each read counted as its length + READ_COST, others run. Nor is
more written in one step: a pipe whose reader keeps up would take megabytes."""


class ReadState(enum.Enum):
    """The state of the reading side; see the module."""

    OPEN = enum.auto()
    LOST = enum.auto()
    HUNG_UP = enum.auto()
    CUT = enum.auto()


class PipeTransport:
    """Bytes in from `read_fd`, bytes out to `write_fd`; owns and closes both.

    Make it inside a running event loop. Only one task at a time may wait in `receive`.
    """

    def __init__(self, read_fd: int, write_fd: int, arrived: bytes = b"") -> None:
        """`arrived` are bytes that were read from `read_fd` before."""
        self._loop = asyncio.get_running_loop()
        self._input: Descriptor | None = Descriptor(read_fd)
        self._output: Descriptor | None = Descriptor(write_fd)
        self.is_read = True
        """True while sent bytes can still be read."""
        self._read = self._input.read
        self._write = self._output.write
        self._spent = 0
        self._arrived: bytes | None = arrived or None
        self._watched = False
        self._reading = ReadState.OPEN
        self._reader: asyncio.Future[None] | None = None
        self._offer: Callable[[bytes], bool] = refuse
        self._queue = bytearray()
        self._progress = asyncio.Event()

    async def receive(self) -> bytes:
        """Return the next bytes, at most READ_SIZE; b"" once the other side has ended, and ever
        after."""
        if self._spent > TURN_BYTES:
            self._spent = 0
            await asyncio.sleep(0)  # a flood from one peer must not starve the others
        if self._arrived is None:
            self._arrived = b"" if self._reading is ReadState.CUT else self._take()
            if self._arrived is None:  # wait until there is something, or the input is closed
                if self._reading is ReadState.LOST:
                    self._close_input()
                if self._reader is not None and not self._reader.done():
                    raise RuntimeError("another task is waiting in receive() already")
                if self._input is not None:
                    self._spent = 0
                    self._reader = self._loop.create_future()
                    self._watch(self._input)
                    await self._reader
        data, self._arrived = self._arrived, None
        return data or b""

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer each read to `take` first while a task waits in `receive`."""
        self._offer = take

    def send(self, data: bytes) -> None:
        """Write what the system takes now and queue the rest; dropped once it cannot be read any
        more."""
        if self._output is None:
            return
        if self._queue:
            self._queue += data
            return
        try:
            most = self._output.most
            sent = self._write(data if len(data) <= most else memoryview(data)[:most])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lose_output()
            return
        if sent < len(data):
            self._queue += memoryview(data)[sent:]
            self._loop.add_writer(self._output.fd, self._on_writable, self._output)

    @property
    def buffered(self) -> int:
        """Bytes queued that the system has not taken yet."""
        return len(self._queue)

    async def drain(self) -> None:
        """Wait until less than LOW_WATER is queued; ConnectionLostError if it cannot be read any
        more."""
        await self._queue_below(LOW_WATER)
        if self._output is None:
            raise ConnectionLostError("the other side has closed the connection")

    async def hang_up(self, seconds: float = FLUSH_SECONDS) -> None:
        """Flush for at most `seconds` and close the writing side: the other side reads its end.

        The other side's last bytes can still be received. If none are waited for they are thrown
        away, and all later ones, so that a full pipe does not keep the other side from ending.
        """
        try:
            async with timeout(seconds):
                await self._queue_below(1)
        except TimeoutError:
            self._queue.clear()  # the other side does not read: the rest is lost
        finally:
            self._close_output()
            if self._reading is not ReadState.CUT:
                self._reading = ReadState.HUNG_UP
        if self._input is not None:
            self._watch(self._input)

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then close both descriptors; may be called again."""
        try:
            await self.hang_up()
        finally:
            self._close_input()

    def _take(self) -> bytes | None:
        """Read once; b"" at the end, None if there is nothing yet."""
        if self._input is None:
            return b""
        try:
            data = self._read(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:  # a reset socket, or a terminal that was hung up
            data = b""
        self._spent += len(data) + READ_COST
        if not data:
            self._close_input()
        return data

    def _lose_output(self) -> None:
        """Note that we are no longer read: received bytes stay, but more are not waited for.

        Otherwise a peer that closes only one of two pipes would never be noticed to have left.
        """
        self._close_output()
        self._reading = ReadState.LOST
        if self._reader is not None and not self._reader.done():
            self._arrived = self._take()
            if self._arrived is None:
                self._close_input()
            elif self._arrived:
                self._reader.set_result(None)

    def _watch(self, source: Descriptor) -> None:
        if not self._watched and not source.is_file:  # no loop can watch a file, nor need it
            self._watched = True
            self._loop.add_reader(source.fd, self._on_readable, source)

    def _on_readable(self, source: Descriptor) -> None:
        if self._reader is not None and not self._reader.done():
            # Read here, not in the task: the loop polls again before the task runs, and would wake
            # it twice. If the task is cancelled now, the next `receive` gets the data.
            data = self._take()
            try:
                if not data or self._offer(data):
                    return  # the end is reported by `_take`
            except Exception as exc:  # an error of the reader
                if not self._reader.done():
                    self._reader.set_exception(exc)
                return
            self._arrived = data
            self._reader.set_result(None)
        elif self._reading in (ReadState.HUNG_UP, ReadState.CUT):
            if self._take():
                self._reading = ReadState.CUT
        else:
            # Nothing waits: leave the bytes to the system, so that the pipe fills and the other
            # side waits. Unwatching only now saves two system calls for each message that is
            # awaited.
            self._unwatch(source)

    def _unwatch(self, source: Descriptor) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(source.fd)

    def _on_writable(self, sink: Descriptor) -> None:
        try:
            sent = self._write(self._queue[: sink.most])
        except BlockingIOError:
            return
        except OSError:
            self._lose_output()
            return
        del self._queue[:sent]
        if not self._queue:
            self._loop.remove_writer(sink.fd)
        if len(self._queue) < LOW_WATER:  # hundreds may wait: wake each when it can go on
            self._progress.set()

    async def _queue_below(self, limit: int) -> None:
        """Wait until fewer than `limit` bytes are queued, or they cannot be read any more."""
        while len(self._queue) >= limit:
            self._progress.clear()
            await self._progress.wait()

    def _close_input(self) -> None:
        source, self._input = self._input, None
        if source is None:
            return
        self._unwatch(source)
        source.close()
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _close_output(self) -> None:
        sink, self._output = self._output, None
        if sink is None:
            return
        self.is_read = False
        self._loop.remove_writer(sink.fd)
        self._queue.clear()
        self._progress.set()
        sink.close()


def refuse(data: bytes) -> bool:
    """Take nothing: leave it to `receive`."""
    return False


class Descriptor:
    """A descriptor we own; `read` and `write` raise BlockingIOError instead of waiting.

    O_NONBLOCK belongs to the open file description, which we may share with the shell or the editor
    that started us; left behind, it makes their reads and writes fail. So sockets get MSG_DONTWAIT
    instead, files need nothing, and on anything else the flag is put back by `close`.

    `most` bytes are written at once where a loop can tell that more fits: to pipes and sockets.
    """

    __slots__ = ("_restore", "_socket", "fd", "is_file", "most", "read", "write")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.read: Readable = partial(os.read, fd)
        self.write: Writable = partial(os.write, fd)
        self._restore = False
        self._socket: socket.socket | None = None
        mode = os.fstat(fd).st_mode
        self.is_file = stat.S_ISREG(mode)
        self.most = TURN_BYTES if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) else sys.maxsize
        if stat.S_ISSOCK(mode):
            self._socket = sock = socket.socket(fileno=fd)
            at_once = socket.MSG_DONTWAIT
            self.read = lambda size: sock.recv(size, at_once)
            self.write = lambda data: sock.send(data, at_once)
        elif not self.is_file and os.get_blocking(fd):
            os.set_blocking(fd, False)
            self._restore = True

    def close(self) -> None:
        """Give the descriptor back to the system; call it only once."""
        if self._socket is not None:
            self._socket.close()
            return
        if self._restore:
            os.set_blocking(self.fd, True)
        os.close(self.fd)
