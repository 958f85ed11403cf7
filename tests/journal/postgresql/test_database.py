"""A journal in a database that goes down, restarts, or does not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any

import psycopg
import pytest

from acphold.errors import (
    JournalUnavailableError,
    LeaseLostError,
    NewerJournalError,
    ReadOnlyJournalError,
)
from acphold.journal import bounds
from acphold.journal.journal import Journal
from acphold.journal.owners import At
from acphold.journal.postgresql import migrations
from acphold.journal.postgresql.database import Database
from acphold.journal.postgresql.leases import Gone
from acphold.journal.postgresql.migrations import Line
from acphold.journal.stores import open_journal
from acphold.safety.standing.decision import StandingRule
from tests.conversations import entries_of
from tests.journal.conftest import opened
from tests.journal.conversations import begun
from tests.postgresql import Databases, Server

pytestmark = pytest.mark.postgresql


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """Execute a statement on a connection of its own and return the rows."""
    with psycopg.connect(url, autocommit=True) as line:
        done = line.execute(statement.encode())
        return done.fetchall() if done.description else []


def cut_off(url: str) -> None:
    """End all connections of the journal to the database."""
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


async def raws(journal: Journal, session_id: str = "s1") -> list[bytes]:
    return [entry.raw for entry in entries_of(await journal.read(session_id, 0))]


async def test_work_goes_on_when_its_connections_are_closed(location: str) -> None:
    async with opened(location) as journal:
        lease = await begun(journal)
        for number in range(5):
            cut_off(location)
            await journal.append(lease, [("update", [b"%d" % number])])
            cut_off(location)
            assert len(await raws(journal)) == number + 1
        assert await raws(journal) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_connection_that_was_lost_in_the_middle_of_a_command_is_not_used_again(
    location: str,
) -> None:
    database = Database(location, create=True)
    begun: list[Line] = []

    def work(line: Line) -> object:
        begun.append(line)
        if len(begun) == 1:  # libpq has not noticed, and goes on waiting for an answer
            line.pgconn.send_query(b"SELECT pg_sleep(60)")
            raise psycopg.OperationalError("connection socket closed")
        return line.execute("SELECT 1").fetchone()

    assert await database.run(work) == (1,)
    first, second = begun
    assert (first.closed, first is second) == (True, False)
    await database.aclose()


async def test_settling_that_is_cancelled_ends_behind_the_piece_that_it_is_at(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = 0

    def piece(*_: object) -> bool:
        nonlocal pieces
        pieces += 1
        return True  # there is more, for ever

    monkeypatch.setattr("acphold.journal.sql.entry_rows.settle_piece", piece)
    async with opened(location) as journal:
        lease = await begun(journal)
        settling = asyncio.create_task(journal.settle(lease, 1))
        async with asyncio.timeout(60):
            while not pieces:  # noqa: ASYNC110
                await asyncio.sleep(0)
            settling.cancel()
            await asyncio.wait([settling])
        assert settling.cancelled()


async def test_a_journal_that_is_closed_makes_no_connection_any_more(location: str) -> None:
    async with opened(location) as journal:
        await begun(journal)
    with pytest.raises(JournalUnavailableError, match="is closed"):
        await journal.session("s1")


class Swallowing:
    """A way to the server on which an answer is lost: with the commit it brings, the line ends."""

    def __init__(self, target: str, path: str) -> None:
        self._target = target
        self.path = path
        self.answers_left: int | None = None
        self.lost = 0
        self.passing: set[asyncio.Task[Any] | None] = set()

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._pass_on, self.path)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_unix_connection(self._target)

        async def requests() -> None:
            while data := await reader.read(1 << 16):
                out.write(data)
            out.close()

        async def answers() -> None:
            while data := await there.read(1 << 16):
                if self.answers_left == 0:
                    self.answers_left = None
                    self.lost += 1
                    break
                if self.answers_left is not None:
                    self.answers_left -= 1
                writer.write(data)
            writer.close()

        self.passing.add(asyncio.current_task())
        await asyncio.gather(requests(), answers(), return_exceptions=True)
        out.close()
        await out.wait_closed()


async def test_a_commit_whose_answer_was_lost_is_found_and_nothing_is_doubled(
    location: str, databases: Databases, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    way = Swallowing(f"{databases.server.folder}/.s.PGSQL.5432", f"{folder}/.s.PGSQL.5432")
    server = await way.serve()
    url = location.replace(str(databases.server.folder), str(folder))
    try:
        async with opened(url) as journal:
            lease = await begun(journal)
            pipelines = journal._database.pipelines  # type: ignore[attr-defined]
            for number in range(4):
                if number % 2:  # one in a thread, which looks first
                    pipelines._vain_at = monotonic()
                    way.answers_left = 1
                else:
                    pipelines._vain_at = -1.0
                    await pipelines.ready()
                    way.answers_left = 0
                [segment] = await journal.append(lease, [("update", [b"%d" % number])])
                assert (segment.first_seq, way.lost) == (number + 1, number + 1)
            pipelines._vain_at = -1.0
            others = [await begun(journal, f"s{n}") for n in range(2, 6)]
            await pipelines.ready()
            way.answers_left = 0
            from acphold.journal.journal import Append

            done = await journal.append_all([Append(it, [("update", [b"x"])]) for it in others])
            assert not [it for it in done if isinstance(it, LeaseLostError)]
            way.answers_left = 1
            again = await begun(journal, "s9")
            assert await journal.append(again, [("update", [b"y"])])
        async with opened(location) as journal:
            assert await raws(journal) == [b"0", b"1", b"2", b"3"]
            for number in range(2, 6):
                assert await raws(journal, f"s{number}") == [b"x"]
            assert await raws(journal, "s9") == [b"y"]
    finally:
        server.close()
        rmtree(folder)


async def test_a_rule_is_added_once_whichever_answer_is_lost(
    location: str, databases: Databases
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    way = Swallowing(f"{databases.server.folder}/.s.PGSQL.5432", f"{folder}/.s.PGSQL.5432")
    server = await way.serve()
    try:
        async with opened(location.replace(str(databases.server.folder), str(folder))) as journal:
            assert await journal.access.rules("rita") == []  # over a connection that is free then
            numbers = []
            for answers in range(8):
                way.answers_left = answers
                rule = StandingRule("allow", "run", ("make",), person="rita", made_at=answers)
                numbers.append((await journal.access.add_rule(rule)).number)
            way.answers_left = None
            assert numbers == [*range(1, 9)], "none twice"
            assert [it.made_at for it in await journal.access.rules("rita")] == [*range(8)]
            assert way.lost > 4
        await asyncio.wait_for(asyncio.gather(*filter(None, way.passing)), 20)
    finally:
        server.close()
        rmtree(folder)


async def test_a_query_that_is_cancelled_is_made_again(location: str) -> None:
    async with opened(location) as journal:
        lease = await begun(journal)
        with psycopg.connect(location) as other:
            other.execute("SELECT 1 FROM acphold.leases FOR UPDATE")
            appending = asyncio.create_task(journal.append(lease, [("update", [b"1"])]))
            waiting = (
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            while not await asyncio.to_thread(execute, location, waiting):
                pass
            assert not appending.done()
        await appending
        assert await raws(journal) == [b"1"]


async def test_one_who_is_cancelled_while_it_appends_knows_what_was_appended(
    location: str,
) -> None:
    async with opened(location) as journal:
        lease = await begun(journal)
        await journal.append(lease, [("update", [b"1"])])
        with psycopg.connect(location) as other:
            other.execute("SELECT 1 FROM acphold.leases FOR UPDATE")
            appending = asyncio.create_task(journal.append(lease, [("update", [b"2"])]))
            await asyncio.sleep(0)
            appending.cancel()
            await asyncio.sleep(0)
            assert not appending.done()
        await asyncio.wait([appending])
        assert lease.next_seq == 3
        await journal.append(lease, [("update", [b"3"])])
        assert await raws(journal) == [b"1", b"2", b"3"]


async def test_a_password_is_in_no_error(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.2)
    for url in (
        "postgresql://me:geheim@127.0.0.1:1/db?connect_timeout=2",
        "postgresql://me:geheim@/db?host=/nowhere",
        "postgresql://me:geheim@h/db?no_such=option",
        location.replace("owner@", "nobody_knows:geheim@"),
    ):
        with pytest.raises(JournalUnavailableError) as caught:
            async with opened(url) as journal:
                await journal.count()
        words = f"{caught.value!r} {caught.value.__cause__!r}"
        assert "geheim" not in str(caught.value)
        assert "geheim" not in words or "no_such" in url


async def test_a_journal_that_is_not_there_is_made_only_if_it_is_to_be(
    databases: Databases,
) -> None:
    with databases.new(template="template1") as url:
        async with opened(url) as journal:
            with pytest.raises(JournalUnavailableError, match="there is no journal"):
                await journal.count()
        both = [open_journal(url), open_journal(url)]
        assert await asyncio.gather(*(it.count() for it in both)) == [0, 0]
        for it in both:
            await it.aclose()


async def test_a_journal_of_a_newer_release_is_refused(location: str) -> None:
    async with opened(location) as journal:
        await begun(journal)
        execute(location, "UPDATE acphold.meta SET value = '99' WHERE name = 'version'")
        with pytest.raises(NewerJournalError, match="99"):
            await journal.renew()
    async with opened(location) as journal:
        # Also told by a process that has not used the journal until a newer release upgraded it.
        with pytest.raises(NewerJournalError, match=r"99.* restart the agent in your editor"):
            await journal.count()


RUNS = """
    CREATE ROLE {role} LOGIN;
    GRANT USAGE ON SCHEMA acphold TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA acphold TO {role};
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA acphold TO {role};
    ALTER DEFAULT PRIVILEGES IN SCHEMA acphold
        GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
    ALTER DEFAULT PRIVILEGES IN SCHEMA acphold GRANT USAGE ON SEQUENCES TO {role}
"""
"""As docs/team.md says."""


async def test_a_role_that_may_make_nothing_runs_and_leaves_migrations_to_the_owner(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"runs_{os.getpid()}"
    execute(location, RUNS.format(role=role))
    url = location.replace("owner@", f"{role}@")
    try:
        async with opened(url) as journal:
            lease = await begun(journal)
            await journal.append(lease, [("prompt", [b'[{"type":"text","text":"word"}]'])])
            await journal.settle(lease, 1)
            assert [hit.seq for hit in await journal.index.search("word")] == [1]
            await journal.index.tidy(1)
            assert await journal.delete("s1") == ["s1"]
        execute(location, "CREATE TABLE acphold.of_an_update (session_id text PRIMARY KEY)")
        may = f"SELECT has_table_privilege('{role}', 'acphold.of_an_update', 'INSERT')"
        assert execute(location, may) == [(True,)]
        more = "CREATE TABLE acphold.later (session_id text PRIMARY KEY)"
        monkeypatch.setattr(migrations, "TABLES", (*migrations.TABLES, more))
        monkeypatch.setattr(migrations, "VERSION", migrations.VERSION + 1)
        async with opened(url) as journal:
            with pytest.raises(JournalUnavailableError, match="role that owns it"):
                await journal.count()
    finally:
        execute(location, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_server_that_only_reads_is_said_to(location: str) -> None:
    name = location.rpartition("/")[0] and location.partition("@/")[2].partition("?")[0]
    execute(location, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with opened(location) as journal:
        with pytest.raises(ReadOnlyJournalError, match="accepts writes"):
            await begun(journal)
        assert await journal.count() == 0


OWNER = """
import asyncio, sys
from acphold.journal.rows import NewSession
from acphold.journal.stores import open_journal
async def main():
    journal = open_journal(sys.argv[1])
    await journal.create(NewSession("s1", "a", "/w"))
    print("owns", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_that_an_owner_was_killed_is_seen_at_once(location: str) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, location), stdout=subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        assert await owner.stdout.readline() == b"owns\n"
        async with opened(location) as journal:
            whose = await journal.owner("s1")
            assert isinstance(whose, At)
            assert whose.owner.pid == owner.pid
            owner.send_signal(signal.SIGKILL)
            await owner.wait()
            async with asyncio.timeout(10):
                while not isinstance(await journal.owner("s1"), Gone):
                    pass
            await journal.acquire("s1", whose)
    finally:
        if owner.returncode is None:
            owner.kill()
            await owner.wait()


# -- a server of its own ----------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    """One that a test may stop."""
    own = Server(Path(tempfile.mkdtemp(prefix="acphold-pg-")))
    own.make()
    own.start()
    try:
        yield own
    finally:
        own.stop()
        rmtree(own.folder)


@pytest.mark.slow
async def test_a_server_that_starts_again_is_waited_for_and_leaves_owners_what_they_have(
    server: Server,
) -> None:
    url = server.url()
    async with opened(url, create=True) as journal, opened(url) as other:
        lease = await begun(journal)
        await journal.append(lease, [("update", [b"1"])])
        await asyncio.to_thread(server.stop, "fast")
        appending = asyncio.create_task(journal.append(lease, [("update", [b"2"])]))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        await appending
        # The locks of all are gone with it; nobody is taken for dead for that.
        assert isinstance(await other.owner("s1"), At)
        await journal.renew([lease])
        assert isinstance(await other.owner("s1"), At)
        assert await raws(other) == [b"1", b"2"]


@pytest.mark.slow
async def test_a_server_that_is_gone_is_told_of_in_a_bound_and_used_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.5)
    async with opened(server.url(), create=True) as journal:
        lease = await begun(journal)
        await asyncio.to_thread(server.stop)
        for _ in range(3):
            with pytest.raises(JournalUnavailableError, match="cannot be used"):
                await journal.append(lease, [("update", [b"1"])])
        await asyncio.to_thread(server.start)
        await journal.append(lease, [("update", [b"1"])])
        assert await raws(journal) == [b"1"]


def waiting_less(journal: Journal) -> None:
    """Have it wait a second for each answer, less than a server that hangs takes."""
    kept = journal._database  # type: ignore[attr-defined]
    kept.pipelines._bound = kept._quick._bound = kept._slow._bound = 1.0


@contextmanager
def stopped(server: Server, *more: int) -> Iterator[None]:
    """Stop the processes of all connections, and `more`, for the block."""
    ours = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND"
    found = execute(server.url(), f"{ours} pid <> pg_backend_pid()")
    pids = [*(int(str(pid)) for (pid,) in found), *more]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
async def test_connections_that_died_while_the_machine_slept_fail_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.5)
    async with opened(server.url(), create=True) as journal:
        lease = await begun(journal)
        waiting_less(journal)
        await journal.append(lease, [("update", [b"0"])])
        await asyncio.gather(*(raws(journal) for _ in range(bounds.QUICK_THREADS)))
        with stopped(server):
            await journal.append(lease, [("update", [b"1"])])
            await journal.append(lease, [("update", [b"2"])])
            assert await raws(journal) == [b"0", b"1", b"2"]
        await journal.append(lease, [("update", [b"3"])])
        assert await raws(journal) == [b"0", b"1", b"2", b"3"]


async def test_who_stops_in_a_transaction_holds_up_nobody_for_long_and_does_it_again(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(location) as journal:
        lease = await begun(journal)
        monkeypatch.setattr(bounds, "IDLE_SECONDS", 0.3)
        async with opened(location) as other:
            locked, go_on = threading.Event(), threading.Event()
            times = 0

            def stopping(line: Line) -> None:
                nonlocal times
                times += 1
                with line.transaction():
                    line.execute("SELECT 1 FROM acphold.leases FOR UPDATE")
                    locked.set()
                    go_on.wait(20)
                    line.execute("SELECT 1")

            stopped = asyncio.create_task(other._database.run(stopping))  # type: ignore[attr-defined]
            await asyncio.to_thread(locked.wait)
            await journal.append(lease, [("update", [b"1"])])
            go_on.set()
            await stopped
        assert times == 2


@pytest.mark.slow
async def test_slow_work_that_is_cut_for_its_time_is_not_begun_again(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(location) as journal:
        await begun(journal)  # over a connection that is free then
        for name in ("QUICK_SECONDS", "RETRY_SECONDS"):
            monkeypatch.setattr(bounds, name, 0.5)
        waiting_less(journal)
        times = 0

        def endless(line: Line) -> None:
            nonlocal times
            times += 1
            line.execute("SELECT pg_sleep(60)")

        with pytest.raises(JournalUnavailableError):
            await journal._database.run(endless, slow=True)  # type: ignore[attr-defined]
        assert times == 1
        assert await raws(journal) == []


@pytest.mark.slow
async def test_a_server_that_answers_nothing_any_more_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.5)
    async with opened(f"{server.url()}&connect_timeout=2", create=True) as journal:
        lease = await begun(journal)
        waiting_less(journal)
        await journal.append(lease, [("update", [b"0"])])
        [postmaster, *_] = (server.folder / "data" / "postmaster.pid").read_text().split()
        with stopped(server, int(postmaster)), pytest.raises(JournalUnavailableError):
            await journal.append(lease, [("update", [b"1"])])
        # The server commits it when it goes on; a writer that got no answer has to look.
        async with asyncio.timeout(20):
            while len(await raws(journal)) < 2:
                pass
        with pytest.raises(LeaseLostError):
            await journal.append(lease, [("update", [b"2"])])
        again = await journal.acquire("s1")
        await journal.append(again, [("update", [b"2"])])
        assert await raws(journal) == [b"0", b"1", b"2"]
