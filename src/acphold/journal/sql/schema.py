"""The tables that both databases have alike, but for the words of each.

A column never changes once a journal may have it. A new column of sessions is NOT NULL, with a
constant default: journals of earlier releases get it, too.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import asdict


class SchemaWords(Struct, frozen=True):
    """The words of a database, for types and the like."""

    schema: str  # in front of each name
    text: str
    name: str  # a text that is compared by its bytes
    integer: str
    small: str
    real: str
    blob: str
    no_blob: str
    flag: str
    no: str
    serial: str  # the number of a new row
    session: str  # the column of the session that a row belongs to
    key: str  # its name
    clustered: str  # behind a table that is clustered by its key


_SESSION_COLUMNS: Final = (
    "agent {text} NOT NULL",
    # As the client wrote it; and its canonical path, for comparisons.
    "cwd {text} NOT NULL",
    "folder {text} NOT NULL",
    "additional_directories {text} NOT NULL",
    "title {text}",
    "created_at {integer} NOT NULL",
    "updated_at {integer} NOT NULL",
    "prompted {flag} NOT NULL DEFAULT {no}",
    "message_count {integer} NOT NULL DEFAULT 0",
    "settled_through {integer} NOT NULL DEFAULT 0",
    "archived {flag} NOT NULL DEFAULT {no}",
    "renamed {flag} NOT NULL DEFAULT {no}",
    "origins {text} NOT NULL DEFAULT '[]'",
    # The last settled entry in the index of words; a change of the index's content starts again
    # at 0.
    "indexed_through {integer} NOT NULL DEFAULT 0",
    # How far the old rows are packed: see `journal.stored_history`.
    "packed_through {integer} NOT NULL DEFAULT 0",
    "unread {blob}",
    "followers {integer} NOT NULL DEFAULT 0",
    "start {text}",
    "tenant {text} NOT NULL DEFAULT ''",
    "unseen {flag} NOT NULL DEFAULT {no}",
    "queued {integer} NOT NULL DEFAULT 0",
    "held {text} NOT NULL DEFAULT ''",
    "held_until {integer}",
    # Sessions that are another machine's: see `journal.moves`.
    "moved {text} NOT NULL DEFAULT ''",
    # How often rules have answered.
    "ruled {integer} NOT NULL DEFAULT 0",
    # Where the history was made: see `SessionRow.home`.
    "home {text} NOT NULL DEFAULT ''",
    # The `_meta` that agents give sessions in updates.
    "meta {blob} NOT NULL DEFAULT {no_blob}",
    # Words that people gave it, and the tenants that have it pinned.
    "tags {text} NOT NULL DEFAULT '[]'",
    "pins {text} NOT NULL DEFAULT '[]'",
    # Nobody but a program has prompted it.
    "by_program {flag} NOT NULL DEFAULT {no}",
    # Up to which `updated_at` the sums of usage hold; negative: see `usage_rows`.
    "summed_at {integer} NOT NULL DEFAULT -1",
    # The outcome of the last turn at `settled_through`; '' if only the entries tell it.
    "ended {text} NOT NULL DEFAULT ''",
)

_TABLES: Final = (
    # An index for each filter of the list, so that any page is one walk along it.
    "CREATE INDEX listed ON {schema}sessions (prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_agent"
    " ON {schema}sessions (agent, prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_folder"
    " ON {schema}sessions (folder, prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_both"
    " ON {schema}sessions (agent, folder, prompted, archived, updated_at, session_id)",
    # In most journals no session has a tenant. The index finds the sessions of one, of a thousand,
    # without visiting all others.
    "CREATE INDEX listed_tenant"
    " ON {schema}sessions (tenant, prompted, archived, updated_at, session_id) WHERE tenant <> ''",
    # Sessions that an import has only listed; and those of a tenant.
    "CREATE INDEX listed_unread ON {schema}sessions (prompted, archived, updated_at, session_id)"
    " WHERE unread IS NOT NULL",
    "CREATE INDEX listed_tenant_unread"
    " ON {schema}sessions (tenant, prompted, archived, updated_at, session_id)"
    " WHERE tenant <> '' AND unread IS NOT NULL",
    "CREATE INDEX unindexed ON {schema}sessions (updated_at)"
    " WHERE indexed_through < settled_through",
    "CREATE INDEX unpacked ON {schema}sessions (updated_at) WHERE packed_through < settled_through",
    "CREATE INDEX with_queue ON {schema}sessions (updated_at) WHERE queued > 0",
    # A lease belongs to an owner and does not expire. It is apart from the sessions: in PostgreSQL
    # an append locks it, and should not wait for a change of the row.
    """CREATE TABLE {schema}leases (
        {session} PRIMARY KEY,
        owner {text} NOT NULL,
        epoch {integer} NOT NULL,
        yields {flag} NOT NULL
    )""",
    "CREATE INDEX links_session ON {schema}links ({key}, number)",
    # Reports of agents, unchanged; `by_turn` where a report is known to cover just one turn.
    """CREATE TABLE {schema}usage (
        {session} NOT NULL,
        seq {integer} NOT NULL,
        at {integer} NOT NULL,
        by_turn {small} NOT NULL,
        cost {real},
        currency {text} NOT NULL,
        input {integer},
        output {integer},
        thought {integer},
        cached_read {integer},
        cached_write {integer},
        total {integer},
        PRIMARY KEY ({key}, seq)
    ){clustered}""",
    # The reply that a reported turn begins with, of imported ones: a copy has the same one.
    """CREATE TABLE {schema}replies (
        {session} NOT NULL,
        seq {integer} NOT NULL,
        reply {integer} NOT NULL,
        PRIMARY KEY ({key}, seq)
    ){clustered}""",
    "CREATE INDEX replies_by_reply ON {schema}replies (reply)",
    # Increases of a session in a quarter of an hour: see usage_rows. `told` counts reports of
    # tokens, `by_request` those that are not known to be for a whole turn.
    """CREATE TABLE {schema}usage_sums (
        {session} NOT NULL,
        slot {integer} NOT NULL,
        agent {text} NOT NULL,
        model {text} NOT NULL,
        currency {text} NOT NULL,
        told {integer} NOT NULL,
        by_request {integer} NOT NULL,
        cost {real},
        input {integer},
        output {integer},
        thought {integer},
        cached_read {integer},
        cached_write {integer},
        total {integer},
        PRIMARY KEY ({key}, slot, agent, model, currency)
    ){clustered}""",
    # How far the reports of a session are in the sums, and what the next increases need.
    """CREATE TABLE {schema}usage_folds (
        {session} PRIMARY KEY,
        fold {blob} NOT NULL
    ){clustered}""",
    # `tenant`: whose sessions the holder of a token sees; NULL for everybody's.
    """CREATE TABLE {schema}access_tokens (
        id {text} PRIMARY KEY,
        name {text} NOT NULL,
        digest {blob} NOT NULL,
        scopes {text} NOT NULL,
        created_at {integer} NOT NULL,
        session_id {text},
        expires_at {integer},
        used_at {integer},
        revoked_at {integer},
        tenant {text}
    ){clustered}""",
    """CREATE TABLE {schema}shares (
        session_id {name} NOT NULL,
        tenant {text} NOT NULL,
        prompts {flag} NOT NULL,
        PRIMARY KEY (session_id, tenant)
    ){clustered}""",
    "CREATE INDEX shares_with ON {schema}shares (tenant, session_id)",
    """CREATE TABLE {schema}deeds (
        id {serial} PRIMARY KEY,
        at {integer} NOT NULL,
        deed {text} NOT NULL,
        name {text} NOT NULL,
        token {text} NOT NULL,
        session_id {text},
        address {text} NOT NULL,
        transport {text} NOT NULL
    )""",
    "CREATE INDEX deeds_by_time ON {schema}deeds (at)",
    "CREATE INDEX deeds_by_token ON {schema}deeds (token, id)",
    # Standing answers, as JSON; the row with the number 0 is a lock: see `journal.access`.
    """CREATE TABLE {schema}rules (
        person {name} NOT NULL,
        number {integer} NOT NULL,
        rule {blob} NOT NULL,
        PRIMARY KEY (person, number)
    ){clustered}""",
    # The snapshots of files taken in turns: see journal.seams.Snapshots.
    """CREATE TABLE {schema}snapshots (
        {session} NOT NULL,
        turn {integer} NOT NULL,
        is_end {integer} NOT NULL,
        root {name} NOT NULL,
        facts {blob} NOT NULL,
        PRIMARY KEY ({key}, turn, is_end, root)
    ){clustered}""",
)


def session_columns(words: SchemaWords) -> list[str]:
    """The columns of a session's row, beside its keys."""
    return [column.format(**asdict(words)) for column in _SESSION_COLUMNS]


def common_tables(words: SchemaWords) -> list[str]:
    """The statements that make the tables, and the indexes of sessions and links."""
    return [statement.format(**asdict(words)) for statement in _TABLES]
