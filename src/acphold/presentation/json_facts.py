"""Sessions, entries and hits for programs: the output of `--json`, and answers of `serve`.

Each is one JSON object on one line, without control characters for a terminal or hidden ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from acphold.history import Entry
from acphold.history.entries import PROMPT
from acphold.history.raw_update import storable
from acphold.history.timeline import TurnOutcome, turn_end
from acphold.journal import SearchHit, SessionRow
from acphold.journal.journal import UsageSum
from acphold.presentation.permissions import permission
from acphold.presentation.visible_text import iso, visible_json
from acphold.schema import REQUEST_PERMISSION

if TYPE_CHECKING:
    from acphold.server.inbox import InboxQuestion
    from acphold.server.neighbours import Live


Outcomes = Mapping[str, bytes | None]
"""The outcomes of sessions' last turns: see `Sessions.outcomes`."""


def session_json(row: SessionRow, live: Live, outcomes: Outcomes) -> str:
    """Return a session; `live` has those that are in the memory of a process."""
    session, process = live.get(row.session_id, (None, None))
    outcome: TurnOutcome | None = None
    if row.session_id in outcomes:
        end = outcomes[row.session_id]
        if end is not None:
            outcome = turn_end(end, 0).outcome
        elif session is None:  # nobody is left to end it
            outcome = "interrupted"
    facts = {
        "sessionId": row.session_id,
        "agent": row.agent,
        "cwd": row.cwd,
        "title": row.title,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "messageCount": row.message_count,
        "outcome": outcome,
        "unseen": row.unseen,
        "unread": row.is_unread,
        "archived": row.archived,
        "origins": row.origins,
        "live": None
        if session is None or process is None
        else {
            "state": session.state,
            "clients": session.clients,
            "questions": session.questions,
            "background": process.is_background,
            "pid": process.pid,
        },
    }
    return visible_json(msgspec.json.encode(facts).decode())


def entry_json(entry: Entry) -> str:
    """Return an entry; its update is as journalled."""
    return visible_json(exact_entry_json(entry))


def question_json(found: InboxQuestion) -> str:
    """Return a question of the inbox; one that is closed also has its outcome."""
    question, answer = found.question, found.answer
    facts = {
        "id": question.id,
        "sessionId": found.row.session_id,
        "seq": found.seq,
        "place": place_name(found.row.session_id, found.seq),
        "at": iso(found.at),
        "agent": found.row.agent,
        "cwd": found.row.cwd,
        "title": found.row.title,
        "asks": found.asks,
        "method": question.method,
    }
    if answer is None:
        call = {name: Raw(value) for name, value in found.call.items()}
        facts |= {"params": Raw(question.params), "toolCall": call or None}
        if question.method == REQUEST_PERMISSION.name:
            facts["shows"] = permission(found.call or question.tool_call, question.params)
    else:
        came = answer.came(question)
        facts |= {
            "answeredAt": iso(found.answered_at),
            "outcome": answer.outcome,
            "how": came.how,
            "said": came.said,
            "client": answer.client,
        }
    return visible_json(msgspec.json.encode(facts).decode(errors="replace"))


def exact_entry_json(entry: Entry) -> str:
    """Return an entry for a file: the update keeps its bytes, except those that are not UTF-8."""
    update = entry.raw.decode(errors="replace")
    if entry.kind == PROMPT:
        update = f'{{"prompt":{update}}}'
    kind = msgspec.json.encode(storable(entry.kind)).decode()
    return f'{{"seq":{entry.seq},"kind":{kind},"at":"{iso(entry.at)}","update":{update}}}'


def hit_json(hit: SearchHit) -> str:
    """Return a hit of a search."""
    facts = {
        "sessionId": hit.session_id,
        "seq": hit.seq,
        "place": place_name(hit.session_id, hit.seq),
        "at": iso(hit.at),
        "speaker": hit.speaker,
        "agent": hit.agent,
        "cwd": hit.cwd,
        "title": hit.title,
        "archived": hit.archived,
        "tool": hit.tool,
        "excerpt": hit.excerpt,
        "marks": hit.marks,
    }
    return visible_json(msgspec.json.encode(facts).decode())


def usage_json(sum_: UsageSum, grouping: str) -> str:
    """Return the usage of a group of sessions; null means that nobody reported it."""
    key = "sessionId" if grouping == "session" else grouping
    title = {"title": sum_.title or None} if grouping == "session" else {}
    facts = {
        key: sum_.name,
        **title,
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
    return visible_json(msgspec.json.encode(facts).decode())


def place_name(session_id: str, seq: int | None = None) -> str:
    """Return a place as `search` prints it and all commands accept it: `ID`, or `ID@SEQ`."""
    return session_id if seq is None else f"{session_id}@{seq}"
