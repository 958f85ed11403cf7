"""A journal of an earlier release: brought up to this one, and still of use to that one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from acphold.journal import ListFilter, SqliteJournal
from acphold.journal.file import APPLICATION_ID
from acphold.journal.migrations import MIGRATIONS, VERSION

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


@pytest.fixture
def first(path: Path) -> Path:
    """A journal of the first release, with one session."""
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in MIGRATIONS[0]:
        database.execute(statement)
    database.execute(PUT, ("s1",))
    database.execute("PRAGMA user_version = 1")
    database.commit()
    database.close()
    return path


async def test_its_sessions_are_listed_and_have_no_archive_no_given_title_and_no_origin(
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
