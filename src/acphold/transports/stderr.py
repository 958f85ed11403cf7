"""The stderr of an agent: read at once, and passed on without ever waiting.

Its end is kept for error messages; all of it goes to a log file, if there is one, and to our own
stderr as far as that is read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable
from contextlib import suppress

from acphold.processes.output import OutputReader

log = logging.getLogger(__name__)

TAIL_BYTES = 64 * 1024
"""Bytes of the end of stderr that are kept for error messages."""


class Stderr:
    """Reads `fd` and owns it; make it inside a running event loop.

    All of it goes to the file `log_path`; as much of it as fits at once goes to `relay_fd`, which
    is our own stderr and may be read slowly or not at all. `on_data` is called with each piece.
    """

    def __init__(
        self,
        fd: int,
        *,
        log_path: str | os.PathLike[str] | None = None,
        relay_fd: int | None = 2,
        on_data: Callable[[bytes], None] | None = None,
    ) -> None:
        self._on_data = on_data
        self._tail = bytearray()
        self._log_fd: int | None = None
        if log_path is not None:
            # Readable by us only. O_NONBLOCK: a pipe that nobody reads would make us wait, when it
            # is opened and when it is full.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
            try:
                self._log_fd = os.open(log_path, flags, 0o600)
            except OSError as error:
                log.warning("the agent's stderr is not logged: %s", error)
        self._relay = None if relay_fd is None else StderrRelay(relay_fd)
        self._reader = OutputReader(asyncio.get_running_loop(), fd, self._take)

    def tail(self, lines: int) -> str:
        """Return the last `lines` lines as text; bytes that are not UTF-8 are replaced."""
        return "\n".join(self._tail.decode(errors="replace").splitlines()[-lines:])

    def read_rest(self) -> None:
        """Read what is in the pipe now."""
        self._reader.read_rest()

    def close(self) -> None:
        """Stop reading; may be called again."""
        self._reader.close()
        self._close_log()

    def _take(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-TAIL_BYTES]
        if self._on_data is not None:
            self._on_data(data)
        if self._relay is not None:
            self._relay.pass_on(data)
        if self._log_fd is not None:
            try:
                os.write(self._log_fd, data)
            except OSError as error:
                log.warning("the agent's stderr is logged no further: %s", error)
                self._close_log()

    def _close_log(self) -> None:
        log_fd, self._log_fd = self._log_fd, None
        if log_fd is not None:
            os.close(log_fd)


class StderrRelay:
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
