"""Whether a terminal has a light background: what it says itself, within a bound."""

from __future__ import annotations

import os
import re
import select
import termios
import time
import tty

BOUND_SECONDS = 0.2
"""What a terminal gets to answer: one far away may take as long. Without an answer it is dark."""

QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
"""Its background (xterm's OSC 11), and what it is (DA1): every terminal answers the second, so that
nobody waits for one that does not know the first."""

COLOUR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
DONE = re.compile(rb"\x1b\[\?[0-9;]*c")


def is_light(reads: int, writes: int) -> bool:
    """Whether it is: as COLORFGBG has it, else as the terminal answers."""
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
    except OSError:  # the terminal is gone, which whoever draws on it finds out
        return False
    finally:
        termios.tcsetattr(reads, termios.TCSADRAIN, before)
    if (found := COLOUR.search(answer)) is None:
        return False
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return bool(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)
