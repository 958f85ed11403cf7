"""A journal as somebody has it after years: so many sessions, settled, packed, searchable.

Some conversations are taken in as any import does it; the others are copies of their rows, at other
times and under other numbers. A hundred thousand sessions are three million rows and 1.6 GB;
`python -m bench.big_journal PATH 100000` makes them in a minute.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Final

from acphold.conversation.history.entries import PROMPT, TURN_END, UPDATE, PastEntry
from acphold.journal.rows import Listed, NewSession, RowChange
from acphold.journal.sqlite import search_index, session_rows
from acphold.journal.sqlite.connection import connect
from acphold.journal.sqlite.migrations import SEQ_BITS
from acphold.journal.stores import open_journal
from acphold.journal.token_reports import SLOT_MS

TEMPLATES = 500
"""Conversations that are taken in; a journal has a multiple of them."""

AT_ONCE = 50
"""Sessions whose words are put into the index together."""

TURNS = 4
MESSAGES = 24
"""Entries of a conversation that say something."""

CALLS = 3
"""Tool calls in a turn."""

DAYS = 400
"""Over which the sessions are spread; the newest is a week old, so that all of them are packed."""

DAY_MS = 24 * 3600 * 1000
AGENTS = ("Claude Code", "Codex", "Gemini CLI")
FOLDERS = 40

WORDS = 20_000
"""In the vocabulary; the n-th is as frequent as 1/n, as in any language (Zipf's law)."""

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]


def fill(path: Path, sessions: int) -> None:
    """Make the journal at `path`, with so many sessions, which `name_of` names."""
    templates = min(sessions, TEMPLATES)
    assert sessions % templates == 0
    asyncio.run(take_in(path, templates))
    connection = connect(str(path), 0.0)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -200000")
    documents = [
        search_index.documents(session_rows.SqliteTables(connection).segments(number).read_all(0))
        for number in range(1, templates + 1)
    ]
    gap = DAYS * DAY_MS // (sessions // templates)
    for copy in range(1, sessions // templates):
        connection.execute("BEGIN")
        _copy(connection, templates, copy * templates, -copy * gap)
        connection.execute("COMMIT")
    # Oldest first, as they would have come.
    for copy in reversed(range(sessions // templates)):
        connection.execute("BEGIN")
        for start in range(0, templates, AT_ONCE):
            news = [
                (number, tenant_of(number), search_index.Indexed(seq, at - copy * gap, texts))
                for number, found in enumerate(
                    documents[start : start + AT_ONCE], copy * templates + start + 1
                )
                for seq, at, texts in found
            ]
            search_index.put(connection, news, {})
        connection.execute("COMMIT")
    for _ in search_index.tidy(connection):
        pass
    connection.execute("UPDATE sessions SET indexed_through = settled_through")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    asyncio.run(_tidy(path))


async def _tidy(path: Path) -> None:
    journal = open_journal(path)
    while await journal.index.tidy(60.0):
        pass
    await journal.aclose()


def name_of(number: int) -> str:
    """The id of the session with this number: as random as those of agents, the same each time."""
    digits = f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:]}00-{number:012x}"


SMALL_SHARE: Final = 200
"""One of so many sessions is the small tenant's; the others are the big one's."""


def tenant_of(number: int) -> str:
    """Whose the session with this number is."""
    return "big" if number % SMALL_SHARE else "small"


def words(random: Random) -> list[str]:
    """The vocabulary, the most frequent word first."""
    return [_word(random) for _ in range(WORDS)]


async def take_in(location: str | Path, count: int) -> None:
    """Bring so many conversations into a journal, as an import does."""
    journal = open_journal(location)
    random = Random(5)
    known = words(random)
    weights = [*accumulate(1 / rank for rank in range(1, WORDS + 1))]

    def said(length: int) -> str:
        return " ".join(random.choices(known, cum_weights=weights, k=length))

    newest = time.time_ns() // 1_000_000 - 7 * DAY_MS
    for number in range(1, count + 1):
        at = newest - number * DAY_MS // 24
        agent, cwd = AGENTS[number % len(AGENTS)], f"/home/ada/project{number % FOLDERS}"
        new = NewSession(
            *(name_of(number), agent, cwd), title=said(6), created_at=at, tenant=tenant_of(number)
        )
        await journal.links.enlist([Listed(new, f"own-{name_of(number)}", at, b"bench")])
        lease = await journal.acquire(new.session_id, yields=True)
        past = [PastEntry(kind, at + n, raw) for n, (kind, raw) in enumerate(_entries(said))]
        change = RowChange(prompted=True, updated_at=at + len(past), unread=None)
        await journal.take_in(lease, past, change, release=True)
    await journal.aclose()


def _entries(said: Callable[[int], str]) -> Iterator[tuple[str, bytes]]:
    """Thirty rows of a conversation, 24 of which say something."""
    for turn in range(TURNS):
        yield PROMPT, _json([{"type": "text", "text": said(20)}])
        yield UPDATE, _chunk("agent_thought_chunk", said(30))
        for call in range(CALLS):
            yield (
                UPDATE,
                _json(
                    {
                        "sessionUpdate": "tool_call",
                        "toolCallId": f"call-{turn}-{call}",
                        "title": said(4),
                        "kind": "execute",
                        "status": "completed",
                        "rawInput": {"command": said(8)},
                        "rawOutput": {"stdout": said(40)},
                    }
                ),
            )
        yield UPDATE, _chunk("agent_message_chunk", said(60))
        if turn % 2:
            cost = {"amount": 0.01 * (turn + 1), "currency": "USD"}
            yield UPDATE, _json({"sessionUpdate": "usage_update", "used": 9000, "cost": cost})
        usage = {"inputTokens": 4000, "outputTokens": 200 + turn, "totalTokens": 4200 + turn}
        yield TURN_END, _json({"stopReason": "end_turn", "usage": usage})


def _chunk(kind: str, text: str) -> bytes:
    return _json({"sessionUpdate": kind, "content": {"type": "text", "text": text}})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _word(random: Random) -> str:
    return "".join(random.choice(SYLLABLES) for _ in range(random.randrange(1, 5)))


def _copy(connection: sqlite3.Connection, templates: int, by: int, later: int) -> None:
    """Copy all rows of the templates to sessions whose numbers are so much higher."""
    values = {"by": by, "later": later, "templates": templates}
    connection.create_function("name_of", 1, name_of, deterministic=True)
    connection.create_function("tenant_of", 1, tenant_of, deterministic=True)
    for table, changed in {
        "sessions": {
            "number": "number + :by",
            "session_id": "name_of(number + :by)",
            "tenant": "tenant_of(number + :by)",
            "created_at": "created_at + :later",
            "updated_at": "updated_at + :later",
            "summed_at": "summed_at + :later",
        },
        "leases": {"session": "session + :by", "epoch": "epoch + :by"},
        "summaries": {"session": "session + :by"},
        "usage": {"session": "session + :by", "at": "at + :later"},
        "usage_sums": {"session": "session + :by", "slot": f"slot + :later / {SLOT_MS}"},
        "usage_folds": {"session": "session + :by"},
        "links": {
            "number": "number + :by",
            "downstream_id": "'own-' || name_of(session + :by)",
            "session": "session + :by",
        },
        "segments": {"key": f"key + (:by << {SEQ_BITS})", "at": "at + :later"},
    }.items():
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        key = f"key < (:templates + 1) << {SEQ_BITS}"
        if table != "segments":
            key = f"{'session' if 'session' in names else 'number'} <= :templates"
        connection.execute(
            f"INSERT INTO {table} ({', '.join(names)})"
            f" SELECT {', '.join(changed.get(name, name) for name in names)} FROM {table}"
            f" WHERE {key} ORDER BY 1",
            values,
        )
    connection.execute("UPDATE meta SET value = max(value, :by * 2) WHERE name = 'epoch'", values)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]))
