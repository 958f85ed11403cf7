"""The tables of earlier releases: each step leads from one version to the next.

A journal that has gone through the first of them has the version 20.
"""

from __future__ import annotations

from typing import Final

MADE: Final = (36, "f18903e575544528")
"""The version of journals, and the beginning of the SHA-256 of their tables. Users' files have
these: whoever changes the tables raises the version, and leaves columns as they are."""

_CHANGED_ROW: Final = (
    "INSERT OR REPLACE INTO changes"
    " VALUES ({}.session_id, (SELECT coalesce(max(revision), 0) + 1 FROM changes))"
)

_TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('cursor_secret', randomblob(32))",
    "INSERT INTO meta VALUES ('epoch', 0)",
    "CREATE TABLE sessions (number INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL "
    "UNIQUE, agent TEXT NOT NULL, cwd TEXT NOT NULL, folder TEXT NOT NULL, additional_directories "
    "TEXT NOT NULL, title TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
    "prompted INTEGER NOT NULL DEFAULT 0, message_count INTEGER NOT NULL DEFAULT 0, "
    "settled_through INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0, renamed "
    "INTEGER NOT NULL DEFAULT 0, origins TEXT NOT NULL DEFAULT '[]', indexed_through INTEGER NOT "
    "NULL DEFAULT 0, packed_through INTEGER NOT NULL DEFAULT 0, unread BLOB, followers INTEGER "
    "NOT NULL DEFAULT 0, start TEXT, tenant TEXT NOT NULL DEFAULT '', unseen INTEGER NOT NULL "
    "DEFAULT 0, queued INTEGER NOT NULL DEFAULT 0, held TEXT NOT NULL DEFAULT '', held_until "
    "INTEGER)",
    "CREATE INDEX listed ON sessions (prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_agent ON sessions (agent, prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_folder ON sessions (folder, prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_both ON sessions (agent, folder, prompted, archived, updated_at, "
    "session_id)",
    "CREATE INDEX listed_tenant ON sessions (tenant, prompted, archived, updated_at, session_id) "
    "WHERE tenant <> ''",
    "CREATE INDEX listed_unread ON sessions (prompted, archived, updated_at, session_id) WHERE "
    "unread IS NOT NULL",
    "CREATE INDEX listed_tenant_unread ON sessions (tenant, prompted, archived, updated_at, "
    "session_id) WHERE tenant <> '' AND unread IS NOT NULL",
    "CREATE INDEX unindexed ON sessions (updated_at) WHERE indexed_through < settled_through",
    "CREATE INDEX unpacked ON sessions (updated_at) WHERE packed_through < settled_through",
    "CREATE INDEX with_queue ON sessions (updated_at) WHERE queued > 0",
    "CREATE TABLE changes (session_id TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE UNIQUE INDEX changed ON changes (revision)",
    f"CREATE TRIGGER row_added AFTER INSERT ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted, "
    "message_count, archived, origins, unread, unseen, queued, held, held_until ON sessions BEGIN "
    f"{_CHANGED_ROW.format('new')}; END",
    f"CREATE TRIGGER row_removed AFTER DELETE ON sessions BEGIN {_CHANGED_ROW.format('old')}; END",
    "CREATE TABLE owners (id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, "
    "addresses TEXT NOT NULL, renewed_at INTEGER NOT NULL, retired INTEGER NOT NULL) WITHOUT "
    "ROWID",
    "CREATE TABLE leases (session INTEGER PRIMARY KEY, owner TEXT NOT NULL, epoch INTEGER NOT "
    "NULL, yields INTEGER NOT NULL)",
    "CREATE TABLE segments (key INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL, at INTEGER NOT "
    "NULL, kind NOT NULL, raw BLOB NOT NULL)",
    "CREATE TABLE summaries (session INTEGER PRIMARY KEY, summary BLOB NOT NULL, checksum INTEGER)",
    "CREATE TABLE deleted (session INTEGER PRIMARY KEY, tenant TEXT NOT NULL DEFAULT '')",
    "CREATE TABLE links (number INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, "
    "downstream_id TEXT NOT NULL, session INTEGER, UNIQUE (agent, downstream_id))",
    "CREATE INDEX links_session ON links (session, number)",
    "CREATE TABLE volumes (number INTEGER PRIMARY KEY AUTOINCREMENT, size INTEGER NOT NULL "
    "DEFAULT 0, documents INTEGER NOT NULL DEFAULT 0, newest INTEGER NOT NULL DEFAULT 0, untidy "
    "INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE documents (number INTEGER PRIMARY KEY, entry INTEGER NOT NULL UNIQUE, volume "
    "INTEGER NOT NULL)",
    "CREATE TABLE usage (session INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, "
    "by_turn INTEGER NOT NULL, cost REAL, currency TEXT NOT NULL, input INTEGER, output INTEGER, "
    "thought INTEGER, cached_read INTEGER, cached_write INTEGER, total INTEGER, PRIMARY KEY "
    "(session, seq)) WITHOUT ROWID",
    "CREATE INDEX usage_of_sessions ON usage (session) WHERE by_turn = 2",
    "CREATE TABLE usage_slots (session INTEGER NOT NULL, slot INTEGER NOT NULL, told INTEGER NOT "
    "NULL, by_request INTEGER NOT NULL, input INTEGER, output INTEGER, thought INTEGER, "
    "cached_read INTEGER, cached_write INTEGER, total INTEGER, PRIMARY KEY (session, slot)) "
    "WITHOUT ROWID",
    "CREATE TABLE usage_costs (session INTEGER NOT NULL, slot INTEGER NOT NULL, currency TEXT NOT "
    "NULL, cost REAL NOT NULL, PRIMARY KEY (session, slot, currency)) WITHOUT ROWID",
    "CREATE TABLE access_tokens (id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, "
    "scopes TEXT NOT NULL, created_at INTEGER NOT NULL, session_id TEXT, expires_at INTEGER, "
    "used_at INTEGER, revoked_at INTEGER, tenant TEXT) WITHOUT ROWID",
    "CREATE TABLE shares (session_id TEXT NOT NULL, tenant TEXT NOT NULL, prompts INTEGER NOT "
    "NULL, PRIMARY KEY (session_id, tenant)) WITHOUT ROWID",
    "CREATE INDEX shares_with ON shares (tenant, session_id)",
    f"CREATE TRIGGER share_added AFTER INSERT ON shares BEGIN {_CHANGED_ROW.format('new')}; END",
    f"CREATE TRIGGER share_ended AFTER DELETE ON shares BEGIN {_CHANGED_ROW.format('old')}; END",
    "CREATE TRIGGER shared_row_removed BEFORE DELETE ON sessions BEGIN DELETE FROM shares WHERE "
    "session_id = old.session_id; END",
    "CREATE TABLE deeds (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, deed TEXT NOT NULL, name "
    "TEXT NOT NULL, token TEXT NOT NULL, session_id TEXT, address TEXT NOT NULL, transport TEXT "
    "NOT NULL)",
    "CREATE INDEX deeds_by_time ON deeds (at)",
    "CREATE INDEX deeds_by_token ON deeds (token, id)",
)

_RULES: Final = (
    # Standing answers, as JSON; the row with the number 0 is a lock: see `journal.access`.
    "CREATE TABLE rules (person TEXT NOT NULL, number INTEGER NOT NULL, rule BLOB NOT NULL, "
    "PRIMARY KEY (person, number)) WITHOUT ROWID",
)

_SNAPSHOTS: Final = (
    # The snapshots of files taken in turns: see journal.seams.Snapshots.
    "CREATE TABLE snapshots (session INTEGER NOT NULL, turn INTEGER NOT NULL, is_end INTEGER NOT "
    "NULL, root TEXT NOT NULL, facts BLOB NOT NULL, PRIMARY KEY (session, turn, is_end, root)) "
    "WITHOUT ROWID",
)

_MOVES: Final = (
    # Sessions that are another machine's: see `journal.moves`. And how often rules have answered.
    "ALTER TABLE sessions ADD COLUMN moved TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN ruled INTEGER NOT NULL DEFAULT 0",
    "DROP TRIGGER row_changed",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted, "
    "message_count, archived, origins, unread, unseen, queued, held, held_until, moved, ruled ON "
    f"sessions BEGIN {_CHANGED_ROW.format('new')}; END",
)

_HOMES: Final = (
    # Where the history of sessions was made: see `SessionRow.home`.
    "ALTER TABLE sessions ADD COLUMN home TEXT NOT NULL DEFAULT ''",
)

_META: Final = (
    # The `_meta` that agents give sessions in updates.
    "ALTER TABLE sessions ADD COLUMN meta BLOB NOT NULL DEFAULT x''",
    "DROP TRIGGER row_changed",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted, "
    "message_count, archived, origins, unread, unseen, queued, held, held_until, moved, ruled, "
    f"meta ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
)

_USAGE: Final = (
    # Sums of usage are added up from the reports.
    "DROP TABLE usage_slots",
    "DROP TABLE usage_costs",
    "DROP INDEX usage_of_sessions",
)

_REPLIES: Final = (
    # The replies that imported turns begin with: copies count once.
    "CREATE TABLE replies (session INTEGER NOT NULL, seq INTEGER NOT NULL, reply INTEGER NOT "
    "NULL, PRIMARY KEY (session, seq)) WITHOUT ROWID",
)

_TAGS: Final = (
    # Words that people gave a session, and the tenants that have it pinned.
    "ALTER TABLE sessions ADD COLUMN tags TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE sessions ADD COLUMN pins TEXT NOT NULL DEFAULT '[]'",
    "DROP TRIGGER row_changed",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted, "
    "message_count, archived, origins, unread, unseen, queued, held, held_until, moved, ruled, "
    f"meta, tags, pins ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
)

_ACCESS_CHANGES: Final = (
    # What has changed in tokens and shares, the last time for each, numbered in order.
    """CREATE TABLE access_changes (
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        changed INTEGER NOT NULL,
        at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER) * 1000),
        PRIMARY KEY (kind, subject)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX access_changed ON access_changes (changed)",
    "CREATE TRIGGER share_lost AFTER DELETE ON shares BEGIN"
    " INSERT OR REPLACE INTO access_changes (kind, subject, changed) VALUES ('tenant', old.tenant,"
    " (SELECT coalesce(max(changed), 0) + 1 FROM access_changes)); END",
)

_PROGRAMS: Final = (
    # Nobody but a program has prompted it.
    "ALTER TABLE sessions ADD COLUMN by_program INTEGER NOT NULL DEFAULT 0",
    "DROP TRIGGER row_changed",
    "CREATE TRIGGER row_changed AFTER UPDATE OF agent, cwd, title, updated_at, prompted,"
    " message_count, archived, origins, unread, unseen, queued, held, held_until, moved, ruled,"
    " meta, tags, pins, by_program"
    f" ON sessions BEGIN {_CHANGED_ROW.format('new')}; END",
)

_USAGE_SUMS: Final = (
    # Increases of a session in a quarter of an hour, and how far they are added up.
    "ALTER TABLE sessions ADD COLUMN summed_at INTEGER NOT NULL DEFAULT -1",
    "CREATE INDEX replies_by_reply ON replies (reply)",
    """CREATE TABLE usage_sums (
        session INTEGER NOT NULL,
        slot INTEGER NOT NULL,
        agent TEXT NOT NULL,
        model TEXT NOT NULL,
        currency TEXT NOT NULL,
        told INTEGER NOT NULL,
        by_request INTEGER NOT NULL,
        cost REAL,
        input INTEGER,
        output INTEGER,
        thought INTEGER,
        cached_read INTEGER,
        cached_write INTEGER,
        total INTEGER,
        PRIMARY KEY (session, slot, agent, model, currency)
    ) WITHOUT ROWID""",
    """CREATE TABLE usage_folds (
        session INTEGER PRIMARY KEY,
        fold BLOB NOT NULL
    ) WITHOUT ROWID""",
)

_TENANTS: Final = ("ALTER TABLE volumes ADD COLUMN tenants TEXT NOT NULL DEFAULT ''",)

_USAGE_BLOCKS: Final = (
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
)

_ENDED: Final = (
    # How the last turn ended.
    "ALTER TABLE sessions ADD COLUMN ended TEXT NOT NULL DEFAULT ''",
)

_HANDED_ON: Final = (
    # Sessions that another agent had before.
    "CREATE INDEX handed_on ON sessions (agent) WHERE origins <> '[]'",
)

_ROW_TEXTS: Final = (
    # The texts of the sessions of a block.
    "CREATE TABLE row_texts (highest INTEGER PRIMARY KEY, texts BLOB NOT NULL)",
    "CREATE TRIGGER texts_ended AFTER DELETE ON usage_blocks BEGIN"
    " DELETE FROM row_texts WHERE highest = old.highest; END",
)

STEPS: Final[tuple[tuple[str, ...], ...]] = (
    _TABLES,
    _RULES,
    _SNAPSHOTS,
    _MOVES,
    _HOMES,
    _META,
    _USAGE,
    _REPLIES,
    _TAGS,
    _ACCESS_CHANGES,
    _PROGRAMS,
    _USAGE_SUMS,
    _TENANTS,
    _USAGE_BLOCKS,
    _ENDED,
    _HANDED_ON,
    _ROW_TEXTS,
)
