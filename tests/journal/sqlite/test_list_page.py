"""The list of sessions: newest first, page by page, by folder and agent."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from acphold.conversation.history.entries import LATEST_MS, Origin, iso
from acphold.journal import bounds, list_places
from acphold.journal.journal import tails_of
from acphold.journal.rows import ListFilter, ListKey, NewSession, RowChange, SessionRow
from acphold.journal.sql.session_tables import outcomes_of
from acphold.journal.sqlite.connection import connect
from acphold.journal.sqlite.file import JournalFile
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.sqlite.store import SqliteJournal
from tests.journal.promises.promise import put

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
    agents=st.sampled_from([(), ("a",), ("b",), ("b", "a")]),
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
    while rows := SqliteTables(database).page(filter, listed[-1].key if listed else None, limit):
        listed += rows
    database.execute("ROLLBACK")
    database.close()
    expected = [
        (at, session_id)
        for session_id, at, agent, cwd, prompted, archived in with_ids
        if archived in SHELVES[filter.archived]
        and (not filter.agents or agent in filter.agents)
        and filter.cwd in (None, cwd)
        and (prompted or filter.include_unprompted or session_id in filter.held)
    ]
    assert [(row.updated_at, row.session_id) for row in listed] == sorted(expected, reverse=True)
    assert sorted(listed, key=lambda row: row.key) == listed


@pytest.mark.parametrize("agents", [(), ("a",)])
@pytest.mark.parametrize("cwd", [None, "/w"])
@pytest.mark.parametrize("after", [None, ListKey(1, "s")])
@pytest.mark.parametrize(
    ("more", "index"),
    [
        (ListFilter(), "listed"),
        (ListFilter(unread=True), "listed_unread"),
        (ListFilter(tenant="me"), "listed_tenant"),
        (ListFilter(tenant="me", unread=True), "listed_tenant_unread"),
    ],
)
async def test_a_page_is_one_walk_along_an_index(
    journal: SqliteJournal,
    path: Path,
    agents: tuple[str, ...],
    cwd: str | None,
    after: ListKey | None,
    more: ListFilter,
    index: str,
) -> None:
    statements: list[str] = []
    database = connect(str(path), 1.0)
    database.set_trace_callback(statements.append)
    SqliteTables(database).page(replace(more, agents=agents, cwd=cwd), after, 50)
    database.set_trace_callback(None)
    plan = " ".join(str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {statements[0]}"))
    database.close()
    assert f"SEARCH sessions USING INDEX {index}" in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN" not in plan
    if after is not None:
        assert "updated_at,session_id)<" in plan


async def test_the_agents_of_all_sessions_are_found_without_reading_all(
    journal: SqliteJournal,
) -> None:
    for number in range(100):
        await put(journal, f"s{number}", number, agent="ab"[number % 2])
    steps = bytearray()
    connection = journal.connect().connection
    connection.set_progress_handler(partial(steps.append, 0), 1)
    assert await journal.agents() == ["a", "b"]
    connection.set_progress_handler(None, 0)
    assert len(steps) < 200


async def test_titles_repeated_in_a_folder_are_found_without_reading_those_of_others(
    journal: SqliteJournal,
) -> None:
    taken: list[int] = []
    for number in range(200):
        name, folder = f"s{number}", "/w" if number < 8 else f"/other{number % 3}"
        await journal.create(NewSession(name, "a", folder, title="often"))
        if number in (9, 199):
            steps = bytearray()
            connection = journal.connect().connection
            connection.set_progress_handler(partial(steps.append, 0), 1)
            found = await journal.repeated_titles([("", "/w", "often"), ("", "/w", "other")], 4)
            connection.set_progress_handler(None, 0)
            assert found == {("", "/w", "often")}
            taken.append(len(steps))
    assert taken[1] <= taken[0] + 10, taken


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
        sealed = list_places.encode(
            rows[0].key, ListFilter(cwd=names[0]), (await journal.identity()).secret
        )
        after = list_places.decode(sealed, ListFilter(cwd=name), (await journal.identity()).secret)
        assert len(await journal.page(ListFilter(cwd=name), after)) == 3
    await put(journal, "moved", 10, cwd=f"{tmp_path}/elsewhere")
    lease = await journal.acquire("moved")
    await journal.change(lease, RowChange(cwd=names[0]))
    assert len(await journal.page(ListFilter(cwd=names[3]))) == 5


async def test_the_outcome_of_a_turn_is_read_without_the_rows_before_its_end(
    journal: SqliteJournal,
) -> None:
    steps: dict[str, int] = {}
    for name, pieces in (("short", 1), ("long", 60)):
        lease = await journal.create(NewSession(name, "a", "/w"))
        for kind, raw in [("prompt", b"[]"), *[("update", b"{}")] * pieces, ("turn_end", b"{}")]:
            await journal.append(lease, [(kind, [raw])])
        taken = bytearray()
        connection = journal.connect().connection
        assert outcomes_of(SqliteTables(connection), [name]) == {name: "completed"}
        connection.set_progress_handler(partial(taken.append, 0), 1)
        outcomes_of(SqliteTables(connection), [name])
        connection.set_progress_handler(None, 0)
        steps[name] = len(taken)
    assert steps["long"] <= steps["short"] + 2


@given(st.integers(0, LATEST_MS - 1))
def test_a_time_is_written_as_the_standard_library_writes_it(at: int) -> None:
    written = datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
    assert iso(at) == written.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize("named", [1, 2, 3, 100])
async def test_the_tails_of_a_session_are_found_by_their_ids(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    monkeypatch.setattr(bounds, "AMBIGUOUS_IDS", named)
    tails = [f"s~{number}" for number in range(3)]
    for name in ("s", "s2", "s~ of nobody", *tails):
        origins = (Origin("s", "a", 1),) if name in tails else ()
        await journal.create(NewSession(name, "a", "/w", origins=origins))
    assert sorted(await tails_of(journal, "s")) == tails
    assert await tails_of(journal, "s2") == []
    if named > len(tails):
        monkeypatch.setattr(journal, "page", None)  # the list is not walked
        assert sorted(await tails_of(journal, "s")) == tails
