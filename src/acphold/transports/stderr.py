"""What an agent writes to stderr: always read, kept, and passed on without ever waiting."""

from __future__ import annotations

import asyncio
import logging
import os
import select
from contextlib import suppress

log = logging.getLogger(__name__)

TAIL_BYTES = 64 * 1024
"""How much of the end of stderr is kept for error messages."""

READ_SIZE = 64 * 1024
"""Bytes asked of one read, so that a flood of stderr leaves room for everything else."""

REST_READS = 16
"""Reads for what is left at the exit: a child that still writes must not hold us there."""


class StderrReader:
    """Reads `fd` and owns it; to be made inside a running event loop.

    All of it goes to the file `log_path`; as much of it as fits at once goes to `relay_fd`, which
    is our own stderr and may be read slowly or not at all.
    """

    def __init__(
        self, fd: int, *, log_path: str | os.PathLike[str] | None = None, relay_fd: int | None = 2
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = fd
        self._tail = bytearray()
        self._log_fd = None if log_path is None else _open_log(log_path)
        self._relay = None if relay_fd is None else Relay(relay_fd)
        os.set_blocking(fd, False)  # our end of a pipe that we made: the flag is ours alone
        self._loop.add_reader(fd, self._read_some)

    def tail(self, lines: int) -> str:
        """The last `lines` lines as text; bytes that are not UTF-8 are replaced."""
        return "\n".join(self._tail.decode(errors="replace").splitlines()[-lines:])

    def read_rest(self) -> None:
        """Read what is in the pipe now."""
        for _ in range(REST_READS):
            if not self._read_some():
                return

    def close(self) -> None:
        """Read no more; may be called again."""
        self._stop_reading()
        log_fd, self._log_fd = self._log_fd, None
        if log_fd is not None:
            os.close(log_fd)

    def _read_some(self) -> bool:
        """Take one piece; False when there is none now, or never again."""
        if self._fd is None:
            return False
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._stop_reading()
            return False
        self._keep(data)
        if self._relay is not None:
            self._relay.pass_on(data)
        return True

    def _keep(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-TAIL_BYTES]
        if self._log_fd is None:
            return
        try:
            os.write(self._log_fd, data)
        except OSError as error:
            log.warning("the agent's stderr is logged no further: %s", error)
            os.close(self._log_fd)
            self._log_fd = None

    def _stop_reading(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)


class Relay:
    """Writes to a descriptor that others share, and never waits: what does not fit is dropped.

    Shared, so without O_NONBLOCK: poll promises room for PIPE_BUF bytes, and no more is written.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def pass_on(self, data: bytes) -> None:
        """Write as much of `data` as finds room now."""
        view = memoryview(data)
        with suppress(OSError):  # closed, or nobody reads it: then it is not wanted
            while view and self._poll.poll(0) == [(self._fd, select.POLLOUT)]:
                view = view[os.write(self._fd, view[: select.PIPE_BUF]) :]


def _open_log(path: str | os.PathLike[str]) -> int | None:
    """The file at `path`, to append to, for our eyes only; None, with a warning, if it fails."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        log.warning("the agent's stderr is not logged: %s", error)
        return None
