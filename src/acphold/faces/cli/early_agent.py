"""The agent of the front that starts a daemon, begun before the daemon has imported anything.

Reading its own code takes the daemon a tenth of a second, and so does an agent, or longer: they do
it beside each other. The front gives the daemon its first frame for that (`cli.front`), besides the
one with its streams, which comes when the daemon listens. Then the agent is taken, if it is the
same (`acphold.machine.begun`).
"""

from __future__ import annotations

import os
import select
from contextlib import suppress

from acp_wire.errors import AcpError
from acp_wire.processes.guardian import leave_outer_guard
from acphold.faces.cli.front import FRAME, FRAME_SECONDS
from acphold.machine import begun
from acphold.machine.first_frame import HANDED_OVER, SERVER, decode_frame
from acphold.machine.locked_file import LockedFile, hold

START = len(HANDED_OVER) + 4
"""Bytes before the rest of a frame."""


def hold_and_begin(path: str) -> LockedFile | None:
    """Hold the file of the daemon, and begin the agent of the front that starts us; return it held,
    None if another daemon holds it. Raises OSError."""
    leave_outer_guard()
    try:
        if (held := hold(path)) is not None:
            frame = b""
            poll = select.poll()
            poll.register(FRAME, select.POLLIN)
            # Whatever is wrong with it, the front is told when it comes.
            with suppress(OSError, ValueError, AcpError):
                while poll.poll(FRAME_SECONDS * 1000) and (piece := os.read(FRAME, 1 << 16)):
                    frame += piece
                asked = decode_frame(frame[START:])
                if asked.command and asked.kind != SERVER:
                    begun.begin(asked.command, asked.surroundings, asked.surroundings.folder)
    finally:
        with suppress(OSError):  # this was started by hand
            os.close(FRAME)
    return held
