"""Reports on the journal for people: usage reported by agents, and a session as a file.

    GET /usage?by=day|agent|folder  {"sums": [SUM…]}, as `acphold usage --json` prints them
    GET /sessions/ID/export         the page that `acphold export` writes, as a download

A file is only downloaded, never shown at this address: agents' text would share our origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias, get_args

from msgspec.json import encode

from acphold.errors import ForbiddenError, IllegibleNameError, JournalError, UnknownSessionError
from acphold.history import Entry
from acphold.journal import Journal, SessionRow
from acphold.journal.journal import Grouping, history
from acphold.presentation.json_facts import usage_json
from acphold.schema import LIST_SESSIONS, LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.exchange import Exchange
from acphold.web.gate import RefusedError
from acphold.web.journal_pages import SESSIONS
from acphold.web.journal_reader import JournalReader
from acphold.web.parameters import Parameters

USAGE: Final = "/usage"
EXPORT: Final = "/export"
"""The end of the address of a session's export."""

MOST_GROUPS: Final = 400
LARGEST_FILE: Final = 64 * 1024 * 1024
"""Characters of a file; use `acphold export` for longer sessions."""


Export: TypeAlias = Callable[[SessionRow, AsyncIterator[Entry]], tuple[str, AsyncIterator[str]]]
"""Returns the name and the text of the file for a session."""


class Reports:
    """Answers requests for reports. Without `export` there are no session files."""

    def __init__(self, reader: JournalReader, export: Export | None = None) -> None:
        self._reader = reader
        self._write = export

    @staticmethod
    def has(path: str) -> bool:
        """Return True if `path` is answered here."""
        return path == USAGE or (path.startswith(f"{SESSIONS}/") and path.endswith(EXPORT))

    async def answer(self, exchange: Exchange, principal: Principal) -> None:
        """Answer a request for a report; raises RefusedError."""
        if exchange.method not in ("GET", "HEAD"):
            raise RefusedError(405, "this is only read: GET or HEAD is wanted")
        try:
            if exchange.path == USAGE:
                await self._usage(exchange, principal)
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

    async def _usage(self, exchange: Exchange, principal: Principal) -> None:
        asked = Parameters(exchange.scope.get("query_string", b""), ("by", "since"))
        principal.check(LIST_SESSIONS.name, encode({}))
        if not principal.sees_all:  # sums cover all sessions together
            raise RefusedError(403, "what was used is for who may see all sessions")
        grouping = asked.one_of("by", get_args(Grouping)) or "day"
        since = asked.moment("since")

        async def sums(journal: Journal) -> list[str]:
            found = await journal.usage(grouping, since=since)  # type: ignore[arg-type]
            return [usage_json(each, grouping) for each in found.groups[:MOST_GROUPS]]

        body = f'{{"sums":[{",".join(await self._reader.ask(sums))}]}}'
        await exchange.answer(200, raw=body.encode())

    async def _export(self, exchange: Exchange, principal: Principal) -> None:
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
