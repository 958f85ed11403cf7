"""The journal's tables, and the way of an earlier release's journal to them.

A table or a column that it lacks is made, with the column's default, a constant; the others stay as
they are. So no column ever changes once a file may have it. `PRAGMA user_version` is the version of
a journal; each change of the tables raises it, and a test makes sure of that.

Only a process that is about to write does that, and only while nobody owns a session in the
journal: an owner of an earlier release could not go on. Everybody else reads the journal as it is;
`complete` adds what it lacks.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from acphold import journal_location
from acphold.errors import NotAJournalError
from acphold.journal.sql.schema import SchemaWords, common_tables, session_columns

SEQ_BITS: Final = 32
"""Bits of a segment's key that hold `last_seq`; the bits above are the session's number."""

SEQ_MASK: Final = (1 << SEQ_BITS) - 1
"""A mask of these bits."""

_CHANGED_ROW: Final = (
    "INSERT OR REPLACE INTO changes"
    " VALUES ({}.session_id, (SELECT coalesce(max(revision), 0) + 1 FROM changes))"
)

NOTED: Final = (
    "INSERT OR REPLACE INTO access_changes (kind, subject, changed)"
    " VALUES ({}, {}, (SELECT coalesce(max(changed), 0) + 1 FROM access_changes))"
)
"""Notes a kind and a subject in the log of changes."""

_TENANT: Final = "'tenant'"

_WORDS: Final = SchemaWords(
    schema="",
    text="TEXT",
    name="TEXT",
    integer="INTEGER",
    small="INTEGER",
    real="REAL",
    blob="BLOB",
    no_blob="x''",
    flag="INTEGER",
    no="0",
    serial="INTEGER",
    session="session INTEGER",
    key="session",
    clustered=" WITHOUT ROWID",
)

TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "INSERT OR IGNORE INTO meta VALUES ('cursor_secret', randomblob(32))",
    # The epoch of the newest lease.
    "INSERT OR IGNORE INTO meta VALUES ('epoch', 0)",
    # AUTOINCREMENT: the number of a deleted session never comes back, so a lease or a search
    # row that outlives it can never mean another one.
    f"""CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL UNIQUE,
        {", ".join(session_columns(_WORDS))}
    )""",
    # The last change or removal of each session's row, numbered in order: a follower of the list
    # reads only what is new, however long the list is.
    "CREATE TABLE changes (session_id TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE UNIQUE INDEX changed ON changes (revision)",
    f"CREATE TRIGGER row_added AFTER INSERT ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted,"
    " message_count, archived, origins, unread, unseen, queued, held, held_until, moved, ruled,"
    f" meta, tags, pins, by_program ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
    f"CREATE TRIGGER row_removed AFTER DELETE ON sessions BEGIN {_CHANGED_ROW.format('old')}; END",
    # The processes that own sessions. Locks on files show which of them live: see owner_files.
    # `renewed_at` is from the machine's clock since its start; anybody may take the sessions
    # of a `retired` owner.
    """CREATE TABLE owners (
        id TEXT PRIMARY KEY,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        addresses TEXT NOT NULL,
        renewed_at INTEGER NOT NULL,
        retired INTEGER NOT NULL
    ) WITHOUT ROWID""",
    # The key is the session's number above 32 bits of last_seq. As the rowid it makes this one
    # b-tree, clustered by session: an append touches one page and no index, a replay reads pages
    # in order, and the place of any seq is found by one search.
    # `kind` has no type: a number for the kinds that session_rows knows, else the kind's name.
    """CREATE TABLE segments (
        key INTEGER PRIMARY KEY,
        first_seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind NOT NULL,
        raw BLOB NOT NULL
    )""",
    # The summary of a session at `settled_through`: opening one folds only what came after it.
    # With its CRC-32: after a bit flip on the disk it may still be readable, but wrong.
    "CREATE TABLE summaries (session INTEGER PRIMARY KEY, summary BLOB NOT NULL, checksum INTEGER)",
    # Deleted sessions that still have rows in segments and words; the tenant's word is needed to
    # take their documents out.
    "CREATE TABLE deleted (session INTEGER PRIMARY KEY, tenant TEXT NOT NULL DEFAULT '')",
    # session NULL: a tombstone. The highest number is the newest link of a session.
    """CREATE TABLE links (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        agent TEXT NOT NULL,
        downstream_id TEXT NOT NULL,
        session INTEGER,
        UNIQUE (agent, downstream_id)
    )""",
    # The index of words is in volumes, tables words_1, words_2 …: see journal.sqlite.search_index.
    # `size` counts the characters that were put in, `newest` is the highest number of a document;
    # an `untidy` volume has to be merged. `tenants` is a JSON array of those that have, or had, a
    # document in it; '' if they are unknown, or many.
    """CREATE TABLE volumes (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        size INTEGER NOT NULL DEFAULT 0,
        documents INTEGER NOT NULL DEFAULT 0,
        newest INTEGER NOT NULL DEFAULT 0,
        untidy INTEGER NOT NULL DEFAULT 0,
        tenants TEXT NOT NULL DEFAULT ''
    )""",
    # A document is one entry, by session number and seq. Its number is its time in quarters of a
    # second, or the next one that is free: walking the numbers backwards gives the newest first,
    # also of what was imported later, and a span of time is a range of them. Coarser than the
    # clock, so that the differences between numbers, which the index keeps for every word, take a
    # byte and not three.
    """CREATE TABLE documents (
        number INTEGER PRIMARY KEY,
        entry INTEGER NOT NULL UNIQUE,
        volume INTEGER NOT NULL
    )""",
    # What has changed in tokens and shares, the last time for each, numbered in order; `at` is in
    # ms since the epoch.
    """CREATE TABLE access_changes (
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        changed INTEGER NOT NULL,
        at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER) * 1000),
        PRIMARY KEY (kind, subject)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX access_changed ON access_changes (changed)",
    # Sums of usage of the sessions with these numbers: see journal.sql.usage_blocks.
    """CREATE TABLE usage_blocks (
        highest INTEGER PRIMARY KEY,
        lowest INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        by_agent BLOB NOT NULL,
        by_day BLOB NOT NULL,
        by_folder BLOB NOT NULL,
        by_model BLOB NOT NULL
    )""",
    "CREATE TRIGGER block_ended AFTER DELETE ON sessions BEGIN DELETE FROM usage_blocks"
    " WHERE highest = (SELECT min(highest) FROM usage_blocks WHERE highest >= old.number)"
    " AND lowest <= old.number; END",
    # The texts of the same sessions: see journal.sqlite.row_texts.
    "CREATE TABLE row_texts (highest INTEGER PRIMARY KEY, texts BLOB NOT NULL)",
    "CREATE TRIGGER texts_ended AFTER DELETE ON usage_blocks BEGIN"
    " DELETE FROM row_texts WHERE highest = old.highest; END",
    *common_tables(_WORDS),
    # Sessions that another agent had before. No column of it changes in a turn, which costs nothing
    # more therefore.
    "CREATE INDEX handed_on ON sessions (agent) WHERE origins <> '[]'",
    # A new or ended share is a change for followers of the list.
    f"CREATE TRIGGER share_added AFTER INSERT ON shares BEGIN {_CHANGED_ROW.format('new')}; END",
    f"CREATE TRIGGER share_ended AFTER DELETE ON shares BEGIN {_CHANGED_ROW.format('old')}; END",
    "CREATE TRIGGER share_lost AFTER DELETE ON shares BEGIN"
    f" {NOTED.format(_TENANT, 'old.tenant')}; END",
    "CREATE TRIGGER shared_row_removed BEFORE DELETE ON sessions BEGIN"
    " DELETE FROM shares WHERE session_id = old.session_id; END",
)

_CREATE: Final = re.compile("^CREATE (UNIQUE )?(TABLE|INDEX|TRIGGER)")

FIRST: Final = 36
"""The lowest version of a release."""

VERSION: Final = 36
"""The version of journals that this release writes."""


def migrate(
    connection: sqlite3.Connection,
    path: str,
    refuse_owned: Callable[[], None] = lambda: None,
    renew_titles: Callable[[], None] = lambda: None,
) -> None:
    """Bring the journal to VERSION, all of it in one transaction.

    `refuse_owned` is called before that if the journal has content, in the transaction, and raises
    if somebody owns a session there; `renew_titles` at its end. Raises NewerJournalError,
    JournalUnavailableError if it is too old, and the sqlite3 errors of a locked, full or damaged
    file.
    """
    while (version := version_of(connection)) < VERSION:
        if version:
            journal_location.refuse_older(version, FIRST, path)
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have done it while we waited for the lock.
            if version_of(connection) == version:
                if version:
                    refuse_owned()
                    for table, sql, columns in _lacks(connection):
                        for name, type, default in columns if sql is None else ():
                            column = f"{name} {type} NOT NULL DEFAULT {default}"
                            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
                    # It is made again, with other columns.
                    connection.execute("DROP TRIGGER IF EXISTS row_changed")
                for statement in TABLES:
                    if version:
                        statement = _CREATE.sub(r"\g<0> IF NOT EXISTS", statement)
                    connection.execute(statement)
                if version:
                    renew_titles()
                # An older release that holds a lease must not write its rows to the new tables.
                connection.execute("UPDATE leases SET epoch = 0")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            # A full disk ends the transaction by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    refuse_newer(version, path)


def _lacks(
    connection: sqlite3.Connection,
) -> Iterator[tuple[str, str | None, list[tuple[str, str, str]]]]:
    """Yield each table that a journal lacks, wholly or in part: its name, the statement that makes
    it, None if only columns are missing, and these with their types and defaults."""
    with closing(sqlite3.connect(":memory:")) as ours:
        for statement in TABLES:
            ours.execute(statement)
        tables = ours.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for table, sql in tables:
            there = {column[1] for column in connection.execute(f"PRAGMA main.table_info({table})")}
            missing = [
                (name, type, default)
                for _, name, type, _, default, _ in ours.execute(f"PRAGMA table_info({table})")
                if name not in there
            ]
            if missing:
                yield table, None if there else sql, missing


def refuse_newer(version: int, path: str) -> None:
    """Raise NewerJournalError if this version of a journal is newer than this release."""
    journal_location.refuse_newer(version, VERSION, path)


_WATCHED: Final = re.compile(" OF [a-z_, ]+ ON ")
"""The columns at whose change a trigger acts; fewer in an earlier release."""


def refuse_altered(connection: sqlite3.Connection, path: str) -> None:
    """Raise NotAJournalError if the file has triggers or views that no release has made: a file
    from elsewhere would have them act on what is written, or hang who reads. NewerJournalError for
    those of a newer release.

    Source: sqlite.org, Defense Against The Dark Arts.
    """
    version = version_of(connection)
    refuse_newer(version, path)
    is_older = version < VERSION
    made = {*TABLES, *(_WATCHED.sub(" ON ", it) for it in TABLES if is_older)}
    # Not by the names of the two: SQLite takes a TRIGGER for a trigger, too, and one with more
    # behind a NUL.
    for kind, name, sql in connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE type <> 'table' AND type <> 'index'"
    ):
        text = sql if isinstance(sql, str) else ""
        if not made & {text, _WATCHED.sub(" ON ", text)}:
            what = "view" if kind == "view" else "trigger"
            raise NotAJournalError(
                f"the journal {path} has a {what} that acphold has not made, {name!r}; remove it "
                f"if it is yours, or name another journal ({journal_location.NAMED_BY})"
            )


def complete(connection: sqlite3.Connection, path: str) -> int:
    """Let this connection read a journal of an earlier release as one of this release: the tables
    and columns that it lacks are there, for this connection alone, with no rows and with their
    defaults. Return the version of the journal, 0 if it is of this release.

    After that the connection changes nothing. Raises NewerJournalError, and JournalUnavailableError
    if the journal is too old.
    """
    version = version_of(connection)
    refuse_newer(version, path)
    if version == VERSION:
        return 0
    journal_location.refuse_older(version, FIRST, path)
    for table, sql, columns in _lacks(connection):
        if sql is not None:
            connection.execute(sql.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
        else:
            missing = "".join(f", {default} AS {name}" for name, _, default in columns)
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *{missing} FROM main.{table}")
    connection.execute("PRAGMA query_only = ON")
    return version


def refuse_newer_by_now(connection: sqlite3.Connection, path: str) -> int:
    """Raise NewerJournalError if a newer release has upgraded an open journal; return its
    version."""
    version = version_of(connection)
    journal_location.refuse_newer_by_now(version, VERSION, path)
    return version


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a journal; 0 of an empty file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
