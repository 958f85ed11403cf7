"""The journal's tables, and the way of an earlier release's journal to them.

A table, an index or a column of sessions that it lacks is made, and the others stay as they are,
unlocked: others read them meanwhile. So no column ever changes once a database may have it. Each
change of the tables raises VERSION, and a test makes sure of that.
Everything is in a schema of its own, `acphold`, and every statement names it: so no connection
needs settings, and PgBouncer may hand connections round.

The key of everything that belongs to a session begins with the session's id, so that the sessions
can be spread over several databases. Few tables belong to no session: `meta`, `owners`, `links`,
`access_tokens`, `deeds`, `usage_blocks`, `usage_ends`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection

from acphold import journal_location
from acphold.errors import JournalUnavailableError, NoJournalError, OlderJournalError
from acphold.journal import bounds
from acphold.journal.postgresql.leases import LIVE_OWNERS
from acphold.journal.sql.schema import SchemaWords, common_tables, session_columns

Line: TypeAlias = "Connection[tuple[Any, ...]]"
"""A connection to the database."""

LOCK: Final = 0x61637068
"""The advisory lock held while upgrading a journal."""

_WORDS: Final = SchemaWords(
    schema="acphold.",
    text="text",
    name='text COLLATE "C"',
    integer="bigint",
    small="smallint",
    real="double precision",
    blob="bytea",
    no_blob="''",
    flag="boolean",
    no="false",
    serial="bigint DEFAULT nextval('acphold.epochs')",
    session='session_id text COLLATE "C"',
    key="session_id",
    clustered="",
)

TABLES: Final = (
    "CREATE TABLE acphold.meta (name text PRIMARY KEY, value bytea NOT NULL)",
    # Each lease gets a number of its own, across all sessions: so it can never be confused with
    # that of another session that had the same id. Nobody waits for a sequence, as for a row.
    "CREATE SEQUENCE acphold.epochs",
    # `number` is the epoch in which it was made, `changed` the last transaction that changed
    # anything the list shows.
    """CREATE TABLE acphold.sessions (
        session_id text COLLATE "C" PRIMARY KEY,
        number bigint NOT NULL,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id()
    )""",
    *(f"ALTER TABLE acphold.sessions ADD COLUMN {it}" for it in session_columns(_WORDS)),
    "CREATE INDEX changed ON acphold.sessions (changed)",
    # Deleted sessions, for followers of the list.
    """CREATE TABLE acphold.gone (
        session_id text COLLATE "C" NOT NULL,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id(),
        PRIMARY KEY (session_id, changed)
    )""",
    "CREATE INDEX gone_changed ON acphold.gone (changed)",
    # No compression by the server: we pack rows ourselves, mostly once they are old.
    """CREATE TABLE acphold.segments (
        session_id text COLLATE "C" NOT NULL,
        last_seq bigint NOT NULL,
        first_seq bigint NOT NULL,
        at bigint NOT NULL,
        kind text NOT NULL,
        raw bytea NOT NULL,
        PRIMARY KEY (session_id, last_seq)
    );
    ALTER TABLE acphold.segments ALTER COLUMN raw SET STORAGE EXTERNAL""",
    """CREATE TABLE acphold.summaries (
        session_id text COLLATE "C" PRIMARY KEY,
        summary bytea NOT NULL
    )""",
    # session_id NULL: a tombstone. The highest number is the newest link of a session.
    """CREATE TABLE acphold.links (
        agent text NOT NULL,
        downstream_id text NOT NULL,
        session_id text COLLATE "C",
        number bigint NOT NULL DEFAULT nextval('acphold.epochs'),
        PRIMARY KEY (agent, downstream_id)
    )""",
    # The words of an entry, with the weight A for messages, B for tools, C for diffs. `number` is
    # the order in which they came in. By `tenant`, a tenant's search skips the documents of others.
    # `size` is for processes of an earlier release, which rank by it.
    """CREATE TABLE acphold.documents (
        session_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        at bigint NOT NULL,
        number bigint NOT NULL DEFAULT nextval('acphold.epochs'),
        words tsvector NOT NULL,
        size integer NOT NULL DEFAULT 0,
        tenant text NOT NULL DEFAULT '',
        PRIMARY KEY (session_id, seq)
    )""",
    "CREATE INDEX documents_words ON acphold.documents USING gin (words)",
    "CREATE INDEX documents_at ON acphold.documents (at, number)",
    "CREATE INDEX documents_tenant ON acphold.documents (tenant, at, number) WHERE tenant <> ''",
    "DROP INDEX IF EXISTS acphold.usage_of_sessions",
    "DROP TABLE IF EXISTS acphold.usage_slots, acphold.usage_costs",
    # `presence` is the key of the lock that the owner's connection of presence holds in the server
    # started at `present_at`; NULL if it has none: see `leases`.
    """CREATE TABLE acphold.owners (
        id text PRIMARY KEY,
        host text NOT NULL,
        pid bigint NOT NULL,
        addresses text NOT NULL,
        renewed_at timestamptz NOT NULL,
        retired boolean NOT NULL,
        presence bigint,
        present_at timestamptz NOT NULL
    )""",
    # What has changed in tokens and shares; `changed` is the transaction: see `changes`.
    """CREATE TABLE acphold.access_changes (
        kind text NOT NULL,
        subject text COLLATE "C" NOT NULL,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id(),
        at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint,
        PRIMARY KEY (kind, subject)
    )""",
    "CREATE INDEX access_changed ON acphold.access_changes (changed)",
    # By it blocks of sums find their sessions: see journal.sql.usage_blocks.
    "CREATE INDEX numbered ON acphold.sessions (number)",
    """CREATE TABLE acphold.usage_blocks (
        highest bigint PRIMARY KEY,
        lowest bigint NOT NULL,
        by_agent bytea NOT NULL,
        by_day bytea NOT NULL,
        by_folder bytea NOT NULL,
        by_model bytea NOT NULL
    )""",
    # The numbers of deleted sessions end their blocks: see journal.postgresql.usage_blocks.
    "CREATE TABLE acphold.usage_ends (number bigint NOT NULL)",
    # The words that lists are searched for, and the hash of a title that may be repeated: see
    # journal.postgresql.described.
    """CREATE TABLE acphold.described (
        session_id text COLLATE "C" PRIMARY KEY,
        words tsvector NOT NULL,
        titled bigint
    )""",
    "CREATE INDEX described_words ON acphold.described USING gin (words)",
    "CREATE INDEX described_titled ON acphold.described (titled) WHERE titled IS NOT NULL",
    *common_tables(_WORDS),
    # By these the tokens are found that have ended: see `access_rows.forget_ended`.
    "CREATE INDEX revoked ON acphold.access_tokens (revoked_at) WHERE revoked_at IS NOT NULL",
    "CREATE INDEX expiring ON acphold.access_tokens (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX browsers ON acphold.access_tokens ((coalesce(used_at, created_at)))"
    " WHERE scopes LIKE '%browser%'",
    "ALTER TABLE acphold.leases SET (fillfactor = 50)",
)

FIRST: Final = 20
"""The lowest version of a release."""

VERSION: Final = 20
"""The version of journals that this release writes."""

_MAKES: Final = re.compile(
    r"CREATE (?:UNIQUE )?(?:TABLE|INDEX|SEQUENCE) (?:acphold\.)?(\w+)|ALTER .* ADD (COLUMN \w+)"
)
"""A statement that makes something, with its name as in `_NAMES`."""


_NAMES: Final = """
    SELECT relname FROM pg_class WHERE relnamespace = 'acphold'::regnamespace
    UNION
    SELECT 'COLUMN ' || attname FROM pg_attribute
    WHERE attrelid = 'acphold.sessions'::regclass AND attnum > 0 AND NOT attisdropped
"""
"""The names of all that a journal has, and of the columns of its sessions."""


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


def migrate(
    line: Line, name: str, renew_titles: Callable[[], None] = lambda: None, *, create: bool
) -> None:
    """Bring the journal to VERSION, all of it in one transaction, at whose end `renew_titles` is
    called if there was one.

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
                    there = {name for (name,) in line.execute(_NAMES)} if found else set[str]()
                    for statement in TABLES:
                        makes = _MAKES.match(statement)
                        if makes is None or (makes[1] or makes[2]) not in there:
                            line.execute(statement)
                    if found:
                        renew_titles()
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
