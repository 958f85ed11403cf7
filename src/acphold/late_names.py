"""Names that are imported when they are first used: a program loads what it names, no more."""

from __future__ import annotations

import gc
from importlib import import_module

from acp_wire.transports.late_tls import load_asyncio


def load_name(home: str, name: str) -> object:
    """Import a name from the module that defines it, without TLS and without looking for garbage.

    What is imported stays: looking for garbage in it takes a tenth of the start.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        load_asyncio()
        found: object = getattr(import_module(home), name)
    finally:
        if was_on:
            if not gc.get_freeze_count():
                gc.freeze()  # and back into the oldest generation: else enabling starts a search
                gc.unfreeze()
            gc.enable()
    return found
