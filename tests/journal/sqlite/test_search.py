"""Search: all that was said and done, found by its words, newest first."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.history.compaction import compact
from acphold.conversation.history.entries import Entry, PastEntry
from acphold.conversation.history.words import TEXT_CHARACTERS, Document, document
from acphold.journal import bounds
from acphold.journal.access import Share
from acphold.journal.hits import Term, terms
from acphold.journal.rows import ListFilter, NewSession
from acphold.journal.seams import Sought
from acphold.journal.sql.search import search
from acphold.journal.sql.session_tables import count_unindexed
from acphold.journal.sqlite import connection, search_index, store as sqlite
from acphold.journal.sqlite.connection import connect
from acphold.journal.sqlite.file import JournalFile
from acphold.journal.sqlite.migrations import migrate
from acphold.journal.sqlite.search import find_in_index
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.sqlite.store import SqliteJournal
from bench.exact import Tracer
from tests.conversations import CONVERSATIONS, chunk, encode, segments_of
from tests.journal.conversations import open_file
from tests.journal.promises.promise import found, running, said, told


async def test_messages_thoughts_and_tools_are_found(journal: SqliteJournal) -> None:
    tool = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "Run the suite",
        "rawInput": {"command": ["pytest", "-q"], "cwd": "/srv"},
        "content": [
            {"type": "content", "content": {"type": "text", "text": "3 passed"}},
            {"type": "diff", "path": "/main.py", "newText": "def added(): ...", "oldText": "gone"},
        ],
        "rawOutput": {"stdout": {"lines": ["all green"]}},
    }
    prompt = [
        {"type": "text", "text": "Please look"},
        {"type": "resource", "resource": {"uri": "file:///notes.md", "text": "embedded words"}},
        {"type": "image", "data": "AAAABBBB", "mimeType": "image/png"},
    ]
    await said(
        journal,
        "s1",
        prompt,
        chunk("agent_thought", "pondering"),
        chunk("agent_message", "Done"),
        tool,
    )
    where = {"look": 1, "embedded": 1, "notes.md": 1, "pondering": 2, "done": 3}
    where |= {"suite": 4, "pytest": 4, "passed": 4, "main.py": 4, "added": 4, "gone": 4, "green": 4}
    for word, seq in where.items():
        assert await found(journal, word) == [("s1", seq)], word
    assert await found(journal, "AAAABBBB") == []
    assert await found(journal, "stdout") == []


async def test_what_is_newer_than_many_sessions_of_one_moment_is_found_first(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 1_700_000_000_000
    for number in range(70):  # as when an import takes the times of copied files
        monkeypatch.setattr(sqlite, "now_ms", lambda: at)
        texts = [chunk("agent_message", "flaky test"), chunk("agent_thought", "hm")]
        await said(journal, f"old {number}", *texts)
    monkeypatch.setattr(sqlite, "now_ms", lambda: at + 60_000)
    await said(journal, "new", chunk("agent_message", "flaky again"))
    hits = await journal.index.search(Sought("flaky", limit=100))
    assert hits[0].session_id == "new"
    assert len(hits) == 71


def test_only_the_beginning_of_a_huge_entry_is_searched() -> None:
    raw = encode(chunk("agent_message", "x " * TEXT_CHARACTERS))
    assert len(document(Entry(1, "update", 0, raw)).messages) == TEXT_CHARACTERS


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("echo", encode(chunk("user_message", "again"))),
        ("turn_end", b'{"error":{"code":1,"message":"text"}}'),
        ("settings", b'{"modes":null}'),
        ("update", b'{"sessionUpdate":"plan","entries":[{"content":"step"}]}'),
        ("update", b"\xff"),
        ("params", b"[]"),
    ],
)
def test_what_nobody_said_is_not_searched(kind: str, raw: bytes) -> None:
    assert document(Entry(1, kind, 0, raw)) == Document()


# -- words in code, and in languages without spaces -----------------------------------------


def test_what_a_tool_printed_is_indexed_once() -> None:
    printed = "a long line of output " * 10
    told = {
        "sessionUpdate": "tool_call",
        "title": "Run",
        "rawInput": {"command": "Run"},
        "content": [{"type": "content", "content": {"type": "text", "text": f"```\n{printed}```"}}],
        "rawOutput": {"stdout": printed, "stderr": ""},
    }
    said = document(Entry(1, "update", 0, encode(told))).tools
    assert said == f"Run\nRun\n```\n{printed}```"


# -- queries --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a  b", [Term("a"), Term("b")]),
        ('"a b" c', [Term("a b"), Term("c")]),
        ('"a b"* c*', [Term("a b", is_prefix=True), Term("c", is_prefix=True)]),
        ('"a b', [Term('"a'), Term("b")]),
        ("* ** - a", [Term("a")]),
        ("x " * 100, [Term("x")] * 64),
    ],
)
def test_words_phrases_and_beginnings_are_told_apart(words: str, expected: list[Term]) -> None:
    assert terms(words) == expected


@given(words=st.text(max_size=30))
def test_no_words_are_an_error(words: str) -> None:
    journal = connect(":memory:", 1.0)
    migrate(journal, "the test")
    assert search(SqliteTables(journal), Sought(words), find_in_index) == []
    assert (
        search(SqliteTables(journal), Sought(words, part="diffs", rank=True), find_in_index) == []
    )
    journal.close()


async def test_a_search_can_keep_to_messages_tools_or_diffs(journal: SqliteJournal) -> None:
    tool = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "word",
        "content": [{"type": "diff", "path": "/a", "newText": "a changed word"}],
    }
    other = {"sessionUpdate": "tool_call", "toolCallId": "u", "rawOutput": "word"}
    await said(journal, "s1", [{"type": "text", "text": "word"}])
    await said(journal, "s2", chunk("agent_thought", "word"), tool, other)
    where = {
        "messages": [("s2", 1, "thought"), ("s1", 1, "user")],
        "tools": [("s2", 3, "tool"), ("s2", 2, "tool")],
        "diffs": [("s2", 2, "diff")],
    }
    for part, expected in where.items():
        hits = await journal.index.search(Sought("word", part=part))  # type: ignore[arg-type]
        assert [(hit.session_id, hit.seq, hit.speaker) for hit in hits] == expected
    (changed,) = await journal.index.search("changed")
    assert (changed.speaker, changed.tool, changed.excerpt) == ("diff", "word", "/a a changed word")


# -- sessions that lag ----------------------------------------------------------------------


async def test_the_newest_sessions_are_caught_up_with_first(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "INDEXED_SESSIONS", 1)
    for number in range(4):
        new = NewSession(f"s{number}", "a", "/w", created_at=1000 * (number % 3))
        lease = await journal.create(new)
        await journal.take_in(lease, [PastEntry("prompt", 1, b'[{"type":"text","text":"word"}]')])
    assert await journal.index.catch_up(0) == 4
    assert await journal.index.catch_up(1e-9) == 3
    assert [hit.session_id for hit in await journal.index.search("word")] == ["s2"]
    assert await journal.index.catch_up(9, since=1000) == 2
    assert await journal.index.catch_up(9, since=1000) == 2
    assert {hit.session_id for hit in await journal.index.search("word")} == {"s1", "s2"}
    assert await journal.index.catch_up(9) == 0
    assert len(await journal.index.search("word")) == 4


async def test_what_is_in_several_volumes_is_found_newest_or_best_first(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1)
    for name, times in (("s1", (3000, 9000)), ("s2", (4000, 8000)), ("s3", (2000, 5000, 7000))):
        await told(journal, name, *times)
        await journal.index.catch_up(9)
    volumes = await journal._background.run(
        lambda db: db.execute("SELECT number, untidy FROM volumes").fetchall()
    )
    assert volumes == [(1, 0), (2, 0), (3, 0)]
    hits = await journal.index.search("word*")
    assert [hit.at for hit in hits] == [9000, 8000, 7000, 5000, 4000, 3000, 2000]
    assert [hit.at for hit in await journal.index.search(Sought("word*", limit=2))] == [9000, 8000]
    assert [hit.at for hit in await journal.index.search(Sought("word*", since=6000))] == [
        *(9000, 8000, 7000)
    ]
    assert await found(journal, "word2") == [("s3", 3)]


async def test_ranks_of_documents_in_several_volumes_can_be_compared(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"s{number}": "flaky " + "filler " * number for number in (1, 40, 3, 20, 2)}
    for name, text in texts.items():
        monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1 << 20 if name != "s3" else 1)
        await said(journal, name, *[chunk("agent_message", word) for word in ("other", "text")])
        await said(journal, f"{name}-more", chunk("agent_message", text))
    ranked = await journal.index.search(Sought("flaky", rank=True))
    assert [hit.session_id for hit in ranked] == [
        *(f"s{number}-more" for number in (1, 2, 3, 20, 40))
    ]


async def test_a_full_volume_is_one_part_for_a_search_to_look_through(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 300)
    for number in range(20):
        await imported(journal, f"s{number}", "", 5)
        await journal.index.catch_up(60)
    with closing(sqlite3.connect(path)) as database:
        volumes = database.execute("SELECT number FROM volumes ORDER BY number").fetchall()
        parts = [
            database.execute(f"SELECT count(DISTINCT segid) FROM words_{number}_idx").fetchone()[0]
            for (number,) in volumes
        ]
    assert len(parts) > 3
    assert parts[:-1] == [1] * len(parts[:-1])


OPENED: Final = 50
"""Steps to open a file for each volume: SQLite reads its five tables, and they are no triggers."""


async def test_a_volume_adds_few_steps_to_the_opening_of_a_file(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1)
    taken: list[int] = []
    for number in range(12):
        await imported(journal, f"s{number}", "", 1)
        await journal.index.catch_up(60)
        tracer = Tracer()
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", tracer.connect)
            JournalFile.open(str(path), create=False, busy_seconds=1).close()
        taken.append(tracer.steps)
    assert taken[-1] - taken[1] <= 10 * OPENED, taken


async def test_a_deletion_rewrites_the_volumes_that_it_is_in_and_no_other(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 50)
    monkeypatch.setattr(bounds, "INDEXED_CHARACTERS", 1)
    for number in range(40):
        await told(journal, f"s{number}", number * 1000)
    await journal.index.catch_up(9)
    database = sqlite3.connect(path)

    def parts() -> dict[int, list[tuple[int, bytes]]]:
        return {
            number: database.execute(f"SELECT id, block FROM words_{number}_data").fetchall()
            for (number,) in database.execute("SELECT number FROM volumes").fetchall()
        }

    before = parts()
    assert len(before) > 3
    await journal.delete("s5")
    await journal.file.sweep()
    after = parts()
    assert len([number for number in before if after[number] != before[number]]) == 1
    database.close()


async def test_a_volume_of_which_nothing_is_left_is_dropped(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1)
    for number in range(3):
        await told(journal, f"s{number}", number * 1000)
        await journal.index.catch_up(9)
    await journal.delete("s1")
    await journal.file.sweep()
    tables = await journal._background.run(
        lambda db: db.execute(
            "SELECT name FROM sqlite_schema WHERE name GLOB 'words_[0-9]'"
        ).fetchall()
    )
    assert tables == [("words_1",), ("words_3",)]
    assert len(await journal.index.search("word*")) == 2


async def test_small_sessions_are_indexed_many_at_once(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        await told(journal, f"s{number}", number * 1000)
    monkeypatch.setattr(bounds, "PIECE_SECONDS", 60.0)
    database = connect(str(path), 60.0)
    steps = run(search_index.index(database))
    assert steps < 20
    assert count_unindexed(SqliteTables(database)) == 0
    database.close()


async def test_two_processes_that_catch_up_put_nothing_in_twice(
    journal: SqliteJournal, path: Path
) -> None:
    other = open_file(path)
    await told(journal, "s1", *range(1000, 1_000_000, 1000))
    await asyncio.gather(journal.index.catch_up(9), other.index.catch_up(9))
    assert len(await journal.index.search(Sought("word*", limit=5000))) == 999
    await other.aclose()


async def test_what_is_half_indexed_can_be_deleted(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PIECE_BYTES", 1)
    await told(journal, "s1", 1000, 2000, 3000)
    await journal.index.catch_up(1e-9)
    assert await journal.index.catch_up(0) == 1
    assert await journal.delete("s1")
    assert (await journal.index.catch_up(0), await found(journal, "word*")) == (0, [])
    assert await journal.file.damage() == []


def run(pieces: Iterator[None]) -> int:
    """Do all of some work; how many pieces it had."""
    return sum(1 for _ in pieces)


async def imported(
    journal: SqliteJournal,
    session_id: str,
    tenant: str,
    number: int,
    agent: str = "a",
    cwd: str = "/w",
) -> None:
    """A session of a tenant in which so many messages have the word."""
    lease = await journal.create(NewSession(session_id, agent, cwd, tenant=tenant))
    said = [(f"the word {n}", str(n)) for n in range(number)]
    raws = [encode(chunk("agent_message", text, messageId=its)) for text, its in said]
    await journal.take_in(lease, [PastEntry("update", n, raw) for n, raw in enumerate(raws)])


async def steps_of(journal: SqliteJournal, sought: Sought) -> int:
    """The steps that SQLite takes for a search, in tens."""

    def counted(db: connection.Connection) -> int:
        steps: list[None] = []
        db.set_progress_handler(lambda: steps.append(None), 10)
        search(SqliteTables(db), sought, find_in_index)
        db.set_progress_handler(None, 0)
        return len(steps)

    return await journal._background.run(counted)


async def test_what_a_tenant_or_a_session_has_is_found_without_a_look_at_what_others_have(
    journal: SqliteJournal,
) -> None:
    ways = [
        Sought("word", tenant="small"),
        Sought("word", tenant="small", rank=True),
        Sought("absent", tenant="small"),
        Sought("word", session_id="small"),
    ]
    await imported(journal, "small", "small", 5)
    await imported(journal, "shared", "big", 5)
    await journal.access.keep_share(Share("shared", "small", prompts=False))
    await imported(journal, "big", "big", 5)
    await journal.index.catch_up(60)
    few = [await steps_of(journal, sought) for sought in ways]
    await imported(journal, "bigger", "big", 3000)
    for number in range(100):
        await imported(journal, f"other {number}", "big", 1)
    assert await journal.index.catch_up(60) == 0
    for sought, steps in zip(ways, few, strict=True):
        assert await steps_of(journal, sought) <= 1.5 * steps + 20, sought


async def test_volumes_without_anything_of_a_tenant_are_not_asked(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1)
    ways = [Sought("word", tenant="small", rank=rank) for rank in (False, True)]
    for name, tenant in (("shared", "big"), ("small", "small"), ("nobody's", "")):
        await imported(journal, name, tenant, 5)
        await journal.index.catch_up(60)
    await journal.access.keep_share(Share("shared", "small", prompts=False))
    few, many = await steps_before_and_behind_others(journal, ways, found=10, others=(8, 31))
    assert all(more <= 1.3 * less for less, more in zip(few, many, strict=True)), (few, many)
    (known,) = await journal._background.run(
        lambda db: db.execute("SELECT tenants FROM volumes WHERE number = 2").fetchone()
    )
    assert known == '["small"]'
    # As an earlier release has left them: they are unknown.
    await journal._background.run(lambda db: db.execute("UPDATE volumes SET tenants = ''"))
    for sought, steps in zip(ways, many, strict=True):
        assert len(await journal.index.search(sought)) == 10
        assert await steps_of(journal, sought) > 2 * steps


@pytest.mark.parametrize("words", ["word", "absent"])
async def test_volumes_without_anything_of_a_folder_or_an_agent_are_not_asked(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1)
    filters: list[dict[str, Any]] = [
        *({"cwd": "/mine"}, {"agents": ("mine",)}, {"cwd": "/mine", "tenant": "me"})
    ]
    ways = [Sought(words, rank=rank, **it) for rank in (False, True) for it in filters]
    for number in range(2):
        await imported(journal, f"mine {number}", "me", 5, "mine", "/mine")
        await journal.index.catch_up(60)
    found = 10 if words == "word" else 0
    few, many = await steps_before_and_behind_others(journal, ways, found=found, others=(8, 47))
    # As many volumes are listed, with ten steps each.
    assert all(more <= less + 45 for less, more in zip(few, many, strict=True)), (few, many)


async def steps_before_and_behind_others(
    journal: SqliteJournal, ways: list[Sought], *, found: int, others: tuple[int, int]
) -> list[list[int]]:
    """The steps of each search behind so many volumes of others, and behind so many."""
    taken: list[list[int]] = []
    for number in range(others[1] + 1):
        if number in others:
            for sought in ways:
                assert len(await journal.index.search(sought)) == found
            taken.append([await steps_of(journal, sought) for sought in ways])
        await imported(journal, f"other {number}", "big" if number % 2 else "", 1)
        await journal.index.catch_up(60)
    return taken


async def test_a_hit_is_ranked_in_few_steps_and_only_the_newest_are(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 1)
    sought, steps = Sought("word", rank=True, limit=5), list[int]()
    for number in range(4):
        await imported(journal, f"s{number}", "", 100)
        await journal.index.catch_up(60)
        if number == 2:
            monkeypatch.setattr(bounds, "RANKED_HITS", 300)
        steps.append(10 * await steps_of(journal, sought))
    _, second, third, fourth = steps
    assert third - second < 100 * 28
    assert fourth <= third + 100


async def test_the_best_that_is_left_is_found_while_a_deleted_one_is_still_in_the_index(
    journal: SqliteJournal,
) -> None:
    for number in range(4):
        text = " ".join(["word"] * (number + 1) + ["more"] * (9 - number))
        await said(journal, f"s{number}", chunk("agent_message", text))
    await journal.index.catch_up(60)
    sought = Sought("word", rank=True, limit=2)
    assert [hit.session_id for hit in await journal.index.search(sought)] == ["s3", "s2"]
    await journal.delete("s3", "s1")
    assert [hit.session_id for hit in await journal.index.search(sought)] == ["s2", "s0"]


FILTERS: Final[tuple[dict[str, Any], ...]] = (
    *({}, {"cwd": "/w0"}, {"cwd": "/w1", "agents": ("a", "c")}, {"agents": ("b",)}),
    *({"cwd": "/w0", "tenant": "me"}, {"cwd": "/w1", "limit": 3}, {"agents": ("a",), "since": 2}),
)


@pytest.mark.parametrize("seed", range(3))
async def test_a_search_of_few_sessions_finds_the_same_as_one_through_all_volumes(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(bounds, "VOLUME_CHARACTERS", 60)
    monkeypatch.setattr(bounds, "SESSIONS_A_VOLUME", 3)
    random = Random(seed)
    for number in range(24):
        agent, cwd = random.choice("abc"), f"/w{random.choice([0, 1, 1, 2])}"
        tenant = random.choice(["", "me", "you"])
        await imported(journal, f"s{number}", tenant, random.randrange(1, 5), agent, cwd)
        await journal.index.catch_up(60)
    for number in range(0, 24, 5):
        await journal.access.keep_share(Share(f"s{number}", "me", prompts=False))
    await journal.delete("s3", "s4")
    for rank, words, filter in product((False, True), ("word", "2 word", "wor*"), FILTERS):
        sought = Sought(words, rank=rank, **filter)
        found = await journal.index.search(sought)
        with monkeypatch.context() as walked:
            walked.setattr(bounds, "SHARED_NAMED", -1)
            assert await journal.index.search(sought) == found, sought


@given(pieces=CONVERSATIONS, characters=st.sampled_from([1, 100, 1 << 20]))
def test_no_word_of_what_is_taken_out_is_left(
    pieces: list[tuple[str, list[bytes]]], characters: int
) -> None:
    database = connect(":memory:", 1.0)
    migrate(database, "the test")
    session = SqliteTables(database).create(NewSession("s", "a", "/w", tenant="me"))
    found = compact(segments_of(pieces))
    SqliteTables(database).segments(session).insert(found)
    last = found[-1].last_seq if found else 0
    database.execute("UPDATE sessions SET settled_through = ?", (last,))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bounds, "VOLUME_CHARACTERS", characters)
        patched.setattr(bounds, "PART_BYTES", 1)
        run(search_index.index(database, session))
    for indexed in search_index.documents(found):
        for word in indexed.texts[0].split()[:3]:
            assert not terms(word) or search(
                SqliteTables(database), Sought(word, limit=1), find_in_index
            )
    search_index.unindex(database, session, "me", search_index.documents(found))
    run(search_index.tidy(database))
    volumes = database.execute("SELECT number, documents, untidy FROM volumes").fetchall()
    assert [(count, untidy) for _, count, untidy in volumes] in ([], [(0, 0)])
    for number, _, _ in volumes:
        database.execute(f"CREATE VIRTUAL TABLE terms USING fts5vocab (words_{number}, row)")
        assert database.execute("SELECT term FROM terms").fetchall() == []
    assert database.execute("SELECT * FROM documents").fetchall() == []
    database.close()


# -- unsettled entries ----------------------------------------------------------------------


async def test_ids_with_what_json_in_sqlite_does_not_keep_are_told_apart(
    journal: SqliteJournal,
) -> None:
    odd = ("s\0x", "s~0x", "s~1", "s~\0", "s")
    for session_id in odd:
        await running(journal, session_id, chunk("agent_message", "flaky"))
    assert {session_id for session_id, _ in await found(journal, "flaky")} == {*odd}
    assert (await journal.outcomes(odd)).keys() == {*odd}
    assert await journal.delete("s\0x") == ["s\0x"]
    assert {row.session_id for row in await journal.page(ListFilter())} == {*odd} - {"s\0x"}


async def test_the_end_of_a_long_turn_is_looked_through(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.journal.bounds.UNSETTLED_BYTES", 1)
    words = [chunk("agent_message", f"word{n}", messageId=str(n)) for n in range(40)]
    await running(journal, "s1", *words)
    assert await found(journal, "word39") == [("s1", 40)]
    assert await found(journal, "word0") == []


# -- the text of a hit ----------------------------------------------------------------------
