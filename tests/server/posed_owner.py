"""A session's owner, played by a test: it has a lease and a socket, but no agent.

So the owner can end, or be silent, at any step of a client on a line to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from acphold.journal.sqlite.store import SqliteJournal
from acphold.live.reading.one_question import PRESENCE
from acphold.machine.addresses import unix_address
from acphold.machine.runtime_folder import runtime_folder
from tests.editor import DEADLINE, say
from tests.journal.conversations import open_file
from tests.owners import die, make_silent

PLAYED = ("session/load", "session/resume", "session/prompt", "session/set_mode", "session/close")


PRESENT: dict[str, Any] = {"pid": 1, "agent": "", "sessions": []}


class PosedOwner:
    """See the module. Requests in PLAYED wait in `asked`; all others are answered at once."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.told: list[dict[str, Any]] = []
        self.answers = True
        self.can: dict[str, Any] = {}
        self.left = asyncio.Event()
        """Set once a client that has made a request in PLAYED has gone."""
        self._writers: list[asyncio.StreamWriter] = []
        self._of: dict[int, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self.journal: SqliteJournal

    async def next(self, method: str) -> dict[str, Any]:
        """The next request that is played; AssertionError if it is another one."""
        request = await asyncio.wait_for(self.asked.get(), DEADLINE)
        assert request["method"] == method, request
        return request

    def answer(self, request: dict[str, Any], result: Any = None) -> None:
        """Answer a request; nothing is written before the test waits again."""
        self._send(self._of[id(request)], {"id": request["id"], "result": result or {}})

    def refuse(self, request: dict[str, Any], code: int = -32800, why: str = "cancelled") -> None:
        """Answer a request with an error, by default one that its client has cancelled."""
        error = {"code": code, "message": why}
        self._send(self._of[id(request)], {"id": request["id"], "error": error})

    def tell(self, request: dict[str, Any], seq: int, text: str) -> None:
        """Send an update to the client that made `request`."""
        session = request["params"]["sessionId"]
        params = {"sessionId": session, "update": say(text), "_meta": {"acphold/seq": seq}}
        self._send(self._of[id(request)], {"method": "session/update", "params": params})

    def die(self) -> None:
        """Stop listening; earlier messages are still on their way."""
        die(self.journal)
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()

    async def has_died(self) -> None:
        """Die, and wait until all that was said before is on its way."""
        self.die()
        for writer in self._writers:
            await writer.wait_closed()

    def has_reported(self, seconds: float) -> None:
        """Have reported so long ago."""
        assert self.journal._owner is not None
        make_silent(Path(self.journal.path), self.journal._owner.id, seconds)

    async def listen(self, path: Path) -> None:
        self._server = await asyncio.start_unix_server(self._attend, path)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if "id" not in message:
                    self.told.append(message)
                elif message.get("method") in PLAYED:
                    self._of[id(message)] = writer
                    self.asked.put_nowait(message)
                elif self.answers:
                    known = {PRESENCE: PRESENT, "initialize": {"agentCapabilities": self.can}}
                    result = known.get(message["method"], {})
                    self._send(writer, {"id": message["id"], "result": result})
        if writer in self._of.values():
            self.left.set()

    def _send(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
        writer.write(line.encode() + b"\n")


@asynccontextmanager
async def posed_owner(journal: Path, session: str) -> AsyncIterator[PosedOwner]:
    """One that has taken this session."""
    owner = PosedOwner()
    path = Path(runtime_folder()) / f"{uuid4().hex[:8]}.sock"
    await owner.listen(path)
    owner.journal = open_file(journal)
    await owner.journal.renew(addresses=[unix_address(str(path))])
    await owner.journal.acquire(session)
    try:
        yield owner
    finally:
        await owner.has_died()
        await owner.journal.aclose()
        path.unlink(missing_ok=True)
