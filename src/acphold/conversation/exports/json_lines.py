"""A session as lines of JSON: its head, then its entries. `acphold import` reads them again.

Only this form has everything that the journal has, byte for byte. The first line is `{"session":
{"sessionId", "agent", "cwd", "createdAt", "updatedAt", …}}`; the others are as printed by `acphold
show --json`, which however escapes terminal control characters.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

import msgspec

from acphold.conversation.exports.forms import Head
from acphold.conversation.history.entries import Entry, exact_entry_json, iso


async def json_lines(head: Head, entries: AsyncIterable[Entry]) -> AsyncIterator[str]:
    """Yield the lines of a session."""
    yield head_line(head)
    async for entry in entries:
        yield f"{exact_entry_json(entry)}\n"


def head_line(head: Head) -> str:
    """Return the line that describes the session of the lines after it."""
    facts = msgspec.to_builtins(head)
    facts |= {"createdAt": iso(head.created_at), "updatedAt": iso(head.updated_at)}
    facts.pop("messageCount", None)
    return msgspec.json.encode({"session": facts}).decode() + "\n"
