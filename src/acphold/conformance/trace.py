"""The wire of a whole check as JSON lines, in the order of time.

    {"at": 0.214, "connection": 1, "name": "main", "from": "agent", "message": {"jsonrpc": …}}

`at` counts seconds from the first line, `from` is `client`, `agent` or `stderr`. What is no JSON
object, and stderr, has `text` in place of `message`. Nothing is taken out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence

from acphold.conformance.record import Record

TRACE_CHARS = 64 << 20
"""Characters of a trace; a last line says what is missing."""

TRACE_MESSAGE = 1 << 20
"""Characters of a message; a longer one is text, cut."""


def trace(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines, each with its end."""
    found = list(heapq.merge(*map(_of_one, range(1, len(records) + 1), records)))
    first = found[0][0] if found else 0.0
    size = 0
    for index, (at, number, _, name, by, body) in enumerate(found):
        head = {"at": round(at - first, 4), "connection": number, "name": name, "from": by}
        line = f"{json.dumps(head, ensure_ascii=False)[:-1]}, {body}}}\n"
        size += len(line)
        if size > TRACE_CHARS:
            yield json.dumps({"leftOut": len(found) - index}) + "\n"
            return
        yield line


def _of_one(number: int, record: Record) -> list[tuple[float, int, int, str, str, str]]:
    """Return time, connection, place, its name, the side and the body of each line of one."""
    lines: list[tuple[float, str, str, bool]] = [
        (line.at, line.by, line.text, not line.problem) for line in record.lines
    ]
    lines += [(line.at, "stderr", line.text, False) for line in record.stderr.lines()]
    lines.sort(key=lambda line: line[0])
    return [
        (at, number, place, record.name, by, _body(text, is_message))
        for place, (at, by, text, is_message) in enumerate(lines)
    ]


def _body(text: str, is_message: bool) -> str:
    if len(text) > TRACE_MESSAGE:
        cut = json.dumps(text[:TRACE_MESSAGE], ensure_ascii=False)
        return f'"text": {cut}, "characters": {len(text)}'
    if is_message:
        if "\n" in text:  # on a WebSocket a message may have several lines
            text = json.dumps(json.loads(text), ensure_ascii=False)
        return f'"message": {text.strip()}'
    return f'"text": {json.dumps(text, ensure_ascii=False)}'
