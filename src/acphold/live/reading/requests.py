"""The HTTP requests that read a journal: the address and the query of each.

`web` answers them. A parameter that is left out, or empty, has
its default; an unknown one is refused. Answers are as `json_facts` writes them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import quote

from msgspec import Meta, Struct, field

from acphold.conversation.history.entries import LAST_SEQ
from acphold.journal.rows import Archived
from acphold.journal.seams import Grouping, Part

SESSIONS: Final = "/sessions"
FEED: Final = "/sessions/feed"
ENTRIES: Final = "/entries"
CHANGES: Final = "/changes"
"""The ends of the addresses of a session's entries, and of its changes."""

SEARCH: Final = "/search"
INBOX: Final = "/inbox"
DECISIONS: Final = "/inbox/history"
USAGE: Final = "/usage"
RULES: Final = "/rules"
OFFERS: Final = "/rules/offers"

ROWS: Final = 50
MOST_ROWS: Final = 500
"""Most sessions, entries or hits of a page; the first is the default."""

LAST_MOMENT: Final = 1 << 53
"""Highest time in a cursor, in ms."""

MOST_GROUPS: Final = 400
LARGEST_GROUPS: Final = 100_000
"""Groups of usage in an answer by default, and at most."""

Seq = Annotated[int, Meta(ge=1, le=LAST_SEQ)]
Rows = Annotated[int, Meta(ge=1, le=MOST_ROWS)]


def place_of(session_id: str) -> str:
    """Return the address of a session."""
    return f"{SESSIONS}/{quote(session_id, safe='')}"


class NoQuery(Struct):
    """The query of an address that takes no parameter."""


class ListQuery(Struct, omit_defaults=True):
    """The query of SESSIONS; see `journal.ListFilter`, and `listed_sessions.Wanted` for `said` and
    `mine`."""

    q: str = ""
    agent: str = ""
    cwd: str | None = None
    archived: Archived = "exclude"
    unprompted: bool = False
    queued: bool = False
    said: bool = False
    mine: bool = False
    limit: Rows = ROWS
    cursor: str | None = None


class EntriesQuery(Struct, omit_defaults=True):
    """The query of a session's ENTRIES: the last ones, or those before a number in a lineage."""

    before: Seq | None = None
    limit: Rows = ROWS
    lineage: str | None = None
    brief: bool = False


class SearchQuery(Struct, omit_defaults=True):
    """The query of SEARCH; see `journal.Sought`. `since` is a time in ISO 8601."""

    q: str = ""
    part: Part | None = field(name="in", default=None)
    agent: str = ""
    cwd: str | None = None
    since: str = ""
    rank: bool = False
    limit: Rows = ROWS
    cursor: str = ""


class DecisionsQuery(Struct, omit_defaults=True):
    """The query of DECISIONS: the last ones, or those before a time; of all sessions, or of one."""

    session: str | None = None
    limit: Rows = ROWS
    cursor: Annotated[int, Meta(ge=1, le=LAST_MOMENT)] | None = None


class UsageQuery(Struct, omit_defaults=True):
    """The query of USAGE; see `journal.Index.usage`. `since` is a time in ISO 8601."""

    by: Grouping = "day"
    agent: str = ""
    cwd: str | None = None
    since: str = ""
    limit: Annotated[int, Meta(ge=1, le=LARGEST_GROUPS)] = MOST_GROUPS


class ChangesQuery(Struct, omit_defaults=True):
    """The query of a session's CHANGES: those of one turn, by its number or "last", and of one
    file."""

    turn: Seq | Literal["last"] | None = None
    path: str | None = None


class OffersQuery(Struct):
    """The query of OFFERS: a question in a session."""

    session: str = ""
    question: str = ""


class AcceptedOffer(Struct, frozen=True, rename="camel"):
    """The body of a POST to RULES: the offer that a person accepts, by its text."""

    session_id: str
    question_id: str
    text: str
    all_agents: bool = False
