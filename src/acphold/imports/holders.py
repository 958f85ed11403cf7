"""The files of agents that have a text which a person has removed from the journal."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from acphold.errors import TranscriptError
from acphold.imports.pieces import failure, pieces
from acphold.imports.readers import NAMES, reader
from acphold.imports.sources import Home, Source, searching
from acphold.imports.turns import NOTHING

_AS_WRITTEN: Final = frozenset({".json", ".jsonl", ".md"})
"""Suffixes of files in which a text stands as it is; in others it may be compressed or cut."""


def files_with(home: Home, has: Callable[[str], bool], ways: list[bytes]) -> Iterator[str]:
    """Yield a sentence about each file of agents in which one of these `ways` to write a text
    stands, or that `has` the text when it is read; and about those that cannot be read."""
    known: dict[str, bool] = {}
    for name in NAMES:
        with searching() as search:
            found = [*reader(name).find(home)]
        for error in search.unreadable:
            yield f"A file that cannot be read may have it: {failure(error, str(home.path))}"
        for source in found:
            for path in source.paths:
                try:
                    is_known = path in known
                    if not is_known:
                        known[path] = _stands_in(path, ways)
                    is_written = Path(path).suffix in _AS_WRITTEN
                    if not known[path] and not is_written and path == source.paths[0]:
                        known[path], is_known = _is_told(source, has), False
                except (OSError, TranscriptError) as error:
                    yield f"A file that cannot be read may have it: {failure(error, path)}"
                    known[path] = False
                    continue
                if known[path] and not is_known:
                    yield f"Its agent still has it: {path}"


def _stands_in(path: str, ways: list[bytes]) -> bool:
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(way) >= 0 for way in ways)


def _is_told(source: Source, has: Callable[[str], bool]) -> bool:
    return any(
        has(entry.raw.decode(errors="replace"))
        for piece in pieces(source, reader(source.reader), NOTHING)
        for entry in piece.entries
    )
