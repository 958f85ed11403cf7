"""Sessions, entries and hits for programs: the output of `--json`, and answers of `serve`.

Each is one JSON object on one line, without control characters for a terminal or hidden ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_wire.schema import REQUEST_PERMISSION
from acphold.conversation.history.entries import Entry, Origin, exact_entry_json, iso
from acphold.conversation.history.timeline import TurnOutcome
from acphold.conversation.presentation.visible_text import visible_json
from acphold.journal.moves import destination
from acphold.journal.rows import SessionRow
from acphold.journal.seams import SearchHit, UsageSum
from acphold.known_agents import short_name
from acphold.live.reading.listed_sessions import FilesOfSession, ListedSession

if TYPE_CHECKING:
    from acphold.live.reading.inbox import InboxQuestion
    from acphold.live.reading.processes import LiveSession
    from acphold.live.reading.rule_offers import RuleOffer
    from acphold.safety.standing.decision import StandingRule


def facts_json(facts: Mapping[str, object]) -> str:
    """Return facts as JSON, without terminal control and hidden characters."""
    return visible_json(msgspec.json.encode(facts).decode(errors="replace"))


def _naming_facts(of: SessionRow | SearchHit) -> dict[str, object]:
    """Return the facts by which a person knows a session."""
    return {
        "sessionId": of.session_id,
        "agent": of.agent,
        "agentName": short_name(of.agent),
        "cwd": of.cwd,
        "title": of.title,
    }


def session_json(session: ListedSession) -> str:
    """Return a session of the list."""
    return visible_json(_ENCODER.encode(SessionFacts.of(session)).decode(errors="replace"))


def session_lines(sessions: Iterable[ListedSession]) -> str:
    """Return sessions of the list, a line for each."""
    text = _ENCODER.encode_lines([*map(SessionFacts.of, sessions)]).decode(errors="replace")
    if text.isascii() and text.replace("\n", "").isprintable():  # as most: see `visible_json`
        return text
    return "\n".join(map(visible_json, text.split("\n")))


class LiveFacts(Struct, rename="camel"):
    """The state of a session that a process has in memory."""

    state: str
    clients: int = 0
    questions: tuple[str, ...] = ()
    background: bool = False
    pid: int = 0

    @classmethod
    def of(cls, session: ListedSession, live: LiveSession) -> LiveFacts:
        """Return that of a session of the list, as its process has told it."""
        return cls(live.state, live.clients, live.questions, session.is_daemon, session.pid)


class SessionFacts(Struct, rename="camel"):
    """The members of a session of the list: a dict of them takes twice as long. An earlier server
    leaves some out."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    created_at: str
    updated_at: str
    agent_name: str = ""
    said: str | UnsetType = UNSET
    message_count: int = 0
    outcome: TurnOutcome | None = None
    unseen: bool = False
    unread: bool = False
    archived: bool = False
    tags: tuple[str, ...] = ()
    by_program: bool = False
    project: str | UnsetType = UNSET
    origins: tuple[Origin, ...] = ()
    unstarted: bool | UnsetType = UNSET
    moved_to: str | None = None
    queued: int = 0
    held: str | None = None
    held_until: str | None = None
    ruled: int = 0
    files: FilesOfSession | None = None
    live: LiveFacts | None = None
    open_questions: list[QuestionFacts] | UnsetType = UNSET
    # Last, where the feed of the list sets it for each person.
    pinned: bool = False

    @classmethod
    def of(cls, session: ListedSession) -> SessionFacts:
        """Return those of a session."""
        row, live = session.row, session.live
        return cls(
            row.session_id,
            row.agent,
            row.cwd,
            row.title,
            iso(row.created_at),
            iso(row.updated_at),
            short_name(row.agent),
            UNSET if session.said is None else session.said,
            row.message_count,
            session.outcome,
            row.unseen,
            row.unread is not None,
            row.archived,
            row.tags,
            session.by_program,
            session.project or UNSET,
            row.origins,
            UNSET if row.start is not None else True,
            destination(row) or None,
            row.queued,
            row.held or None,
            None if row.held_until is None else iso(row.held_until),
            row.ruled,
            session.files,
            None if live is None else LiveFacts.of(session, live),
            [*map(QuestionFacts.of, session.questions)] if session.questions else UNSET,
            session.pinned,
        )


_ENCODER: Final = msgspec.json.Encoder()


def entry_json(entry: Entry) -> str:
    """Return an entry; its update is as journalled."""
    return visible_json(exact_entry_json(entry))


def queue_json(session: ListedSession) -> str:
    """Return the prompts of a session that wait and are held."""
    row = session.row
    facts = {
        **_naming_facts(row),
        "queued": row.queued,
        "held": row.held,
        "heldUntil": None if row.held_until is None else iso(row.held_until),
    }
    return facts_json(facts)


def question_line(found: InboxQuestion) -> str:
    """Return what a question asks, for a list or a notice."""
    from acphold.conversation.presentation.permissions import (
        in_a_line,  # late: a list starts without
    )

    call = found.call or found.question.tool_call
    return in_a_line(found.asks, call) if call else found.asks


class QuestionFacts(Struct, rename="camel", kw_only=True):
    """The members of a question of the inbox, in order; one that is closed has its outcome."""

    id: str
    session_id: str
    agent: str
    agent_name: str = ""
    cwd: str
    title: str | None
    seq: int
    place: str = ""
    at: str
    asks: str
    method: str
    params: Raw | UnsetType = UNSET
    tool_call: dict[str, Raw] | UnsetType | None = UNSET
    shows: Raw | UnsetType = UNSET
    answered_at: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    how: str | UnsetType = UNSET
    said: str | UnsetType = UNSET
    client: str | UnsetType | None = UNSET
    rules: tuple[int, ...] | UnsetType = UNSET

    @classmethod
    def of(cls, found: InboxQuestion) -> QuestionFacts:
        """Return those of a question."""
        question, decided, row = found.question, found.decided, found.row
        facts = cls(
            id=question.id,
            session_id=row.session_id,
            agent=row.agent,
            agent_name=short_name(row.agent),
            cwd=row.cwd,
            title=row.title,
            seq=found.seq,
            place=place_name(row.session_id, found.seq),
            at=iso(found.at),
            asks=question_line(found),
            method=question.method,
        )
        if decided is None:
            call = {name: Raw(value) for name, value in found.call.items()}
            facts.params, facts.tool_call = Raw(question.params), call or None
            if question.method == REQUEST_PERMISSION.name:
                asked = found.call or question.tool_call
                facts.shows = Raw(_scene(question.params, tuple(sorted(asked.items()))))
        else:
            facts.answered_at, facts.outcome = iso(found.answered_at), decided.outcome
            facts.how, facts.said = found.came.how, found.came.said
            facts.client, facts.rules = decided.client, decided.rules
        return facts


@lru_cache(8)  # while a question is open, each list has it
def _scene(params: bytes, call: tuple[tuple[str, bytes], ...]) -> bytes:
    """Return what a permission request shows."""
    from acphold.conversation.presentation.permissions import permission  # late

    return _ENCODER.encode(permission(dict(call), params))


def question_json(found: InboxQuestion) -> str:
    """Return a question of the inbox."""
    return visible_json(_ENCODER.encode(QuestionFacts.of(found)).decode(errors="replace"))


def rule_json(rule: StandingRule, place: str) -> str:
    """Return a standing answer, as it is at this place."""
    facts = {
        "number": rule.number,
        "text": rule.text,
        "words": rule.words,
        "meaning": rule.meaning,
        "asks": rule.verdict == "ask",
        "folder": rule.folder,
        "agent": rule.agent,
        "sessionId": rule.session,
        "user": rule.person,
        "watches": rule.watches,
        "isOff": rule.is_off,
        "isNew": not rule.is_seen,
        "isOver": bool(rule.why_over),
        "waits": not (rule.why_over or rule.holds_at(place)),
        "madeAt": iso(rule.made_at),
        "madeWith": rule.made_with,
        "expiresAt": iso(rule.expires_at) if rule.expires_at else None,
        "uses": rule.uses,
        "usedAt": iso(rule.used_at) if rule.used_at else None,
    }
    return facts_json(facts)


def offer_json(offer: RuleOffer) -> str:
    """Return an offer to make a yes standing."""
    rule = offer.rules[0]
    facts = {
        "text": offer.text,
        "words": offer.words,
        "meaning": offer.meaning,
        "agent": rule.agent,
        "folder": rule.folder,
        "expiresAt": iso(rule.expires_at) if rule.expires_at else None,
    }
    return facts_json(facts)


def hit_json(hit: SearchHit) -> str:
    """Return a hit of a search."""
    facts = {
        **_naming_facts(hit),
        "seq": hit.seq,
        "place": place_name(hit.session_id, hit.seq),
        "at": iso(hit.at),
        "speaker": hit.speaker,
        "user": hit.user,
        "archived": hit.archived,
        "tool": hit.tool,
        "excerpt": hit.excerpt,
        "marks": hit.marks,
        "missing": hit.missing,
        "nowhere": hit.nowhere,
    }
    return facts_json(facts)


def usage_json(sum_: UsageSum, grouping: str) -> str:
    """Return the usage of a group of sessions; null means that nobody reported it."""
    key = "sessionId" if grouping == "session" else grouping
    name: dict[str, str | None] = {}
    if grouping == "agent":
        name["agentName"] = short_name(sum_.name)
    elif grouping == "session":
        name["title"] = sum_.title or None
    facts = {
        key: (sum_.name or None) if grouping == "model" else sum_.name,
        **name,
        "sessions": sum_.sessions,
        "notReported": sum_.not_reported,
        "totalTokens": sum_.tokens.total,
        "inputTokens": sum_.tokens.input,
        "outputTokens": sum_.tokens.output,
        "thoughtTokens": sum_.tokens.thought,
        "cachedReadTokens": sum_.tokens.cached_read,
        "cachedWriteTokens": sum_.tokens.cached_write,
        "cost": {currency: round(cost, 6) for currency, cost in sum_.costs.items()} or None,
    }
    return facts_json(facts)


def place_name(session_id: str, seq: int | None = None) -> str:
    """Return a place as `search` prints it and all commands accept it: `ID`, or `ID@SEQ`."""
    return session_id if seq is None else f"{session_id}@{seq}"
