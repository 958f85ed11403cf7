"""Full-text search at two sizes of the journal, beside a scan of all messages with LIKE."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from acphold.journal.hits import terms
from acphold.journal.seams import Sought
from acphold.journal.sqlite.connection import connect
from acphold.journal.sqlite.search import find_in_index
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stores import open_journal
from bench.run import Run
from bench.table import Figure, Goal

SESSION_MESSAGES = 400
FOLDERS = 40
NEWEST = 1_700_000_000_000
GAP_MS = 3_000
"""Between two messages, over all sessions."""

WORDS = 40_000
"""In the vocabulary; the n-th is as frequent as 1/n, as in any language (Zipf's law)."""

LENGTHS = (4, 8, 15, 30, 60, 120)
"""Words in a message."""

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]

SESSION_ROW = (
    "INSERT INTO sessions (number, session_id, agent, cwd, folder, additional_directories, title,"
    " created_at, updated_at, prompted, message_count, settled_through)"
    " VALUES (?1, ?2, 'bench', ?3, ?3, '[]', 'A title', ?4, ?4, 1, ?5, ?5)"
)
SEGMENT_ROW = "INSERT INTO segments VALUES (? << 32 | ?, ?, ?, 0, ?)"


def figures(run: Run) -> Iterator[Figure]:
    """A mix of queries at both sizes, its kinds one by one, filters, and what the index costs."""
    few, many = run.size(100_000, 20_000), run.size(1_000_000, 100_000)
    words = [_word(number) for number in range(1, WORDS + 1)]
    yield from _beside_scan(run, _Filled(run.fresh("journal.db"), words, few), words)
    yield from _at_size(run, _Filled(run.fresh("journal.db"), words, many), words)


def _beside_scan(run: Run, filled: _Filled, words: Sequence[str]) -> Iterator[Figure]:
    plain = filled.plain()
    mix = [query for queries in _queries(words).values() for query in queries]
    scanned = [words[20], words[500], words[30_000]]
    ways: dict[str, Callable[[], float]] = {
        "found": lambda: median(filled.matched(query) for query in mix),
        "shown": lambda: median(filled.searched(Sought(query)) for query in mix),
        "scan": lambda: median(_scanned(plain, word) for word in scanned),
    }
    taken = run.in_turns(ways)
    for way, goals in (("found", (Goal(1 / 50, ratio=True),)), ("shown", ())):
        yield Figure(
            f"search {filled.size:,} messages, 20 newest {way}",
            "us",
            taken[way],
            "LIKE, all of them",
            taken["scan"],
            goals,
        )
    filled.close()


def _at_size(run: Run, filled: _Filled, words: Sequence[str]) -> Iterator[Figure]:
    kinds = {kind: [Sought(q) for q in queries] for kind, queries in _queries(words).items()}
    everything = [sought for some in kinds.values() for sought in some]
    common = words[1]
    since = NEWEST - filled.size * GAP_MS // 10
    kinds |= {
        "a common word by rank": [Sought(common, rank=True)],
        "a common word in diffs": [Sought(common, part="diffs")],
        "a common word in one folder of 40": [Sought(common, cwd="/bench/7")],
        "a common word in the last tenth": [Sought(common, since=since)],
    }
    what = f"search {filled.size:,} messages"
    yield _timed(run, filled, f"{what}, all kinds of queries", everything, Goal(5_000))
    for kind, sought in kinds.items():
        yield _timed(run, filled, f"  {kind}", sought)
    yield Figure("  to index one of them", "us", [filled.seconds / filled.size * 1e6])
    yield Figure("  index, for a byte of text", "bytes", [filled.index_bytes / filled.text_bytes])
    filled.close()


def _timed(run: Run, filled: _Filled, name: str, sought: Sequence[Sought], *goals: Goal) -> Figure:
    rounds = range(run.rounds)
    return Figure(
        name, "us", [median(filled.searched(one) for one in sought) for _ in rounds], goals=goals
    )


def _queries(words: Sequence[str]) -> dict[str, list[str]]:
    """Queries by kind."""
    return {
        "a common word": [words[n] for n in (1, 7, 20)],
        "a word now and then": [words[n] for n in (300, 800, 2_000)],
        "a rare word": [words[n] for n in (20_000, 30_000, 39_000)],
        "two words": [f"{words[10]} {words[300]}", f"{words[700]} {words[9_000]}"],
        "a phrase": [f'"{words[0]} {words[9]}"', f'"{words[50]} {words[2]}"'],
        "a beginning of four letters": [f"{words[n][:4]}*" for n in (600, 5_000)],
        "a name in code": [_word(n) for n in (4 + 9 * 40, 7 + 9 * 90, 3 + 29 * 70)],
        "a word that is not there": ["zzqqzz"],
    }


def _word(number: int) -> str:
    """The word of this rank: plain, `snake_case`, `camelCase` or a path."""
    plain = _plain_word(number)
    if number % 9 == 4:
        return f"{plain}_{_plain_word(number * 7)}"
    if number % 9 == 7:
        return plain + _plain_word(number * 5).title()
    return f"{plain}/{_plain_word(number * 3)}.py" if number % 29 == 3 else plain


def _plain_word(number: int) -> str:
    random = Random(number)
    length = 1 + min(number.bit_length() // 4, 3) + random.randrange(2)
    return "".join(random.choice(SYLLABLES) for _ in range(length))


def _scanned(plain: sqlite3.Connection, word: str) -> float:
    """Microseconds to go through all texts."""
    began = perf_counter()
    plain.execute("SELECT count(*) FROM plain WHERE text LIKE ?", (f"%{word}%",)).fetchone()
    return (perf_counter() - began) * 1e6


class _Filled:
    """A journal with so many messages, a fifth of them tool calls, and all of them indexed."""

    def __init__(self, path: Path, words: Sequence[str], size: int) -> None:
        self.size = size
        self.text_bytes = 0
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(open_journal(path).aclose())
        self._fill(words)
        before = path.stat().st_size
        self._journal = open_journal(path)
        began = perf_counter()
        self._loop.run_until_complete(self._journal.index.catch_up(3600))
        self.seconds = perf_counter() - began
        self._connection = connect(str(path), 0.0)
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.index_bytes = path.stat().st_size - before

    def _fill(self, words: Sequence[str]) -> None:
        # Straight into the tables: a million messages one by one would take minutes.
        connection = sqlite3.connect(self._path)
        connection.execute("PRAGMA synchronous = OFF")
        connection.executemany(
            SESSION_ROW,
            (
                (n, f"{n:016x}", f"/bench/{n % FOLDERS}", self._at(n * SESSION_MESSAGES), last)
                for n, last in enumerate([SESSION_MESSAGES] * (self.size // SESSION_MESSAGES), 1)
            ),
        )
        connection.executemany(SEGMENT_ROW, self._segments(words))
        connection.commit()
        connection.close()

    def _segments(self, words: Sequence[str]) -> Iterator[tuple[int, int, int, int, bytes]]:
        random = Random(7)
        weights = [*accumulate(1 / rank for rank in range(1, WORDS + 1))]
        for number in range(self.size):
            length = random.choice(LENGTHS)
            text = " ".join(random.choices(words, cum_weights=weights, k=length))
            self.text_bytes += len(text)
            session, seq = divmod(number, SESSION_MESSAGES)
            yield session + 1, seq + 1, seq + 1, self._at(number), _raw(number, text)

    def _at(self, number: int) -> int:
        return NEWEST - (self.size - number) * GAP_MS

    def plain(self) -> sqlite3.Connection:
        """The raws as texts in a table without an index."""
        plain = sqlite3.connect(":memory:")
        plain.execute("CREATE TABLE plain (text TEXT)")
        plain.executemany(
            "INSERT INTO plain VALUES (?)",
            (
                (raw.decode(),)
                for (raw,) in self._connection.execute("SELECT raw FROM segments ORDER BY key")
            ),
        )
        return plain

    def matched(self, words: str) -> float:
        """Microseconds until the places of twenty hits are known."""
        began = perf_counter()
        asked = {"tenant": None, "limit": 20}
        find_in_index(SqliteTables(self._connection), Sought(words), terms(words), "", asked)
        return (perf_counter() - began) * 1e6

    def searched(self, sought: Sought) -> float:
        """Microseconds for a search as the command asks for it, with what its hits show."""

        async def search() -> float:
            began = perf_counter()
            await self._journal.index.search(sought)
            return (perf_counter() - began) * 1e6

        self._loop.run_until_complete(search())  # what is asked twice is in memory
        return self._loop.run_until_complete(search())

    def close(self) -> None:
        self._connection.close()
        self._loop.run_until_complete(self._journal.aclose())
        self._loop.close()


def _raw(number: int, text: str) -> bytes:
    if number % 5 == 3:
        call = {"sessionUpdate": "tool_call", "toolCallId": f"t{number}", "title": text[:40]}
        return json.dumps({**call, "rawOutput": text}).encode()
    if number % 20 == 7:
        diff = {"type": "diff", "path": f"/{text[:9]}.py", "newText": text}
        call = {"sessionUpdate": "tool_call", "toolCallId": f"t{number}", "title": "Edit"}
        return json.dumps({**call, "content": [diff]}).encode()
    content = {"type": "text", "text": text}
    return json.dumps({"sessionUpdate": "agent_message_chunk", "content": content}).encode()
