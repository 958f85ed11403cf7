"""Reports on the journal for people: usage, glances, a session's file changes and its export.

    GET /usage?by=day|agent|…       {"sums": [SUM…], "total": SUM, "byRequest": [AGENT…]}, as
                                    `acphold usage --json` prints them
    GET /glances, /contexts         ends of sessions, and surroundings of hits: see `glances`
    GET /sessions/ID/changes        the changes that `acphold diff` prints: see `session_changes`
    GET /sessions/ID/kept           {"turns": [{"turn", "before", "after"}…], "include": false}:
                                    where its files were kept, for who may copy it with them;
                                    `include`: the project names ignored files to be copied, too
    POST /origins                   where lines of files came from: see `line_origins`
    GET /sessions/ID/export         the page that `acphold export` writes, as a download

A file is only downloaded, never shown at this address: agents' text would share our origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias

from msgspec.json import encode

from acphold.agents.copy_method import FORK_METHOD
from acphold.history import Entry
from acphold.hub.kept_files import kept_turns
from acphold.journal import Journal, SessionRow
from acphold.origins.origin_readers import ORIGINS, WantedChanges
from acphold.presentation.json_facts import usage_json
from acphold.reading.local_reader import LocalReader, entries_of
from acphold.reading.requests import CHANGES, SESSIONS, USAGE, ChangesQuery, NoQuery, UsageQuery
from acphold.schema import LIST_SESSIONS, LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.glances import CONTEXTS, GLANCES, contexts, glances
from acphold.web.journal_pages import agents_of, moment_of
from acphold.web.journal_reader import JournalReader
from acphold.web.line_origins import LineOrigins
from acphold.web.session_changes import SessionChanges

EXPORT: Final = "/export"
KEPT: Final = "/kept"
"""The ends of the addresses of a session's export and kept files."""

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
        """Answer a request for a report; raises RefusedError, ForbiddenError and JournalError."""
        path = exchange.path
        if path == ORIGINS:
            await self._origins.answer(exchange, principal)
            return
        exchange.require_read()
        session_id, _, report = path.removeprefix(f"{SESSIONS}/").rpartition("/")
        if path == USAGE:
            await exchange.answer(200, raw=await self._usage(exchange, principal))
        elif path == GLANCES:
            await exchange.answer(200, raw=await glances(self._reader, principal, exchange))
        elif path == CONTEXTS:
            await exchange.answer(200, raw=await contexts(self._reader, principal, exchange))
        elif f"/{report}" == CHANGES:
            await exchange.answer(200, raw=await self._changes(exchange, session_id, principal))
        elif f"/{report}" == KEPT:
            exchange.query(NoQuery)
            wanted = encode({"files": True})
            row = await self._reader.session(principal, session_id, FORK_METHOD, wanted)
            told = await self._reader.ask(lambda journal: kept_turns(journal, row))
            await exchange.answer(200, told)
        else:
            await self._export(exchange, session_id, principal)

    async def _usage(self, exchange: HttpExchange, principal: Principal) -> bytes:
        asked = exchange.query(UsageQuery)
        principal.check(LIST_SESSIONS.name, b"{}")
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

    async def _changes(
        self, exchange: HttpExchange, session_id: str, principal: Principal
    ) -> bytes:
        asked = exchange.query(ChangesQuery)
        turn = -1 if asked.turn == "last" else asked.turn
        turn = turn if asked.last is None else -asked.last
        row = await self._reader.session(principal, session_id, LOAD_SESSION.name)
        # Edits that an agent made up may quote a file. Only who sees everything sees that.
        reads_disk = principal.sees_all
        if asked.whole:
            wanted = WantedChanges(turn, asked.entry, asked.steps, asked.root)
            return await self._reader.ask(
                lambda it: self._changed.whole(it, row, wanted, reads_disk=reads_disk)
            )
        return await self._reader.ask(
            lambda it: self._changed.body(it, row, turn, asked.path, reads_disk=reads_disk)
        )

    async def _export(self, exchange: HttpExchange, session_id: str, principal: Principal) -> None:
        exchange.query(NoQuery)
        if (write := self._write) is None:
            raise RefusedError(404, "no session is a file at this server")
        row = await self._reader.session(principal, session_id, LOAD_SESSION.name)

        async def written(journal: Journal) -> tuple[str, bytes]:
            name, found = write(row, entries_of(journal, session_id))
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
