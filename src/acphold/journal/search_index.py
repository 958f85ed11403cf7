"""The full-text index: what is settled is put in, what is deleted is taken out.

Each session has a number up to which it is in the index, `indexed_through`. It lags behind what is
settled: for moments after a turn, for longer after a large import, or after an update of acphold
that made the index anew. What lags is put in piece by piece, the newest sessions first. What agents
report of tokens is noted when a turn is settled; for turns that are older than that, here.

The functions may raise sqlite3 errors. Those with `alone` make transactions of their own, under the
lock that each connection of this process holds while it writes; the others run inside one of the
caller's.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from acphold.journal import segments, token_usage
from acphold.journal.entries import Segment
from acphold.journal.file import writing
from acphold.journal.migrations import SEQ_BITS
from acphold.journal.raw_update import storable
from acphold.journal.words import Document, document, indexable

PIECE_BYTES: Final = 512 << 10
"""How much history is read for one transaction (beyond one segment)."""

PURGE_PAGES: Final = 64
"""Pages of the index that one `purge` merges: some milliseconds."""

TIME_BITS: Final = 8
"""Bits of a time in ms that a document's number does without: it counts quarters of a second."""


class Indexed(NamedTuple):
    """A document of the index: the number and the time of its entry, and what that says."""

    seq: int
    at: int
    document: Document


def documents(found: Iterable[Segment]) -> list[Indexed]:
    """The entries of these segments that say something."""
    entries = (entry for segment in found for entry in segment.entries())
    return [Indexed(entry.seq, entry.at, said) for entry in entries if (said := document(entry))]


def index_piece(connection: sqlite3.Connection, session: int, alone: threading.Lock) -> bool:
    """Put the next piece of a session in; False when there was nothing left to put in."""
    behind = _lag(connection, session)
    if behind is None:
        return False
    indexed, settled = behind
    found = segments.read(connection, session, indexed, PIECE_BYTES, settled)
    news, usage = documents(found), token_usage.reports(found)
    through = found[-1].last_seq if found else settled
    with alone, writing(connection):
        # Another process may have been quicker, or the session was deleted.
        if _lag(connection, session) == behind:
            _insert(connection, session, news)
            token_usage.keep(connection, session, usage)
            connection.execute(
                "UPDATE sessions SET indexed_through = ? WHERE number = ?", (through, session)
            )
    return True


def _lag(connection: sqlite3.Connection, session: int) -> tuple[int, int] | None:
    """How far a session is indexed and settled; None when the index has all of it."""
    row = connection.execute(
        "SELECT indexed_through, settled_through FROM sessions"
        " WHERE number = ? AND indexed_through < settled_through",
        (session,),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def newest_lagging(connection: sqlite3.Connection, since: int = 0) -> int | None:
    """The session to go on with: the newest that the index lacks a part of, if it is as new as
    `since` (ms since the epoch)."""
    row = connection.execute(
        "SELECT number FROM sessions WHERE indexed_through < settled_through AND updated_at >= ?"
        " ORDER BY updated_at DESC LIMIT 1",
        (since,),
    ).fetchone()
    return None if row is None else int(row[0])


def lagging(connection: sqlite3.Connection) -> int:
    """How many sessions the index lacks a part of."""
    (count,) = connection.execute(
        "SELECT count(*) FROM sessions WHERE indexed_through < settled_through"
    ).fetchone()
    return int(count)


def _insert(connection: sqlite3.Connection, session: int, news: Iterable[Indexed]) -> None:
    last = -1
    for seq, at, said in news:
        # In the order of the session, whatever the clock did; FTS5 takes rising numbers best.
        last = _free_number(connection, max(at >> TIME_BITS, last + 1, 0))
        is_new = connection.execute(
            "INSERT OR IGNORE INTO documents (number, entry) VALUES (?, ?)",
            (last, session << SEQ_BITS | seq),
        ).rowcount
        if is_new:
            connection.execute(
                "INSERT INTO words (rowid, messages, tools, diffs) VALUES (?, ?, ?, ?)",
                (last, *columns(said)),
            )


def _free_number(connection: sqlite3.Connection, wanted: int) -> int:
    """The number `wanted`, or one right behind those that are taken there."""
    # In growing steps, for many entries may be of one moment, in an import without times ten
    # thousand; then back to what is taken, for a number stands for a time: none is left out.
    taken, step = wanted - 1, 1
    while _is_taken(connection, wanted):
        taken = wanted
        wanted += step
        step *= 2
    while wanted - taken > 1:
        middle = (taken + wanted) // 2
        if _is_taken(connection, middle):
            taken = middle
        else:
            wanted = middle
    return wanted


def _is_taken(connection: sqlite3.Connection, number: int) -> bool:
    found = connection.execute("SELECT 1 FROM documents WHERE number = ?", (number,))
    return found.fetchone() is not None


def columns(said: Document) -> tuple[str, str, str]:
    """The texts of a document as the tokenizer gets them, by column."""
    return (
        storable(indexable(said.messages)),
        storable(indexable(said.tools)),
        storable(indexable(said.diffs)),
    )


# -- taking out -------------------------------------------------------------------------------


def unindex(connection: sqlite3.Connection, session: int, found: Iterable[Indexed]) -> None:
    """Take documents out; those that are not in are passed over."""
    for seq, _, said in found:
        row = connection.execute(
            "SELECT number FROM documents WHERE entry = ?", (session << SEQ_BITS | seq,)
        ).fetchone()
        if row is not None:
            connection.execute(
                "INSERT INTO words (words, rowid, messages, tools, diffs)"
                " VALUES ('delete', ?, ?, ?, ?)",
                (row[0], *columns(said)),
            )
            connection.execute("DELETE FROM documents WHERE number = ?", row)


def purge(connection: sqlite3.Connection) -> bool:
    """Drop some of what was taken out from the index's pages; whether there may be more.

    FTS5 marks a document as gone and keeps its words until it merges the pages they are in.
    """
    before = connection.total_changes
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (-PURGE_PAGES,))
    return connection.total_changes - before > 1


def empty(connection: sqlite3.Connection) -> None:
    """Forget all of the index; it is made anew by and by.

    What is known of tokens stays: compaction has left only the last of some reports.
    """
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    connection.execute("DELETE FROM documents")
    connection.execute("UPDATE sessions SET indexed_through = 0 WHERE indexed_through > 0")
