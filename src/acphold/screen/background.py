"""Detection of a light terminal background, by asking the terminal, with a timeout."""

from __future__ import annotations

import os
import re
import select
import termios
import time
import tty

BOUND_SECONDS = 0.2
"""Seconds a terminal has to answer; a remote one may take that long. No answer means dark."""

QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
"""Asks for the background (xterm's OSC 11) and the device attributes (DA1).

Every terminal answers the second, so one that does not know the first costs no waiting.
"""

COLOUR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
DONE = re.compile(rb"\x1b\[\?[0-9;]*c")


def is_light(reads: int, writes: int) -> bool:
    """Return True for a light background: from COLORFGBG, otherwise as the terminal answers."""
    told = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    if told.isdecimal():
        return told in ("7", "15")
    try:
        before = termios.tcgetattr(reads)
    except termios.error:
        return False
    answer = b""
    try:
        tty.setcbreak(reads, termios.TCSADRAIN)
        os.write(writes, QUESTION)
        deadline = time.monotonic() + BOUND_SECONDS
        while (left := deadline - time.monotonic()) > 0 and not DONE.search(answer):
            if select.select([reads], [], [], left)[0]:
                piece = os.read(reads, 1024)
                answer += piece
                if not piece:
                    break
    except OSError:  # the terminal is gone; drawing on it will fail and say so
        return False
    finally:
        termios.tcsetattr(reads, termios.TCSADRAIN, before)
    if (found := COLOUR.search(answer)) is None:
        return False
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return bool(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)
