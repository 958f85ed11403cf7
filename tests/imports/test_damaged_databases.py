"""A damaged page or line costs what lies on it, until that is found whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from acphold.conversation.history.timeline import Message
from acphold.imports import Home, Intake, reader
from acphold.imports.sources import searching
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from tests.empty_journal import empty
from tests.imports.every_reader import READERS, Said, write
from tests.imports.test_crush import Database
from tests.imports.test_cursor import Editor
from tests.imports.test_every_order import BEGUN
from tests.imports.test_goose import Store as Goose
from tests.imports.test_hermes import State
from tests.imports.test_opencode import Store
from tests.imports.test_zed import Threads, agent, user
from tests.imports.told import Story

COUNT = 30
LONG = "x" * 300
"""Makes a message large enough that pages hold few of them."""


def asked(number: int) -> str:
    return f"Question {number}. {LONG}"


def answered(number: int) -> str:
    return f"Answer {number}. {LONG}"


def rows_of(kind: Callable[[Path], Any], title: str) -> Callable[[Path], sqlite3.Connection]:
    """Makes a database of this kind, whose sessions have a title in that column."""

    def make(home: Path) -> sqlite3.Connection:
        store = kind(home)
        for n in range(COUNT):
            store.session(f"ses_{n}", **{title: f"Title {n}. {LONG}"})
            store.message("user", asked(n), session=f"ses_{n}")
            store.message("assistant", answered(n), session=f"ses_{n}")
        return cast("sqlite3.Connection", store.db)

    return make


def zed(home: Path) -> sqlite3.Connection:
    threads = Threads(home)
    for n in range(COUNT):
        threads.put(user(asked(n)), agent(answered(n)), thread=str(n), plain=True)
    return threads.db


def cursor(home: Path) -> sqlite3.Connection:
    editor = Editor(home)
    for n in range(COUNT):
        editor.composer(str(n))
        editor.bubble(1, asked(n), str(n))
        editor.bubble(2, answered(n), str(n))
    return editor.db


HOMES: dict[str, Callable[[Path], sqlite3.Connection]] = {
    "opencode": rows_of(Store, "title"),
    "goose": rows_of(Goose, "name"),
    "crush": rows_of(Database, "title"),
    "hermes": rows_of(State, "title"),
    "zed": zed,
    "cursor": cursor,
}


def damaged(database: sqlite3.Connection, words: str) -> None:
    """Overwrite the pages that contain some words."""
    ((_, _, name),) = database.execute("PRAGMA database_list")
    ((size,),) = database.execute("PRAGMA page_size")
    database.close()
    raw = bytearray(Path(name).read_bytes())
    for at in range(0, len(raw), size):
        if words.encode() in raw[at : at + size]:
            raw[at : at + size] = b"\xee" * size
    Path(name).write_bytes(raw)


def told(name: str, home: Path) -> dict[str, list[tuple[str, str]]]:
    """What is told of each conversation that is found."""
    reading = reader(name)
    with searching() as search:
        found = list(reading.find(Home(home)))
    assert all("damaged" in str(error) for error in search.unreadable)
    return {source.session_id: Story(reading, source).said() for source in found}


@pytest.mark.parametrize("name", HOMES)
@pytest.mark.parametrize("word", ["Question", "Title", "Answer"])
def test_a_damaged_page_costs_what_lies_on_it(tmp_path: Path, name: str, word: str) -> None:
    damaged(HOMES[name](tmp_path), f"{word} 15. {LONG[:9]}")
    said = told(name, tmp_path)
    whole = [[("user", asked(n)), ("agent", answered(n))] for n in range(COUNT)]
    kept = [one for one in said.values() if one in whole]
    lost = COUNT - len(kept)
    has_titles = name not in ("zed", "cursor")
    assert (0 < lost <= 15) if has_titles or word != "Title" else lost == 0


@pytest.mark.parametrize("name", ["opencode", "goose", "crush", "hermes"])
def test_rows_on_a_damaged_page_are_counted(tmp_path: Path, name: str) -> None:
    damaged(HOMES[name](tmp_path), f"Question 15. {LONG[:9]}")
    reading = reader(name)
    found = [source for source in reading.find(Home(tmp_path)) if source.session_id.endswith("1")]
    assert Story(reading, found[0]).facts.missed.counts["damaged pages of databases"] > 0


def test_the_order_of_messages_is_kept_around_a_damaged_page(tmp_path: Path) -> None:
    store = Goose(tmp_path)
    store.session("1")
    for n in range(COUNT):
        store.message("user", asked(n))
        store.message("assistant", answered(n))
    damaged(store.db, f"Question 15. {LONG[:9]}")
    (said,) = told("goose", tmp_path).values()
    every = [it for n in range(COUNT) for it in (("user", asked(n)), ("agent", answered(n)))]
    assert said == [one for one in every if one in said]
    assert len(every) - 15 < len(said) < len(every)


@pytest.mark.parametrize("name", ["opencode", "goose", "cursor", "crush", "hermes"])
async def test_what_a_damaged_page_cost_is_taken_in_once_the_database_is_restored(
    name: str, tmp_path: Path
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, asked(n), answered(n)) for n in range(1, COUNT)]
    READERS[name](tmp_path / "home", turns)
    (source,) = reader(name).find(Home(tmp_path / "home"))
    file = Path(source.path)
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        ((size,),) = database.execute("PRAGMA page_size")
    whole = _content(file)
    pages = [n for n in range(0, len(whole), size) if LONG[:99].encode() in whole[n : n + size]]
    expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
    damaged_once = 0
    for number, at in enumerate(pages[:: max(1, len(pages) // 3)]):
        async with aclosing(open_journal(empty(tmp_path / f"{number}.db"))) as journal:
            _put(file, whole[:at] + b"\xee" * size + whole[at + size :])
            await import_found(journal, name, tmp_path / "home")
            for row in await journal.page(ListFilter()):
                damaged_once += await messages(journal, row.session_id) != expected
            _put(file, whole)
            await import_found(journal, name, tmp_path / "home")
            (row,) = await journal.page(ListFilter())
            assert await messages(journal, row.session_id) == expected, at
    assert damaged_once


@pytest.mark.parametrize("name", ["kilo", "goose", "crush", "hermes"])
async def test_an_older_backup_of_a_damaged_database_takes_no_turn(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, asked(n), answered(n)) for n in range(1, 12)]
    write(name, tmp_path, turns[:8])
    (source,) = reader(name).find(Home(tmp_path))
    file = Path(source.path)
    backup = _content(file)
    write(name, tmp_path, turns)
    whole = _content(file)
    at = whole.index(asked(5).encode()) // 4096 * 4096
    missing: list[bool] = []
    for content in (whole[:at] + b"\xee" * 4096 + whole[at + 4096 :], backup, whole, backup):
        _put(file, content)
        for _ in range(2):
            await import_found(opened, name, tmp_path)
        (row,) = await opened.page(ListFilter())
        here = await messages(opened, row.session_id)
        assert ("user", asked(11)) in here
        expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
        missing.append(here != expected)
    assert missing[0]
    assert missing[2:] == [False, False]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("opencode", "UPDATE message SET data = NULL WHERE rowid = 3"),
        ("opencode", "UPDATE part SET data = x'ff00' WHERE rowid = 3"),
        ("kilo", "UPDATE message SET data = '[]' WHERE rowid = 4"),
        ("goose", "UPDATE messages SET content_json = '{}' WHERE rowid = 3"),
        ("crush", "UPDATE messages SET parts = '{}' WHERE rowid = 3"),
        ("cursor", "UPDATE cursorDiskKV SET value = '[]' WHERE key LIKE 'bubbleId:%:b2-1'"),
    ],
)
async def test_a_row_that_holds_something_else_is_taken_in_once_it_is_restored(
    name: str, query: str, opened: Journal, tmp_path: Path
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(1, 5)]
    expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
    write(name, tmp_path, turns)
    (source,) = reader(name).find(Home(tmp_path))
    whole = _content(file := Path(source.path))
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(query)
    await import_found(opened, name, tmp_path)
    (row,) = await opened.page(ListFilter())
    assert await messages(opened, row.session_id) != expected
    _put(file, whole)
    await import_found(opened, name, tmp_path)
    assert await messages(opened, row.session_id) == expected


def test_a_conversation_of_cursor_whose_record_cannot_be_read_is_said(tmp_path: Path) -> None:
    write("cursor", tmp_path, [Said(1, BEGUN, "Q1", "A1")])
    (source,) = reader("cursor").find(Home(tmp_path))
    with closing(sqlite3.connect(source.path, isolation_level=None)) as database:
        database.execute("UPDATE cursorDiskKV SET value = '{' WHERE key LIKE 'composerData:%'")
    with searching() as search:
        assert list(reader("cursor").find(Home(tmp_path))) == []
    assert [it.strerror for it in search.unreadable] == ["conversations without their record: 1"]


LINES = ["acpx", "claude", "codex", "gemini", "qwen", "copilot", "pi", "acphold"]


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("instead", [b"\0", b"{"])
@pytest.mark.parametrize("name", LINES)
async def test_a_damaged_line_is_taken_in_once_it_is_restored_or_found_in_a_copy(
    name: str, instead: bytes, opened: Journal, tmp_path: Path, *, copied: bool
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(1, 6)]
    expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
    write(name, tmp_path, turns)
    _tear(tmp_path, instead)
    await import_found(opened, name, tmp_path)
    (row,) = await opened.page(ListFilter())
    assert ("agent", "A2") not in await messages(opened, row.session_id)
    # An older state has it, but not all turns that are here.
    write(name, tmp_path, turns[:3], copied=copied)
    await import_found(opened, name, tmp_path)
    assert ("user", "Q5") in await messages(opened, row.session_id)
    write(name, tmp_path, turns, copied=copied)
    ends = set[int]()
    for number in range(5):
        await import_found(opened, name, tmp_path)
        (row,) = await opened.page(ListFilter())
        assert await messages(opened, row.session_id) == expected
        ends.add(row.last_seq if number > 1 else 0)
    assert len(ends) == 2  # it is told anew once


@pytest.mark.parametrize("words", [b"Q3", b"A3"])
@pytest.mark.parametrize("name", LINES)
async def test_a_turn_that_cannot_be_read_any_more_is_not_left(
    name: str, words: bytes, opened: Journal, tmp_path: Path
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(1, 5)]
    expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
    write(name, tmp_path, turns[:3])
    await import_found(opened, name, tmp_path)
    write(name, tmp_path, turns)
    _tear(tmp_path, b"{", words)
    for _ in range(2):
        await import_found(opened, name, tmp_path)
        (row,) = await opened.page(ListFilter())
        assert await messages(opened, row.session_id) == expected


HOLES = [*LINES, "cline", "roo", "auggie", "vscode"]


@pytest.mark.parametrize("name", HOLES)
async def test_zeros_join_no_rows_and_leave_nothing_behind_once_the_file_is_whole(
    name: str, tmp_path: Path
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(1, 5)]
    expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
    write(name, tmp_path, turns)
    file = _file_with(tmp_path, b"A2")
    whole = _content(file)
    for at in range(whole.index(b"Q1") + 3, len(whole), max(len(whole) // 9, 1)):
        async with aclosing(open_journal(empty(tmp_path / f"{at}.db"))) as opened:
            hole = min(200, len(whole) - at)
            _put(file, whole[:at] + bytes(hole) + whole[at + hole :])
            with suppress(OSError):  # where nothing is left
                await import_found(opened, name, tmp_path)
            for row in await opened.page(ListFilter()):
                told = await messages(opened, row.session_id)
                assert {words for who, words in told if who == "user"} <= {"Q1", "Q2", "Q3", "Q4"}
                assert not any("\0" in words for _, words in told)
            _put(file, whole)
            await import_found(opened, name, tmp_path)
            (row,) = await opened.page(ListFilter())
            assert await messages(opened, row.session_id) == expected


async def test_a_message_that_is_missing_in_the_database_is_counted_and_taken_in_once_restored(
    opened: Journal, tmp_path: Path
) -> None:
    turns = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(1, 4)]
    write("cursor", tmp_path, turns)
    (source,) = reader("cursor").find(Home(tmp_path))
    whole = _content(file := Path(source.path))
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("DELETE FROM cursorDiskKV WHERE key LIKE 'bubbleId:c1:b2-%'")
    taken = await Intake(opened).take(source, reader("cursor"))
    assert taken.facts.missed.counts["messages that are missing in the database"] == 2
    _put(file, whole)
    await import_found(opened, "cursor", tmp_path)
    expected = [it for turn in turns for it in (("user", turn.words), ("agent", turn.answer))]
    assert await messages(opened, "c1") == expected


async def import_found(journal: Journal, name: str, home: Path) -> None:
    for source in reader(name).find(Home(home)):
        await Intake(journal).take(source, reader(name))


async def messages(journal: Journal, session_id: str) -> list[tuple[str, str]]:
    state = await state_of(journal, session_id)
    return [(it.role, it.text) for it in state.timeline if isinstance(it, Message)]


def _tear(home: Path, instead: bytes, words: bytes = b"A2") -> None:
    """Damage the lines with these words."""
    for path in [path for path in home.rglob("*.*json*") if words in path.read_bytes()]:
        lines = path.read_bytes().splitlines()
        torn = [instead * len(line) if words in line else line for line in lines]
        path.write_bytes(b"\n".join(torn) + b"\n")


def _file_with(home: Path, words: bytes) -> Path:
    (found,) = (path for path in home.rglob("*.*json*") if words in path.read_bytes())
    return found


def _content(file: Path) -> bytes:
    return file.read_bytes()


def _put(file: Path, content: bytes) -> None:
    file.write_bytes(content)
