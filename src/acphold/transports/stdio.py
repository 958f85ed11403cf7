"""Our own stdin and stdout as a transport that no stray print can break."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from acphold.processes.program import keep_stdio_open
from acphold.transports.descriptor import private_copy

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
