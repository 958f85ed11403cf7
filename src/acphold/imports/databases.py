"""Reading databases that other programs have open, without locks and without changing a byte.

Opening a database in place would create or change the files beside it. So it is copied with them,
and the copy is opened. SQLite writes a change into the log (`-wal`), or the old pages into the
journal (`-journal`), before it touches the file. So a copy made of the file first and of those
after it is consistent, unless one of them was restarted meanwhile; then we copy again. A database
without them is read in place, as immutable.

A damaged page costs the rows on it: if a query meets one, the rows are looked up one by one.

The database's own schema is not trusted: only tables are read, no views or virtual tables, no value
longer than a line of a transcript may be, and for no longer than a file of its size can take.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from errno import EBUSY, EFBIG, EILSEQ, EIO, ENOSPC
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Any, Final

from acp_wire.workspace.regular_files import open_fd
from acphold.imports.records import LINE_BYTES, TOO_LONG
from acphold.imports.sources import Source, Stamp, is_link_out, link_out, note, note_database, stamp
from acphold.imports.values import Missed, milliseconds

ATTEMPTS: Final = 10
"""Times a copy is retried before the database counts as too busy to be read."""

ROWS: Final = 1_000_000
"""Most rows of any answer: a million sessions, or messages of one."""

SECONDS: Final = 30.0
"""Seconds of SQLite's time for a database, plus one for each SLOW_BYTES of it."""

SLOW_BYTES: Final = 4 << 20

LARGE_BYTES: Final = 256 << 20
"""A database this large, if it has a log, is not copied again for each change of a program."""

REUSE_FACTOR: Final = 20
"""Instead, its copy is reused for this many times as long as it took to make."""

_STEPS: Final = 1_000
"""SQLite steps, each of which may be slow, between two checks of the time limit."""

_MADE_BY_SQLITE: Final = frozenset({"sqlite_master", "pragma_table_info"})

_COMPANIONS: Final = ("-wal", "-journal")

_HEAD: Final = 32
"""Bytes at the head of a log or journal with its salt; each restart changes them."""


DAMAGED_ROWS: Final = "damaged pages of databases"
MISSING_ROWS: Final = "messages that are missing in the database"

REPLACED: Final = "\ufffd"
"""Stands for bytes of a text that are not UTF-8."""

CHUNK: Final = 256
"""Rows looked up at once, of sessions or in a damaged table; one by one where a page is damaged."""

REPEATED: Final = "acphold_repeated"
"""The name of what a query of ours repeats; a view of any other name is not looked into."""

_FIRST_ROW, _LAST_ROW = -(1 << 63), (1 << 63) - 1

_COUNTED: Final = re.compile(r"\(SELECT (?:[^()]|\([^()]*\))*\)")
"""Matches a column that is a query of another table."""


class _DamagedError(OSError):
    """A page that a query needs is damaged."""


class _TooLongError(OSError):
    """A value is longer than a line of a transcript may be."""


def rows(path: Path, query: str, *arguments: str | int) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the current database; raises OSError if it cannot be read."""
    try:
        return _open(path).select(query, *arguments)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its message may be none
        raise _unreadable(error, path) from error


def sessions_of(path: Path, table: str, columns: str, where: str) -> Iterator[tuple[Any, ...]]:
    """Yield the sessions of a database, ordered by the first column, their id.

    Nothing if there is no such file; an unreadable one is noted.
    """
    tables = AgentTables(path, Missed())
    note_database(path)
    try:
        if path.exists():
            # A page of the messages that are counted may be damaged.
            found = tables.rows(
                table, columns, where, spare=_COUNTED.sub("NULL", columns), at_once=CHUNK
            )
            # SQLite allows any type as a key, and any bytes in a text.
            named = sorted((row for row in found if isinstance(row[0], str)), key=itemgetter(0))
            yield from (row for row in named if REPLACED not in row[0])
            if any(REPLACED in row[0] for row in named):
                note(OSError(EILSEQ, "some of its session ids are not valid UTF-8", str(path)))
    except OSError as error:
        note(error)
    if tables.missed.counts[TOO_LONG]:
        note(OSError(EFBIG, "some of its session ids are too long", str(path)))
    if tables.missed.counts[DAMAGED_ROWS]:
        note(OSError(EIO, "it is damaged, and some of its sessions cannot be read", str(path)))


def row_source(path: Path, session_id: str, updated: object, size: object) -> Source:
    """Return the source for a session in a database; its times are as the program writes them."""
    changed = (milliseconds(updated) or 0) * 1_000_000
    length = size if isinstance(size, int) else 0
    return Source(session_id, (str(path),), length, changed, session_id)


def sources(path: Path, table: str, columns: str, where: str) -> Iterator[Source]:
    """Yield the source of each session of a database; `columns` are its id, its time, its size."""
    for row in sessions_of(path, table, columns, where):
        yield row_source(path, *row)


def columns_of(path: Path, table: str, wanted: Iterable[str]) -> list[str]:
    """Return those of these columns that a table has in this version of the program."""
    existing = {name for (name,) in rows(path, f"SELECT name FROM pragma_table_info('{table}')")}
    return [name for name in wanted if name in existing]


class AgentTables:
    """The tables of an agent's database, read row by row, so that no answer is large.

    Raises OSError if they cannot be read; a row with too long a value, or on a damaged page, is
    counted.
    """

    def __init__(self, path: Path, missed: Missed) -> None:
        self.path, self.missed = path, missed

    def rows(
        self,
        table: str,
        columns: str,
        where: str,
        *arguments: str,
        spare: str = "",
        at_once: int = 1,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield these columns of the matching rows; of one on a damaged page the columns `spare`,
        if they can be read. With rows `at_once`, in any order."""
        try:
            found = rows(self.path, f"SELECT rowid FROM {table} WHERE {where}", *arguments)
            numbers: Iterable[int] = [number for (number,) in found]
        except _DamagedError:
            numbers = self._numbers(table, where, *arguments)
        query, left = f"SELECT {columns} FROM {table} WHERE rowid", iter(numbers)
        while some := [*islice(left, at_once)]:
            try:
                of_these = f" IN ({', '.join('?' * len(some))})"
                whole = rows(self.path, query + of_these, *some) if len(some) > 1 else None
            except (_TooLongError, _DamagedError):
                whole = None
            yield from self._one_by_one(table, query, some, spare) if whole is None else whole

    def _one_by_one(
        self, table: str, query: str, numbers: Iterable[int], spare: str
    ) -> Iterator[tuple[Any, ...]]:
        for number in numbers:
            try:
                yield from rows(self.path, f"{query} = ?", number)
            except _TooLongError:
                self.missed.add(TOO_LONG, LINE_BYTES)
            except _DamagedError:
                try:
                    if not spare:
                        raise
                    some = f"SELECT {spare} FROM {table} WHERE rowid = ?"
                    yield from rows(self.path, some, number)
                except _DamagedError:
                    self.missed.add(DAMAGED_ROWS, 0)

    def objects(
        self, table: str, wanted: Iterable[str], where: str, *arguments: str
    ) -> Iterator[dict[str, Any]]:
        """Yield rows, by the names of those of these columns that this version has."""
        names = columns_of(self.path, table, wanted)
        for row in self.rows(table, ", ".join(names), where, *arguments) if names else ():
            yield dict(zip(names, row, strict=True))

    def first(self, table: str, column: str, where: str, *arguments: str) -> Any:
        """Return a column of the first matching row; None if there is none."""
        return next((value for (value,) in self.rows(table, column, where, *arguments)), None)

    def _numbers(self, table: str, where: str, *arguments: str) -> Iterable[int]:
        """Return the numbers of the matching rows on pages that are not damaged, in their order."""
        which, _, order = where.partition(" ORDER BY ")
        query = f"SELECT rowid, ({which}), {order or 'rowid'} FROM {table} NOT INDEXED"
        query += " WHERE rowid >= ? ORDER BY rowid LIMIT ?"
        found: list[tuple[Any, ...]] = []
        first, chunk = _FIRST_ROW, CHUNK
        while first <= _LAST_ROW:
            try:
                part = rows(self.path, query, *arguments, first, chunk)
            except _DamagedError:
                if chunk > 1:
                    chunk //= 2
                    continue
                behind = self._behind(table, first)
                if first == _FIRST_ROW and behind > _LAST_ROW:
                    raise  # nothing of it can be read
                self.missed.add(DAMAGED_ROWS, 0)
                first = behind
                continue
            found += (row for row in part if row[1])
            if len(part) < chunk:
                break
            first, chunk = part[-1][0] + 1, min(2 * chunk, CHUNK)
        found.sort(key=lambda row: [(_RANKS.get(type(it), 0), it) for it in row[2:]])
        return [row[0] for row in found]

    def _behind(self, table: str, first: int) -> int:
        """Return the number from which a table can be read again, behind a damaged row or page."""
        if (found := self._next_row(table, first)) is not None:
            return found + 1  # what a query needs for this row is on a damaged page
        bad, step = first, 1
        while bad + step <= _LAST_ROW and self._next_row(table, bad + step) is None:
            bad, step = bad + step, 2 * step
        good = min(bad + step, _LAST_ROW + 1)
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._next_row(table, middle) is None:
                bad = middle
            else:
                good = middle
        return good

    def _next_row(self, table: str, number: int) -> int | None:
        """Return the number of the next row from this number on, _LAST_ROW if there is none; None
        if it is on a damaged page."""
        query = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid >= ? ORDER BY rowid LIMIT 1"
        try:
            found = rows(self.path, query, number)
        except _DamagedError:
            return None
        return int(found[0][0]) if found else _LAST_ROW


def row_by_id(path: Path, table: str, wanted: Iterable[str], row_id: str) -> dict[str, Any]:
    """Return a row as `AgentTables.objects`; empty if there is none with this id.

    Raises OSError if one of its values is too long.
    """
    tables = AgentTables(path, Missed())
    found = next(tables.objects(table, wanted, "id = ?", row_id), {})
    if tables.missed.counts[TOO_LONG]:
        raise OSError(EFBIG, "a session has too long a value", str(path))
    return found


_RANKS: Final = {int: 1, float: 1, str: 2, bytes: 3}
"""SQLite's order of types, after null."""


def _unreadable(error: Exception, path: Path) -> OSError:
    why = f"the database cannot be read: {error}"
    if isinstance(error, sqlite3.DataError):
        return _TooLongError(EFBIG, why, str(path))
    if isinstance(error, sqlite3.Error) and _code(error) in _DAMAGED:
        return _DamagedError(EIO, why, str(path))
    return OSError(EIO, why, str(path))


_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _open(path: Path) -> _CopiedDatabase:
    """Return an open connection, reused while nothing has changed; a large copy lasts longer."""
    for copied_path, copy, expires in _reused:
        if copied_path == path and monotonic() < expires:
            return copy
    began = monotonic()
    marks = [stamp(str(file)) for file in (path, *_companions(path))]
    found = _database_copy(str(path), tuple(marks))
    if marks[0][0] >= LARGE_BYTES and any(size for size, _, _ in marks[1:]):
        now = monotonic()
        _reused[:] = [(path, found, now + REUSE_FACTOR * (now - began))]
    return found


_reused: list[tuple[Path, _CopiedDatabase, float]] = []
"""The copy of a large database, and the time until which it is used in spite of changes."""


class _CopiedDatabase:
    """A database at one moment; the copy's folder is deleted once the copy is open."""

    def __init__(self, path: Path) -> None:
        for file in (path, *_companions(path)):
            if is_link_out(file, path.parent):
                raise link_out(file)
        os.close(open_fd(path))  # makes sure that it is a regular file
        if not any(stamp(str(file))[0] for file in _companions(path)):
            self._connection = _immutable(path)
        else:
            with tempfile.TemporaryDirectory(prefix="acphold-") as folder:
                needed = 2 * sum(stamp(str(file))[0] for file in (path, *_companions(path)))
                if shutil.disk_usage(folder).free < needed:
                    why = f"not enough disk space for a copy of it in {folder}"
                    raise OSError(ENOSPC, why, str(path))
                copy = _copy_whole(path, Path(folder, "copy.db"))
                with closing(sqlite3.connect(copy)) as connection:
                    connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                self._connection = _immutable(copy)
        connection = self._connection
        self._seconds_left = SECONDS + path.stat().st_size / SLOW_BYTES
        self._deadline = 0.0
        # Read what a broken program wrote as far as possible.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LINE_BYTES)
        connection.set_progress_handler(lambda: monotonic() > self._deadline, _STEPS)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        allowed = {name for (name,) in self.select(query)} | _MADE_BY_SQLITE

        def authorize(
            action: int, table: str | None, _: object, __: object, within: str | None
        ) -> int:
            is_other = action == sqlite3.SQLITE_READ and table not in allowed
            is_theirs = within not in (None, REPEATED)
            return sqlite3.SQLITE_DENY if is_theirs or is_other else sqlite3.SQLITE_OK

        connection.set_authorizer(authorize)

    def select(self, query: str, *arguments: str | int) -> list[tuple[Any, ...]]:
        """Return all rows of a query; raises sqlite3.Error."""
        began = monotonic()
        self._deadline = began + self._seconds_left
        try:
            found = self._connection.execute(query, arguments).fetchmany(ROWS + 1)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            if monotonic() <= self._deadline:
                # SQLite stops because our handler raised, which only a Ctrl-C can cause.
                raise KeyboardInterrupt from error
            raise sqlite3.OperationalError("reading it takes too long") from error
        finally:
            self._seconds_left -= monotonic() - began
        if len(found) > ROWS:
            raise sqlite3.OperationalError("the query returns too many rows")
        return found

    def __del__(self) -> None:
        if connection := getattr(self, "_connection", None):
            connection.close()


@lru_cache(maxsize=2)
def _database_copy(path: str, marks: tuple[Stamp, ...]) -> _CopiedDatabase:
    return _CopiedDatabase(Path(path))


def _immutable(path: Path) -> sqlite3.Connection:
    # It may be closed by whichever thread drops the last reference.
    return sqlite3.connect(
        f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
    )


def _copy_whole(path: Path, copy: Path) -> Path:
    for _ in range(ATTEMPTS):
        before, is_whole = stamp(str(path)), True
        _copy(path, copy)
        for file, ours in zip(_companions(path), _companions(copy), strict=True):
            try:
                _copy(file, ours)
                is_whole = is_whole and _head(file) == _head(ours)  # both belong to one log
            except FileNotFoundError:
                ours.unlink(missing_ok=True)  # its content was moved into the database
        if is_whole and stamp(str(path)) == before:
            return copy
    raise OSError(
        EBUSY, "it changes too often to be copied; close the program that uses it", str(path)
    )


def _copy(file: Path, copy: Path) -> None:
    with open(open_fd(file), "rb") as read, copy.open("wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in _COMPANIONS]


def _head(path: Path) -> bytes:
    with open(open_fd(path), "rb") as file:
        return file.read(_HEAD)
