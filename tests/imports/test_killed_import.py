"""An import that is killed with SIGKILL, at any point, and run again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.errors import HeldElsewhereError
from acphold.imports import Intake, Source, pieces, reader, session_writer
from acphold.imports.claude import READER
from acphold.imports.intake import read_here
from acphold.imports.pieces import NewsPiece
from acphold.journal.journal import Journal, take_lease
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from tests.empty_journal import empty
from tests.imports.every_reader import Said, found, write
from tests.imports.soak import Soak
from tests.imports.test_every_order import BEGUN, turns

EVERY = ListFilter(include_unprompted=True, archived="include")


@pytest.mark.slow
def test_an_import_killed_at_random_and_run_again_makes_the_journal_of_one_in_one_go(
    tmp_path: Path,
) -> None:
    soak = Soak(tmp_path, seed=7)
    soak.run(2)
    assert soak.points >= 2


FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = (
    Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(1, 7)
)
STORIES = {
    "what stands before the rest is told later": ([FOURTH], [FIRST, SECOND, THIRD, FOURTH]),
    "an older way is told later": ([FIRST, FOURTH], [FIRST, SECOND, THIRD], [FIRST, FOURTH]),
    "parts are joined": ([FIRST], [THIRD], [SECOND], [FIRST, SECOND, THIRD]),
    "gone back twice": ([FIRST, SECOND, THIRD], [FIRST, SECOND, FOURTH], [FIRST, FIFTH, SIXTH]),
}


@pytest.mark.parametrize(
    ("story", "goes_on"), [*((story, False) for story in STORIES), ("gone back twice", True)]
)
async def test_an_import_that_ends_at_any_write_loses_and_doubles_no_turn(
    story: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    """The next one reads the same files; or these `goes_on`: others, as the program went on."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 150)
    for write_number in range(1, 100):
        journal = open_journal(empty(tmp_path / f"{write_number}.db"))
        ended = 0
        for number, way in enumerate(STORIES[story]):
            write("roo", tmp_path, way)
            (source,) = found("roo", tmp_path)
            source = replace(source, changed_at=number)
            with monkeypatch.context() as patch:
                left = [write_number if number == 1 or not goes_on else 0]
                for name in ("take_in", "withdraw", "create", "delete"):
                    patch.setattr(journal, name, ending(getattr(journal, name), left))
                try:
                    await Intake(journal).take(source, reader("roo"))
                except KeyboardInterrupt:
                    ended += 1
            for row in await journal.page(EVERY):
                with suppress(HeldElsewhereError):
                    await journal.release(await take_lease(journal, row.session_id))
            if not goes_on or number == len(STORIES[story]) - 1:
                await Intake(journal).take(source, reader("roo"))
        told = [await turns(journal, row.session_id) for row in await journal.page(ListFilter())]
        await journal.aclose()
        assert [(it.words, it.answer) for it in way] in told, write_number
        every = sorted(turn for way in told for turn in way)
        expected = sorted({(it.words, it.answer) for way in STORIES[story] for it in way})
        # Of the second one, nobody may have read all.
        assert every == [turn for turn in expected if not goes_on or turn in every]
        assert {("Q1", "A1"), ("Q2", "A2"), ("Q3", "A3")} <= {*every}
        if not ended:
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize("failures", [1, 2])
async def test_turns_that_are_told_anew_are_not_lost_when_their_source_vanishes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    expected = [(turn.words, turn.answer) for turn in (FIRST, SECOND, THIRD, FOURTH)]
    for read in range(1, 100):
        journal = open_journal(empty(tmp_path / f"{read}.db"))
        source = await take_fuller("roo", tmp_path, 4, journal)
        (row,) = await journal.page(EVERY)

        async def vanishing(*arguments: Any, left: int = read) -> AsyncIterator[NewsPiece]:
            async for piece in read_here(*arguments):
                if not left:
                    raise FileNotFoundError
                left -= 1
                yield piece

        has_failed = False
        for _ in range(failures):
            with suppress(FileNotFoundError):
                has_failed = True
                await Intake(journal, at_once=True).take(source, reader("roo"), vanishing)
                has_failed = False
            told = {words for words, _ in await turns(journal, row.session_id)}
            assert told == {words for words, _ in expected}, read
        await Intake(journal).take(replace(source, changed_at=2), reader("roo"))
        assert await turns(journal, row.session_id) == expected, read
        await journal.aclose()
        if not has_failed:
            return
    pytest.fail("it never ends")


async def test_turns_told_anew_in_one_piece_are_there_once_wherever_an_import_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write_number in range(1, 100):
        journal = open_journal(empty(tmp_path / f"{write_number}.db"))
        source = await take_fuller("roo", tmp_path, 3, journal)
        left = [write_number]
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for name in ("take_in", "withdraw"):
                patch.setattr(journal, name, ending(getattr(journal, name), left))
            await Intake(journal, at_once=True).take(source, reader("roo"))
        (row,) = await journal.page(EVERY)
        told = await turns(journal, row.session_id)
        await journal.aclose()
        assert told[1:] == [("Q2", "A2"), ("Q3", "A3")], write_number
        assert told[0] in (("Q1", ""), ("Q1", "A1")), write_number
        if left[0] > 0:
            assert told[0][1], write_number
            return
    pytest.fail("it never ends")


async def test_turns_that_were_moving_stand_once_in_order_though_their_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 150)
    sixth = Said(6, BEGUN + 360_000, "Q6", "A6")
    whole = [FIRST, SECOND, THIRD, FOURTH]
    for write_number in range(1, 100):
        home = tmp_path / str(write_number)
        home.mkdir()
        journal = open_journal(empty(home / "journal.db"))
        ended, before = False, set[str]()
        states = [[sixth], [THIRD, FOURTH], whole, [FIRST, sixth]]
        for number, way in enumerate(states):
            write("roo", home, way, copied=number > 0)
            with monkeypatch.context() as patch:
                left = [write_number if way is whole else 0]
                for name in ("take_in", "withdraw", "create", "delete"):
                    patch.setattr(journal, name, ending(getattr(journal, name), left))
                for source in found("roo", home):
                    try:
                        source = replace(source, changed_at=number)
                        await Intake(journal).take(source, reader("roo"))
                    except KeyboardInterrupt:
                        ended = True
            for row in await journal.page(EVERY):
                with suppress(HeldElsewhereError):
                    await journal.release(await take_lease(journal, row.session_id))
            told = [await turns(journal, row.session_id) for row in await journal.page(EVERY)]
            every = [words for way_here in told for words, _ in way_here]
            assert before <= {*every}, write_number
            before = {*every}
        await journal.aclose()
        assert len(every) == len(before), (write_number, told)
        assert all(here == sorted(here) for here in told), (write_number, told)
        if not ended:
            return
    pytest.fail("it never ends")


async def test_turns_that_a_killed_import_put_aside_and_apart_stand_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    said = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(12)]
    for write_number in range(1, 100):
        journal = open_journal(empty(tmp_path / f"{write_number}.db"))
        ended = False
        for number, way in enumerate(([1, 2], [9], [6, 7, 8], [6, 7, 8], [1, 9, 10])):
            write("opencode", tmp_path, [said[n] for n in way])
            (source,) = found("opencode", tmp_path)
            left = [write_number if way == [6, 7, 8] else 0]
            with monkeypatch.context() as patch:
                for name in ("take_in", "withdraw", "create", "delete"):
                    patch.setattr(journal, name, ending(getattr(journal, name), left))
                try:
                    await Intake(journal).take(
                        replace(source, changed_at=number), reader(source.reader)
                    )
                except KeyboardInterrupt:
                    ended = True
            for row in await journal.page(EVERY):
                with suppress(HeldElsewhereError):
                    await journal.release(await take_lease(journal, row.session_id))
        rows = [await turns(journal, row.session_id) for row in await journal.page(EVERY)]
        await journal.aclose()
        every = [words for row in rows for words, _ in row]
        assert len(every) == len({*every}), (write_number, rows)
        if not ended:
            return
    pytest.fail("it never ends")


async def take_fuller(name: str, home: Path, count: int, journal: Journal) -> Source:
    """Take in so many turns, the first one without its answer; then return the whole source: from
    that turn on, all are to be told anew."""
    whole = [FIRST, SECOND, THIRD, FOURTH, FIFTH][:count]
    write(name, home, [FIRST._replace(answer=""), *whole[1:]])
    (source,) = found(name, home)
    await Intake(journal).take(replace(source, changed_at=0), reader(name))
    write(name, home, whole)
    (source,) = found(name, home)
    return replace(source, changed_at=1)


async def end_at(
    write_number: int, journal: Journal, source: Source, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Take a source in, as far as this write; True if that was before its end."""
    left = [write_number]
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        for name in ("take_in", "withdraw"):
            patch.setattr(journal, name, ending(getattr(journal, name), left))
        await Intake(journal, at_once=True).take(source, reader(source.reader))
    for row in await journal.page(EVERY):
        with suppress(HeldElsewhereError):
            await journal.release(await take_lease(journal, row.session_id))
    return left[0] <= 0


async def test_after_an_import_that_was_killed_a_file_is_read_on_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    begun: list[int] = []

    async def noting(source: Source, *rest: Any) -> AsyncIterator[NewsPiece]:
        begun.append(source.begin)
        async for piece in read_here(source, *rest):
            yield piece

    def state(count: int) -> Source:
        write("claude", tmp_path, [FIRST, SECOND, THIRD, FOURTH, FIFTH][:count])
        (source,) = found("claude", tmp_path)
        return replace(source, changed_at=count)

    for write_number in range(1, 100):
        journal = open_journal(empty(tmp_path / f"{write_number}.db"))
        source = await take_fuller("claude", tmp_path, 3, journal)
        is_killed = await end_at(write_number, journal, source, monkeypatch)
        await Intake(journal).take(state(4), READER)
        begun.clear()
        await Intake(journal).take(state(5), READER, noting)
        (row,) = await journal.page(EVERY)
        told = [words for words, _ in await turns(journal, row.session_id)]
        await journal.aclose()
        assert told == ["Q1", "Q2", "Q3", "Q4", "Q5"], write_number
        assert len(begun) == 1, write_number
        assert begun[0] > 0, write_number
        if not is_killed:
            return
    pytest.fail("it never ends")


def ending(write: Callable[..., Awaitable[Any]], left: list[int]) -> Callable[..., Awaitable[Any]]:
    """The write to a journal, before and after which an import may end."""

    async def one(*arguments: Any, **options: Any) -> Any:
        _count(left)
        found = await write(*arguments, **options)
        _count(left)
        return found

    return one


def _count(left: list[int]) -> None:
    left[0] -= 1
    if not left[0]:
        raise KeyboardInterrupt
