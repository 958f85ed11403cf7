"""Our own stdin and stdout as the connection to an editor.

The two descriptors are taken away first: what somebody prints by accident then goes to stderr, and
does not stand between two messages of the protocol.
"""

from __future__ import annotations

import os
import stat
import sys

from acphold.processes.descriptors import keep_stdio_open

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from acphold.transports.pipes import PipeTransport


def claim_stdio() -> tuple[int, int]:
    """Take descriptors 0 and 1 away for the protocol; return private ones to read and to write.

    Afterwards 0 is /dev/null and 1 is stderr, so that a print, a C library or a child process
    reaches neither what the client says nor what it hears. To be called once, and early: an event
    loop that was made while 0 or 1 was closed has taken that number for itself.
    """
    keep_stdio_open()
    reading, writing = private_copy(0), private_copy(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # Python made its buffer for a pipe: a print would come late
        reconfigure(line_buffering=True)
    return reading, writing


def stdio_transport() -> PipeTransport:
    """The transport to whoever started this process; claims stdin and stdout."""
    from acphold.transports.pipes import PipeTransport

    return PipeTransport(*claim_stdio())


def private_copy(fd: int) -> int:
    """A close-on-exec copy of `fd`, with a file description of its own where that is possible.

    Linux opens the pipe or terminal behind `/proc/self/fd/N` anew; O_NONBLOCK on that copy is seen
    by nobody else, even if we are killed. Elsewhere, and for sockets, the copy shares its
    description (`pipes.Descriptor` knows what to do). Regular files share it on purpose: a new
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
