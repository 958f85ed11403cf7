"""Words of a list are found by an index, and are those of the sessions, whenever they change."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec
import psycopg
import pytest

from acphold.journal import bounds
from acphold.journal.postgresql import described, session_rows
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.rows import ListFilter, NewSession, RowChange
from tests.journal.conftest import opened
from tests.journal.postgresql.test_list_page import rows_read
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

FILL: Final = """
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        title, created_at, updated_at, prompted, tags)
    SELECT 's' || n, n, 'a' || n % 2, '/home/you/p' || n % 40, '/home/you/p' || n % 40, '[]',
        'Fix test number ' || n, n, n, true, CASE WHEN n = 7 THEN '["later"]' ELSE '[]' END
    FROM generate_series({first}, {last}) AS n
"""


def describe_all(line: Line) -> None:
    """As the upkeep does it."""
    more = True
    while more:
        with line.transaction():
            more = described.describe_next(PostgresqlTables(line))


FEW, MANY = 2_000, 20_000

WORDS: Final = {
    "there is no such word": ("zzqq",),
    "no such, and long": ("/home/you/else/where",),
    "a folder": ("/home/you/p13",),
    "a tag": ("later",),
    "the beginning of a tag": ("#late",),
    "no such tag": ("#ater",),
    "of one session": ("number", "ber 13 /h"),
    "in the middle, and a common one": ("umber 7", "u/p7"),
    "no such beside a common one": ("number", "zz"),
}


def test_words_of_a_list_are_found_without_reading_what_others_have(databases: Databases) -> None:
    read: dict[str, list[int]] = {it: [] for it in WORDS}
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            line.execute(FILL.format(first=first, last=last).encode())
            describe_all(line)
            line.execute("VACUUM ANALYZE")
            for what, words in WORDS.items():
                filter = ListFilter(words=tuple((word, (), ()) for word in words))
                with psycopg.connect(url, prepare_threshold=1) as reader:
                    tables, before = PostgresqlTables(reader), 0
                    for _ in range(7):  # behind five, the server may keep a plan for all values
                        found = tables.page(filter, None, 20)
                        now, before = rows_read(reader) - before, rows_read(reader)
                texts = [f"{it.title} {it.cwd} {it.tags}" for it in found]
                assert all(word.strip("#") in text for text in texts for word in words)
                assert (not found) == ("no such" in what)
                read[what].append(now)
    assert all(many <= few * 1.2 for few, many in read.values()), read


def test_repeated_titles_are_found_without_reading_what_others_have(databases: Databases) -> None:
    asked = [("", f"/home/you/p{n % 40}", f"Fix test number {n}") for n in range(1, 30)]
    often = ("", "/w", "often")
    read: list[int] = []
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            line.execute(FILL.format(first=first, last=last).encode())
            line.execute(
                "UPDATE acphold.sessions SET title = 'often', cwd = '/w' WHERE number % 5 = 0"
            )
            describe_all(line)
            line.execute("VACUUM ANALYZE")
            with psycopg.connect(url, prepare_threshold=1) as reader:
                tables, before = PostgresqlTables(reader), 0
                for _ in range(7):  # behind five, the server may keep a plan for all values
                    found = described.repeated_titles(tables, [*asked, often], 4)
                    now, before = rows_read(reader) - before, rows_read(reader)
            assert found == {often}
            read.append(now)
    assert read[1] <= read[0] + 5 <= 60, read


@pytest.fixture
def line(location: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """A connection to a journal, where few sessions are walked and described at once."""
    monkeypatch.setattr(bounds, "WALKED_SESSIONS", 5)
    monkeypatch.setattr(bounds, "DESCRIBED_AT_ONCE", 7)
    with psycopg.connect(location, autocommit=True) as line:
        yield line


LETTERS: Final = (
    "a",
    "B",
    "ab",
    "'",
    "\\",
    "%",
    "ß",
    "é",
    "x y",
    '"',
    "aabbaabbaabbaabb",
    "&",
    ":*",
)


def test_the_sessions_found_are_those_that_have_the_words_at_any_moment(line: Line) -> None:
    choose = Random(5)

    def text() -> str:
        return "".join(choose.choices(LETTERS, k=choose.randrange(5)))

    kept: dict[str, tuple[str, int]] = {}
    for moment in range(60):
        name = f"s{choose.randrange(40)}"
        if name not in kept:
            line.execute(FILL.format(first=name[1:], last=name[1:]).encode())
        kept[name] = text(), moment
        line.execute(
            "UPDATE acphold.sessions SET title = %s, cwd = '/', tags = '[]', updated_at = %s,"
            " changed = pg_current_xact_id() WHERE session_id = %s",
            (*kept[name], name),
        )
        if not moment % 7:
            gone = choose.choice([*kept])
            del kept[gone]
            with line.transaction():
                session_rows.delete(PostgresqlTables(line), [gone], as_if_never=False)
        if not moment % 4:
            with line.transaction():
                described.describe_next(PostgresqlTables(line))
        for _ in range(5):
            words = [it for it in (text().casefold(), text().casefold()) if " " not in it]
            named = choose.choice(["", "s3"])
            filter = ListFilter(words=tuple((word, (), (named,) * bool(named)) for word in words))
            limit = choose.choice([1, 3, 50])
            found = [it.session_id for it in PostgresqlTables(line).page(filter, None, limit)]
            in_order = sorted(kept, key=lambda it: -kept[it][1])
            having = [
                it
                for it in in_order
                if it == named or all(word in f"{kept[it][0]} / []".casefold() for word in words)
            ]
            # Where letters are not ASCII, others may be among them.
            plain = [it for it in found if it in having or kept[it][0].isascii()]
            if plain == found:
                assert found == having[:limit], (words, kept)
            else:
                assert {*found} <= {*having} | {it for it in kept if not kept[it][0].isascii()}
    describe_all(line)
    rows = line.execute("SELECT session_id FROM acphold.described").fetchall()
    assert {name for (name,) in rows} == {*kept}


def test_a_database_that_took_over_is_described_again(line: Line) -> None:
    line.execute(FILL.format(first=1, last=30).encode())
    describe_all(line)
    filter = ListFilter(words=(("er 3", (), ()),))
    assert described.candidates(PostgresqlTables(line), filter) is not None
    progress = described._progress(PostgresqlTables(line))
    assert progress is not None
    progress.position = f"1 {progress.position.partition(' ')[2]}"
    line.execute(
        "UPDATE acphold.meta SET value = %s WHERE name = 'described'",
        (msgspec.msgpack.encode(progress),),
    )
    assert described.candidates(PostgresqlTables(line), filter) is None
    assert len(PostgresqlTables(line).page(filter, None, 9)) == 2
    describe_all(line)
    assert described.candidates(PostgresqlTables(line), filter) is not None


LONG: Final = {"ASCII": (0x61, 26, 1_000_000), "Chinese": (0x4E00, 10_000, 60_000)}


@pytest.mark.parametrize(("first", "letters", "length"), LONG.values(), ids=LONG)
async def test_words_of_a_title_of_whatever_length_are_found(
    location: str, monkeypatch: pytest.MonkeyPatch, first: int, letters: int, length: int
) -> None:
    monkeypatch.setattr(bounds, "WALKED_SESSIONS", 0)
    choose = Random(1)
    title = "".join(chr(first + choose.randrange(letters)) for _ in range(length))
    async with opened(location) as journal:
        await journal.create(NewSession("long", "a", "/w", title=title))
        await journal.create(NewSession("short", "a", "/w", title="a title"))
        with psycopg.connect(location, autocommit=True) as line:
            describe_all(line)
            assert described.candidates(PostgresqlTables(line), ListFilter(words=(("x", (), ()),)))
        for size in (3, 9, 14, 30_000):
            word = title[-size:]
            filter = ListFilter(words=((word, (), ()),), include_unprompted=True)
            assert [row.session_id for row in await journal.page(filter)] == ["long"], size


async def test_the_upkeep_describes_sessions_and_what_changes_later_is_found_all_the_same(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "WALKED_SESSIONS", 0)
    async with opened(location) as journal:
        for number in range(3):
            await journal.create(NewSession(f"s{number}", "a", "/w", title=f"Title {number}"))
        await journal.index.tidy(9)
        await journal.delete("s2")
        await journal.change("s1", RowChange(given="Renamed 1"))
        await journal.create(NewSession("s3", "a", "/w", title="Title 3"))

        async def found(word: str) -> list[str]:
            filter = ListFilter(words=((word, (), ()),), include_unprompted=True)
            return sorted(row.session_id for row in await journal.page(filter))

        for _ in range(2):
            assert await found("title") == ["s0", "s3"]
            assert await found("renamed 1") == ["s1"]
            await journal.index.tidy(9)
    with psycopg.connect(location) as line:
        rows = line.execute("SELECT session_id FROM acphold.described ORDER BY 1").fetchall()
    assert rows == [("s0",), ("s1",), ("s3",)]
