"""Servers far away, for the commands: pairing with one, and standing between one and an editor."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import suppress
from typing import Final

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from acphold.cli.command_line import Exit, UsageError
from acphold.cli.terminal_text import visible
from acphold.client.known_servers import remember, token_for
from acphold.errors import AcpholdError, ConnectionLostError, RemoteRefusalError
from acphold.rpc import MAX_MESSAGE, Transport
from acphold.rpc.protocol import Protocol
from acphold.rpc.wire_errors import to_wire
from acphold.server.service import LAST_ANSWERS_SECONDS, refuse, stop_at_signals
from acphold.transports import websocket
from acphold.transports.pipes import PipeTransport
from acphold.transports.stdio import claim_stdio
from acphold.transports.urls import code_in, origin_of

SECONDS: Final = 15.0
"""How long a server is waited for."""


def serve_editor(url: str) -> int:
    """Speak ACP on stdio, with what is served at a URL; pairs first where that has a code."""
    try:
        origin_of(url)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    streams = claim_stdio()
    return asyncio.run(_serve_editor(url, streams))


async def _serve_editor(url: str, streams: tuple[int, int]) -> int:
    editor = PipeTransport(*streams)
    stop = stop_at_signals()
    try:
        token = await paired(url)
        server = await websocket.connect(url, token, seconds=SECONDS, limit=MAX_MESSAGE)
    except AcpholdError as exc:
        print(visible(f"acphold connect: {exc}"), file=sys.stderr)
        await refuse(editor, exc, stop)
        return Exit.ERROR
    relay = Relay(editor, server)
    try:
        if await relay.run(stop):
            return Exit.OK
        lost = ConnectionLostError(
            f"the connection to {origin_of(url)} is lost; what runs there goes on, and its session "
            "can be loaded again"
        )
        print(visible(f"acphold connect: {lost}"), file=sys.stderr)
        relay.answer_all(lost)
        return Exit.ERROR
    finally:
        await server.aclose()
        await editor.aclose()


class _Message(Struct, gc=False):
    id: Raw | None = None
    method: str | None = None


class Relay:
    """Carries messages between an editor and a server, and knows which wait for their answers."""

    def __init__(self, editor: Transport, server: Transport) -> None:
        self._editor = editor
        self._server = server
        self._decode = Decoder(_Message).decode
        self._waiting: dict[bytes, None] = {}
        self._answered = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> bool:
        """Until one of them ends, or `stop` is set; False when it was the server.

        The editor that has ended gets the answers that come within a moment.
        """
        there = asyncio.create_task(self._to_server(), name="to server")
        back = asyncio.create_task(self._to_editor(), name="to editor")
        stopped = asyncio.create_task(stop.wait(), name="signal")
        try:
            await asyncio.wait({there, back, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if there.done() and not (back.done() or stopped.done()):
                last = asyncio.create_task(self._all_answered(), name="last answers")
                await asyncio.wait(
                    {last, back, stopped},
                    timeout=LAST_ANSWERS_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                last.cancel()
            return there.done() or stopped.done()
        finally:
            for task in (there, back, stopped):
                task.cancel()
            await asyncio.wait({there, back, stopped})

    def answer_all(self, error: AcpholdError) -> None:
        """Answer what still waits with this error."""
        for id_ in self._waiting:
            self._editor.send(Protocol.error(id_, to_wire(error)))
        self._waiting.clear()

    async def _to_server(self) -> None:
        """Line by line: what a request is waits from here on."""
        rest = b""
        while data := await self._editor.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = self._read(line)
                if message.method is not None and message.id is not None:
                    self._waiting[bytes(message.id)] = None
                self._server.send(line + b"\n")
            if len(rest) > MAX_MESSAGE:
                return  # no client of ACP sends such a line
            await _drained(self._server)

    async def _to_editor(self) -> None:
        while line := await self._server.receive():
            message = self._read(line)
            if message.method is None and message.id is not None:
                self._waiting.pop(bytes(message.id), None)
                self._answered.set()
            self._editor.send(line)
            await _drained(self._editor)

    async def _all_answered(self) -> None:
        while self._waiting:
            self._answered.clear()
            await self._answered.wait()

    def _read(self, line: bytes) -> _Message:
        try:
            return self._decode(line)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            return _Message()  # whoever gets it says so


async def _drained(transport: Transport) -> None:
    with suppress(ConnectionLostError):  # who reads from it learns that, too
        await transport.drain()


async def paired(url: str) -> str:
    """The token for a server, which a code in the URL is exchanged for first.

    Raises RemoteRefusalError, ConnectionLostError, SettingsError.
    """
    code = code_in(url)
    if code is None:
        return token_for(url)
    import httpx2  # late: it is for the first time alone

    origin = origin_of(url)
    said = json.dumps({"code": code, "name": socket.gethostname()})
    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            headers = {"Content-Type": "application/json"}
            answer = await http.post(f"{origin}/pair", content=said, headers=headers)
    except httpx2.HTTPError as exc:
        raise ConnectionLostError(f"{origin} cannot be reached: {exc}") from None
    if answer.status_code == 403:
        return token_for(url)  # it was paired with by this very code, a start ago; or it was not
    try:
        token = answer.json()["token"] if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str):
        raise RemoteRefusalError(origin, answer.status_code)
    remember(url, token)
    return token
