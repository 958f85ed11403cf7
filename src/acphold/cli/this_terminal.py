"""The terminal that a command runs in, as the maker of a rule and as a place that shows it."""

from __future__ import annotations

import os
from contextlib import suppress

NO_TERMINAL = "a program without a terminal"
"""The maker of a rule in a script, or in an agent's shell."""


def this_terminal() -> str:
    """Return the terminal at stdin, stdout or stderr, with its machine, or NO_TERMINAL."""
    for fd in (0, 1, 2):
        with suppress(OSError):
            return f"terminal {os.ttyname(fd)} of {os.uname().nodename}"
    return NO_TERMINAL
