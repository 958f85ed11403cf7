"""The journal's tables, and the way of an earlier release's journal to them.

Each statement makes what a journal lacks, and leaves what it has; so no column ever changes once a
database may have it. Each change of the tables raises VERSION, and a test makes sure of that.
Everything is in a schema of its own, `acphold`, and every statement names it: so no connection
needs settings, and PgBouncer may hand connections round.

The key of everything that belongs to a session begins with the session's id, so that the sessions
can be spread over several databases. Few tables belong to no session: `meta`, `owners`, `links`,
`access_tokens`, `deeds`.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection

from acphold import journal_location
from acphold.errors import JournalUnavailableError, NoJournalError, OlderJournalError
from acphold.record.journal import bounds
from acphold.record.journal.postgresql.leases import LIVE_OWNERS

Line: TypeAlias = "Connection[tuple[Any, ...]]"
"""A connection to the database."""

LOCK: Final = 0x61637068
"""The advisory lock held while upgrading a journal."""

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS acphold.meta (name text PRIMARY KEY, value bytea NOT NULL)",
    # Each lease gets a number of its own, across all sessions: so it can never be confused with
    # that of another session that had the same id. Nobody waits for a sequence, as for a row.
    "CREATE SEQUENCE IF NOT EXISTS acphold.epochs",
    # `number` is the epoch in which it was made. `folder` is the canonical path of `cwd`.
    # `changed` is the last transaction that changed anything the list shows.
    """CREATE TABLE IF NOT EXISTS acphold.sessions (
        session_id text COLLATE "C" PRIMARY KEY,
        number bigint NOT NULL,
        agent text NOT NULL,
        cwd text NOT NULL,
        folder text NOT NULL,
        additional_directories text NOT NULL,
        title text,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        prompted boolean NOT NULL DEFAULT false,
        archived boolean NOT NULL DEFAULT false,
        renamed boolean NOT NULL DEFAULT false,
        unseen boolean NOT NULL DEFAULT false,
        origins text NOT NULL DEFAULT '[]',
        tenant text NOT NULL DEFAULT '',
        start text,
        followers bigint NOT NULL DEFAULT 0,
        unread bytea,
        message_count bigint NOT NULL DEFAULT 0,
        settled_through bigint NOT NULL DEFAULT 0,
        indexed_through bigint NOT NULL DEFAULT 0,
        packed_through bigint NOT NULL DEFAULT 0,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id(),
        queued bigint NOT NULL DEFAULT 0,
        held text NOT NULL DEFAULT '',
        held_until bigint
    )""",
    # `moved`: sessions that are another machine's, see `journal.moves`.
    # `ruled`: how often rules have answered.
    # `home`: where the history was made, see `SessionRow.home`.
    # `meta`: the `_meta` that agents give sessions in updates.
    """ALTER TABLE acphold.sessions
        ADD COLUMN IF NOT EXISTS moved text NOT NULL DEFAULT '',
        ADD COLUMN IF NOT EXISTS ruled bigint NOT NULL DEFAULT 0,
        ADD COLUMN IF NOT EXISTS home text NOT NULL DEFAULT '',
        ADD COLUMN IF NOT EXISTS meta bytea NOT NULL DEFAULT ''""",
    # An index for each filter of the list, so that any page is one walk along it.
    "CREATE INDEX IF NOT EXISTS listed"
    " ON acphold.sessions (prompted, archived, updated_at, session_id)",
    "CREATE INDEX IF NOT EXISTS listed_agent"
    " ON acphold.sessions (agent, prompted, archived, updated_at, session_id)",
    "CREATE INDEX IF NOT EXISTS listed_folder"
    " ON acphold.sessions (folder, prompted, archived, updated_at, session_id)",
    "CREATE INDEX IF NOT EXISTS listed_both"
    " ON acphold.sessions (agent, folder, prompted, archived, updated_at, session_id)",
    "CREATE INDEX IF NOT EXISTS listed_tenant"
    " ON acphold.sessions (tenant, prompted, archived, updated_at, session_id) WHERE tenant <> ''",
    # Sessions that an import has only listed; and those of a tenant.
    "CREATE INDEX IF NOT EXISTS listed_unread"
    " ON acphold.sessions (prompted, archived, updated_at, session_id)"
    " WHERE unread IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS listed_tenant_unread"
    " ON acphold.sessions (tenant, prompted, archived, updated_at, session_id)"
    " WHERE tenant <> '' AND unread IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS with_queue ON acphold.sessions (updated_at) WHERE queued > 0",
    "CREATE INDEX IF NOT EXISTS unindexed ON acphold.sessions (updated_at)"
    " WHERE indexed_through < settled_through",
    "CREATE INDEX IF NOT EXISTS unpacked ON acphold.sessions (updated_at)"
    " WHERE packed_through < settled_through",
    "CREATE INDEX IF NOT EXISTS changed ON acphold.sessions (changed)",
    # Deleted sessions, for followers of the list.
    """CREATE TABLE IF NOT EXISTS acphold.gone (
        session_id text COLLATE "C" NOT NULL,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id(),
        PRIMARY KEY (session_id, changed)
    )""",
    "CREATE INDEX IF NOT EXISTS gone_changed ON acphold.gone (changed)",
    # Apart from the sessions: an append locks it, and should not wait for a change of the row.
    """CREATE TABLE IF NOT EXISTS acphold.leases (
        session_id text COLLATE "C" PRIMARY KEY,
        owner text NOT NULL,
        epoch bigint NOT NULL,
        yields boolean NOT NULL
    ) WITH (fillfactor = 50)""",
    """CREATE TABLE IF NOT EXISTS acphold.segments (
        session_id text COLLATE "C" NOT NULL,
        last_seq bigint NOT NULL,
        first_seq bigint NOT NULL,
        at bigint NOT NULL,
        kind text NOT NULL,
        raw bytea NOT NULL,
        PRIMARY KEY (session_id, last_seq)
    )""",
    # No compression by the server: we pack rows ourselves, mostly once they are old.
    "ALTER TABLE acphold.segments ALTER COLUMN raw SET STORAGE EXTERNAL",
    """CREATE TABLE IF NOT EXISTS acphold.summaries (
        session_id text COLLATE "C" PRIMARY KEY,
        summary bytea NOT NULL
    )""",
    # session_id NULL: a tombstone. The highest number is the newest link of a session.
    """CREATE TABLE IF NOT EXISTS acphold.links (
        agent text NOT NULL,
        downstream_id text NOT NULL,
        session_id text COLLATE "C",
        number bigint NOT NULL DEFAULT nextval('acphold.epochs'),
        PRIMARY KEY (agent, downstream_id)
    )""",
    "CREATE INDEX IF NOT EXISTS links_session ON acphold.links (session_id, number)",
    # The words of an entry, with the weight A for messages, B for tools, C for diffs. `number` is
    # the order in which they came in. By `tenant`, a tenant's search skips the documents of others.
    """CREATE TABLE IF NOT EXISTS acphold.documents (
        session_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        at bigint NOT NULL,
        number bigint NOT NULL DEFAULT nextval('acphold.epochs'),
        words tsvector NOT NULL,
        tenant text NOT NULL DEFAULT '',
        PRIMARY KEY (session_id, seq)
    )""",
    "ALTER TABLE acphold.documents DROP COLUMN IF EXISTS size",
    "CREATE INDEX IF NOT EXISTS documents_words ON acphold.documents USING gin (words)",
    "CREATE INDEX IF NOT EXISTS documents_at ON acphold.documents (at, number)",
    "CREATE INDEX IF NOT EXISTS documents_tenant"
    " ON acphold.documents (tenant, at, number) WHERE tenant <> ''",
    """CREATE TABLE IF NOT EXISTS acphold.usage (
        session_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        at bigint NOT NULL,
        by_turn smallint NOT NULL,
        cost double precision,
        currency text NOT NULL,
        input bigint,
        output bigint,
        thought bigint,
        cached_read bigint,
        cached_write bigint,
        total bigint,
        PRIMARY KEY (session_id, seq)
    )""",
    "DROP INDEX IF EXISTS acphold.usage_of_sessions",
    "DROP TABLE IF EXISTS acphold.usage_slots, acphold.usage_costs",
    # `presence` is the key of the lock that the owner's connection of presence holds in the server
    # started at `present_at`; NULL if it has none: see `leases`.
    """CREATE TABLE IF NOT EXISTS acphold.owners (
        id text PRIMARY KEY,
        host text NOT NULL,
        pid bigint NOT NULL,
        addresses text NOT NULL,
        renewed_at timestamptz NOT NULL,
        retired boolean NOT NULL,
        presence bigint,
        present_at timestamptz NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS acphold.access_tokens (
        id text PRIMARY KEY,
        name text NOT NULL,
        digest bytea NOT NULL,
        scopes text NOT NULL,
        created_at bigint NOT NULL,
        session_id text,
        expires_at bigint,
        used_at bigint,
        revoked_at bigint,
        tenant text
    )""",
    """CREATE TABLE IF NOT EXISTS acphold.shares (
        session_id text COLLATE "C" NOT NULL,
        tenant text NOT NULL,
        prompts boolean NOT NULL,
        PRIMARY KEY (session_id, tenant)
    )""",
    "CREATE INDEX IF NOT EXISTS shares_with ON acphold.shares (tenant, session_id)",
    """CREATE TABLE IF NOT EXISTS acphold.deeds (
        id bigint PRIMARY KEY DEFAULT nextval('acphold.epochs'),
        at bigint NOT NULL,
        deed text NOT NULL,
        name text NOT NULL,
        token text NOT NULL,
        session_id text,
        address text NOT NULL,
        transport text NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS deeds_by_time ON acphold.deeds (at)",
    "CREATE INDEX IF NOT EXISTS deeds_by_token ON acphold.deeds (token, id)",
    # Standing answers, as JSON; the row with the number 0 is a lock: see `journal.access`.
    """CREATE TABLE IF NOT EXISTS acphold.rules (
        person text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        rule bytea NOT NULL,
        PRIMARY KEY (person, number)
    )""",
    # The snapshots of files taken in turns: see journal.seams.Snapshots.
    """CREATE TABLE IF NOT EXISTS acphold.snapshots (
        session_id text COLLATE "C" NOT NULL,
        turn bigint NOT NULL,
        is_end bigint NOT NULL,
        root text COLLATE "C" NOT NULL,
        facts bytea NOT NULL,
        PRIMARY KEY (session_id, turn, is_end, root)
    )""",
)

FIRST: Final = 6
"""The lowest version of a release."""

VERSION: Final = 13
"""The version of journals that this release writes."""


def version(line: Line) -> int:
    """The version of the journal in the database; 0 if there is none."""
    # Not by resolving the name: a connection caches names for the length of its transaction.
    table = line.execute(
        "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = 'acphold' AND relname = 'meta'"
    ).fetchone()
    if table is None:
        return 0
    row = line.execute("SELECT value FROM acphold.meta WHERE name = 'version'").fetchone()
    return 0 if row is None else int(row[0])


def migrate(line: Line, name: str, *, create: bool) -> None:
    """Bring the journal to VERSION, all of it in one transaction.

    A journal in which a process of an earlier release owns sessions is left as it is: that process
    could not go on. Raises OlderJournalError then; NewerJournalError, NoJournalError if there is
    none and `create` is not set, and JournalUnavailableError if it is too old or this role lacks
    the rights.
    """
    found = version(line)
    if not found and not create:
        raise NoJournalError(name)
    if found < VERSION:
        try:
            with line.transaction():
                line.execute(
                    f"SET LOCAL lock_timeout = '{int(bounds.UPGRADE_LOCK_SECONDS * 1000)}ms'"
                )
                # A lock of the transaction: one of the connection would be lost behind PgBouncer.
                line.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                found = version(line)
                if not found:
                    line.execute("CREATE SCHEMA IF NOT EXISTS acphold")
                elif found < VERSION:
                    journal_location.refuse_older(found, FIRST, f"in {name}")
                    if owners := line.execute(LIVE_OWNERS, (bounds.SILENT_SECONDS,)).fetchall():
                        raise OlderJournalError(
                            f"in {name}", [f"{pid} on {host}" for host, pid in owners]
                        )
                if found < VERSION:
                    for statement in TABLES:
                        line.execute(statement)
                    # An older release that holds a lease must not write its rows to the new tables.
                    line.execute("UPDATE acphold.leases SET epoch = 0")
                    line.execute(
                        "INSERT INTO acphold.meta VALUES ('cursor_secret', %s)"
                        " ON CONFLICT DO NOTHING",
                        (secrets.token_bytes(32),),
                    )
                    line.execute(
                        "INSERT INTO acphold.meta VALUES ('version', %s)"
                        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                        (str(VERSION).encode(),),
                    )
                    found = VERSION
        except psycopg.errors.InsufficientPrivilege as error:
            raise JournalUnavailableError(
                f"the journal in {name} has to be upgraded for this release, but this role is not "
                f"allowed to do that ({error.diag.message_primary}); run `acphold "
                "doctor` once with the role that owns it"
            ) from error
    journal_location.refuse_newer(found, VERSION, f"in {name}")


def refuse_newer_by_now(line: Line) -> None:
    """Raise NewerJournalError if a newer release has upgraded an open journal."""
    journal_location.refuse_newer_by_now(version(line), VERSION, f"in {line.info.dbname}")
