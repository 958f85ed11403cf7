"""Words of a list are found by texts that a file keeps of many sessions, as without them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from itertools import pairwise
from random import Random

import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.journal import bounds
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.sql.list_filters import Word
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import Span
from acphold.journal.sqlite import row_texts, usage_blocks
from acphold.journal.sqlite.connection import connect
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.sqlite.store import SqliteJournal

TITLES = ("Übung am Haus", "a tag of stone", "the whole #stone", 'a "stone', None, "two\nlines")
WORDS: tuple[Word, ...] = (
    *((word, (), ()) for word in ("stone", "#stone", "übung", "none", "two", "s\nl", "absent")),
    *(("absent", ("b",), ()), ("/w1", (), ("s3", "s21", "gone")), ("absent", (), ("s5",))),
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 8)


async def put(journal: SqliteJournal, number: int, title: str | None, agent: str = "a") -> None:
    new = NewSession(f"s{number}", agent, f"/w{number % 3}", title=title, created_at=number)
    lease = await journal.create(new)
    past = [PastEntry("prompt", number, b"[]"), PastEntry("turn_end", number, b"{}")]
    await journal.take_in(lease, past, RowChange(prompted=True, updated_at=number), release=True)


async def compare(journal: SqliteJournal) -> int:
    """The number of sessions that words found, the same ones by texts and without."""
    count = 0
    for words in (*((one,) for one in WORDS), *pairwise(WORDS)):
        filter = ListFilter(words=words, archived="include")
        first = await journal.page(filter, limit=3)
        more = await journal.page(filter, first[-1].key) if first else []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bounds, "FOUND_BY_WORDS", -1)
            assert await journal.page(filter, limit=99) == [*first, *more], words
        count += len(first)
    return count


@pytest.mark.parametrize("seed", range(3))
async def test_words_find_the_same_sessions_by_kept_texts_whatever_changes(
    journal: SqliteJournal, seed: int
) -> None:
    random = Random(seed)
    for number in range(40):
        await put(journal, number, random.choice(TITLES), random.choice("ab"))
    assert await compare(journal)
    await journal.index.tidy(1)
    for step in range(12):
        name = random.choice([row.session_id for row in await journal.page(ListFilter(), limit=99)])
        if random.random() < 0.3:
            await journal.delete(name)
        else:
            lease = await journal.acquire(name)
            given = random.choice(("stone of old", "gone", None))
            await journal.change(
                lease, RowChange(given=given, tags=(random.choice(("Stone", "x")),))
            )
            await journal.release(lease)
        await put(journal, 40 + step, random.choice(TITLES))
        assert await compare(journal)
        if step % 5 == 4:
            await journal.index.tidy(1)
            assert await compare(journal)


MORE = 320


@pytest.mark.parametrize("word", ["absent", "#rare", "rare"])
async def test_sessions_of_others_add_next_to_nothing_to_a_list_of_few_with_a_word(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 32)
    taken: list[int] = []
    for first, last in ((0, 65), (65, 65 + MORE)):
        for number in range(first, last):
            await put(journal, number, "rare #rare" if number in (7, 60) else "a title")
        await journal.index.tidy(1)
        with closing(connect(journal.path, 60.0)) as connection:
            steps: list[None] = []
            connection.set_progress_handler(lambda: steps.append(None), 1)  # noqa: B023
            rows = SqliteTables(connection).page(ListFilter(words=((word, (), ()),)), None, 30)
            connection.set_progress_handler(None, 1)
        assert len(rows) == (0 if word == "absent" else 2)
        taken.append(len(steps))
    assert taken[1] <= taken[0] + MORE, taken


async def test_a_deleted_session_and_a_forgotten_turn_leave_no_text(
    journal: SqliteJournal,
) -> None:
    for number in range(25):
        await put(journal, number, f"secret{number} of {number}")
    await journal.index.tidy(1)
    for word in ("secret3", "secret11", "secret20"):
        assert await in_texts(journal, word)
    await journal.delete("s3")
    lease = await journal.acquire("s11")
    await journal.withdraw(lease, [(1, 2)], overwrites=True)
    await journal.change(lease, RowChange(title="harmless"))
    for word in ("secret3", "secret11"):
        assert not await in_texts(journal, word)
    assert await in_texts(journal, "secret20")


async def test_a_turn_forgotten_while_texts_are_made_is_in_none_of_them(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(17):
        await put(journal, number, f"secret{number} of {number}")
    made = row_texts.of_span

    async def forget() -> None:
        async with aclosing(SqliteJournal(journal.path)) as other:
            lease = await other.acquire("s11")
            await other.change(lease, RowChange(title="harmless"))
            await other.withdraw(lease, [(1, 2)], overwrites=True)

    def of_span(tables: Tables, span: Span) -> bytes:
        found = made(tables, span)
        if b"secret11" in found:
            asyncio.run(forget())
        return found

    monkeypatch.setattr(row_texts, "of_span", of_span)
    for _ in range(50):  # until its block is due
        await journal._background.run(lambda db: usage_blocks.make_next(SqliteTables(db)))
        if (await journal.session("s11")).title == "harmless":
            break
    assert not await in_texts(journal, "secret11")
    await journal.index.tidy(1)
    assert await in_texts(journal, "harmless")


async def in_texts(journal: SqliteJournal, word: str) -> bool:
    found = "SELECT 1 FROM row_texts WHERE instr(texts, CAST(? AS BLOB))"
    return await journal._background.run(
        lambda db: db.execute(found, (word,)).fetchone() is not None
    )
