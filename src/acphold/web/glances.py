"""Glances at sessions and at hits of a search, for lists that show more than titles.

    GET /glances?sessions=["ID",…]       {"glances": [GLANCE…]}
    GET /contexts?q=…&places=["ID@SEQ",…] {"contexts": [CONTEXT…]}

    GLANCE   {"sessionId", "words", "problem", "files", "isAll"}
    CONTEXT  {"place", "excerpt", "marks", "before", "after"}

`words` are the agent's last ones, `problem` is why the last turn failed, and `files` how many files
that turn changed, as far as the agent has shown: `isAll` is false if there may be more, because
only the end of a long turn is read. `before` and `after` are the messages around a hit, each
{"speaker", "text"} or null, and `excerpt` is longer than that of the hit. Sessions that are gone or
not for this principal are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from acphold.errors import ForbiddenError, RewrittenError, UnknownSessionError
from acphold.history import Entry
from acphold.history.entries import PROMPT, TURN_END
from acphold.history.raw_update import ROLES, items, members, string, update_kind
from acphold.history.timeline import turn_end
from acphold.history.words import document
from acphold.journal import Journal, SessionRow
from acphold.journal.hits import Held, hit, patterns_of, speaker, terms
from acphold.journal.journal import history
from acphold.presentation.json_facts import place_name
from acphold.presentation.visible_text import visible_json
from acphold.schema import LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.gate import RefusedError
from acphold.web.parameters import Parameters

MOST: Final = 20
"""Most sessions, or places, of one request."""

ENTRIES: Final = 200
ENTRY_BYTES: Final = 256 << 10
"""How much of the end of a session is read for a glance."""

AROUND: Final = 8
"""Entries before and after a hit among which a message is looked for."""

WORDS: Final = 320
"""Characters of the last words, and of a message around a hit."""

EXCERPT: Final = 600
"""Characters of the excerpt of a hit in its context."""


class Glance(Struct, rename="camel"):
    """See the module."""

    session_id: str
    words: str
    problem: str | None
    files: int
    is_all: bool


async def glances(journal: Journal, principal: Principal, query: bytes) -> bytes:
    """Return the body of an answer; raises RefusedError."""
    ids = _listed(Parameters(query, ("sessions",)), "sessions")
    found = list[Glance]()
    for session_id in ids:
        if await _seen(journal, principal, session_id) is not None:
            page = await journal.read_back(session_id, None, ENTRIES, ENTRY_BYTES)
            found.append(glance(session_id, page.entries, is_all=page.before is None))
    return _json({"glances": found})


def glance(session_id: str, entries: Iterable[Entry], *, is_all: bool) -> Glance:
    """Return a glance at the last of these entries, the newest first; `is_all` if there are no
    more before them."""
    words, paths, problem = list[str](), set[str](), None
    is_said = has_end = False
    for entry in entries:
        if entry.kind == PROMPT:
            is_all = True
            break
        if entry.kind == TURN_END:
            if not has_end:
                problem = turn_end(entry.raw, entry.at).message
            has_end = True
            continue
        role = ROLES.get(update_kind(entry.update))
        if role == "agent" and not is_said:
            words.append(document(entry).messages)
        elif words and role != "thought":
            is_said = True
        if b'"diff"' in entry.update:
            content = map(members, items(members(entry.update).get("content", b"[]")))
            diffs = [parts for parts in content if parts.get("type") == b'"diff"']
            paths |= {path for parts in diffs if (path := string(parts.get("path"))) is not None}
    said = " ".join("".join(reversed(words)).split())
    short = said if len(said) <= WORDS else f"…{said[-WORDS:].partition(' ')[2]}"
    return Glance(session_id, short, problem and problem[:WORDS], len(paths), is_all)


async def contexts(journal: Journal, principal: Principal, query: bytes) -> bytes:
    """Return the body of an answer; raises RefusedError."""
    asked = Parameters(query, ("q", "places"))
    patterns = patterns_of(terms(asked.text("q") or ""))
    if not patterns:
        raise RefusedError(400, "q has no word to search for")
    found = list[dict[str, object]]()
    for place in _listed(asked, "places"):
        session_id, _, number = place.rpartition("@")
        if not (number.isascii() and number.isdecimal() and 0 < len(number) < 11):
            raise RefusedError(400, "places are like those of hits: ID@SEQ")
        seq = int(number)
        row = await _seen(journal, principal, session_id)
        if row is None:
            continue
        try:
            before = await journal.read_back(session_id, seq, AROUND, ENTRY_BYTES)
        except RewrittenError:  # merged since: the next search has another place
            continue
        following = [
            entry
            async for segment in history(journal, session_id, seq - 1, seq + AROUND)
            for entry in segment.entries()
            if entry.raw and entry.seq >= seq
        ]
        if not following or following[0].seq != seq:
            continue
        held = Held(row.session_id, row.agent, row.cwd, row.title, row.archived)
        its = hit(held, following[0], patterns, None, EXCERPT)
        found.append(
            {
                "place": place_name(session_id, seq),
                "excerpt": its.excerpt,
                "marks": its.marks,
                "before": _message(before.entries, is_end=True),
                "after": _message(following[1:], is_end=False),
            }
        )
    return _json({"contexts": found})


def _message(entries: Iterable[Entry], *, is_end: bool) -> dict[str, str] | None:
    """Return the first message among these, the end or the beginning of its text."""
    for entry in entries:
        is_message = entry.kind == PROMPT or update_kind(entry.update) in ROLES
        if is_message and (text := " ".join(document(entry).messages.split())):
            if len(text) > WORDS:
                text = f"…{text[-WORDS:]}" if is_end else f"{text[:WORDS]}…"
            return {"speaker": speaker(entry), "text": text}
    return None


async def _seen(journal: Journal, principal: Principal, session_id: str) -> SessionRow | None:
    """Return the row of a session that this principal may read, else None."""
    try:
        principal.check(LOAD_SESSION.name, msgspec.json.encode({"sessionId": session_id}))
        row = await journal.session(session_id)
        principal.check_in(row, LOAD_SESSION.name)
    except (ForbiddenError, UnknownSessionError):
        return None
    return row


def _listed(asked: Parameters, name: str) -> Sequence[str]:
    """Return a parameter that is a list of texts in JSON."""
    try:
        found = msgspec.json.decode(asked.text(name) or "[]", type=list[str])
    except (msgspec.MsgspecError, RecursionError):
        raise RefusedError(400, f'{name} is a list such as ["a", "b"]') from None
    if len(found) > MOST:
        raise RefusedError(400, f"{name} has at most {MOST}")
    return found


def _json(facts: object) -> bytes:
    return visible_json(msgspec.json.encode(facts).decode(errors="replace")).encode()
