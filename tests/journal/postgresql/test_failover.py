"""A database that fails over to its standby, is full, or closes what is idle: nothing that was
written is missing, and nothing is doubled."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import pytest

from acphold.errors import JournalError, JournalUnavailableError
from acphold.journal.journal import Journal, Lease
from tests.journal.conftest import opened
from tests.journal.conversations import begun
from tests.journal.postgresql.test_database import execute, raws
from tests.postgresql import Server

pytestmark = pytest.mark.postgresql

DEADLINE = 90.0


@contextmanager
def made() -> Iterator[Server]:
    """A server that has no files yet; at the end it has ended."""
    own = Server(Path(tempfile.mkdtemp(prefix="acphold-pg-")))
    try:
        yield own
    finally:
        if (own.folder / "data" / "postmaster.pid").exists():
            own.stop()
        rmtree(own.folder)


async def written(journal: Journal, lease: Lease, raw: bytes) -> Lease:
    """Write an entry, however often that fails. Like an owner, check first if it is there."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await journal.append(lease, [("update", [raw])])
                return lease
            except JournalError:
                try:
                    lease = await journal.acquire("s1")
                    if (await raws(journal))[-1:] == [raw]:
                        return lease
                except JournalError:
                    await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_database_that_fails_over_to_its_standby_has_all_that_was_written_once() -> None:
    with made() as first, made() as standby:
        first.make()
        first.start()
        standby.copy(first)
        standby.start()
        # A write is reported only once both servers have it.
        first.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        first.execute("SELECT pg_reload_conf()")
        url = f"postgresql://owner@/postgres?host={first.folder},{standby.folder}"
        async with opened(url, create=True) as journal:
            lease = await begun(journal)

            async def fail_over() -> None:
                while len(await raws(journal)) < 20:
                    pass
                await asyncio.to_thread(first.stop)
                await asyncio.to_thread(standby.run, "pg_ctl", "-D", "data", "-w", "promote")

            failing = asyncio.create_task(fail_over())
            number = 0
            while number < 40 or not failing.done():
                lease = await written(journal, lease, b"%d" % number)
                number += 1
            await failing
            assert await raws(journal) == [b"%d" % n for n in range(number)]


FULL = """
    CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
    CREATE TRIGGER full_disk BEFORE INSERT ON acphold.segments EXECUTE FUNCTION full_disk()
"""


async def test_on_a_full_disk_nothing_is_written_all_is_read_and_with_room_it_goes_on(
    location: str,
) -> None:
    async with opened(location) as journal:
        lease = await begun(journal)
        await journal.append(lease, [("update", [b"1"])])
        execute(location, FULL)
        for _ in range(3):
            with pytest.raises(JournalUnavailableError, match="free space on its disk"):
                await journal.append(lease, [("update", [b"2"])])
            assert await raws(journal) == [b"1"]
        execute(location, "DROP TRIGGER full_disk ON acphold.segments")
        await journal.append(lease, [("update", [b"2"])])
        assert await raws(journal) == [b"1", b"2"]


async def test_connections_that_the_server_closes_as_idle_are_made_anew(location: str) -> None:
    name = location.partition("@/")[2].partition("?")[0]
    # Longer than a busy machine takes between a connection and its first use.
    execute(location, f"ALTER DATABASE {name} SET idle_session_timeout = '1s'")
    open_ones = (
        "SELECT 1 FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'acphold'"
    )
    async with opened(location) as journal:
        lease = await begun(journal)
        for number in range(3):
            async with asyncio.timeout(DEADLINE):
                while await asyncio.to_thread(execute, location, open_ones):
                    pass
            await journal.append(lease, [("update", [b"%d" % number])])
        await journal.renew([lease])
        assert await raws(journal) == [b"0", b"1", b"2"]
