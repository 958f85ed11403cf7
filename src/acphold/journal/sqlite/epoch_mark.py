"""The last epoch of a journal, noted at its file and not in it, so that one that went back shows.

`cp` over a file replaces what is in it, and leaves its number and its extended attributes
(xattr(7)). An earlier copy of the journal has a lower epoch than the one noted there. A file that
was put in the place of the journal, as `acphold restore` does, has no note. Neither have file
systems and systems without such attributes: there nothing is noticed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

NAME: Final = "user.acphold.epoch"

RANDOM_BITS: Final = 20
"""The lower bits of an epoch, which are no part of the count."""


def note(path: str, epoch: int) -> None:
    """Note the epoch that is given out. If that is undone, the next one looks like an earlier copy,
    which costs clients a load."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setxattr(path, NAME, b"%d" % epoch)


def is_earlier(path: str, epoch: int) -> bool:
    """Whether this last epoch is of an earlier state than the file has had, or of another one."""
    if sys.platform != "linux":
        return False
    try:
        noted = int(os.getxattr(path, NAME))
    except (OSError, ValueError):
        return False
    return epoch != noted and epoch >> RANDOM_BITS <= noted >> RANDOM_BITS
