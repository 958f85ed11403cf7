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

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
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
from acphold.schema import LIST_SESSIONS, LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.journal_reader import JournalReader

GLANCES: Final = "/glances"
CONTEXTS: Final = "/contexts"

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


class GlancesQuery(Struct):
    """The query of GLANCES: ids of sessions."""

    sessions: str = "[]"


class ContextsQuery(Struct):
    """The query of CONTEXTS: the words that were searched for, and places of hits."""

    q: str = ""
    places: str = "[]"


async def glances(reader: JournalReader, principal: Principal, exchange: HttpExchange) -> bytes:
    """Return the body of an answer; raises RefusedError."""
    asked = exchange.query(GlancesQuery)
    principal.check(LIST_SESSIONS.name, b"{}")
    found = list[Glance]()
    for row in [await _seen(reader, principal, it) for it in _listed(asked.sessions, "sessions")]:
        if row is not None:
            with suppress(UnknownSessionError):  # deleted since
                found.append(await reader.ask(partial(_glance, row.session_id)))
    return _json({"glances": found})


async def _glance(session_id: str, journal: Journal) -> Glance:
    page = await journal.read_back(session_id, None, ENTRIES, ENTRY_BYTES)
    return glance(session_id, page.entries, is_all=page.before is None)


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


async def contexts(reader: JournalReader, principal: Principal, exchange: HttpExchange) -> bytes:
    """Return the body of an answer; raises RefusedError."""
    asked = exchange.query(ContextsQuery)
    principal.check(LIST_SESSIONS.name, b"{}")
    patterns = patterns_of(terms(asked.q))
    if not patterns:
        raise RefusedError(400, "q has no word to search for")
    found = list[dict[str, object]]()
    for place in _listed(asked.places, "places"):
        session_id, _, number = place.rpartition("@")
        if not (number.isascii() and number.isdecimal() and 0 < len(number) < 11):
            raise RefusedError(400, "places are like those of hits: ID@SEQ")
        row = await _seen(reader, principal, session_id)
        if row is None:
            continue
        its = await reader.ask(partial(_context, row, int(number), patterns))
        if its is not None:
            found.append(its)
    return _json({"contexts": found})


async def _context(
    row: SessionRow, seq: int, patterns: Sequence[re.Pattern[str]], journal: Journal
) -> dict[str, object] | None:
    """Return a hit with what is around it; None if it was merged with others, or deleted, since."""
    try:
        before = await journal.read_back(row.session_id, seq, AROUND, ENTRY_BYTES)
        following = [
            entry
            async for segment in history(journal, row.session_id, seq - 1, seq + AROUND)
            for entry in segment.entries()
            if entry.raw and entry.seq >= seq
        ]
    except (RewrittenError, UnknownSessionError):
        return None
    if not following or following[0].seq != seq:
        return None
    held = Held(row.session_id, row.agent, row.cwd, row.title, row.archived)
    its = hit(held, following[0], patterns, None, EXCERPT)
    return {
        "place": place_name(row.session_id, seq),
        "excerpt": its.excerpt,
        "marks": its.marks,
        "before": _message(before.entries, is_end=True),
        "after": _message(following[1:], is_end=False),
    }


def _message(entries: Iterable[Entry], *, is_end: bool) -> dict[str, str] | None:
    """Return the first message among these, the end or the beginning of its text."""
    for entry in entries:
        is_message = entry.kind == PROMPT or update_kind(entry.update) in ROLES
        if is_message and (text := " ".join(document(entry).messages.split())):
            if len(text) > WORDS:
                text = f"…{text[-WORDS:]}" if is_end else f"{text[:WORDS]}…"
            return {"speaker": speaker(entry), "text": text}
    return None


async def _seen(reader: JournalReader, principal: Principal, session_id: str) -> SessionRow | None:
    """Return the row of a session that this principal may read, else None."""
    try:
        return await reader.session(principal, session_id, LOAD_SESSION.name)
    except (ForbiddenError, UnknownSessionError):
        return None


def _listed(given: str, name: str) -> Sequence[str]:
    """Return a parameter that is a list of texts in JSON."""
    try:
        found = msgspec.json.decode(given, type=list[str])
    except (msgspec.MsgspecError, RecursionError):
        raise RefusedError(400, f'{name} is a list such as ["a", "b"]') from None
    if len(found) > MOST:
        raise RefusedError(400, f"{name} has at most {MOST}")
    return found


def _json(facts: object) -> bytes:
    return visible_json(msgspec.json.encode(facts).decode(errors="replace")).encode()
