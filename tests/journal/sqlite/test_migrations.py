"""A journal of an earlier release: brought up to this one, and still of use to that one."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest

from acphold.history import Entry
from acphold.history.words import document
from acphold.journal import ListFilter, state_of
from acphold.journal.sqlite.migrations import MIGRATIONS, SEQ_BITS, VERSION
from acphold.journal.sqlite.search_index import of_session
from acphold.journal.sqlite.segments import CODES
from acphold.journal.sqlite.store import SqliteJournal, appending
from acphold.journal.words_in_memory import TOKENIZER
from tests.journal.conversations import usage_reports
from tests.journal.earlier_release import made_by

STEPS = (
    "42764edcb1f6a652",
    "e04f604398c9f9ea",
    "e93a6866110a176b",
    "4c17cdfd7248628a",
    "16fe35ec2a5fd5d3",
    "7e3e6a8aa688e2bb",
    "c92c7db55b5873b2",
    "630f614eadac37a1",
    "61a1c0f0115fc748",
    "4abab9b52e52d9e0",
    "dde208cef5141450",
    "08526611a98861b6",
    "aeec67e37e28a783",
    "3f4ed73f60846786",
    "14b89e39881f48b5",
    "95d50a328b03c3ad",
    "ab83c7264ee38e2d",
    "3a4b3e101a495f43",
    "23ee5d7caa35c365",
    "1abe636eb8922e80",
    "6359f078f8df2c47",
    "af5c5b60f8bd9dcb",
    "f2330009b5c8c128",
)
"""What each step does, as the beginning of its SHA-256: there are files that have been through it.
A new step is one more line here; no line ever changes."""

LISTS_OF_THE_FIRST_RELEASE = {
    "listed": "",
    "listed_agent": " AND agent = 'a'",
    "listed_folder": " AND folder = '/w'",
    "listed_both": " AND agent = 'a' AND folder = '/w'",
}
"""The index that each list named, and its conditions."""

PUT = (
    "INSERT INTO sessions (session_id, agent, cwd, folder, additional_directories, title,"
    " created_at, updated_at) VALUES (?, 'a', '/w', '/w', '[]', 'T', 1, 2)"
)


def test_no_step_that_files_have_been_through_is_edited() -> None:
    digests = [sha256("\n".join(step).encode()).hexdigest()[:16] for step in MIGRATIONS]
    assert digests == [*STEPS]


@pytest.fixture
def first(path: Path) -> Path:
    """A journal of the first release, with one session."""
    database = made_by(1, path)
    database.execute(PUT, ("s1",))
    database.commit()
    database.close()
    return path


async def test_sessions_of_an_earlier_release_are_listed_as_what_they_were_then(
    first: Path,
) -> None:
    journal = SqliteJournal.open(first)
    [row] = await journal.page(ListFilter(include_unprompted=True))
    assert (row.session_id, row.title, row.archived, row.renamed, row.origins) == (
        *("s1", "T", False, False),
        (),
    )
    await journal.aclose()
    database = sqlite3.connect(first)
    assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
    database.close()


@pytest.mark.parametrize("index", LISTS_OF_THE_FIRST_RELEASE)
async def test_a_process_of_the_first_release_goes_on_listing_and_writing(
    first: Path, index: str
) -> None:
    older = sqlite3.connect(first)
    journal = SqliteJournal.open(first)
    await journal.aclose()
    older.execute(PUT, ("s2",))
    rows = older.execute(
        f"SELECT session_id FROM sessions INDEXED BY {index} WHERE prompted = 0"
        f"{LISTS_OF_THE_FIRST_RELEASE[index]} ORDER BY updated_at DESC, session_id DESC"
    ).fetchall()
    assert rows == [("s2",), ("s1",)]
    older.rollback()
    older.close()


HELD = (
    ("prompt", b'[{"type":"text","text":"an apple"}]'),
    ("update", b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"pear"}}'),
    (
        "update",
        b'{"sessionUpdate":"usage_update","used":5,"size":9,"cost":{"amount":2,"currency":"EUR"}}',
    ),
    ("turn_end", b'{"stopReason":"end_turn"}'),
)
"""What was said in each session of a journal of an earlier release."""


def kept_by(release: int, path: Path) -> None:
    """A journal of a release, with one session that was settled and one that was not."""
    database = made_by(release, path)
    for number, settled in ((1, len(HELD)), (2, 0)):
        database.execute(PUT, (f"s{number}",))
        database.execute(
            "UPDATE sessions SET prompted = 1, settled_through = ?1, message_count = ?2"
            " WHERE number = ?3",
            (settled, 2 if settled else 0, number),
        )
        for seq, (kind, raw) in enumerate(HELD, 1):
            row = (number << SEQ_BITS | seq, seq, seq, CODES[kind], raw)
            database.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
    if release < 3:  # the index of then
        database.execute("INSERT INTO documents VALUES (1, ?)", (1 << SEQ_BITS | 1,))
        database.execute("INSERT INTO words (rowid, text) VALUES (1, 'an apple')")
    database.commit()
    database.close()


@pytest.mark.parametrize("release", range(1, VERSION + 1))
async def test_what_any_release_has_kept_is_listed_found_counted_and_gone_on_with(
    path: Path, release: int
) -> None:
    kept_by(release, path)
    journal = SqliteJournal.open(path)
    for session_id in ("s1", "s2"):
        lease = await journal.acquire(session_id)
        await journal.append(lease, [("prompt", [b'[{"type":"text","text":"a plum"}]'])])
        await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
        await journal.settle(lease, lease.next_seq - 1)
        await journal.release(lease)
    rows = {row.session_id: row for row in await journal.page(ListFilter())}
    assert {it: row.message_count for it, row in rows.items()} == {"s1": 3, "s2": 3}
    await journal.index.catch_up(60)
    for words in ("apple", "pear", "plum"):
        found = await journal.index.search(words)
        assert {hit.session_id for hit in found} == {"s1", "s2"}
    assert [report.cost for it in await usage_reports(journal) for report in it.reports] == [2, 2]
    assert await journal.index.tidy(60) == 0
    for session_id in ("s1", "s2"):
        assert len((await state_of(journal, session_id)).timeline) == 5
    assert await journal.file.damage() == []
    await journal.aclose()


PRINTED = (
    b'{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"make",'
    b'"_meta":{"terminal_output":{"terminal_id":"t","data":"zebrafish"}}}'
)
BEFORE_TERMINALS = 16
"""The last version in which the index lacks what an agent's own terminals printed."""


async def test_a_session_whose_index_says_less_is_deleted_without_harm_to_the_index(
    path: Path,
) -> None:
    database = made_by(BEFORE_TERMINALS, path)
    for number in (1, 2):
        database.execute(PUT, (f"s{number}",))
        database.execute("UPDATE sessions SET settled_through = 1, indexed_through = 1")
        entry = number << SEQ_BITS | 1
        row = (entry, 1, 1, CODES["update"], PRINTED)
        database.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
        database.execute("INSERT INTO documents VALUES (?, ?, 1)", (number, entry))
    database.execute("INSERT INTO volumes (size, documents) VALUES (8, 2)")
    form = f"messages, tools, diffs, whose, content = '', {TOKENIZER}"
    database.execute(f"CREATE VIRTUAL TABLE words_1 USING fts5 ({form})")
    texts = [(number, "make", of_session(number)) for number in (1, 2)]
    database.executemany("INSERT INTO words_1 (rowid, tools, whose) VALUES (?, ?, ?)", texts)
    database.commit()
    database.close()
    journal = SqliteJournal.open(path)
    assert await journal.delete("s1") == ["s1"]
    await journal.index.catch_up(60)
    for word in ("make", "zebrafish"):
        assert {hit.session_id for hit in await journal.index.search(word)} == {"s2"}
    assert await journal.delete("s2") == ["s2"]
    assert await journal.index.tidy(60) == 0
    assert await journal.file.damage() == []
    await journal.aclose()
    database = sqlite3.connect(path)
    volumes = [name for (name,) in database.execute("SELECT 'words_' || number FROM volumes")]
    for name in volumes:
        database.execute(f"INSERT INTO {name} ({name}) VALUES ('integrity-check')")
        database.execute(
            f"CREATE VIRTUAL TABLE temp.{name}_terms USING fts5vocab(main, {name}, row)"
        )
        assert database.execute(f"SELECT term FROM {name}_terms").fetchall() == []
    database.close()


SAYING = (
    *HELD,
    ("update", PRINTED),
    (
        "update",
        b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"edit","rawInput":{"a":["fig"]},'
        b'"content":[{"type":"diff","path":"/p","oldText":"sloe","newText":"plum"},'
        b'{"type":"content","content":{"type":"text","text":"\\u001b[32mgreen"}}],'
        b'"rawOutput":{"b":"quince"}}',
    ),
    ("update", b'{"sessionUpdate":"subagent_spawned","subagentSessionId":"c","name":"medlar"}'),
)
INDEXED = "cd08303d4c0535be"
"""What these say, as the beginning of its SHA-256. The index takes a document out by its text: who
changes this adds a step that begins the index at 0 again."""


def test_what_entries_say_is_what_the_index_was_made_of() -> None:
    said = [document(Entry(seq, kind, 0, raw)) for seq, (kind, raw) in enumerate(SAYING, 1)]
    texts = json.dumps([[it.messages, it.tools, it.diffs] for it in said])
    assert sha256(texts.encode()).hexdigest()[:16] == INDEXED, texts


async def test_who_has_a_lease_by_an_older_release_writes_nothing_more(path: Path) -> None:
    kept_by(VERSION - 1, path)
    older = sqlite3.connect(path, isolation_level=None)
    older.execute("INSERT INTO leases VALUES (1, 'older', 5, 0)")
    values = (1 << SEQ_BITS | 99, 99, 1, 0, b"{}", 1, 5, 1 << SEQ_BITS | len(HELD))
    await SqliteJournal.open(path).aclose()
    assert older.execute(appending(1), values).rowcount == 0
    older.close()
