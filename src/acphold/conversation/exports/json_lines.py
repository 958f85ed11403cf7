"""A session as lines of JSON: its head, then its entries. `acphold import` reads them again.

Only this form has everything that the journal has, byte for byte. The first line is `{"session":
{"sessionId", "agent", "cwd", "createdAt", "updatedAt", …}}`; the others are as printed by `acphold
show --json`, which however escapes terminal control characters.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import AsyncIterable, AsyncIterator, Iterator

import msgspec
from msgspec.structs import replace

from acphold.conversation.exports.forms import Head
from acphold.conversation.history.entries import LONG_BYTES, Entry, exact_entry_json, iso


async def json_lines(head: Head, entries: AsyncIterable[Entry]) -> AsyncIterator[str]:
    """Yield the lines of a session."""
    yield head_line(head)
    async for entry in entries:
        for piece in _pieces(entry):
            yield piece


def _pieces(entry: Entry) -> Iterator[str]:
    """Yield the line of an entry, a long one in pieces: as a whole it would be in memory often."""
    if len(entry.raw) <= LONG_BYTES:
        yield f"{exact_entry_json(entry)}\n"
        return
    before, after = exact_entry_json(replace(entry, raw=b"\0")).split("\0")
    yield before
    decoder = getincrementaldecoder("utf-8")("replace")
    for at in range(0, len(entry.raw), LONG_BYTES):
        yield decoder.decode(entry.raw[at : at + LONG_BYTES])
    yield f"{decoder.decode(b'', final=True)}{after}\n"


def head_line(head: Head) -> str:
    """Return the line that describes the session of the lines after it."""
    facts = msgspec.to_builtins(head)
    facts |= {"createdAt": iso(head.created_at), "updatedAt": iso(head.updated_at)}
    facts.pop("messageCount", None)
    return msgspec.json.encode({"session": facts}).decode() + "\n"
