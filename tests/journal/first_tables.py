"""The tables of journals that the first version made, as they were then: such a journal opens."""

from __future__ import annotations

import json
import lzma
from pathlib import Path


def first_tables(store: str) -> tuple[int, list[str]]:
    """The first version of a store's journals, and the statements that made them."""
    stored = Path(__file__).with_name("first_tables.json.xz").read_bytes()
    version, statements = json.loads(lzma.decompress(stored))[store]
    return version, statements
