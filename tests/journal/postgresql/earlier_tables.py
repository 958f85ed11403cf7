"""The tables of earlier releases: each step leads from one version to the next.

A journal that has gone through the first of them has the version 6.
"""

from __future__ import annotations

from typing import Final

MADE: Final = (20, "96cb8bb5701d964e")
"""The version of journals, and a digest of their tables, as in the tests of journals in files."""

_TABLES: Final = (
    "CREATE TABLE acphold.meta (name text PRIMARY KEY, value bytea NOT NULL)",
    "CREATE SEQUENCE acphold.epochs",
    'CREATE TABLE acphold.sessions (session_id text COLLATE "C" PRIMARY KEY, number bigint NOT '
    "NULL, agent text NOT NULL, cwd text NOT NULL, folder text NOT NULL, additional_directories "
    "text NOT NULL, title text, created_at bigint NOT NULL, updated_at bigint NOT NULL, prompted "
    "boolean NOT NULL DEFAULT false, archived boolean NOT NULL DEFAULT false, renamed boolean NOT "
    "NULL DEFAULT false, unseen boolean NOT NULL DEFAULT false, origins text NOT NULL DEFAULT "
    "'[]', tenant text NOT NULL DEFAULT '', start text, followers bigint NOT NULL DEFAULT 0, "
    "unread bytea, message_count bigint NOT NULL DEFAULT 0, settled_through bigint NOT NULL "
    "DEFAULT 0, indexed_through bigint NOT NULL DEFAULT 0, packed_through bigint NOT NULL DEFAULT "
    "0, changed xid8 NOT NULL DEFAULT pg_current_xact_id(), queued bigint NOT NULL DEFAULT 0, "
    "held text NOT NULL DEFAULT '', held_until bigint)",
    "CREATE INDEX listed ON acphold.sessions (prompted, archived, updated_at, session_id)",
    "CREATE INDEX listed_agent ON acphold.sessions (agent, prompted, archived, updated_at, "
    "session_id)",
    "CREATE INDEX listed_folder ON acphold.sessions (folder, prompted, archived, updated_at, "
    "session_id)",
    "CREATE INDEX listed_both ON acphold.sessions (agent, folder, prompted, archived, updated_at, "
    "session_id)",
    "CREATE INDEX listed_tenant ON acphold.sessions (tenant, prompted, archived, updated_at, "
    "session_id) WHERE tenant <> ''",
    "CREATE INDEX listed_unread ON acphold.sessions (prompted, archived, updated_at, session_id) "
    "WHERE unread IS NOT NULL",
    "CREATE INDEX listed_tenant_unread ON acphold.sessions (tenant, prompted, archived, "
    "updated_at, session_id) WHERE tenant <> '' AND unread IS NOT NULL",
    "CREATE INDEX with_queue ON acphold.sessions (updated_at) WHERE queued > 0",
    "CREATE INDEX unindexed ON acphold.sessions (updated_at) WHERE indexed_through < "
    "settled_through",
    "CREATE INDEX unpacked ON acphold.sessions (updated_at) WHERE packed_through < settled_through",
    "CREATE INDEX changed ON acphold.sessions (changed)",
    'CREATE TABLE acphold.gone (session_id text COLLATE "C" NOT NULL, changed xid8 NOT NULL '
    "DEFAULT pg_current_xact_id(), PRIMARY KEY (session_id, changed))",
    "CREATE INDEX gone_changed ON acphold.gone (changed)",
    'CREATE TABLE acphold.leases (session_id text COLLATE "C" PRIMARY KEY, owner text NOT NULL, '
    "epoch bigint NOT NULL, yields boolean NOT NULL) WITH (fillfactor = 50)",
    'CREATE TABLE acphold.segments (session_id text COLLATE "C" NOT NULL, last_seq bigint NOT '
    "NULL, first_seq bigint NOT NULL, at bigint NOT NULL, kind text NOT NULL, raw bytea NOT NULL, "
    "PRIMARY KEY (session_id, last_seq))",
    "ALTER TABLE acphold.segments ALTER COLUMN raw SET STORAGE EXTERNAL",
    'CREATE TABLE acphold.summaries (session_id text COLLATE "C" PRIMARY KEY, summary bytea NOT '
    "NULL)",
    "CREATE TABLE acphold.links (agent text NOT NULL, downstream_id text NOT NULL, session_id "
    "text COLLATE \"C\", number bigint NOT NULL DEFAULT nextval('acphold.epochs'), PRIMARY KEY "
    "(agent, downstream_id))",
    "CREATE INDEX links_session ON acphold.links (session_id, number)",
    'CREATE TABLE acphold.documents (session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, '
    "at bigint NOT NULL, number bigint NOT NULL DEFAULT nextval('acphold.epochs'), words tsvector "
    "NOT NULL, size integer NOT NULL DEFAULT 0, tenant text NOT NULL DEFAULT '', PRIMARY KEY "
    "(session_id, seq))",
    "CREATE INDEX documents_words ON acphold.documents USING gin (words)",
    "CREATE INDEX documents_at ON acphold.documents (at, number)",
    "CREATE INDEX documents_tenant ON acphold.documents (tenant, at, number) WHERE tenant <> ''",
    'CREATE TABLE acphold.usage (session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, at '
    "bigint NOT NULL, by_turn smallint NOT NULL, cost double precision, currency text NOT NULL, "
    "input bigint, output bigint, thought bigint, cached_read bigint, cached_write bigint, total "
    "bigint, PRIMARY KEY (session_id, seq))",
    "CREATE INDEX usage_of_sessions ON acphold.usage (session_id) WHERE by_turn = 2",
    'CREATE TABLE acphold.usage_slots (session_id text COLLATE "C" NOT NULL, slot bigint NOT '
    "NULL, told bigint NOT NULL, by_request bigint NOT NULL, input bigint, output bigint, thought "
    "bigint, cached_read bigint, cached_write bigint, total bigint, PRIMARY KEY (session_id, "
    "slot))",
    'CREATE TABLE acphold.usage_costs (session_id text COLLATE "C" NOT NULL, slot bigint NOT '
    "NULL, currency text NOT NULL, cost double precision NOT NULL, PRIMARY KEY (session_id, slot, "
    "currency))",
    "CREATE TABLE acphold.owners (id text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL, "
    "addresses text NOT NULL, renewed_at timestamptz NOT NULL, retired boolean NOT NULL, presence "
    "bigint, present_at timestamptz NOT NULL)",
    "CREATE TABLE acphold.access_tokens (id text PRIMARY KEY, name text NOT NULL, digest bytea "
    "NOT NULL, scopes text NOT NULL, created_at bigint NOT NULL, session_id text, expires_at "
    "bigint, used_at bigint, revoked_at bigint, tenant text)",
    'CREATE TABLE acphold.shares (session_id text COLLATE "C" NOT NULL, tenant text NOT NULL, '
    "prompts boolean NOT NULL, PRIMARY KEY (session_id, tenant))",
    "CREATE INDEX shares_with ON acphold.shares (tenant, session_id)",
    "CREATE TABLE acphold.deeds (id bigint PRIMARY KEY DEFAULT nextval('acphold.epochs'), at "
    "bigint NOT NULL, deed text NOT NULL, name text NOT NULL, token text NOT NULL, session_id "
    "text, address text NOT NULL, transport text NOT NULL)",
    "CREATE INDEX deeds_by_time ON acphold.deeds (at)",
    "CREATE INDEX deeds_by_token ON acphold.deeds (token, id)",
)

_RULES: Final = (
    # Standing answers, as JSON; the row with the number 0 is a lock: see `journal.access`.
    'CREATE TABLE acphold.rules (person text COLLATE "C" NOT NULL, number bigint NOT NULL, rule '
    "bytea NOT NULL, PRIMARY KEY (person, number))",
)

_SNAPSHOTS: Final = (
    # The snapshots of files taken in turns: see journal.seams.Snapshots.
    'CREATE TABLE acphold.snapshots (session_id text COLLATE "C" NOT NULL, turn bigint NOT NULL, '
    'is_end bigint NOT NULL, root text COLLATE "C" NOT NULL, facts bytea NOT NULL, PRIMARY KEY '
    "(session_id, turn, is_end, root))",
)

_MOVES: Final = (
    # Sessions that are another machine's: see `journal.moves`. And how often rules have answered.
    "ALTER TABLE acphold.sessions ADD COLUMN moved text NOT NULL DEFAULT '', ADD COLUMN ruled "
    "bigint NOT NULL DEFAULT 0",
)

_HOMES: Final = (
    # Where the history of sessions was made: see `SessionRow.home`.
    "ALTER TABLE acphold.sessions ADD COLUMN home text NOT NULL DEFAULT ''",
)

_META: Final = (
    # The `_meta` that agents give sessions in updates.
    "ALTER TABLE acphold.sessions ADD COLUMN meta bytea NOT NULL DEFAULT ''",
)

_USAGE: Final = (
    # Sums of usage are added up from the reports.
    "DROP TABLE acphold.usage_slots",
    "DROP TABLE acphold.usage_costs",
    "DROP INDEX acphold.usage_of_sessions",
)

_REPLIES: Final = (
    # The replies that imported turns begin with: copies count once.
    'CREATE TABLE acphold.replies (session_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, '
    "reply bigint NOT NULL, PRIMARY KEY (session_id, seq))",
)

_TAGS: Final = (
    # Words that people gave a session, and the tenants that have it pinned.
    "ALTER TABLE acphold.sessions ADD COLUMN tags text NOT NULL DEFAULT '[]'",
    "ALTER TABLE acphold.sessions ADD COLUMN pins text NOT NULL DEFAULT '[]'",
)

_ACCESS_CHANGES: Final = (
    # What has changed in tokens and shares; `changed` is the transaction.
    """CREATE TABLE acphold.access_changes (
        kind text NOT NULL,
        subject text COLLATE "C" NOT NULL,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id(),
        at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint,
        PRIMARY KEY (kind, subject)
    )""",
    "CREATE INDEX access_changed ON acphold.access_changes (changed)",
)

_PROGRAMS: Final = (
    # Nobody but a program has prompted it.
    "ALTER TABLE acphold.sessions ADD COLUMN by_program boolean NOT NULL DEFAULT false",
)

_USAGE_SUMS: Final = (
    # Increases of a session in a quarter of an hour, and how far they are added up.
    "ALTER TABLE acphold.sessions ADD COLUMN summed_at bigint NOT NULL DEFAULT -1",
    "CREATE INDEX replies_by_reply ON acphold.replies (reply)",
    """CREATE TABLE acphold.usage_sums (
        session_id text COLLATE "C" NOT NULL,
        slot bigint NOT NULL,
        agent text NOT NULL,
        model text NOT NULL,
        currency text NOT NULL,
        told bigint NOT NULL,
        by_request bigint NOT NULL,
        cost double precision,
        input bigint,
        output bigint,
        thought bigint,
        cached_read bigint,
        cached_write bigint,
        total bigint,
        PRIMARY KEY (session_id, slot, agent, model, currency)
    )""",
    """CREATE TABLE acphold.usage_folds (
        session_id text COLLATE "C" PRIMARY KEY,
        fold bytea NOT NULL
    )""",
)

_USAGE_BLOCKS: Final = (
    "CREATE INDEX numbered ON acphold.sessions (number)",
    """CREATE TABLE acphold.usage_blocks (
        highest bigint PRIMARY KEY,
        lowest bigint NOT NULL,
        by_agent bytea NOT NULL,
        by_day bytea NOT NULL,
        by_folder bytea NOT NULL,
        by_model bytea NOT NULL
    )""",
    "CREATE TABLE acphold.usage_ends (number bigint NOT NULL)",
)

_ENDED: Final = (
    # How the last turn ended.
    "ALTER TABLE acphold.sessions ADD COLUMN ended text NOT NULL DEFAULT ''",
)

_FOUND_SOONER: Final = (
    # The words that lists are searched for, and the hash of a title that may be repeated.
    'CREATE TABLE acphold.described (session_id text COLLATE "C" PRIMARY KEY, words tsvector NOT '
    "NULL, titled bigint)",
    "CREATE INDEX described_words ON acphold.described USING gin (words)",
    "CREATE INDEX described_titled ON acphold.described (titled) WHERE titled IS NOT NULL",
    # By these the tokens are found that have ended.
    "CREATE INDEX revoked ON acphold.access_tokens (revoked_at) WHERE revoked_at IS NOT NULL",
    "CREATE INDEX expiring ON acphold.access_tokens (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX browsers ON acphold.access_tokens ((coalesce(used_at, created_at)))"
    " WHERE scopes LIKE '%browser%'",
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
    _USAGE_BLOCKS,
    _ENDED,
    _FOUND_SOONER,
)
