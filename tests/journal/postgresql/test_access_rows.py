"""What a server asks of tokens and shares costs no more because others have many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import psycopg
import pytest
from msgspec.structs import replace

from acphold.journal import bounds
from acphold.journal.access import Deed, Share
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.sql import access_rows
from tests.journal.postgresql.test_list_page import rows_read
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

FEW, MANY = 2_000, 20_000

FILL: Final = (
    """
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        created_at, updated_at, prompted)
    SELECT 's' || n, n, 'a', '/w', '/w', '[]', n, n, true FROM generate_series({first}, {last}) AS n
    """,
    """
    INSERT INTO acphold.shares SELECT 's' || n, 't' || (n + k) % 1000, true
    FROM generate_series({first}, {last}) AS n CROSS JOIN generate_series(1, 3) AS k
    """,
    # A third is used by browsers, some were revoked, some expire; all are old, and in use.
    """
    INSERT INTO acphold.access_tokens
        (id, name, digest, scopes, created_at, used_at, expires_at, revoked_at)
    SELECT 'k' || n, 'name', '', CASE WHEN n % 3 = 0 THEN 'watch browser' ELSE 'watch' END, 1,
        {now}, CASE WHEN n % 5 = 0 THEN {now} + 1000000 END, CASE WHEN n % 50 = 7 THEN {now} END
    FROM generate_series({first}, {last}) AS n
    """,
    "INSERT INTO acphold.access_changes (kind, subject) VALUES ('token', 'k1')"
    " ON CONFLICT DO NOTHING",
    "VACUUM ANALYZE",
)


def ask(tables: PostgresqlTables) -> dict[str, int]:
    """The rows read for each of the things that servers ask."""
    [token] = access_rows.tokens(tables, ["k77"])
    now, last = tables.now(), tables.access_changes(None).last
    ways: dict[str, Callable[[], object]] = {
        "a token": lambda: access_rows.tokens(tables, ["k77"]),
        "a token that is not there": lambda: access_rows.tokens(tables, ["nobody's"]),
        "use": lambda: access_rows.keep_token(tables, replace(token, used_at=now)),
        "end": lambda: access_rows.keep_token(tables, replace(token, revoked_at=now)),
        "news": lambda: tables.access_changes(last),
        "state": lambda: (access_rows.is_current(tables), access_rows.held(tables)),
        "share": lambda: access_rows.keep_share(tables, Share("s77", "you", prompts=True)),
        "no share": lambda: access_rows.end_share(tables, "s77", "you"),
        "deed": lambda: access_rows.keep_deeds(tables, [Deed(at=now, deed="d", name="n")]),
        "ends": lambda: access_rows.forget_ended(tables),
    }
    read: dict[str, int] = {}
    for name, way in ways.items():
        before = rows_read(tables._line)
        way()
        read[name] = rows_read(tables._line) - before
    return read


def test_hardly_more_is_read_beside_ten_times_as_many_tokens_and_shares(
    databases: Databases,
) -> None:
    read: list[dict[str, int]] = []
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        access_rows.accept(PostgresqlTables(line))
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            now = PostgresqlTables(line).now()
            for statement in FILL:
                line.execute(statement.format(first=first, last=last, now=now).encode())
            with psycopg.connect(url) as reader:
                read.append(ask(PostgresqlTables(reader)))
                reader.rollback()
            (old,) = line.execute("SELECT min(used_at) FROM acphold.access_tokens").fetchone() or ()
            assert old > now - bounds.BROWSER_MS
    few, many = read
    assert all(many[it] <= few[it] + 3 <= 40 for it in few), read
