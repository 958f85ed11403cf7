"""Stores of others, on `BaseJournal`: those of examples/ keep all promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from acphold.journal import Journal
from acphold.journal.base import BaseJournal
from acphold.journal.records.draft import Records
from acphold.testing import JOURNAL_PROMISES, JournalPromise
from dict_store import DictJournal, Shelf

T = TypeVar("T")


class SecondAttempt(DictJournal):
    """Each transaction comes after another one that was undone, because somebody else wrote.

    That one done at the first attempt keeps them, too, is tried with the other store.
    """

    async def transact(self, work: Callable[[Records], T]) -> T:
        undone = copy(self._shelf)
        undone.write = lambda changes: None  # type: ignore[method-assign]
        with suppress(Exception):
            work(undone)
        return await super().transact(work)


@pytest.fixture(scope="module")
def in_memory() -> Iterator[Callable[[], str]]:
    """Empties a DuckDB in memory, and names it: a new one for each test costs more than a test."""
    # Imported by all modules of the tests, it would complain of leaks at the end.
    import duckdb

    path = f":memory:{uuid4().hex}"
    with duckdb.connect(path, config={"threads": 1}) as line:

        def emptied() -> str:
            line.execute("DROP TABLE IF EXISTS records")
            return path

        yield emptied


@pytest.fixture(params=["dict, at the second attempt", "duckdb"])
def opened(request: pytest.FixtureRequest) -> Callable[[], Journal]:
    """Opens a new journal in a store of the examples, again and again."""
    if request.param != "duckdb":
        shelf = Shelf()
        return lambda: SecondAttempt(shelf)
    from duckdb_store import DuckdbJournal

    path: str = request.getfixturevalue("in_memory")()
    return lambda: DuckdbJournal(path)


@pytest.mark.parametrize("promise", JOURNAL_PROMISES, ids=lambda promise: promise.name)
async def test_a_store_of_a_page_keeps_what_a_journal_promises(
    opened: Callable[[], Journal], promise: JournalPromise
) -> None:
    await promise.check(opened)


async def test_what_is_in_a_file_of_duckdb_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    from duckdb_store import open_duckdb

    def opened() -> Journal:
        url = f"duckdb://{tmp_path}/journal.duckdb"
        return open_duckdb(url, create=True, read_transcript=None)

    [promise] = [it for it in JOURNAL_PROMISES if it.name.endswith("again has everything")]
    await promise.check(opened)


def test_a_store_that_lacks_its_method_cannot_be_made() -> None:
    class Nothing(BaseJournal):
        pass

    with pytest.raises(TypeError, match="transact"):
        Nothing()  # type: ignore[abstract]
