"""Our own stdin and stdout as the connection to an editor.

The two descriptors are claimed first: an accidental print then goes to stderr, and does not stand
between two messages of the protocol.
"""

from __future__ import annotations

import os
import stat
import sys

from acp_wire.processes.descriptors import keep_stdio_open

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from acp_wire.transports.pipes import PipeTransport


def claim_stdio() -> tuple[int, int]:
    """Claim descriptors 0 and 1 for the protocol; return private ones to read and to write.

    Afterwards 0 is /dev/null and 1 is stderr, so that a print, a C library or a child process
    touches neither the client's messages nor ours. Call it once, and early: an event loop that was
    made while 0 or 1 was closed has taken that number for itself.
    """
    keep_stdio_open()
    reading, writing = private_copy(0), private_copy(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # Python buffers for a pipe: a print would come late
        reconfigure(line_buffering=True)
    return reading, writing


def stdio_transport() -> PipeTransport:
    """Return the transport to the program that started this process; claims stdin and stdout."""
    from acp_wire.transports.pipes import PipeTransport

    return PipeTransport(*claim_stdio())


def private_copy(fd: int) -> int:
    """Return a close-on-exec copy of `fd`, if possible with a file description of its own.

    Linux opens the pipe or terminal behind `/proc/self/fd/N` anew; then no other process sees
    O_NONBLOCK on that copy, even if we are killed. Elsewhere, and for sockets, the copy shares its
    description (`pipes.Descriptor` handles that). Regular files share it on purpose: a new
    description would start at offset 0. Raises OSError if `fd` is closed.
    """
    mode = os.fstat(fd).st_mode
    if sys.platform == "linux" and (stat.S_ISFIFO(mode) or os.isatty(fd)):
        import fcntl

        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        try:
            return os.open(f"/proc/self/fd/{fd}", access | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:  # no /proc, another user's pipe, or its other end is closed
            return os.dup(fd)
    return os.dup(fd)
