"""The list of sessions: newest first, page by page, by folder and agent."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acphold.errors import CursorError, UnknownSessionError
from acphold.journal import (
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    SessionRow,
    SqliteJournal,
    cursor,
)
from acphold.journal.sqlite.file import JournalFile
from acphold.journal.sqlite.list_page import page

EVERYTHING = ListFilter(include_unprompted=True)


async def put(
    journal: SqliteJournal,
    session_id: str,
    updated_at: int,
    *,
    agent: str = "a",
    cwd: str = "/w",
    prompted: bool = True,
) -> None:
    """A session in the list."""
    lease = await journal.create(NewSession(session_id, agent, cwd, created_at=updated_at))
    await journal.change(lease, RowChange(prompted=prompted))


async def ids(
    journal: SqliteJournal, filter: ListFilter, after: ListKey | None = None, limit: int = 50
) -> list[str]:
    """The ids of one page."""
    return [row.session_id for row in await journal.page(filter, after, limit)]


async def test_the_newest_come_first(journal: SqliteJournal) -> None:
    for session_id, at in (("b", 2), ("a", 1), ("d", 3), ("c", 3)):
        await put(journal, session_id, at)
    assert await ids(journal, ListFilter()) == ["d", "c", "b", "a"]


async def test_agent_and_folder_narrow_the_list(journal: SqliteJournal) -> None:
    await put(journal, "1", 1, agent="a", cwd="/x")
    await put(journal, "2", 2, agent="a", cwd="/y")
    await put(journal, "3", 3, agent="b", cwd="/x")
    assert await ids(journal, ListFilter(agent="a")) == ["2", "1"]
    assert await ids(journal, ListFilter(cwd="/x")) == ["3", "1"]
    assert await ids(journal, ListFilter(agent="b", cwd="/x")) == ["3"]
    assert await ids(journal, ListFilter(agent="b", cwd="/y")) == []


async def test_a_session_never_prompted_is_listed_only_while_it_is_held(
    journal: SqliteJournal,
) -> None:
    await put(journal, "new", 2, prompted=False)
    await put(journal, "other", 4, prompted=False)
    await put(journal, "old", 1)
    await put(journal, "older", 0)
    held = frozenset({"new", "old", "unheard of"})
    assert await ids(journal, ListFilter()) == ["old", "older"]
    assert await ids(journal, ListFilter(held=held)) == ["new", "old", "older"]
    assert await ids(journal, ListFilter(held=held), limit=1) == ["new"]
    assert await ids(journal, ListFilter(held=held), ListKey(2, "new")) == ["old", "older"]
    assert await ids(journal, ListFilter(held=held, cwd="/elsewhere")) == []
    assert await ids(journal, EVERYTHING) == ["other", "new", "old", "older"]


async def test_pages_stay_whole_while_the_list_changes(journal: SqliteJournal) -> None:
    for n in range(5):
        await put(journal, f"s{n}", n)
    first = await journal.page(ListFilter(), None, 2)
    await put(journal, "newer", 9)
    await journal.delete("s2")
    assert [row.session_id for row in first] == ["s4", "s3"]
    assert await ids(journal, ListFilter(), first[-1].key, 2) == ["s1", "s0"]


SESSIONS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.sampled_from(["/x", "/y"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=20,
)
FILTERS = st.builds(
    ListFilter,
    agent=st.sampled_from([None, "a", "b"]),
    cwd=st.sampled_from([None, "/x"]),
    held=st.frozensets(st.sampled_from(["0", "3", "7"])),
    include_unprompted=st.booleans(),
    archived=st.sampled_from(["exclude", "include", "only"]),
)
SHELVES = {"exclude": {False}, "include": {False, True}, "only": {True}}


@given(SESSIONS, FILTERS, st.integers(1, 5))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_pages_together_are_the_whole_list(
    path: Path, sessions: list[tuple[int, str, str, bool, bool]], filter: ListFilter, limit: int
) -> None:
    database = JournalFile.open(str(path), create=True, busy_seconds=1).connection
    with_ids = [(str(n), *session) for n, session in enumerate(sessions)]
    database.execute("BEGIN")
    database.executemany(
        "INSERT INTO sessions (session_id, updated_at, agent, cwd, folder, prompted, archived,"
        " additional_directories, created_at) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, '[]', 0)",
        with_ids,
    )
    listed: list[SessionRow] = []
    while rows := page(database, filter, listed[-1].key if listed else None, limit):
        listed += rows
    database.execute("ROLLBACK")
    database.close()
    expected = [
        (at, session_id)
        for session_id, at, agent, cwd, prompted, archived in with_ids
        if archived in SHELVES[filter.archived]
        and filter.agent in (None, agent)
        and filter.cwd in (None, cwd)
        and (prompted or filter.include_unprompted or session_id in filter.held)
    ]
    assert [(row.updated_at, row.session_id) for row in listed] == sorted(expected, reverse=True)
    assert sorted(listed, key=lambda row: row.key) == listed


@pytest.mark.parametrize("agent", [None, "a"])
@pytest.mark.parametrize("cwd", [None, "/w"])
@pytest.mark.parametrize("after", [None, ListKey(1, "s")])
async def test_a_page_is_one_walk_along_an_index(
    journal: SqliteJournal, path: Path, agent: str | None, cwd: str | None, after: ListKey | None
) -> None:
    statements: list[str] = []
    database = sqlite3.connect(path)
    database.set_trace_callback(statements.append)
    page(database, ListFilter(agent=agent, cwd=cwd), after, 50)
    database.set_trace_callback(None)
    plan = " ".join(str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {statements[0]}"))
    database.close()
    assert "SEARCH sessions USING INDEX listed" in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN" not in plan
    if after is not None:
        assert "updated_at,session_id)<" in plan


async def test_archived_sessions_are_left_out_or_in_or_alone(journal: SqliteJournal) -> None:
    for number in range(4):
        await put(journal, f"s{number}", number)
    await journal.change("s1", RowChange(archived=True))
    await journal.change("s2", RowChange(archived=True))
    assert await ids(journal, ListFilter()) == ["s3", "s0"]
    assert await ids(journal, ListFilter(archived="include")) == ["s3", "s2", "s1", "s0"]
    assert await ids(journal, ListFilter(archived="only")) == ["s2", "s1"]
    await journal.change("s2", RowChange(archived=False))
    assert await ids(journal, ListFilter()) == ["s3", "s2", "s0"]
    assert [row.archived for row in await journal.page(ListFilter(archived="only"))] == [True]
    with pytest.raises(UnknownSessionError):
        await journal.change("nobody", RowChange(archived=True))


async def test_the_cursor_of_a_list_is_none_of_another_archive_filters(
    journal: SqliteJournal,
) -> None:
    text = cursor.encode(ListKey(1, "s"), ListFilter(), await journal.cursor_secret())
    with pytest.raises(CursorError, match="another filter"):
        cursor.decode(text, ListFilter(archived="include"), await journal.cursor_secret())


async def test_a_folder_is_the_same_by_whatever_name(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    names = [f"{tmp_path}/{name}" for name in ("project", "project/", "project/.", "link")]
    for number, name in enumerate(names):
        await put(journal, f"s{number}", number, cwd=name)
    await put(journal, "other", 9, cwd=f"{tmp_path}/projects")
    for name in names:
        rows = await journal.page(ListFilter(cwd=name))
        assert [row.cwd for row in rows] == names[::-1]
        sealed = cursor.encode(rows[0].key, ListFilter(cwd=names[0]), await journal.cursor_secret())
        after = cursor.decode(sealed, ListFilter(cwd=name), await journal.cursor_secret())
        assert len(await journal.page(ListFilter(cwd=name), after)) == 3
    await put(journal, "moved", 10, cwd=f"{tmp_path}/elsewhere")
    lease = await journal.acquire("moved")
    await journal.change(lease, RowChange(cwd=names[0]))
    assert len(await journal.page(ListFilter(cwd=names[3]))) == 5
