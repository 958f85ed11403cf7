"""A client that reads only on demand, and a look at acphold's memory meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.editor import DEADLINE
from tests.watched_processes import resident

MEBIBYTE = 1024 * 1024


class SlowClient:
    """Bytes to a program at once; bytes from it only while somebody waits for them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.peak = 0
        self._rest = b""

    async def line(self) -> bytes:
        """The next line."""
        assert self.process.stdout is not None
        pieces = [self._rest]
        while b"\n" not in pieces[-1]:
            chunk = await asyncio.wait_for(self.process.stdout.read(MEBIBYTE), DEADLINE)
            assert chunk, "the program has ended"
            pieces.append(chunk)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return line

    async def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.line())
        return found

    async def answer(self, number: Any) -> dict[str, Any]:
        """Read on until the answer to this request, and skip everything before it."""
        while True:
            message = await self.message()
            if message.get("id") == number and "method" not in message:
                return message

    async def send(self, *messages: dict[str, Any] | bytes) -> None:
        """Lines, or bytes as they are; returns when the system has nearly all of them."""
        assert self.process.stdin is not None
        for message in messages:
            if not isinstance(message, bytes):
                message = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
            self.process.stdin.write(message)
            await self.process.stdin.drain()

    async def open(self, cwd: str = "/") -> str:
        """Initialize, and a new session; its id."""
        await self.send({"id": "i", "method": "initialize", "params": {"protocolVersion": 1}})
        assert "result" in await self.answer("i")
        params = {"cwd": cwd, "mcpServers": []}
        await self.send({"id": "n", "method": "session/new", "params": params})
        return str((await self.answer("n"))["result"]["sessionId"])

    async def watch(self) -> None:
        """Note how much memory the program needs, until this is cancelled."""
        while self.process.returncode is None:
            self.peak = max(self.peak, resident(self.process.pid))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def slow_client(command: Sequence[str], journal: Path) -> AsyncIterator[SlowClient]:
    """Run `command`; at the end it is gone."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=64 * 1024,
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
        start_new_session=True,
    )
    client = SlowClient(process)
    watching = asyncio.create_task(client.watch())
    try:
        yield client
    finally:
        watching.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()
