"""A journal of an earlier release is brought up to this one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from acphold.conversation.history.entries import Entry, PastEntry
from acphold.conversation.history.titles import title_of_words
from acphold.conversation.history.words import document
from acphold.errors import JournalUnavailableError
from acphold.journal.journal import state_of
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.sql.tables import CODES
from acphold.journal.sqlite import migrations
from acphold.journal.sqlite.file import APPLICATION_ID
from acphold.journal.sqlite.migrations import FIRST, SEQ_BITS, TABLES, VERSION, migrate
from acphold.journal.sqlite.store import appending
from tests.journal.conversations import open_file, usage_reports
from tests.journal.first_tables import first_tables
from tests.raw_entries import prompt, update

PUT = (
    "INSERT INTO sessions (session_id, agent, cwd, folder, additional_directories, title,"
    " created_at, updated_at) VALUES (?, 'a', '/w', '/w', '[]', 'T', 1, 2)"
)


MADE = (36, "f18903e575544528")
"""The version of journals, and the beginning of the SHA-256 of their tables. Users' files have
these: whoever changes the tables raises the version, and leaves columns as they are."""


def test_the_version_is_raised_with_each_change_of_the_tables() -> None:
    assert (VERSION, sha256("\n".join(TABLES).encode()).hexdigest()[:16]) == MADE


@pytest.fixture
def be_next(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this the next release, with one more table, column and watched column."""

    def change() -> None:
        last, watched = "meta BLOB NOT NULL DEFAULT x''", "pins, by_program ON sessions"
        more = ((last, f"{last}, later TEXT NOT NULL DEFAULT 'x'"), (watched, f"later, {watched}"))
        tables = "\0".join(migrations.TABLES)
        for old, new in more:
            tables = tables.replace(old, new)
        made = (*tables.split("\0"), "CREATE TABLE laters (session INTEGER PRIMARY KEY)")
        monkeypatch.setattr(migrations, "TABLES", made)
        monkeypatch.setattr(migrations, "VERSION", VERSION + 1)

    return change


def tables_of(path: Path) -> list[object]:
    """The tables of a journal, its columns, its indexes and its triggers."""
    with closing(sqlite3.connect(path)) as database:
        objects = database.execute(
            "SELECT type, name, iif(type = 'table', '', sql) FROM sqlite_schema ORDER BY type, name"
        ).fetchall()
        names = [name for kind, name, _ in objects if kind == "table"]
        columns = [
            sorted(column[1:] for column in database.execute(f"PRAGMA table_info({name})"))
            for name in names
        ]
        return [objects, columns]


@pytest.mark.parametrize("is_next", [False, True])
def test_a_journal_of_the_first_version_gets_the_tables_of_this_one(
    tmp_path: Path, be_next: Callable[[], None], is_next: bool
) -> None:
    if is_next:
        be_next()
    for path in (new := tmp_path / "new", old := tmp_path / "old"):
        with closing(made_first(path) if path == old else sqlite3.connect(path)) as database:
            database.commit()
            database.isolation_level = None
            migrate(database, str(path))
    assert tables_of(old) == tables_of(new)


def made_first(path: Path) -> sqlite3.Connection:
    """An empty journal of the first version; the caller fills it, commits and closes."""
    version, statements = first_tables("sqlite")
    assert version == FIRST
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in statements:
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {version}")
    return database


def test_a_journal_from_before_the_first_release_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(made_first(path)) as database:
        database.execute(f"PRAGMA user_version = {FIRST - 1}")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(JournalUnavailableError, match=f"version {FIRST - 1}, from before.* export"):
        open_file(path)
    assert path.read_bytes()[100:] == before[100:]


HELD = (
    ("prompt", b'[{"type":"text","text":"an apple"}]'),
    ("update", b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"pear"}}'),
    (
        "update",
        b'{"sessionUpdate":"usage_update","used":5,"size":9,"cost":{"amount":2,"currency":"EUR"}}',
    ),
    ("turn_end", b'{"stopReason":"end_turn"}'),
)
"""The entries of each session in a journal of an earlier release."""


def kept(path: Path) -> None:
    """A journal of the first version, with one session that was settled and one that was not."""
    database = made_first(path)
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
    database.execute(
        "INSERT INTO usage (session, seq, at, by_turn, cost, currency)"
        " VALUES (1, 3, 3, 0, 2, 'EUR')"
    )
    database.commit()
    database.close()


@pytest.mark.parametrize("is_next", [False, True])
async def test_what_the_first_version_has_kept_is_listed_found_counted_and_gone_on_with(
    path: Path, be_next: Callable[[], None], is_next: bool
) -> None:
    kept(path)
    if is_next:
        be_next()
    journal = open_file(path)
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
    assert (await journal.index.usage("agent")).total.costs == {"EUR": 4}
    assert await journal.index.tidy(60) == 0
    for session_id in ("s1", "s2"):
        assert len((await state_of(journal, session_id)).timeline) == 5
    assert await journal.file.damage() == []
    await journal.aclose()


async def test_a_journal_of_an_earlier_release_is_read_as_after_an_upgrade_and_only_read(
    path: Path, be_next: Callable[[], None]
) -> None:
    kept(path)
    be_next()

    async def read() -> list[object]:
        journal = open_file(path, create=False)
        rows = await journal.page(ListFilter())
        found = [
            *rows,
            *[await journal.page(ListFilter(agents=("a",), cwd="/w"))],
            *[await state_of(journal, row.session_id) for row in rows],
            [hit.session_id for hit in await journal.index.search("pear")],
            await journal.access.rules(None),
            await usage_reports(journal),
        ]
        await journal.aclose()
        return found

    def content() -> list[object]:
        with closing(sqlite3.connect(path)) as database:
            return [*database.iterdump(), *database.execute("PRAGMA user_version")]

    before = content()
    found = await read()
    assert content() == before
    journal = open_file(path)
    await journal.upgrade()
    await journal.aclose()
    assert content() != before
    assert await read() == found


LONG = "Please translate the whole documentation of the project into German, " * 2


@pytest.mark.parametrize(
    ("title", "renamed", "words", "now"),
    [
        ("Hi! Can you please fix the flaky test?", 0, "", "Fix the flaky test"),
        (f"{LONG[:79]}…", 0, LONG, title_of_words(LONG)),
        ("Hi! Can you please fix the flaky test?", 1, "", None),
        ("The agent's", 0, "Hi! Can you please fix the flaky test?", None),
        ("Fix the flaky test", 0, "", None),
    ],
)
async def test_a_title_that_was_the_beginning_of_a_prompt_becomes_the_rules_in_an_upgrade(
    path: Path, be_next: Callable[[], None], title: str, renamed: int, words: str, now: str | None
) -> None:
    be_next()
    with closing(made_first(path)) as database:
        database.execute(PUT, ("s1",))
        database.execute(
            "UPDATE sessions SET prompted = 1, title = ?, renamed = ?", (title, renamed)
        )
        kind, raw = prompt(words or title)
        row = (1 << SEQ_BITS | 1, 1, 1, CODES[kind], raw)
        database.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
        database.commit()
    store = open_file(path)
    await store.change("s1", RowChange(archived=False))
    assert (await store.session("s1")).title == (now or title)
    await store.aclose()


async def test_a_title_that_the_agent_has_told_stays_in_an_upgrade(
    path: Path, be_next: Callable[[], None]
) -> None:
    title = "Fix the flaky test."
    store = open_file(path)
    lease = await store.create(NewSession("s1", "a", "/"))
    told = [prompt(title), update("session_info_update", title=title)]
    past = [PastEntry(kind, 1, raw) for kind, raw in told]
    await store.take_in(lease, past, RowChange(prompted=True, title=title), release=True)
    await store.aclose()
    be_next()
    store = open_file(path)
    await store.change("s1", RowChange(archived=False))
    assert (await store.session("s1")).title == title
    await store.aclose()


async def test_an_older_journal_that_another_process_upgrades_is_opened_again(
    path: Path, be_next: Callable[[], None]
) -> None:
    kept(path)
    be_next()
    journal, other = open_file(path), open_file(path)
    assert await journal.file.damage() == []
    await other.change("s1", RowChange(given="New"))
    assert (await journal.session("s1")).title == "New"
    assert await journal.file.damage() == []
    await journal.delete("s2")
    assert [row.session_id for row in await other.page(ListFilter())] == ["s1"]
    await journal.aclose()
    await other.aclose()


async def test_what_runs_in_pieces_upgrades_an_older_journal_and_is_done(
    path: Path, be_next: Callable[[], None]
) -> None:
    kept(path)
    be_next()
    journal = open_file(path, create=False)
    assert await journal.delete("s1") == ["s1"]
    assert [row.session_id for row in await journal.page(ListFilter())] == ["s2"]
    await journal.aclose()


PRINTED = (
    b'{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"make",'
    b'"_meta":{"terminal_output":{"terminal_id":"t","data":"zebrafish"}}}'
)

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
"""The beginning of the SHA-256 of the texts indexed for these. The index removes a document by its
text: if you change the texts, let the upgrade build the index anew."""


def test_what_entries_say_is_what_the_index_was_made_of() -> None:
    said = [document(Entry(seq, kind, 0, raw)) for seq, (kind, raw) in enumerate(SAYING, 1)]
    texts = json.dumps([[it.messages, it.tools, it.diffs] for it in said])
    assert sha256(texts.encode()).hexdigest()[:16] == INDEXED, texts


async def test_who_has_a_lease_by_an_older_release_writes_nothing_more(
    path: Path, be_next: Callable[[], None]
) -> None:
    kept(path)
    be_next()
    older = sqlite3.connect(path, isolation_level=None)
    older.execute("INSERT INTO leases VALUES (1, 'older', 5, 0)")
    values = (1 << SEQ_BITS | 99, 99, 1, 0, b"{}", 1, 5, 1 << SEQ_BITS | len(HELD))
    journal = open_file(path)
    await journal.change("s2", RowChange(given="Written by this release"))
    await journal.aclose()
    assert older.execute(appending(1), values).rowcount == 0
    older.close()
