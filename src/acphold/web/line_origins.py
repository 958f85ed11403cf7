"""The origins of lines of files, for `acphold why --server`.

    POST /origins    origins.origin_readers.AskedOrigins → FoundOrigins; bytes are in base64

The files are the client's, and are compared with the snapshots of the same project here. This needs
the scope watch in all sessions, because an answer reveals contents of files. Nothing sent is kept.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from msgspec.json import encode

from acphold.journal import Journal
from acphold.origins.agent_trace import runs
from acphold.origins.origin_readers import (
    MOST_BYTES,
    AskedOrigins,
    FoundOrigins,
    LocalOrigins,
)
from acphold.origins.why import Lines, Origin
from acphold.schema import LOAD_SESSION
from acphold.server.principals import Principal
from acphold.snapshots.checkouts import checkout_of
from acphold.snapshots.git import GitError
from acphold.snapshots.projects import same_project
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.journal_reader import JournalReader
from acphold.workspace.threads import Threads

LARGEST: Final = 2 * MOST_BYTES
"""Largest request, in bytes: base64 takes a third more."""

MOST_LINES: Final = 1_000_000
"""Most lines of a request: much is remembered of each."""

LONGEST_PATH: Final = 4096
"""Longest path, in bytes: each is looked for in every snapshot."""

NO_PROJECT: Final = "no files of this project are kept at the server"


class LineOrigins:
    """Answers these requests, one at a time; see the module."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._alone = asyncio.Lock()
        self._threads = Threads(1)

    async def answer(self, exchange: HttpExchange, principal: Principal) -> None:
        """Answer a request; raises RefusedError, ForbiddenError and JournalError."""
        if exchange.method != "POST":
            raise RefusedError(405, "use POST")
        principal.check(LOAD_SESSION.name, b"{}")
        if not principal.sees_all:
            principal.refused(LOAD_SESSION.name, None)
            raise RefusedError(403, "the origins of lines need a token for all sessions")
        lines, asked = await _asked(exchange)  # a slow sender keeps nobody waiting
        if self._alone.locked():
            raise RefusedError(503, "busy with another request of this kind; try again")
        async with self._alone:

            async def found(journal: Journal) -> FoundOrigins:
                return await self._found(journal, asked, lines)

            try:
                answer = await self._reader.ask(found)
            except (GitError, TimeoutError, BufferError, OSError) as exc:
                raise RefusedError(503, f"the kept files cannot be read: {exc}") from None
        await exchange.answer(200, raw=encode(answer))

    async def _found(
        self, journal: Journal, asked: AskedOrigins, lines: list[Lines]
    ) -> FoundOrigins:
        roots = {one.root for _, one in await journal.snapshots.named()}
        top = await self._threads.run(lambda _: same_project(sorted(roots), asked.project, None))
        checkout = checkout_of(top) if top else None
        if checkout is None:
            nothing = Origin("unknown", reason=NO_PROJECT)
            every = [runs(it.path, dict.fromkeys(it.lines, nothing)) for it in lines]
            return FoundOrigins([run for its in every for run in its], [])
        return await LocalOrigins(journal).origins(checkout, lines)


async def _asked(exchange: HttpExchange) -> tuple[list[Lines], AskedOrigins]:
    asked = await exchange.said(AskedOrigins, LARGEST, "the request cannot be read")
    lines: list[Lines] = []
    left = MOST_LINES
    for file in asked.files:
        numbers: list[int] = []
        end = file.content.count(b"\n") + 1
        for first, last in file.lines:
            if not (numbers[-1] if numbers else 0) < first <= last <= end:
                raise RefusedError(400, "the request names no lines of its files")
            if (left := left - (last + 1 - first)) < 0:
                raise RefusedError(413, f"more than {MOST_LINES:,} lines")
            numbers += range(first, last + 1)
        if len(file.path) > LONGEST_PATH:
            raise RefusedError(413, f"a path has more than {LONGEST_PATH:,} bytes")
        is_odd = not {b"", b".", b".."}.isdisjoint(file.path.split(b"/")) or b"\0" in file.path
        if not numbers or is_odd:
            raise RefusedError(400, "the request names no lines of its files")
        lines.append(Lines(os.fsdecode(file.path), file.content, tuple(numbers)))
    return lines, asked
