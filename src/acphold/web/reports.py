"""Reports on the journal for people: usage, glances, a session's file changes and its export.

    GET /usage?by=day|agent|…       {"sums": [SUM…], "total": SUM, "byRequest": [AGENT…]}, as
                                    `acphold usage --json` prints them
    GET /glances, /contexts         ends of sessions, and surroundings of hits: see `glances`
    GET /sessions/ID/changes        the changes that `acphold diff` prints: see `session_changes`
    GET /sessions/ID/kept           {"turns": [{"turn", "before", "after"}…]}: where its files were
                                    kept, for who may copy it with them
    POST /origins                   where lines of files came from: see `line_origins`
    GET /sessions/ID/export         the page that `acphold export` writes, as a download

A file is only downloaded, never shown at this address: agents' text would share our origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias, get_args

from msgspec.json import encode

from acphold.agents.capabilities import FORK_METHOD
from acphold.errors import ForbiddenError, IllegibleNameError, JournalError, UnknownSessionError
from acphold.history import Entry
from acphold.hub.kept_files import kept_turns
from acphold.journal import Journal, SessionRow
from acphold.journal.journal import Grouping, history
from acphold.known_agents import keys_of
from acphold.origins.origin_readers import ORIGINS, WantedChanges
from acphold.presentation.json_facts import usage_json
from acphold.reading.local_reader import LocalReader
from acphold.schema import LIST_SESSIONS, LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.glances import contexts, glances
from acphold.web.journal_pages import LAST_SEQ, SESSIONS
from acphold.web.journal_reader import JournalReader
from acphold.web.line_origins import LineOrigins
from acphold.web.parameters import Parameters
from acphold.web.session_changes import SessionChanges

USAGE: Final = "/usage"
GLANCES: Final = "/glances"
CONTEXTS: Final = "/contexts"
EXPORT: Final = "/export"
CHANGES: Final = "/changes"
KEPT: Final = "/kept"
"""The ends of the addresses of a session's export, changes and kept files."""

MOST_GROUPS: Final = 400
LARGEST_GROUPS: Final = 100_000
"""Groups of usage in an answer, unless asked for up to the second."""

LARGEST_FILE: Final = 64 * 1024 * 1024
"""Characters of a file; use `acphold export` for longer sessions."""


Export: TypeAlias = Callable[[SessionRow, AsyncIterator[Entry]], tuple[str, AsyncIterator[str]]]
"""Returns the name and the text of the file for a session."""


class Reports:
    """Answers requests for reports. Without `export` there are no session files."""

    def __init__(self, reader: JournalReader, export: Export | None = None) -> None:
        self._reader = reader
        self._write = export
        self._changed = SessionChanges()
        self._origins = LineOrigins(reader)

    @staticmethod
    def has(path: str) -> bool:
        """Return True if `path` is answered here."""
        return path in (USAGE, GLANCES, CONTEXTS, ORIGINS) or (
            path.startswith(f"{SESSIONS}/") and path.endswith((EXPORT, CHANGES, KEPT))
        )

    async def answer(self, exchange: HttpExchange, principal: Principal) -> None:
        """Answer a request for a report; raises RefusedError."""
        if exchange.path == ORIGINS:
            await self._origins.answer(exchange, principal)
            return
        if exchange.method not in ("GET", "HEAD"):
            raise RefusedError(405, "this is only read: GET or HEAD is wanted")
        try:
            if exchange.path == USAGE:
                await self._usage(exchange, principal)
            elif exchange.path in (GLANCES, CONTEXTS):
                await self._glances(exchange, principal)
            elif exchange.path.endswith(CHANGES):
                await self._changes(exchange, principal)
            elif exchange.path.endswith(KEPT):
                await self._kept(exchange, principal)
            else:
                await self._export(exchange, principal)
        except ForbiddenError as exc:
            raise RefusedError(403, str(exc)) from None
        except UnknownSessionError:
            raise RefusedError(404, "there is no such session") from None
        except IllegibleNameError as exc:
            raise RefusedError(400, str(exc)) from None
        except JournalError as exc:
            raise RefusedError(503, str(exc)) from None

    async def _usage(self, exchange: HttpExchange, principal: Principal) -> None:
        asked = Parameters(
            exchange.scope.get("query_string", b""), ("by", "agent", "cwd", "since", "limit")
        )
        principal.check(LIST_SESSIONS.name, encode({}))
        if not principal.sees_all:  # sums cover all sessions together
            raise RefusedError(403, "what was used is for who may see all sessions")
        grouping = asked.one_of("by", get_args(Grouping)) or "day"
        name, cwd, since = asked.text("agent"), asked.text("cwd"), asked.moment("since")
        agents = () if name is None else keys_of(name)
        limit = asked.number("limit", 1, LARGEST_GROUPS) or MOST_GROUPS

        async def sums(journal: Journal) -> str:
            found = await LocalReader(journal).usage(
                grouping,  # type: ignore[arg-type]
                agents=agents,
                cwd=cwd,
                since=since,
            )
            groups = ",".join(usage_json(each, grouping) for each in found.groups[:limit])
            total, last = (
                usage_json(found.total, grouping),
                encode(sorted(found.by_request)).decode(),
            )
            return f'{{"sums":[{groups}],"total":{total},"byRequest":{last}}}'

        await exchange.answer(200, raw=(await self._reader.ask(sums)).encode())

    async def _glances(self, exchange: HttpExchange, principal: Principal) -> None:
        principal.check(LIST_SESSIONS.name, b"{}")
        query = exchange.scope.get("query_string", b"")
        look = glances if exchange.path == GLANCES else contexts
        found = await self._reader.ask(lambda journal: look(journal, principal, query))
        await exchange.answer(200, raw=found)

    async def _changes(self, exchange: HttpExchange, principal: Principal) -> None:
        names = ("turn", "path", "whole", "last", "entry", "steps", "root")
        asked = Parameters(exchange.scope.get("query_string", b""), names)
        session_id = exchange.path.removeprefix(f"{SESSIONS}/").removesuffix(CHANGES)
        principal.check(LOAD_SESSION.name, encode({"sessionId": session_id}))
        is_last = asked.text("turn") == "last"
        turn = -1 if is_last else asked.number("turn", 1, LAST_SEQ)
        if last := asked.number("last", 1, LAST_SEQ):
            turn = -last
        path = asked.text("path")
        wanted = None
        if asked.is_true("whole"):
            entry = asked.number("entry", 1, LAST_SEQ)
            wanted = WantedChanges(turn, entry, asked.is_true("steps"), asked.text("root"))

        async def found(journal: Journal) -> bytes:
            row = await journal.session(session_id)
            principal.check_in(row, LOAD_SESSION.name)
            # Edits that an agent made up may quote a file. Only who sees everything sees that.
            reads_disk = principal.sees_all
            if wanted is not None:
                return await self._changed.whole(journal, row, wanted, reads_disk=reads_disk)
            return await self._changed.body(journal, row, turn, path, reads_disk=reads_disk)

        await exchange.answer(200, raw=await self._reader.ask(found))

    async def _kept(self, exchange: HttpExchange, principal: Principal) -> None:
        Parameters(exchange.scope.get("query_string", b""), ())
        session_id = exchange.path.removeprefix(f"{SESSIONS}/").removesuffix(KEPT)
        wanted = encode({"sessionId": session_id, "files": True})
        principal.check(FORK_METHOD, wanted)

        async def found(journal: Journal) -> bytes:
            row = await journal.session(session_id)
            principal.check_in(row, FORK_METHOD, wanted)
            return encode({"turns": await kept_turns(journal, row)})

        await exchange.answer(200, raw=await self._reader.ask(found))

    async def _export(self, exchange: HttpExchange, principal: Principal) -> None:
        Parameters(exchange.scope.get("query_string", b""), ())
        session_id = exchange.path.removeprefix(f"{SESSIONS}/").removesuffix(EXPORT)
        principal.check(LOAD_SESSION.name, encode({"sessionId": session_id}))
        if (write := self._write) is None:
            raise RefusedError(404, "no session is a file at this server")

        async def written(journal: Journal) -> tuple[str, bytes]:
            row = await journal.session(session_id)
            principal.check_in(row, LOAD_SESSION.name)
            name, found = write(row, _entries(journal, session_id))
            texts, size = list[str](), 0
            async for text in found:
                texts.append(text)
                size += len(text)
                if size > LARGEST_FILE:
                    raise RefusedError(413, "it is too long for this; `acphold export` writes it")
                await asyncio.sleep(0)  # others read in this thread, too
            return name, "".join(texts).encode()

        name, raw = await self._reader.ask(written)
        head = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-disposition", f'attachment; filename="{name}"'.encode()),
            (b"content-security-policy", b"sandbox; default-src 'none'"),
        ]
        await exchange.answer(200, headers=head, raw=raw)


async def _entries(journal: Journal, session_id: str) -> AsyncIterator[Entry]:
    """Yield all entries that are not void, oldest first."""
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            if entry.raw:
                yield entry
