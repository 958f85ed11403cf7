"""The signs of life of a daemon, and the words of its fronts when there are none: free at rest.

The daemon touches its socket with the ticks that it has anyway. Fronts look at that time, but only
one of them at once, which holds a file beside the socket; the others wait for the file, in the
kernel. What it finds it notes there, tells its editor, and hands on: so at rest eight fronts look
six times a minute together, and yet each tells its own editor. A front counts how long it has
waited itself, and asks no clock: a laptop that sleeps, or a front that is stopped together with its
daemon, finds nothing wrong.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from acphold.faces.cli import bounds
from acphold.machine.runtime_folder import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable


def beat(socket: str) -> None:
    """Give a sign of life at this socket of ours."""
    with suppress(OSError):  # somebody removed it: the listener makes another
        os.utime(socket)


def watch(socket: str, say: Callable[[bool], object]) -> None:
    """Look for the signs of life of the daemon at this socket, for ever; call `say` with True once
    it is silent, and with False once it answers again.

    Blocks in the kernel while another front looks. Raises OSError if no file can be held there.
    """
    told = False
    while True:
        file = os.open(_watched(socket), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            told = _look(socket, file, told)
        finally:
            os.close(file)
        say(told)
        time.sleep(bounds.AGAIN_SECONDS)


def forget(socket: str) -> None:
    """Remove the file beside a socket that is removed."""
    with suppress(OSError):  # no front has looked
        os.unlink(_watched(socket))


def _look(socket: str, file: int, told: bool) -> bool:
    """Look until something other than `told` is to be told; return that."""
    last, waited = b"", 0.0
    while True:
        if (found := _last_beat(socket)) != last:
            last, waited = found, 0.0
        noted = os.pread(file, 32, 0)
        if noted and noted != last:
            os.ftruncate(file, 0)
            noted = b""
        elif last and not noted and waited >= bounds.BEAT_SECONDS + bounds.LATE_SECONDS:
            os.pwrite(file, noted := last, 0)
        if bool(noted) is not told:
            return not told
        age = time.time() - int(last or 0) / 1e9
        is_due_later = not waited and not noted
        wait = bounds.LATE_SECONDS + (
            bounds.BEAT_SECONDS - age % bounds.BEAT_SECONDS if is_due_later else 0
        )
        time.sleep(wait)
        waited += wait


def _last_beat(socket: str) -> bytes:
    """Return the time of the last sign, in ns; b"" if there is no socket."""
    try:
        return b"%d" % os.stat(socket).st_mtime_ns
    except OSError:
        return b""


def _watched(socket: str) -> str:
    return socket.removesuffix(SUFFIX) + ".watch"
