"""The answers of an `acphold serve` to the requests of `reading.requests`, decoded."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct
from msgspec.structs import asdict

from acp_wire.schema import members
from acphold.conversation.history.decisions import AskedQuestion, Came, ClosedQuestion
from acphold.conversation.history.entries import PROMPT, Entry, milliseconds
from acphold.journal.moves import MoveMark, mark_text
from acphold.journal.rows import SessionRow
from acphold.journal.seams import SearchHit, Speaker
from acphold.journal.token_reports import ReportedTokens
from acphold.live.reading.inbox import InboxQuestion
from acphold.live.reading.json_facts import QuestionFacts, SessionFacts
from acphold.live.reading.processes import LiveSession
from acphold.live.reading.session_reader import ListedSession, OfferedRule


class RemoteHit(Struct, rename="camel"):
    """A hit of a search."""

    session_id: str
    seq: int
    at: str
    speaker: Speaker
    excerpt: str
    marks: tuple[tuple[int, int], ...]
    agent: str
    cwd: str
    title: str | None
    tool: str | None = None
    archived: bool = False
    user: str | None = None
    missing: tuple[str, ...] = ()
    nowhere: tuple[str, ...] = ()


class RemoteSum(ReportedTokens, rename="camel", kw_only=True):
    """The reported usage of a group; its name has another key for each grouping."""

    sessions: int
    not_reported: int
    title: str | None = None
    cost: dict[str, float] | None = None


class RemoteSums(Struct, rename="camel"):
    """The answer to USAGE."""

    sums: list[Raw]
    total: Raw
    by_request: frozenset[str] = frozenset()


class RemoteChange(Struct):
    """A change of the list: a session, or the id of one that is gone."""

    session: SessionFacts | None = None
    gone: str | None = None


class RemoteEntry(Struct):
    """An entry; a prompt is in its `update`, too."""

    seq: int
    kind: str
    at: str
    update: Raw = Raw(b"null")


class RemoteRows(Struct, rename="camel"):
    """The answer to SESSIONS."""

    sessions: list[SessionFacts]
    next_cursor: str | None = None
    left_out: int = 0


class RemoteEntries(Struct):
    """The answer to ENTRIES."""

    entries: list[RemoteEntry]
    before: int | None = None


class RemoteHits(Struct, rename="camel"):
    """The answer to SEARCH."""

    hits: list[RemoteHit]
    next_cursor: str | None = None


class RemoteInbox(Struct):
    """The answer to INBOX."""

    questions: list[QuestionFacts]


class RemoteDecisions(Struct, rename="camel"):
    """The answer to DECISIONS."""

    decisions: list[QuestionFacts]
    next_cursor: Annotated[str, Meta(pattern="^[0-9]{1,16}$")] | None = None


class RemoteOffers(Struct):
    """The answer to OFFERS."""

    offers: list[OfferedRule]


class RemoteRule(Struct, rename="camel"):
    """A standing answer."""

    number: int
    text: str
    user: str = ""
    is_new: bool = False
    made_with: str = ""


class RemoteRules(Struct):
    """The answer to RULES, and to a POST there."""

    rules: list[RemoteRule]


def to_listed(row: SessionFacts) -> ListedSession:
    """Return a session of the list."""
    live, session, questions = row.live, None, list[InboxQuestion]()
    if live is not None:
        session = LiveSession(
            row.session_id,
            live.clients,
            running=live.state == "running",
            waiting=live.state == "waiting",
            questions=live.questions,
        )
        questions = [question_of(it) for it in row.open_questions or ()]
    return ListedSession(
        session_row(row),
        row.outcome,
        session,
        0 if live is None else live.pid,
        live is not None and live.background,
        questions,
        row.files,
        None if row.said is UNSET else row.said,
        row.pinned,
        row.by_program,
    )


def session_row(row: SessionFacts) -> SessionRow:
    """Return the row of a session, as far as a server tells it."""
    return SessionRow(
        session_id=row.session_id,
        agent=row.agent,
        cwd=row.cwd,
        additional_directories=(),
        title=row.title,
        created_at=milliseconds(row.created_at),
        updated_at=milliseconds(row.updated_at),
        message_count=row.message_count,
        prompted=True,  # the server has left out the others, unless they were wanted
        last_seq=0,
        archived=row.archived,
        origins=row.origins,
        unseen=row.unseen,
        unread=b"" if row.unread else None,
        queued=row.queued,
        ruled=row.ruled,
        start=None if row.unstarted else "",
        held=row.held or "",
        held_until=None if row.held_until is None else milliseconds(row.held_until),
        tags=row.tags,
        moved=mark_text(MoveMark(to=row.moved_to)) if row.moved_to else "",
    )


def entry_of(entry: RemoteEntry) -> Entry:
    """Return an entry of a session."""
    raw = bytes(entry.update)
    if entry.kind == PROMPT:
        raw = members(raw).get("prompt", b"[]")
    return Entry(entry.seq, entry.kind, milliseconds(entry.at), raw)


def hit_of(hit: RemoteHit) -> SearchHit:
    """Return a hit of a search."""
    return SearchHit(**{**asdict(hit), "at": milliseconds(hit.at)})


def question_of(asked: QuestionFacts) -> InboxQuestion:
    """Return a question, with its decision if there is one."""
    at = milliseconds(asked.at)
    row = SessionFacts(
        session_id=asked.session_id,
        agent=asked.agent,
        agent_name=asked.agent_name,
        cwd=asked.cwd,
        title=asked.title,
        created_at=asked.at,
        updated_at=asked.at,
    )
    decided = None
    if asked.answered_at:
        whose, rules = None if asked.client is UNSET else asked.client, asked.rules or ()
        decided = ClosedQuestion(asked.id, asked.outcome or "", client=whose, rules=rules)
    return InboxQuestion(
        session_row(row),
        asked.seq,
        at,
        AskedQuestion(asked.id, asked.method, bytes(asked.params or b"{}")),
        {name: bytes(value) for name, value in (asked.tool_call or {}).items()},
        decided,
        Came(asked.how or "", asked.said or ""),
        milliseconds(asked.answered_at or None),
        asked.asks,
    )
