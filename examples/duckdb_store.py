"""A store in a DuckDB file, which one process at a time can open.

acphold.stores.register("duckdb", open_duckdb)
agent.run(journal="duckdb:///home/me/journal.duckdb")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import duckdb

from acphold.stores import BaseJournal, Journal, JournalUnavailableError, ReadTranscript, Records

T = TypeVar("T")

ONE_AT_A_TIME = threading.Lock()
"""DuckDB lets two transactions work at once and fails one of them; here the second one waits."""


class Table:
    """Records in a table."""

    def __init__(self, line: duckdb.DuckDBPyConnection) -> None:
        self._line = line

    def get(self, key: bytes) -> bytes | None:
        found = self._line.execute("SELECT value FROM records WHERE key = ?", [key]).fetchone()
        value: bytes | None = None if found is None else found[0]
        return value

    def scan(
        self, first: bytes, end: bytes, limit: int, backwards: bool
    ) -> list[tuple[bytes, bytes]]:
        order = "DESC" if backwards else "ASC"
        found: list[tuple[bytes, bytes]] = self._line.execute(
            "SELECT key, value FROM records WHERE key >= ? AND key < ?"
            f" ORDER BY key {order} LIMIT ?",
            [first, end, limit],
        ).fetchall()
        return found

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        kept = {key: value for key, value in changes.items() if value is not None}
        gone = [key for key in changes if key not in kept]
        if kept:
            self._line.execute(
                "INSERT OR REPLACE INTO records SELECT unnest(?::BLOB[]), unnest(?::BLOB[])",
                [[*kept], [*kept.values()]],
            )
        if gone:
            self._line.execute(
                "DELETE FROM records WHERE key IN (SELECT unnest(?::BLOB[]))", [gone]
            )


class DuckdbJournal(BaseJournal):
    """A journal in a file."""

    def __init__(
        self, path: str, url: str = "", read_transcript: ReadTranscript | None = None
    ) -> None:
        super().__init__(url, read_transcript=read_transcript)
        try:
            self._line = duckdb.connect(path, config={"threads": 1})
            self._line.execute(
                "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
            )
        except duckdb.Error as error:
            raise JournalUnavailableError(f"{path} cannot be opened: {error}") from error

    async def transact(self, work: Callable[[Records], T]) -> T:
        return await asyncio.to_thread(self._transact, work)

    def _transact(self, work: Callable[[Records], T]) -> T:
        with ONE_AT_A_TIME:
            try:
                self._line.begin()
                try:
                    done = work(Table(self._line))
                except BaseException:
                    self._line.rollback()
                    raise
                self._line.commit()
            except duckdb.Error as error:
                raise JournalUnavailableError(f"DuckDB: {error}") from error
            return done

    async def aclose(self) -> None:
        await super().aclose()
        self._line.close()


def open_duckdb(url: str, *, create: bool, read_transcript: ReadTranscript | None) -> Journal:
    """Return the journal in the file at this URL."""
    return DuckdbJournal(url.partition("://")[2], url, read_transcript)
