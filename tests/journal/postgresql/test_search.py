"""What is found in a database, by whichever of its ways."""

from __future__ import annotations

from itertools import product

import psycopg
import pytest

from acphold.journal import NewSession, Sought
from acphold.journal.postgresql import ranking, search
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.postgresql.words import MOST_PLACES
from acphold.testing.journal_promises.scenes import append, chunk, turn
from tests.postgresql import Databases


@pytest.mark.parametrize("walked", [0, 3, 1000])
async def test_what_is_sought_is_found_newest_first_however_rare_it_is(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, walked: int
) -> None:
    monkeypatch.setattr(search, "WALKED", walked)
    with databases.new() as url:
        journal = PostgresqlJournal(url)
        for number in range(8):
            lease = await journal.create(NewSession(f"s{number}", "ab"[number % 2], "/w"))
            said = "common word" if number else "common word, and a rare one"
            await append(journal, lease, turn("Go", chunk("agent_message", said)))
            await journal.settle(lease, lease.next_seq - 1)
        newest = [f"s{number}" for number in reversed(range(8))]
        for limit, agents in product((1, 3, 20), ((), ("a",))):
            found = await journal.search(Sought("common", limit=limit, agents=agents))
            wanted = [name for name in newest if not agents or int(name[1]) % 2 == 0]
            assert [hit.session_id for hit in found] == wanted[:limit]
        assert [hit.session_id for hit in await journal.search("rare")] == ["s0"]
        assert await journal.search("absent") == []
        await journal.aclose()


DOCUMENTS = """
    INSERT INTO acphold.documents (session_id, seq, at, words)
    SELECT 's' || n % 100, n, n, to_tsvector('simple', 'common w' || n % 50 || ' w' || n % 37)
    FROM generate_series(1, 30000) AS n
"""


def test_what_is_in_no_document_is_not_looked_for_in_each(databases: Databases) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        line.execute(DOCUMENTS)
        line.execute("ANALYZE acphold.documents")
        line.execute("SET enable_seqscan = off")  # as where there are many more
        asked = {"query": "'absent'", "since": 0, "limit": 20}
        plan = line.execute("EXPLAIN " + search._OF_ALL.format(asked=""), asked).fetchall()
        assert "documents_words" in str(plan)
        assert "documents_at" not in str(plan)


def test_of_a_word_it_is_known_how_often_it_stands_in_a_document(databases: Databases) -> None:
    with psycopg.connect(databases.server.url()) as line:
        counts = line.execute(
            "SELECT width_bucket(ts_rank('{1, 1, 1, 1}', words, 'it')::float8, %s::float8[])"
            " FROM generate_series(0, %s) AS n, LATERAL (SELECT setweight(to_tsvector("
            " 'simple', 'one ' || repeat('it a b ', n)), 'B') AS words) AS document ORDER BY n",
            (ranking._RANKS, MOST_PLACES),
        ).fetchall()
    assert [count for (count,) in counts] == [*range(MOST_PLACES + 1)]
