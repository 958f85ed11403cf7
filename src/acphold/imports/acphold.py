"""Our own lines, as `acphold show --json` prints them: one journal entry each.

Looked for only in a folder that somebody named, not in the user's home folder. A first line may
say what the lines are of: `{"session": {"sessionId", "agent", "cwd", "title"}}`; without one the
session is called like the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from acphold.imports.records import lines, readable
from acphold.imports.scribe import Scribe
from acphold.imports.sources import Home, Reader, Source, files_below, source_of
from acphold.imports.values import UNREADABLE, Object, milliseconds, obj, text
from acphold.imports.wire_log import relay
from acphold.journal.entries import PROMPT

NAME: Final = "acphold"
KEY: Final = "acphold"


class _Line(Struct, gc=False):
    """An entry as `show --json` has it."""

    kind: str
    update: Raw
    at: str = ""


class _Prompt(Struct, gc=False):
    prompt: Raw


_decode: Final = msgspec.json.Decoder(_Line).decode
_decode_prompt: Final = msgspec.json.Decoder(_Prompt).decode


def find(home: Home) -> Iterator[Source]:
    """The files of lines in the folder itself that are ours."""
    if not home.is_given:
        return
    for path in files_below(home.path, "*.jsonl"):
        head = _head(path)
        if head is None:
            continue
        about = obj(head, "session")
        session_id = text(about, "sessionId") or path.stem
        if source := source_of(NAME, session_id, [path]):
            yield replace(source, agent=text(about, "agent"))


def _head(path: Path) -> Object | None:
    """The first line, if it is one of ours."""
    first = next(lines(path, Counter()), None)
    head = readable(first.raw, Counter()) if first else None
    is_ours = head is not None and ("session" in head or head.keys() >= {"seq", "kind", "update"})
    return head if is_ours else None


def read(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the entries, byte for byte."""
    path = Path(source.paths[0])
    about = obj(_head(path), "session")
    scribe.facts.cwd = text(about, "cwd")
    for line in lines(path, scribe.facts.missed):
        try:
            entry = _decode(line.raw)
        except UNREADABLE:
            if b'"session"' not in line.raw:
                scribe.facts.missed["lines that are no entries"] += 1
            continue
        scribe.clock(milliseconds(entry.at))
        relay(scribe, entry.kind, _raw(entry))
        yield
    scribe.title(text(about, "title"))


def _raw(entry: _Line) -> bytes:
    raw = bytes(entry.update)
    return bytes(_decode_prompt(raw).prompt) if entry.kind == PROMPT and raw[:1] == b"{" else raw


READER: Final = Reader(NAME, KEY, find, read)
