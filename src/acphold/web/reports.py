"""Reports on the journal for people: usage, glances at sessions, file changes and exports.

    GET /usage?by=day|agent|…       {"sums": [SUM…], "total": SUM, "byRequest": [AGENT…]}, as
                                    `acphold usage --json` prints them
    GET /glances?sessions=["ID",…]  {"glances": [GLANCE…]}: the ends of sessions
    GET /contexts?q=…&places=["ID@SEQ",…]
                                    {"contexts": [CONTEXT…]}: the surroundings of hits
    GET /sessions/ID/changes        its file changes: see `web.file_changes`
    GET /sessions/ID/present?question=ID
                                    {"diffs": {"PLACE": {"oldText", "newText", "differs"}…}}: the
                                    changes in an open question against the files as they are, for
                                    who may read these
    GET /sessions/ID/kept           {"turns": [{"turn", "before", "after"}…], "include": false,
                                    "isInTree": false}: where its files were kept, for who may copy
                                    it with them; `include`: the project names ignored files to be
                                    copied, too; `isInTree`: it works in a work tree
    GET /sessions/ID/export         the page that `acphold export` writes, as a download

    GLANCE   {"sessionId", "words", "problem", "files", "isAll"}
    CONTEXT  {"place", "excerpt", "marks", "before", "after"}

`words` are the agent's last ones, `problem` is why the last turn failed, and `files` how many files
that turn changed, as far as the agent has shown: `isAll` is false if there may be more, because
only the end of a long turn is read. `before` and `after` are the messages around a hit, each
{"speaker", "user", "text"} or null, and `excerpt` is longer than that of the hit. Sessions that are
gone or not for this principal are left out.

A file is only downloaded, never shown at this address: agents' text would share our origin.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.json import encode

from acp_wire.schema import LIST_SESSIONS, LOAD_SESSION
from acp_wire.tasks import timeout
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import PROMPT, TURN_END, Entry
from acphold.conversation.history.raw_update import ROLES, members, update_kind
from acphold.conversation.history.replay import named_user
from acphold.conversation.history.timeline import turn_end
from acphold.conversation.history.titles import drawn
from acphold.conversation.history.words import document
from acphold.conversation.presentation.permissions import permission
from acphold.conversation.presentation.present_diffs import present_diffs, present_files
from acphold.conversation.reports.file_edits import diffs_in
from acphold.errors import ForbiddenError, RewrittenError, UnknownSessionError
from acphold.journal.hits import Held, hit, patterns_of, speaker, terms
from acphold.journal.journal import Journal, history
from acphold.journal.rows import SessionRow
from acphold.live.agents.extensions import FORK_METHOD
from acphold.live.hub.kept_files import read_kept_turns
from acphold.live.reading import requests
from acphold.live.reading.inbox import Whose
from acphold.live.reading.json_facts import facts_json, place_name, usage_json
from acphold.live.reading.local_reader import LocalReader, entries_of
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Principal
from acphold.web import bounds
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.file_changes import SessionChanges
from acphold.web.gate import Admitted
from acphold.web.journal_pages import JournalReader, agents_of, moment_of

GLANCES: Final = "/glances"
CONTEXTS: Final = "/contexts"

EXPORT: Final = "/export"
KEPT: Final = "/kept"
PRESENT: Final = "/present"
"""The ends of the addresses of a session's export, kept files and present ones."""


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


class PresentQuery(Struct):
    """The query of PRESENT: the id of a question."""

    question: str = ""


class ContextsQuery(Struct):
    """The query of CONTEXTS: the words that were searched for, and places of hits."""

    q: str = ""
    places: str = "[]"


async def glances(reader: JournalReader, principal: Principal, exchange: HttpExchange) -> bytes:
    """Return the body of an answer; raises RefusedError."""
    asked = exchange.query(GlancesQuery)
    principal.check(Asked.read(LIST_SESSIONS.name))
    found = list[Glance]()
    for row in [
        await _readable_row(reader, principal, it) for it in _read_list(asked.sessions, "sessions")
    ]:
        if row is not None:
            with suppress(UnknownSessionError):  # deleted since
                found.append(await reader.ask(partial(_glance, row.session_id)))
    return facts_json({"glances": found}).encode()


async def _glance(session_id: str, journal: Journal) -> Glance:
    page = await journal.read_back(session_id, None, bounds.GLANCE_ENTRIES, bounds.GLANCE_BYTES)
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
            diffs = diffs_in(members(entry.update))
            paths |= {diff.path for diff in diffs if diff.path is not None}
    text = "".join(reversed(words))
    before, text = text[: -4 * bounds.GLANCE_CHARACTERS], text[-4 * bounds.GLANCE_CHARACTERS :]
    fences = sum(line.lstrip().startswith(("```", "~~~")) for line in before.splitlines())
    said = " ".join(drawn(f"{'```' * (fences % 2)}\n{text}").split())
    short = (
        said
        if len(said) <= bounds.GLANCE_CHARACTERS
        else f"…{said[-bounds.GLANCE_CHARACTERS :].partition(' ')[2]}"
    )
    return Glance(
        session_id, short, problem and problem[: bounds.GLANCE_CHARACTERS], len(paths), is_all
    )


async def contexts(reader: JournalReader, principal: Principal, exchange: HttpExchange) -> bytes:
    """Return the body of an answer; raises RefusedError."""
    asked = exchange.query(ContextsQuery)
    principal.check(Asked.read(LIST_SESSIONS.name))
    patterns = patterns_of(terms(asked.q))
    if not patterns:
        raise RefusedError(400, "q contains no word to search for")
    found = list[dict[str, object]]()
    for place in _read_list(asked.places, "places"):
        session_id, _, number = place.rpartition("@")
        if not (number.isascii() and number.isdecimal() and 0 < len(number) < 11):
            raise RefusedError(400, "places must be like those of hits: ID@SEQ")
        row = await _readable_row(reader, principal, session_id)
        if row is None:
            continue
        its = await reader.ask(partial(_context, row, int(number), patterns))
        if its is not None:
            found.append(its)
    return facts_json({"contexts": found}).encode()


async def _context(
    row: SessionRow, seq: int, patterns: Sequence[re.Pattern[str]], journal: Journal
) -> dict[str, object] | None:
    """Return a hit with what is around it; None if it was merged with others, or deleted, since, or
    has no text of its own yet: a search joins the text of a turn that runs."""
    try:
        before = await journal.read_back(
            row.session_id, seq, bounds.ENTRIES_AROUND, bounds.GLANCE_BYTES
        )
        following = [
            entry
            async for segment in history(
                journal, row.session_id, seq - 1, seq + bounds.ENTRIES_AROUND
            )
            for entry in segment.entries()
            if entry.raw and entry.seq >= seq
        ]
    except (RewrittenError, UnknownSessionError):
        return None
    if not following or following[0].seq != seq or not document(following[0]):
        return None
    held = Held(row.session_id, row.agent, row.cwd, row.title, row.archived)
    its = hit(held, following[0], None, patterns, None, bounds.EXCERPT_CHARACTERS)
    return {
        "place": place_name(row.session_id, seq),
        "excerpt": its.excerpt,
        "marks": its.marks,
        "before": _message(before.entries, [*before.entries[1:], None], is_end=True),
        "after": _message(following[1:], following[:-1], is_end=False),
    }


def _message(
    entries: Sequence[Entry], befores: Sequence[Entry | None], *, is_end: bool
) -> dict[str, str | None] | None:
    """Return the first message among these, the end or the beginning of its text; `befores` are the
    entries before each."""
    for entry, before in zip(entries, befores, strict=False):
        is_message = entry.kind == PROMPT or update_kind(entry.update) in ROLES
        if is_message and (text := " ".join(document(entry).messages.split())):
            if len(text) > bounds.GLANCE_CHARACTERS:
                text = (
                    f"…{text[-bounds.GLANCE_CHARACTERS :]}"
                    if is_end
                    else f"{text[: bounds.GLANCE_CHARACTERS]}…"
                )
            user = named_user(entry, before)
            return {"speaker": speaker(entry), "user": user, "text": text}
    return None


async def _readable_row(
    reader: JournalReader, principal: Principal, session_id: str
) -> SessionRow | None:
    """Return the row of a session that this principal may read, else None."""
    try:
        return await reader.session(principal, session_id, LOAD_SESSION.name)
    except (ForbiddenError, UnknownSessionError):
        return None


def _read_list(given: str, name: str) -> Sequence[str]:
    """Return a parameter that is a list of texts in JSON."""
    try:
        found = msgspec.json.decode(given, type=list[str])
    except (msgspec.MsgspecError, RecursionError):
        raise RefusedError(400, f'{name} must be a list such as ["a", "b"]') from None
    if len(found) > bounds.REPORT_PLACES:
        raise RefusedError(400, f"{name} can have at most {bounds.REPORT_PLACES}")
    return found


Export: TypeAlias = Callable[[SessionRow, AsyncIterator[Entry]], tuple[str, AsyncIterator[str]]]
"""Returns the name and the text of the file for a session."""


class Reports:
    """Answers requests for reports; `export` writes the file of a session."""

    def __init__(self, reader: JournalReader, export: Export) -> None:
        self._reader = reader
        self._write = export
        self._changed = SessionChanges()
        self._threads = Threads(2)

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request for a report; raises RefusedError, ForbiddenError and JournalError."""
        principal = admitted.principal
        path = exchange.path
        exchange.require("GET", "HEAD")
        session_id, _, report = path.removeprefix(f"{requests.SESSIONS}/").rpartition("/")
        if path == requests.USAGE:
            raw = await self._usage(exchange, principal)
        elif path == GLANCES:
            raw = await glances(self._reader, principal, exchange)
        elif path == CONTEXTS:
            raw = await contexts(self._reader, principal, exchange)
        elif f"/{report}" == requests.CHANGES:
            asked = exchange.query(requests.ChangesQuery)
            turn = -1 if asked.turn == "last" else asked.turn
            row = await self._reader.session(principal, session_id, LOAD_SESSION.name)
            # Edits that an agent made up may quote a file. Only who sees everything sees that.
            reads_disk = principal.sees_all
            raw = await self._reader.ask(
                lambda it: self._changed.body(it, row, turn, asked.path, reads_disk=reads_disk)
            )
        elif f"/{report}" == KEPT:
            exchange.query(requests.NoQuery)
            row = await self._with_files(principal, session_id)
            raw = encode(await self._reader.ask(lambda journal: read_kept_turns(journal, row)))
        elif f"/{report}" == PRESENT:
            question = exchange.query(PresentQuery).question
            row = await self._with_files(principal, session_id)
            live = await self._reader.live_now()
            whose = Whose(principal.tenant, session_id)
            found = await self._reader.ask(
                lambda it: LocalReader(it, whose=whose, live=live).questions()
            )
            asks = next((it for it in found if it.question.id == question), None)
            if asks is None:
                raise RefusedError(404, "this question is not open")
            call = asks.call or asks.question.tool_call
            params = asks.question.params

            def scene() -> bytes:
                files = present_files(row.cwd, row.additional_directories)
                shows = permission(call, params, present_diffs(call, files))
                return facts_json({"shows": shows}).encode()

            try:
                async with timeout(bounds.PRESENT_SECONDS):
                    raw = await self._threads.run(scene)
            except TimeoutError:
                raise RefusedError(503, "the session's files take too long to read") from None
        else:
            await self._export(exchange, session_id, principal)
            return
        await exchange.answer(200, raw=raw)

    async def _with_files(self, principal: Principal, session_id: str) -> SessionRow:
        """Return the row of a session whose files a principal may read; raises ForbiddenError."""
        wanted = encode({"files": True})
        return await self._reader.session(principal, session_id, FORK_METHOD, wanted)

    async def _usage(self, exchange: HttpExchange, principal: Principal) -> bytes:
        asked = exchange.query(requests.UsageQuery)
        principal.check(Asked.read(LIST_SESSIONS.name))
        if not principal.sees_all:  # sums cover all sessions together
            raise RefusedError(403, "usage needs a token for all sessions")
        agents, since = agents_of(asked.agent), moment_of(asked.since)

        async def sums(journal: Journal) -> str:
            found = await LocalReader(journal).usage(
                asked.by, agents=agents, cwd=asked.cwd, since=since
            )
            groups = ",".join(usage_json(each, asked.by) for each in found.groups[: asked.limit])
            total, last = usage_json(found.total, asked.by), encode(sorted(found.by_request))
            return f'{{"sums":[{groups}],"total":{total},"byRequest":{last.decode()}}}'

        return (await self._reader.ask(sums)).encode()

    async def _export(self, exchange: HttpExchange, session_id: str, principal: Principal) -> None:
        exchange.query(requests.NoQuery)
        row = await self._reader.session(principal, session_id, LOAD_SESSION.name)

        async def export(journal: Journal) -> tuple[str, bytes]:
            name, found = self._write(row, entries_of(journal, session_id))
            texts, size = list[str](), 0
            async for text in found:
                texts.append(text)
                size += len(text)
                if size > bounds.EXPORT_CHARACTERS:
                    raise RefusedError(
                        413, "the session is too long for a download; use `acphold export`"
                    )
                await asyncio.sleep(0)  # it may be given up
            return name, "".join(texts).encode()

        async with JournalReader(self._reader.location) as own:  # it takes as long as it is long
            name, raw = await own.ask(export)
        head = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-disposition", f"attachment; filename*=UTF-8''{quote(name)}".encode()),
            (b"content-security-policy", b"sandbox; default-src 'none'"),
        ]
        await exchange.answer(200, headers=head, raw=raw)
