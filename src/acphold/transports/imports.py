"""Importing much at once, without looking for garbage: an import makes none."""

from __future__ import annotations

import gc
from contextlib import contextmanager

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def importing() -> Iterator[None]:
    """For a block that imports: saves a tenth of its time, and 4 ms right behind it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if not gc.get_freeze_count():  # else somebody keeps things frozen
                # All that is there counts as old: else the next object that is made has the
                # collector look at every one of them.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
