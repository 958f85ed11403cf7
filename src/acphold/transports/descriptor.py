"""File descriptors that never make the event loop wait."""

from __future__ import annotations

import os
import socket
import stat
import sys
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Readable: TypeAlias = Callable[[int], bytes]
    Writable: TypeAlias = Callable[[bytes | bytearray | memoryview], int]


class Descriptor:
    """A descriptor we own; `read` and `write` raise BlockingIOError instead of waiting.

    O_NONBLOCK belongs to the open file description, which we may share with the shell or the
    editor that started us; left behind, it makes their reads and writes fail. So sockets get
    MSG_DONTWAIT instead, files need nothing, and on anything else the flag is put back by `close`.
    """

    __slots__ = ("_restore", "_socket", "fd", "read", "write")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.read: Readable = partial(os.read, fd)
        self.write: Writable = partial(os.write, fd)
        self._restore = False
        self._socket: socket.socket | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            self._use_socket_calls()
        elif not stat.S_ISREG(mode) and os.get_blocking(fd):
            os.set_blocking(fd, False)
            self._restore = True

    def close(self) -> None:
        """Give the descriptor back to the system; to be called once."""
        if self._socket is not None:
            self._socket.close()
            return
        if self._restore:
            os.set_blocking(self.fd, True)
        os.close(self.fd)

    def _use_socket_calls(self) -> None:
        self._socket = sock = socket.socket(fileno=self.fd)
        at_once = socket.MSG_DONTWAIT
        self.read = lambda size: sock.recv(size, at_once)
        self.write = lambda data: sock.send(data, at_once)


def private_copy(fd: int) -> int:
    """A close-on-exec copy of `fd`, with a file description of its own where that is possible.

    Linux opens the pipe or terminal behind `/proc/self/fd/N` anew; O_NONBLOCK on that copy is seen
    by nobody else, even if we are killed. Elsewhere, and for sockets, the copy shares its
    description (`Descriptor` knows what to do). Regular files share it on purpose: a new
    description would start at offset 0. Raises OSError when `fd` is closed.
    """
    mode = os.fstat(fd).st_mode
    if sys.platform == "linux" and (stat.S_ISFIFO(mode) or os.isatty(fd)):
        import fcntl

        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        try:
            return os.open(f"/proc/self/fd/{fd}", access | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:  # no /proc, a pipe of another user, or nobody at its other end
            return os.dup(fd)
    return os.dup(fd)
