"""Why a program of ours starts quickly: it imports what it needs, when it needs it.

An editor waits for `acphold wrap`, and most of a start is imports. So

- public names are imported from their modules when they are first used (`load_name`);
- the first modules do without `typing`, `signal`, `socket` and `struct`: see `acp_wire`;
- asyncio comes without OpenSSL (`acphold/machine/late_tls.py`);
- nobody looks for garbage in what is imported and stays.

`tests/cli/test_thin_start.py` has what a start may import.
"""

from __future__ import annotations

import gc
from importlib import import_module

from acphold.machine.late_tls import load_asyncio


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
