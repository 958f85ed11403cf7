"""What an entry says, in words: the text that search looks through.

The index keeps no copy of it, and takes a document out by its text: for bytes that are indexed
the answer must never change. A change here needs a migration that builds the index anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from acphold.journal.entries import ECHO, PARAMS, PROMPT, UPDATE, Entry
from acphold.journal.updates import ROLES, UNREADABLE, items, members, string, update_kind

TEXT_CHARACTERS: Final = 64 << 10
"""How much of one entry is searched."""


def searchable_text(entry: Entry) -> str:
    """The text of messages and thoughts, and of tool calls their titles, input and output.

    Empty for an entry that says nothing. Parts stand on lines of their own.
    """
    return "\n".join(_parts(entry))[:TEXT_CHARACTERS]


def _parts(entry: Entry) -> Iterator[str]:
    if entry.kind == PROMPT:
        for block in items(entry.raw):
            yield from _block_text(block)
    elif entry.kind == UPDATE:
        yield from _update_text(entry.raw)
    elif entry.kind == PARAMS:
        yield from _update_text(members(entry.raw).get("update", b""))
    elif entry.kind != ECHO:
        return


def _update_text(raw: bytes) -> Iterator[str]:
    kind = update_kind(raw)
    if kind in ROLES:
        yield from _block_text(members(raw).get("content", b""))
    elif kind in ("tool_call", "tool_call_update"):
        parts = members(raw)
        yield string(parts.get("title")) or ""
        yield from _strings(parts.get("rawInput"))
        for produced in items(parts.get("content", b"")):
            yield from _produced_text(members(produced))
        yield from _strings(parts.get("rawOutput"))


def _block_text(block: bytes) -> Iterator[str]:
    parts = members(block)
    # Links and embedded resources have what a person would look for in these; `data` and `blob`
    # are base64.
    parts |= members(parts.get("resource", b""))
    for name in ("text", "title", "name", "uri"):
        if text := string(parts.get(name)):
            yield text


def _produced_text(parts: dict[str, bytes]) -> Iterator[str]:
    yield from _block_text(parts.get("content", b""))
    for name in ("path", "newText", "oldText"):
        if text := string(parts.get(name)):
            yield text


def _strings(raw: bytes | None) -> Iterator[str]:
    """All strings in a JSON value, in their order, without the names of members."""
    if raw is None:
        return
    try:
        waiting: list[object] = [msgspec.json.decode(raw)]
    except UNREADABLE:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
