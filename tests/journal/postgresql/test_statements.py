"""Rules for tables and statements, so that sessions can be spread over several databases."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import psycopg
import pytest

from acphold.errors import LeaseLostError
from acphold.journal import bounds
from acphold.journal.journal import Append
from acphold.journal.postgresql import database, leases as owners, pipelines, session_rows
from acphold.journal.rows import Listed, ListFilter, NewSession, RowChange
from acphold.journal.seams import Sought
from tests.conversations import chunk, encode
from tests.journal.conftest import opened
from tests.journal.conversations import append, begun, turn

pytestmark = pytest.mark.postgresql

OF_NO_SESSION = {
    *("access_changes", "meta", "owners", "links", "access_tokens", "rules", "deeds"),
    *("usage_blocks", "usage_ends"),
}
"""Tables that are small, and would be copied to each database."""


def test_every_key_of_what_belongs_to_a_session_begins_with_its_id(location: str) -> None:
    with psycopg.connect(location) as line:
        keys = line.execute(
            "SELECT tables.relname, attname FROM pg_index"
            " JOIN pg_class AS tables ON tables.oid = indrelid"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]"
            " WHERE nspname = 'acphold' AND indisunique"
        ).fetchall()
        tables = line.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'acphold'"
        ).fetchall()
        triggers = line.execute("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal").fetchall()
    by_session = {table for table, column in keys if column == "session_id"}
    assert {table for (table,) in tables} == by_session | OF_NO_SESSION
    assert not by_session & OF_NO_SESSION
    assert not [table for table, column in keys if table in by_session and column != "session_id"]
    assert triggers == []


class Recorded(psycopg.Cursor[Any]):
    """Notes each executed statement, with its transaction and values."""

    executed: ClassVar[list[tuple[str, str, Any]]] = []

    def execute(self, query: Any, params: Any = None, **options: Any) -> Recorded:
        text = query if isinstance(query, str) else str(query)
        self._note(text, params)
        super().execute(query, params, **options)
        return self

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        for params in (every := [*params_seq]):
            self._note(str(query), params)
        super().executemany(query, every, **options)

    def stream(self, query: Any, params: Any = None, **options: Any) -> Iterator[Any]:
        self._note(str(query), params)
        yield from super().stream(query, params, **options)

    def _note(self, text: str, params: Any) -> None:
        self.executed.append((f"{id(self.connection)}", text, params))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """Records each executed statement, with its connection and values."""
    connect = database.Database.connect

    def recording(self: database.Database) -> Any:
        line = connect(self)
        line.cursor_factory = Recorded
        return line

    ask = pipelines.Pipelines.ask

    def noting(self: pipelines.Pipelines, statement: str, values: Any) -> Any:
        Recorded.executed.append(("the loop", statement, values))
        return ask(self, statement, values)

    monkeypatch.setattr(pipelines.Pipelines, "ask", noting)
    monkeypatch.setattr(database.Database, "connect", recording)
    monkeypatch.setattr(Recorded, "executed", found := list[tuple[str, str, Any]]())
    return found


VOLATILE = re.compile(r"\b(nextval|random|clock_timestamp|gen_random_uuid|timeofday|setval)\b")


async def test_statements_keep_to_one_session_and_an_update_has_nothing_volatile(
    location: str, executed: list[tuple[str, str, Any]]
) -> None:
    names = [f"session {number}" for number in range(4)]
    async with opened(location) as journal:
        leases = [await journal.create(NewSession(name, "a", "/w")) for name in names]
        for lease in leases:
            await journal.append(lease, [("prompt", [b"[]"])], RowChange(prompted=True, title="T"))
            await journal.append(lease, [("update", [encode(chunk("agent_message", "word"))])])
        await journal.append_all([Append(lease, [("update", [b"1"])]) for lease in leases])
        for lease in leases:
            await journal.links.link(lease, "a", f"their {lease.session_id}")
            await journal.settle(lease, lease.next_seq - 1)
            await journal.change(lease, RowChange(title="U"))
            await journal.owner(lease.session_id)
            await journal.read(lease.session_id, 0)
            await journal.release(lease)
            await journal.acquire(lease.session_id)
        await journal.renew(leases)
        assert len(await journal.page(ListFilter())) == 4
        assert len(await journal.index.search("word")) == 4
        deleting = len(executed)
        await journal.delete(*names)
    statements = {text for _, text, _ in executed}
    assert len(statements) > 40
    on_the_loop = {text for way, text, _ in executed if way == "the loop"}
    assert on_the_loop >= {session_rows.appending(1), owners.OURS}
    for text in statements:
        updates = re.findall(r"\bUPDATE\b(?! OF).*?(?:\bWHERE\b|$)", text, re.DOTALL)
        assert not any(VOLATILE.search(update) for update in updates), text
        for table in re.findall(
            r"(?:INTO|UPDATE|FROM|JOIN)\s+(?!acphold\.|pg_|ONLY|SKIP)(\w+)", text
        ):
            assert table.lower() in BOUND, (table, text)
    for _, text, params in executed[:deleting]:  # while sessions are deleted nobody waits
        if re.match(r"\s*(WITH|INSERT|UPDATE|DELETE)", text):
            assert sum(repr(name) in str(params) for name in names) <= 1, text


async def test_a_search_asks_for_all_of_its_hits_together(
    location: str, executed: list[tuple[str, str, Any]]
) -> None:
    async with opened(location) as journal:
        for number in range(40):
            lease = await begun(journal, f"session {number}")
            said = turn(f"needle {number}", chunk("agent_message", f"needle {number}"))
            await journal.settle(lease, await append(journal, lease, said))
        assert await journal.index.catch_up(9) == 0
        for limit in (2, 80):
            executed.clear()
            assert len(await journal.index.search(Sought("needle", limit=limit))) == limit
            asked = [text for _, text, _ in executed if text.lstrip().startswith("SELECT")]
            assert len(asked) == 4  # the documents, their rows, the newest sessions, their ends


def test_the_server_is_asked_nothing_for_no_rows(location: str) -> None:
    with psycopg.connect(location) as line:
        pass
    assert line.closed
    assert session_rows.PostgresqlTables(line).executemany("SELECT %s", []) == 0


async def test_sessions_that_an_import_lists_are_added_one_by_one(location: str) -> None:
    names = [f"session {number}" for number in range(3)]
    async with opened(location) as journal:
        await journal.links.enlist(
            [Listed(NewSession(name, "a", "/w"), name, 1000, b"there") for name in names]
        )
    with psycopg.connect(location) as line:
        found = line.execute("SELECT count(DISTINCT changed) FROM acphold.sessions").fetchone()
    assert found == (3,)


async def test_many_sessions_are_deleted_by_few_statements(
    location: str, executed: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "DELETED_SESSIONS", 20)
    names = [f"session {number}" for number in range(60)]
    async with opened(location) as journal:
        leases = [await journal.create(NewSession(name, "a", "/w")) for name in names]
        for number, lease in enumerate(leases):
            await journal.links.link(lease, "a", f"their {number}")
            if number not in (7, 8):
                await journal.release(lease)
        executed.clear()
        gone = await journal.delete(*names, "no such", idle_since=1 << 60)
        assert len([text for _, text, _ in executed if text.startswith("DELETE")]) <= 4 * 10
        assert len(executed) <= 4 * 23
        assert gone == [name for name in names if name not in ("session 7", "session 8")]
        assert await journal.count() == 2
        assert await journal.links.sessions_of("a", ["their 1", "their 7"]) == {
            "their 1": None,
            "their 7": "session 7",
        }
        assert await journal.delete("session 7", leases[8]) == ["session 7", "session 8"]
        assert await journal.links.sessions_of("a", ["their 8"]) == {}


BOUND = {
    *(
        "held",
        "changed",
        "used",
        "unnest",
        "page",
        "next_ones",
        "counted",
        "behind",
        "last",
        "found",
        "newest",
    ),
    *(
        "later",
        "news",
        "select",
        "lateral",
        "wanted",
        "leases",
        "sessions",
        "segments",
        "set",
        "now",
    ),
    *("entries",),
}
"""Words that stand in the place of a table and name none."""


def test_the_fence_is_a_lock_on_the_lease_in_the_statement_that_appends() -> None:
    statement = session_rows.appending(1, "title = %s")
    assert re.search(r"FROM acphold\.leases\s+WHERE .* FOR SHARE\)", statement)
    assert statement.count("FROM held") == 2


async def test_who_appends_waits_for_who_takes_over_and_writes_nothing_then(location: str) -> None:
    async with opened(location) as journal:
        lease = await begun(journal)
        with psycopg.connect(location) as other:
            other.execute("UPDATE acphold.leases SET epoch = 99 WHERE session_id = 's1'")
            appending = asyncio.create_task(journal.append(lease, [("update", [b"1"])]))
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            with psycopg.connect(location, autocommit=True) as watcher:
                while watcher.execute(waits).fetchone() != (1,):  # noqa: ASYNC110  nothing tells
                    await asyncio.sleep(0)
        with pytest.raises(LeaseLostError):
            await appending
        assert await journal.read("s1", 0) == []
