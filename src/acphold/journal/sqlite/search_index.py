"""The full-text index: settled entries are put in, deleted ones taken out.

Each session has a number up to which it is indexed, `indexed_through`. It lags behind the settled
entries: for moments after a turn, for longer after a large import, or after an update of acphold
that changed the index. Lagging sessions are indexed piece by piece, the newest first.

FTS5 only marks what is taken out, and keeps its words until it merges the whole index. So the index
is in *volumes* of some megabytes, each an FTS5 table of its own: `words_1`, `words_2` …. Documents
go into the last one; when it is full, another begins. A volume that is full, or that something was
taken out of, is *untidy* until it is merged into one part, which takes a twentieth of a second,
however large the journal is.

Beside its text, each document has words that nobody can type, in a column of their own: one for its
session, and one for its tenant. With these, a search limited to a session or a tenant skips the
documents of all others.

The functions may raise sqlite3 errors. Those with a Connection make transactions of their own; the
others run inside one of the caller. The iterators do one piece of their work, which is one
transaction, for each step.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import json

from acp_wire.schema.splice import json_value
from acphold.conversation.history.entries import Segment
from acphold.conversation.history.words import document
from acphold.journal import bounds
from acphold.journal.hits import TOKENIZER, columns
from acphold.journal.sql.entry_rows import index_lags, not_indexed, note_indexed
from acphold.journal.sqlite.connection import Connection, is_busy, writing
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stored_history import DamagedRowError

RANK: Final = "bm25(1.0, 1.0, 1.0, 0.0)"
"""The ranking of documents: by their texts, not by the words for session and tenant."""

TIME_BITS: Final = 8
"""Low bits of a time in ms that a document's number drops: it counts quarters of a second."""


class Indexed(NamedTuple):
    """A document of the index: the number and the time of its entry, and its texts by column."""

    seq: int
    at: int
    texts: tuple[str, str, str]


def of_session(number: int) -> str:
    """The word for a session. It begins with a private-use character, which the tokenizer takes for
    a letter."""
    return f"\ue000{number:x}"


def of_tenant(tenant: str) -> str:
    """The word for a tenant."""
    return f"\ue001{tenant.encode(errors='surrogatepass').hex()}"


def documents(found: Iterable[Segment]) -> list[Indexed]:
    """The entries of these segments that contain text, as documents."""
    entries = (entry for segment in found for entry in segment.entries())
    return [
        Indexed(entry.seq, entry.at, columns(words))
        for entry in entries
        if (words := document(entry))
    ]


# -- putting in -------------------------------------------------------------------------------


def index(connection: Connection, session: int | None = None, since: int = 0) -> Iterator[None]:
    """Index the missing entries of a session, or of all sessions, the newest first.

    Skips sessions last active before `since` (ms since the epoch). Then tidies the index.
    """
    tables = SqliteTables(connection)
    while lags := index_lags(tables, session, since, bounds.INDEXED_SESSIONS):
        parts = deque(_parts(connection, lags))
        last: dict[int, int] = {}
        while parts:
            with writing(connection):
                news: list[_News] = []
                size = 0
                for part in connection.while_there_is_time(parts):
                    its = part.session, part.after, part.through
                    if (tenant := note_indexed(tables, *its)) is not None:
                        news += [(part.session, tenant, document) for document in part.documents]
                    size += part.size
                    if size >= bounds.INDEXED_CHARACTERS:
                        break
                put(connection, news, last)
            yield
        yield from tidy(connection)
    yield from tidy(connection)


class _Part(NamedTuple):
    """The entries of a session after `after`, up to `through`."""

    session: int
    after: int
    through: int
    documents: list[Indexed]

    @property
    def size(self) -> int:
        """Characters of its texts."""
        return sum(len(text) for document in self.documents for text in document.texts)


def _parts(connection: Connection, lags: Iterable[tuple[int, int, int]]) -> Iterator[_Part]:
    """Yield about `PIECE_BYTES` of the missing entries of these sessions, each given as its number,
    how far it is indexed, and how far it is settled."""
    left = bounds.PIECE_BYTES
    for session, indexed, settled in lags:
        if left <= 0:
            return
        found, end = not_indexed(SqliteTables(connection), session, indexed, settled, left)
        if not found:
            yield _Part(session, indexed, end, [])
        waiting = deque(found)
        after = indexed
        while waiting:
            some: list[Segment] = []
            size = 0
            while waiting and size < bounds.PART_BYTES:
                some.append(waiting.popleft())
                size += len(some[-1].raw)
            left -= size
            through = some[-1].last_seq
            yield _Part(session, after, through, documents(some))
            after = through


_News = tuple[int, str, Indexed]
"""The number of a session, its tenant, and a document of it."""


def put(connection: sqlite3.Connection, news: Iterable[_News], last: dict[int, int]) -> None:
    """Add documents; `last` maps sessions to the number of their last document, and is updated."""
    volume, known = _open_volume(connection)
    rows: list[tuple[int, str, str, str, str]] = []
    tenants: set[str] = set()
    for session, tenant, (seq, at, texts) in news:
        # In the order of the session, even if the clock was set back.
        number = _free_number(connection, max(at >> TIME_BITS, last.get(session, -1) + 1, 0))
        is_new = connection.execute(
            "INSERT OR IGNORE INTO documents (number, entry, volume) VALUES (?, ?, ?)",
            (number, session << SEQ_BITS | seq, volume),
        ).rowcount
        if is_new:
            rows.append((number, *texts, _whose(session, tenant)))
            tenants.add(tenant)
        last[session] = number
    if not rows:
        return
    size = sum(len(text) for row in rows for text in row[1:4])
    rows.sort()  # FTS5 starts another part of the index at each number lower than the one before
    connection.executemany(
        f"INSERT INTO words_{volume} (rowid, messages, tools, diffs, whose) VALUES (?, ?, ?, ?, ?)",
        rows,
    )
    connection.execute(
        "UPDATE volumes SET size = size + ?1, documents = documents + ?2, newest = max(newest, ?3),"
        # A search looks through each part, so one that is full now becomes one part.
        " tenants = ?4, untidy = untidy OR size + ?1 >= ?5 WHERE number = ?6",
        (
            *(size, len(rows), rows[-1][0], _with_tenants(known, tenants)),
            *(bounds.VOLUME_CHARACTERS, volume),
        ),
    )


def _with_tenants(known: str, more: set[str]) -> str:
    """The column `tenants` of a volume that gets documents of some more."""
    if (before := json_value(known.encode(), list[str])) is None:
        return ""
    if more <= {*before}:
        return known
    both = sorted({*before} | more)
    return json.encode(both).decode() if len(both) <= bounds.VOLUME_TENANTS else ""


def _whose(session: int, tenant: str) -> str:
    """The words for the session and tenant of a document."""
    return f"{of_session(session)} {of_tenant(tenant)}" if tenant else of_session(session)


def _open_volume(connection: sqlite3.Connection) -> tuple[int, str]:
    """The number of the volume to which documents are added, and its tenants."""
    row = connection.execute(
        "SELECT number, size, tenants FROM volumes ORDER BY number DESC LIMIT 1"
    ).fetchone()
    if row is not None and row[1] < bounds.VOLUME_CHARACTERS:
        return int(row[0]), str(row[2])
    number = connection.execute("INSERT INTO volumes (tenants) VALUES ('[]')").lastrowid
    assert number is not None
    name = f"words_{number}"
    form = f"messages, tools, diffs, whose, content = '', {TOKENIZER}"
    connection.execute(f"CREATE VIRTUAL TABLE {name} USING fts5 ({form})")
    # `tidy` does all merging: FTS5 itself would do it in the transaction that adds documents.
    for setting, value in (
        ("automerge", 0),
        ("crisismerge", 1000),
        ("usermerge", bounds.VOLUME_PARTS),
    ):
        connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES (?, ?)", (setting, value))
    connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('rank', ?)", (RANK,))
    return number, "[]"


def _free_number(connection: sqlite3.Connection, wanted: int) -> int:
    """The number `wanted`, or the next free one."""

    def is_free(number: int) -> bool:
        found = connection.execute("SELECT 1 FROM documents WHERE number = ?", (number,))
        return found.fetchone() is None

    # Search in growing steps: many entries may have the same time, ten thousand in an import
    # without times. Then search back for the first free one: a number stands for a time, so none
    # is skipped.
    taken, step = wanted - 1, 1
    while not is_free(wanted):
        taken = wanted
        wanted += step
        step *= 2
    return bisect_left(range(taken + 1, wanted), True, key=is_free) + taken + 1


# -- taking out -------------------------------------------------------------------------------


def unindex(
    connection: sqlite3.Connection, session: int, tenant: str, found: Iterable[Indexed]
) -> None:
    """Take documents out of the index; those that are not in it are skipped."""
    taken: Counter[int] = Counter()
    for seq, _, texts in found:
        row = connection.execute(
            "SELECT number, volume FROM documents WHERE entry = ?", (session << SEQ_BITS | seq,)
        ).fetchone()
        if row is not None:
            number, volume = row
            connection.execute(
                f"INSERT INTO words_{volume} (words_{volume}, rowid, messages, tools, diffs, whose)"
                " VALUES ('delete', ?, ?, ?, ?, ?)",
                (number, *texts, _whose(session, tenant)),
            )
            connection.execute("DELETE FROM documents WHERE number = ?", (number,))
            taken[volume] += 1
    _take_off(connection, [(count, volume) for volume, count in taken.items()])


def volumes_of(connection: sqlite3.Connection, session: int) -> set[int]:
    """The volumes with documents of a session."""
    rows = connection.execute(
        "SELECT DISTINCT volume FROM documents WHERE entry BETWEEN ? AND ?", _entries(session)
    )
    return {volume for (volume,) in rows}


def volumes_of_these_alone(connection: sqlite3.Connection, sessions: Iterable[int]) -> set[int]:
    """The full volumes whose documents all belong to these sessions."""
    counts: Counter[int] = Counter()
    for session in sessions:
        rows = connection.execute(
            "SELECT volume, count(*) FROM documents WHERE entry BETWEEN ? AND ? GROUP BY volume",
            _entries(session),
        )
        for volume, count in rows:
            counts[volume] += count
    full = connection.execute(
        "SELECT number, documents FROM volumes WHERE number < (SELECT max(number) FROM volumes)"
    )
    return {number for number, documents in full if counts[number] == documents}


def strike_out(connection: sqlite3.Connection, session: int, through: int) -> None:
    """Forget the documents of a session up to an entry; their words stay, until a volume
    goes."""
    entries = (session << SEQ_BITS, session << SEQ_BITS | through)
    counts = connection.execute(
        "SELECT count(*), volume FROM documents WHERE entry BETWEEN ? AND ? GROUP BY volume",
        entries,
    ).fetchall()
    connection.execute("DELETE FROM documents WHERE entry BETWEEN ? AND ?", entries)
    _take_off(connection, counts)


def _entries(session: int) -> tuple[int, int]:
    """The lowest and the highest number that `documents` can have for an entry of a session."""
    return session << SEQ_BITS, session << SEQ_BITS | SEQ_MASK


def _take_off(connection: sqlite3.Connection, counts: Iterable[tuple[int, int]]) -> None:
    """Subtract documents from the counts of volumes, and mark these as untidy."""
    connection.executemany(
        "UPDATE volumes SET documents = documents - ?, untidy = 1 WHERE number = ?", counts
    )


def untidy(connection: sqlite3.Connection) -> int:
    """The number of volumes that still have words of documents taken out."""
    (count,) = connection.execute("SELECT count(*) FROM volumes WHERE untidy").fetchone()
    return int(count)


def tidy(connection: Connection) -> Iterator[None]:
    """Merge each untidy volume into one part, without removed documents; drop empty volumes.

    In the last volume, which still grows, some parts are merged once there are many.
    """
    while untidy(connection):
        with writing(connection):
            row = connection.execute(
                "SELECT number, documents, size >= ? OR number < (SELECT max(number) FROM volumes)"
                " FROM volumes WHERE untidy LIMIT 1",
                (bounds.VOLUME_CHARACTERS,),
            ).fetchone()
            if row is None:
                return  # another process was quicker
            number, count, is_closed = row
            if is_closed and not count:
                _drop(connection, number)
            elif not _merge(connection, number, -bounds.MERGED_PAGES):
                connection.execute("UPDATE volumes SET untidy = 0 WHERE number = ?", (number,))
        yield
    yield from join_parts(connection)


def join_parts(connection: Connection) -> Iterator[None]:
    """Merge some of the parts of each volume that has `VOLUME_PARTS` of about one size.

    Covers untidy volumes and the last one. Merging pages takes longer the more parts they come
    from: after a sweep that left hundreds, each step would take a twentieth of a second.
    """
    waiting = deque(
        connection.execute(
            "SELECT number FROM volumes WHERE untidy UNION"
            " SELECT max(number) FROM volumes HAVING count(*) > 0"
        ).fetchall()
    )
    while waiting:
        with writing(connection):
            for row in connection.while_there_is_time(waiting):
                (number,) = row
                is_there = connection.execute("SELECT 1 FROM volumes WHERE number = ?", row)
                # Unless another process has dropped it.
                if is_there.fetchone() and _merge(connection, number, bounds.MERGED_PAGES):
                    waiting.append(row)
        yield


def _merge(connection: Connection, volume: int, pages: int) -> bool:
    """Merge `pages` pages, as often as there is time; a negative number merges all parts into one.
    False if nothing was left to do."""
    name = f"words_{volume}"
    for _ in range(bounds.MERGE_STEPS):
        before = connection.total_changes
        connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('merge', ?)", (pages,))
        # Source: sqlite.org, FTS5, "The 'merge' Command".
        if connection.total_changes - before <= 1:
            return False
        if not connection.has_time():
            break
    return True


def _drop(connection: Connection, volume: int) -> None:
    """Drop the table of a volume, inside a transaction."""
    connection.execute("DELETE FROM volumes WHERE number = ?", (volume,))
    connection.execute(f"DROP TABLE IF EXISTS words_{volume}")


# -- mending ----------------------------------------------------------------------------------


def volumes(connection: Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM volumes")]


def forget(
    connection: Connection, spoiled: Collection[int], lacking: Iterable[int] = ()
) -> Iterator[int]:
    """Drop these volumes, in pieces of work; yield for each how many sessions have to be indexed
    again: these, and those with documents in a volume."""
    these = f"volume IN ({', '.join(map(str, spoiled))})"
    again = {*lacking}
    if spoiled:
        with writing(connection):  # from now on others add to new ones
            full = (bounds.VOLUME_CHARACTERS,)
            connection.execute("UPDATE volumes SET size = max(size, ?)", full)
        rows = connection.execute(
            f"SELECT DISTINCT entry >> {SEQ_BITS} FROM documents WHERE {these}"
        )
        again.update(session for (session,) in rows)
    waiting = deque(sorted(again))
    while left := len(waiting):
        with writing(connection):
            for session in connection.while_there_is_time(waiting):
                connection.execute(
                    f"DELETE FROM documents WHERE entry BETWEEN ? AND ? AND {these}",
                    _entries(session),
                )
                connection.execute(
                    "UPDATE sessions SET indexed_through = 0 WHERE number = ?", (session,)
                )
        yield left - len(waiting)
    for number in spoiled:
        with writing(connection):
            _drop(connection, number)
        yield 0


def mend(connection: Connection) -> int:
    """Drop volumes that are damaged or have documents that they should not; return the number of
    sessions that have to be indexed again."""
    spoiled = {number for number in volumes(connection) if not _is_whole(connection, number)}
    lacking: set[int] = set()
    for (session,) in connection.execute("SELECT number FROM sessions").fetchall():
        found = _documents_of(connection, session)
        if (wanted := _wanted(connection, session)) is not None:
            spoiled.update(volume for seq, volume in found.items() if seq not in wanted)
            if not wanted <= found.keys():
                lacking.add(session)
    return sum(forget(connection, spoiled, lacking))


def _is_whole(connection: Connection, volume: int) -> bool:
    """True if a volume is intact, and has words of those documents alone that are in it."""
    name = f"words_{volume}"
    numbers = f"SELECT number FROM documents WHERE volume = {volume}"
    held = f"SELECT id FROM {name}_docsize"
    try:
        with writing(connection):  # it counts as writing, and writes nothing
            connection.execute(f"INSERT INTO {name} ({name}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        if is_busy(error):
            raise
        return False
    differing = connection.execute(
        f"SELECT EXISTS ({numbers} EXCEPT {held}) OR EXISTS ({held} EXCEPT {numbers})"
    )
    return not differing.fetchone()[0]


def _documents_of(connection: Connection, session: int) -> dict[int, int]:
    """The entries of a session that are documents of the index, each with its volume."""
    rows = connection.execute(
        "SELECT entry, volume FROM documents WHERE entry BETWEEN ? AND ?", _entries(session)
    )
    return {entry & SEQ_MASK: volume for entry, volume in rows}


def _wanted(connection: Connection, session: int) -> set[int] | None:
    """The entries of a session that should be documents of the index; None if it is gone, or
    cannot be read."""
    row = connection.execute("SELECT indexed_through FROM sessions WHERE number = ?", (session,))
    if (found := row.fetchone()) is None:
        return None
    wanted: set[int] = set()
    after = 0
    rows = SqliteTables(connection).segments(session)
    try:
        while segments := rows.read(after, bounds.READ_BYTES, found[0]):
            wanted.update(document.seq for document in documents(segments))
            after = segments[-1].last_seq
    except DamagedRowError:
        return None
    return wanted
