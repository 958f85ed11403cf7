"""The rows of appended entries."""

from __future__ import annotations

from random import Random

import psycopg
import pytest

from acphold.errors import NotAJournalError
from acphold.journal import bounds
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.stored_history import FRAME
from tests.conversations import entries_of
from tests.journal.conversations import begun
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql


async def test_what_is_long_takes_less_room_at_once_and_says_the_same(databases: Databases) -> None:
    random = Random(1)
    words = [b'"%d"' % random.randrange(1000) for _ in range(bounds.LONG_BYTES)]
    noise = random.randbytes(bounds.LONG_BYTES * 2).replace(b"\n", b" ")
    appended = [
        [b'"short"'],
        words,
        [b'"%s"' % noise],
        [b'"%s"' % (b"word " * bounds.TOO_LONG_BYTES)],
        [b'"one that stands for itself, %s"' % (b"word " * bounds.LONG_BYTES)],
    ]
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        journal = PostgresqlJournal(url)
        lease = await begun(journal)
        for raws in appended:
            before = lease.next_seq
            [told] = await journal.append(lease, [("update", raws)])
            assert told.raw == b"\n".join(raws)
            after, lease.next_seq = lease.next_seq, before
            # Whose answer was lost is found, however it is kept.
            assert await journal.append(lease, [("update", raws)]) == [told]
            assert lease.next_seq == after
        assert [entry.raw for entry in entries_of(await journal.read("s1", 0))] == [
            raw for raws in appended for raw in raws
        ]
        rows = line.execute("SELECT raw FROM acphold.segments ORDER BY last_seq").fetchall()
        assert [raw.startswith(FRAME) for (raw,) in rows] == [False, True, False, False, True]
        # A read is bounded by its size in memory.
        sizes = [len(b"\n".join(raws)) for raws in appended]
        assert len(await journal.read("s1", 0, sizes[0] + sizes[1])) == 2
        await journal.settle(lease, lease.next_seq - 1)
        assert [entry.raw for entry in entries_of(await journal.read("s1", 0))] == [
            raw for raws in appended for raw in raws
        ]
        for cut in (FRAME, FRAME + b"\x64\x01"):
            line.execute("UPDATE acphold.segments SET raw = %s WHERE last_seq = 1", (cut,))
            with pytest.raises(NotAJournalError, match="damaged"):
                await journal.read("s1", 0)
        await journal.aclose()
