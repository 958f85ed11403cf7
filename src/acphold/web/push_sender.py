"""Messages to browsers, sent by a separate process: started for the first, ended when idle."""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from types import TracebackType
from typing import Final

from msgspec import MsgspecError
from msgspec.json import decode, encode

from acphold.processes.own_program import own_python, start_own
from acphold.web.push_message import SECONDS, Order, Outcome

log = logging.getLogger(__name__)

PATIENCE: Final = 2 * SECONDS
"""Longest time for a message, with the start of the process, in seconds."""

IDLE_SECONDS: Final = 30.0
"""Seconds that the process is kept for the next message."""

LAST_SECONDS: Final = 2.0
"""Seconds that the process gets to end."""


class PushSender:
    """Sends messages; an async context manager that ends the process."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._starting = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> PushSender:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._rest()
        if self._ending:
            await asyncio.wait(self._ending)

    async def send(self, order: Order) -> Outcome:
        """Send one message; never raises for errors of others."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[order.id] = answer
        try:
            async with asyncio.timeout(PATIENCE):
                async with self._starting:
                    process = await self._started()
                assert process.stdin is not None
                process.stdin.write(encode(order) + b"\n")
                await process.stdin.drain()
                return await answer
        except TimeoutError:
            self._rest()
            return Outcome(order.id, 0, "the process that sends notices does not answer")
        except OSError as exc:
            self._rest()
            return Outcome(order.id, 0, f"notices cannot be sent: {exc}")
        finally:
            self._waiting.pop(order.id, None)
            if self._idle is not None:
                self._idle.cancel()
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._idled)

    def _idled(self) -> None:
        if not self._waiting:
            self._rest()

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            command = own_python("-m", "acphold.web.push_process")
            self._process = await start_own(command, stdin=PIPE, stdout=PIPE)
            self._reading = asyncio.create_task(self._read(self._process), name="push outcomes")
        return self._process

    async def _read(self, process: Process) -> None:
        """Hand out the results; when the process ends, its pending messages end too."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            with suppress(MsgspecError):
                outcome = decode(line, type=Outcome)
                if (answer := self._waiting.get(outcome.id)) is not None and not answer.done():
                    answer.set_result(outcome)
        for id_, answer in self._waiting.items():
            if process is self._process and not answer.done():
                answer.set_result(Outcome(id_, 0, "the process that sends notices has ended"))

    def _rest(self) -> None:
        """Let the process end; something else waits for it."""
        process, reading = self._process, self._reading
        self._process = self._reading = None
        if process is None or reading is None:
            return
        ending = asyncio.create_task(_end(process, reading), name="end of the push process")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


async def _end(process: Process, reading: asyncio.Task[None]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(LAST_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        reading.cancel()
        await asyncio.wait([reading])
