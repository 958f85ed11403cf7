"""Journals that go back: everything written after a moment is lost, as when a backup replaces the
journal, or when a standby is promoted that lacks the last writes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

from acphold.journal.stores import open_journal
from tests.postgresql import PORT, Server


class Timeline(Protocol):
    """A journal at `url` that can go back."""

    url: str

    async def remember(self) -> None:
        """Remember this moment; `go_back` goes back to it."""

    def go_back(self) -> None:
        """Undo everything since `remember`. A file is not in use meanwhile; a server may be."""

    def let_owners_be_silent(self) -> None:
        """Make owners that have ended count as silent, by the clock of the journal."""


class File:
    """A file, which a backup replaces."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "journal.db")
        self._backup = folder / "backup.db"

    async def remember(self) -> None:
        journal = open_journal(self.url)
        try:
            assert journal.file is not None
            await journal.file.copy_to(str(self._backup))
        finally:
            await journal.aclose()

    def go_back(self) -> None:
        shutil.copyfile(self._backup, self.url)

    def let_owners_be_silent(self) -> None:
        return None  # the kernel has released their locks


class Database:
    """A server of Debian's, whose standby lags until it is promoted."""

    def __init__(self, folder: Path, ports: Sequence[str]) -> None:
        self._first, self._standby = (
            Server(folder / name, 15, listen_addresses="127.0.0.1" if ports else "", port=port)
            for name, port in zip("ab", ports or (PORT, PORT), strict=True)
        )
        where = f"{self._first.folder},{self._standby.folder}&port={','.join(ports) or PORT}"
        self.url = f"postgresql://owner@/postgres?host={where}"

    def start(self) -> None:
        for server in (self._first, self._standby):
            server.folder.mkdir()
        self._first.make()
        self._first.start()
        self._standby.copy(self._first)
        self._standby.start()

    async def remember(self) -> None:
        with psycopg.connect(self._first.url(), autocommit=True) as line:
            deadline = time.monotonic() + 60
            caught_up = (
                "SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()"
            )
            while line.execute(caught_up).rowcount != 1:
                assert time.monotonic() < deadline, "the standby does not catch up"
                await asyncio.sleep(0.02)
        self._standby.stop("fast")

    def go_back(self) -> None:
        self.crash()
        self.promote()

    def crash(self) -> None:
        """End the one that takes writes."""
        self._first.stop()

    def promote(self) -> None:
        """Have the other one take its place."""
        self._standby.start()
        self._standby.run("pg_ctl", "-D", "data", "-w", "promote")

    def let_owners_be_silent(self) -> None:
        self.execute("UPDATE acphold.owners SET renewed_at = now() - interval '1 minute'")

    def execute(self, statement: str) -> None:
        """Execute a statement at the one that takes writes now."""
        with psycopg.connect(self.url, target_session_attrs="read-write", autocommit=True) as line:
            line.execute(statement.encode())

    def stop(self) -> None:
        for server in (self._first, self._standby):
            if (server.folder / "data" / "postmaster.pid").exists():
                server.stop()


@contextmanager
def file() -> Iterator[File]:
    with tempfile.TemporaryDirectory(prefix="acphold-file-") as folder:
        yield File(Path(folder))


@contextmanager
def database(*ports: str) -> Iterator[Database]:
    """Both listen at these ports of this machine, too, if any are given."""
    # Beside each other in a folder with a short name, as the address of a socket is short.
    folder = Path(tempfile.mkdtemp(prefix="acphold-pg-"))
    folder.chmod(0o755)
    made = Database(folder, ports)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


TIMELINES: dict[str, Callable[[], AbstractContextManager[Timeline]]] = {
    "sqlite": file,
    "postgresql": database,
}
"""Each store by its name."""
