"""The journal's tables, as numbered steps that lead from an empty file to this release.

A step is never edited once a file may have been through it, and a test makes sure of that: any
change is a new step at the end. `PRAGMA user_version` is the number of steps a file has been
through.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from acphold.errors import ReadOnlyJournalError
from acphold.journal import versions
from acphold.journal.words_in_memory import TOKENIZER

SEQ_BITS: Final = 32
"""Bits of a segment's key that hold `last_seq`; the bits above are the session's number."""

SEQ_MASK: Final = (1 << SEQ_BITS) - 1
"""A mask of these bits."""

_TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('cursor_secret', randomblob(32))",
    # The epoch of the newest lease.
    "INSERT INTO meta VALUES ('epoch', 0)",
    # AUTOINCREMENT: the number of a deleted session never comes back, so a lease or a search
    # row that outlives it can never mean another one.
    """CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        cwd TEXT NOT NULL,
        folder TEXT NOT NULL,
        additional_directories TEXT NOT NULL,
        title TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        prompted INTEGER NOT NULL DEFAULT 0,
        message_count INTEGER NOT NULL DEFAULT 0,
        settled_through INTEGER NOT NULL DEFAULT 0
    )""",
    # `cwd` is as the client wrote it, `folder` is its canonical path, for comparisons.
    # An index for each filter of the list, so that any page is one walk along it.
    "CREATE INDEX listed ON sessions (prompted, updated_at, session_id)",
    "CREATE INDEX listed_agent ON sessions (agent, prompted, updated_at, session_id)",
    "CREATE INDEX listed_folder ON sessions (folder, prompted, updated_at, session_id)",
    "CREATE INDEX listed_both ON sessions (agent, folder, prompted, updated_at, session_id)",
    """CREATE TABLE leases (
        session INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    )""",
    # The key is the session's number above 32 bits of last_seq. As the rowid it makes this one
    # b-tree, clustered by session: an append touches one page and no index, a replay reads pages
    # in order, and the place of any seq is found by one search.
    # `kind` has no type: a number for the kinds that journal.segments knows, else the kind's name.
    """CREATE TABLE segments (
        key INTEGER PRIMARY KEY,
        first_seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind NOT NULL,
        raw BLOB NOT NULL
    )""",
    # The summary of a session at `settled_through`: opening one folds only what came behind it.
    "CREATE TABLE summaries (session INTEGER PRIMARY KEY, summary BLOB NOT NULL)",
    # Deleted sessions that still have rows in segments and words.
    "CREATE TABLE deleted (session INTEGER PRIMARY KEY)",
    # session NULL: a tombstone. The highest number is the newest link of a session.
    """CREATE TABLE links (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        agent TEXT NOT NULL,
        downstream_id TEXT NOT NULL,
        session INTEGER,
        UNIQUE (agent, downstream_id)
    )""",
    "CREATE INDEX links_session ON links (session, number)",
    # Documents are numbered in the order they were settled, so that walking them backwards gives
    # the newest first, across sessions; one document is one entry, by session number and seq.
    # The index keeps no copy of the text: the text of a document is read from its segment.
    "CREATE TABLE documents (number INTEGER PRIMARY KEY, entry INTEGER NOT NULL UNIQUE)",
    "CREATE VIRTUAL TABLE words USING fts5 (text, content = '')",
)

_ORDER: Final = (
    # Hidden from the list until somebody lists archived sessions, or prompts it.
    "ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
    # True if a person gave the title: then no agent and no import replaces it.
    "ALTER TABLE sessions ADD COLUMN renamed INTEGER NOT NULL DEFAULT 0",
    # Where the conversation came from, oldest first: an array of `Origin`.
    "ALTER TABLE sessions ADD COLUMN origins TEXT NOT NULL DEFAULT '[]'",
    # `archived` comes after the column that an older release filters by: a release that runs
    # beside this one can still use these indexes, by their names and by the columns it knows.
    "DROP INDEX listed",
    "DROP INDEX listed_agent",
    "DROP INDEX listed_folder",
    "DROP INDEX listed_both",
    "CREATE INDEX listed ON sessions (prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_agent ON sessions (agent, prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_folder ON sessions (folder, prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_both"
    " ON sessions (agent, folder, prompted, archived, updated_at, session_id)",
)

_SEARCH_BY_TIME: Final = (
    "DROP TABLE words",
    "DROP TABLE documents",
    # A document's number is its time in quarters of a second, or the next one that is free:
    # walking the numbers backwards gives the newest first, also of what was imported later, and a
    # span of time is a range of them. Coarser than the clock, so that the differences between
    # numbers, which the index keeps for every word, take a byte and not three.
    "CREATE TABLE documents (number INTEGER PRIMARY KEY, entry INTEGER NOT NULL UNIQUE)",
    f"CREATE VIRTUAL TABLE words USING fts5 (messages, tools, diffs, content = '', {TOKENIZER})",
    # The last settled entry in the index; a change of the index's content starts again at 0.
    "ALTER TABLE sessions ADD COLUMN indexed_through INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX unindexed ON sessions (updated_at) WHERE indexed_through < settled_through",
)

_USAGE: Final = (
    # Reports of agents, unchanged; `by_turn` where a report is known to cover just one turn.
    """CREATE TABLE usage (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        by_turn INTEGER NOT NULL,
        cost REAL,
        currency TEXT NOT NULL,
        input INTEGER,
        output INTEGER,
        thought INTEGER,
        cached_read INTEGER,
        cached_write INTEGER,
        total INTEGER,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID""",
    # To find the reports of earlier turns, all sessions are indexed again.
    "INSERT INTO words (words) VALUES ('delete-all')",
    "DELETE FROM documents",
    "UPDATE sessions SET indexed_through = 0",
)

_PACKED: Final = (
    # How far the old rows of a session are packed: see packed_rows. An older release would
    # take packed bytes for text, so it must not open the file any more.
    "ALTER TABLE sessions ADD COLUMN packed_through INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX unpacked ON sessions (updated_at) WHERE packed_through < settled_through",
)

_UNREAD: Final = (
    # The place of the transcript of a session that is listed but not read yet: see unread.
    "ALTER TABLE sessions ADD COLUMN unread BLOB",
)

_FOLLOWERS: Final = (
    # How many clients may come back to a position: see `SessionRow`.
    "ALTER TABLE sessions ADD COLUMN followers INTEGER NOT NULL DEFAULT 0",
)

_OWNERS: Final = (
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
    # A lease belongs to an owner and does not expire; leases of an older release are nobody's.
    """CREATE TABLE granted (
        session INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        yields INTEGER NOT NULL
    )""",
    "INSERT INTO granted SELECT session, '', epoch, 0 FROM leases",
    "DROP TABLE leases",
    "ALTER TABLE granted RENAME TO leases",
)

_VOLUMES: Final = (
    # The index is in volumes, tables words_1, words_2 …: see journal.sqlite.search_index. `size`
    # counts the characters that were put in, `newest` is the highest number of a document; an
    # `untidy` volume has to be merged.
    "DROP TABLE words",
    "DROP TABLE documents",
    """CREATE TABLE volumes (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        size INTEGER NOT NULL DEFAULT 0,
        documents INTEGER NOT NULL DEFAULT 0,
        newest INTEGER NOT NULL DEFAULT 0,
        untidy INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE documents (
        number INTEGER PRIMARY KEY,
        entry INTEGER NOT NULL UNIQUE,
        volume INTEGER NOT NULL
    )""",
    "UPDATE sessions SET indexed_through = 0",
)

_CHECKSUMS: Final = (
    # The CRC-32 of each summary: after a bit flip on the disk it may still be readable, but wrong.
    "ALTER TABLE summaries ADD COLUMN checksum INTEGER",
    "UPDATE summaries SET checksum = crc32(summary)",
)

_ACCESS_TOKENS: Final = (
    """CREATE TABLE access_tokens (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        digest BLOB NOT NULL,
        scopes TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        session_id TEXT,
        expires_at INTEGER,
        used_at INTEGER,
        revoked_at INTEGER
    ) WITHOUT ROWID""",
)

_STARTS: Final = (
    # A mark of how its agent was last started: see `SessionRow`.
    "ALTER TABLE sessions ADD COLUMN start TEXT",
)

_TENANTS: Final = (
    # The tenant: see `SessionRow`. In most journals no session has one. The index finds the
    # sessions of a tenant, of a thousand, without visiting all others.
    "ALTER TABLE sessions ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX listed_tenant ON sessions (tenant, prompted, archived, updated_at, session_id)"
    " WHERE tenant <> ''",
)

_CHANGED_ROW: Final = (
    "INSERT OR REPLACE INTO changes"
    " VALUES ({}.session_id, (SELECT coalesce(max(revision), 0) + 1 FROM changes))"
)

_CHANGES: Final = (
    # True if a turn has ended that nobody has looked at: see `SessionRow`.
    "ALTER TABLE sessions ADD COLUMN unseen INTEGER NOT NULL DEFAULT 0",
    # The last change or removal of each session's row, numbered in order: a follower of the list
    # reads only what is new, however long the list is.
    "CREATE TABLE changes (session_id TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE UNIQUE INDEX changed ON changes (revision)",
    f"CREATE TRIGGER row_added AFTER INSERT ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted,"
    " message_count, archived, origins, unread, unseen ON sessions BEGIN"
    f" {_CHANGED_ROW.format('new')}; END",
    f"CREATE TRIGGER row_removed AFTER DELETE ON sessions BEGIN {_CHANGED_ROW.format('old')}; END",
)

_DEEDS: Final = (
    """CREATE TABLE deeds (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        deed TEXT NOT NULL,
        name TEXT NOT NULL,
        token TEXT NOT NULL,
        session_id TEXT,
        address TEXT NOT NULL,
        transport TEXT NOT NULL
    )""",
    "CREATE INDEX deeds_by_time ON deeds (at)",
    "CREATE INDEX deeds_by_token ON deeds (token, id)",
)

_SHARES: Final = (
    # The tenant whose sessions the holder of a token sees; NULL for everybody's.
    "ALTER TABLE access_tokens ADD COLUMN tenant TEXT",
    """CREATE TABLE shares (
        session_id TEXT NOT NULL,
        tenant TEXT NOT NULL,
        prompts INTEGER NOT NULL,
        PRIMARY KEY (session_id, tenant)
    ) WITHOUT ROWID""",
    "CREATE INDEX shares_with ON shares (tenant, session_id)",
    # A new or ended share is a change for followers of the list.
    f"CREATE TRIGGER share_added AFTER INSERT ON shares BEGIN {_CHANGED_ROW.format('new')}; END",
    f"CREATE TRIGGER share_ended AFTER DELETE ON shares BEGIN {_CHANGED_ROW.format('old')}; END",
    "CREATE TRIGGER shared_row_removed BEFORE DELETE ON sessions BEGIN"
    " DELETE FROM shares WHERE session_id = old.session_id; END",
)

_OWN_WORDS: Final = (
    # A search of a tenant uses a word for the tenant, see journal.sqlite.search_index. Everything
    # is indexed again in new volumes; the old ones are closed, and dropped.
    "DELETE FROM documents",
    "UPDATE volumes SET documents = 0, untidy = 1, size = max(size, 1 << 40)",
    "UPDATE sessions SET indexed_through = 0",
    # The tenant whose word is needed to take out the documents of a deleted session.
    "ALTER TABLE deleted ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    # Sessions that an import has only listed.
    "CREATE INDEX listed_unread ON sessions (prompted, archived, updated_at, session_id)"
    " WHERE unread IS NOT NULL",
)

_TOKENS: Final = ("input", "output", "thought", "cached_read", "cached_write", "total")

_USAGE_SLOTS: Final = (
    # The usage reported in each session per quarter of an hour: see journal.usage_slots.
    f"""CREATE TABLE usage_slots (
        session INTEGER NOT NULL,
        slot INTEGER NOT NULL,
        told INTEGER NOT NULL,
        by_request INTEGER NOT NULL,
        {", ".join(f"{name} INTEGER" for name in _TOKENS)},
        PRIMARY KEY (session, slot)
    ) WITHOUT ROWID""",
    """CREATE TABLE usage_costs (
        session INTEGER NOT NULL,
        slot INTEGER NOT NULL,
        currency TEXT NOT NULL,
        cost REAL NOT NULL,
        PRIMARY KEY (session, slot, currency)
    ) WITHOUT ROWID""",
    # Sessions with reports on the whole session, which are examined one by one.
    "CREATE INDEX usage_of_sessions ON usage (session) WHERE by_turn = 2",
    # In two parts: `sum` fails beyond 64 bits, however absurd such a number is.
    "INSERT INTO usage_slots SELECT session, at / 900000, count(total), sum(by_turn = 0), "
    + ", ".join(
        f"min((min(sum({name} >> 20), 953674316407) << 20) + sum({name} & 1048575),"
        " 1000000000000000000)"
        for name in _TOKENS
    )
    + " FROM usage WHERE at >= 0 GROUP BY session, at / 900000",
    """INSERT INTO usage_costs
        SELECT session, at / 900000, currency,
            min(total(iif(cost >= before, cost - before, cost)), 1e300)
        FROM (
            SELECT session, at, currency, cost,
                lag(cost, 1, 0.0) OVER (PARTITION BY session, currency ORDER BY seq) AS before
            FROM usage WHERE cost IS NOT NULL
        ) WHERE at >= 0 GROUP BY session, at / 900000, currency""",
)

_TENANTS_UNREAD: Final = (
    # Sessions that an import has only listed, for a tenant.
    "CREATE INDEX listed_tenant_unread"
    " ON sessions (tenant, prompted, archived, updated_at, session_id)"
    " WHERE tenant <> '' AND unread IS NOT NULL",
)

_QUEUES: Final = (
    # The prompts that wait: see `SessionRow`. Few sessions have any.
    "ALTER TABLE sessions ADD COLUMN queued INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN held TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN held_until INTEGER",
    "CREATE INDEX with_queue ON sessions (updated_at) WHERE queued > 0",
    "DROP TRIGGER row_changed",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted,"
    " message_count, archived, origins, unread, unseen, queued, held, held_until ON sessions BEGIN"
    f" {_CHANGED_ROW.format('new')}; END",
)

_RULES: Final = (
    # Standing answers, as JSON; the row with the number 0 is a lock: see `journal.access`.
    """CREATE TABLE rules (
        person TEXT NOT NULL,
        number INTEGER NOT NULL,
        rule BLOB NOT NULL,
        PRIMARY KEY (person, number)
    ) WITHOUT ROWID""",
)

_SNAPSHOTS: Final = (
    # The snapshots of files taken in turns: see journal.snapshots.
    """CREATE TABLE snapshots (
        session INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        is_end INTEGER NOT NULL,
        root TEXT NOT NULL,
        facts BLOB NOT NULL,
        PRIMARY KEY (session, turn, is_end, root)
    ) WITHOUT ROWID""",
)

_MOVES: Final = (
    # Sessions that are another machine's: see `journal.moves`. And how often rules have answered.
    "ALTER TABLE sessions ADD COLUMN moved TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN ruled INTEGER NOT NULL DEFAULT 0",
    "DROP TRIGGER row_changed",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted,"
    " message_count, archived, origins, unread, unseen, queued, held, held_until, moved, ruled"
    f" ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
)

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    _TABLES,
    _ORDER,
    _SEARCH_BY_TIME,
    _USAGE,
    _PACKED,
    _UNREAD,
    _FOLLOWERS,
    _OWNERS,
    _VOLUMES,
    _CHECKSUMS,
    _ACCESS_TOKENS,
    _STARTS,
    _TENANTS,
    _CHANGES,
    _DEEDS,
    _SHARES,
    _OWN_WORDS,
    _USAGE_SLOTS,
    _TENANTS_UNREAD,
    _QUEUES,
    _RULES,
    _SNAPSHOTS,
    _MOVES,
)

VERSION: Final = len(MIGRATIONS)
"""The version of journals that this release writes."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the journal up to VERSION; each step is one transaction, which also sets its number.

    Raises NewerJournalError, and the sqlite3 errors of a locked, full or damaged file.
    """
    while (version := _version(connection)) < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have taken this step while we waited for the lock.
            if _version(connection) == version:
                take_step(connection, MIGRATIONS[version])
                # An older release that holds a lease must not write its rows to the new tables.
                connection.execute("UPDATE leases SET epoch = 0")
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            # A full disk ends the transaction by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    refuse_newer(version, path)


def take_step(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    """Execute a step, with functions that SQLite lacks."""
    connection.create_function("crc32", 1, crc32, deterministic=True)
    for statement in statements:
        connection.execute(statement)


def refuse_newer(version: int, path: str) -> None:
    """Raise NewerJournalError if this version of a journal is newer than this release."""
    versions.refuse_newer(version, VERSION, path)


def refuse_other(connection: sqlite3.Connection, path: str) -> None:
    """Raise ReadOnlyJournalError for an older version of a journal that cannot be written;
    NewerJournalError for a newer one."""
    refuse_newer(version := _version(connection), path)
    if version < VERSION:
        raise ReadOnlyJournalError(
            f"the journal {path} was written by an earlier release, and has to be brought up to "
            "this one where its folder cannot be written to; copy it into a folder that can, and "
            "name the copy with --journal"
        )


def refuse_newer_by_now(connection: sqlite3.Connection, path: str) -> None:
    """Raise NewerJournalError if a newer release has upgraded an open journal."""
    versions.refuse_newer_by_now(_version(connection), VERSION, path)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
