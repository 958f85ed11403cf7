"""Messages that come while a server stands still wait until it has read the tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acp_wire.rpc import Transport
from acphold.errors import JournalError
from acphold.web import bounds, gate as gates
from acphold.web.application import attend_websocket
from acphold.web.connections import Offering
from acphold.web.gate import Admitted, Gate
from tests.editor import DEADLINE

Read = Callable[[], Awaitable[None]]


class Machine:
    """A gate with one connection, on a machine that sleeps as often as one likes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.reads = 0
        self.closed: list[int] = []
        self._patch = monkeypatch
        monkeypatch.setattr(gates, "clock", lambda: self.now)
        self.gate = Gate(cast("Any", SimpleNamespace(now_ms=int)), ["http://localhost:1"])
        self.can_read(self.fine)

    async def fine(self) -> None:
        self.reads += 1

    def can_read(self, read: Read) -> None:
        self._patch.setattr(self.gate, "_read_tokens", read)

    async def sleep(self) -> None:
        await self.gate.keep_awake()
        self.now += 60
        assert self.gate.has_stood_still


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


class Posts(Offering):
    """Messages as they are read: those that waited in a queue, and those taken at once."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.standstill = gate
        self.queue = asyncio.Queue[bytes]()
        self.read: list[bytes] = []
        self.offer_to(self.take)

    def take(self, line: bytes) -> bool:
        self.read.append(line)
        return True

    def arrive(self, line: bytes) -> None:
        if not (self.queue.empty() and self._took(line)):
            self.queue.put_nowait(line)

    async def pump(self) -> None:
        while True:
            self.read.append(await self._wait(self.queue.get()))


async def passes(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_message_that_comes_as_the_wait_ends_is_behind_the_one_that_waited(
    machine: Machine,
) -> None:
    posts = Posts(machine.gate)
    with machine.gate.connected(Admitted(cast("Any", None), "t"), machine.closed.append):
        pump = asyncio.ensure_future(posts.pump())
        await machine.sleep()
        await passes()
        posts.arrive(b"prompt")
        await passes()
        assert posts.read == []
        await machine.gate.keep_awake()
        posts.arrive(b"cancel")
        await passes()
        pump.cancel()
    assert posts.read == [b"prompt", b"cancel"]


async def test_a_message_waits_until_the_tokens_were_read_though_the_journal_was_away(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def away() -> None:
        nonlocal tries
        tries += 1
        assert machine.gate.has_stood_still
        if tries < 3:
            raise JournalError("it is away")

    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.0)
    with machine.gate.connected(Admitted(cast("Any", None), "t"), machine.closed.append):
        await machine.sleep()
        machine.can_read(away)
        await machine.gate.keep_awake()
    assert tries == 3
    assert not machine.gate.has_stood_still
    assert machine.closed == [1008]


async def hangs() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise JournalError("it is away")


@pytest.mark.parametrize("read", [hangs, fails])
async def test_a_message_waits_for_no_tokens_that_cannot_be_read(
    read: Read, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "UNREAD_SECONDS", 0.05)
    with machine.gate.connected(Admitted(cast("Any", None), "t"), machine.closed.append):
        await machine.sleep()
        machine.can_read(read)
        waiting = asyncio.ensure_future(machine.gate.until_read())
        async with asyncio.timeout(DEADLINE):
            await machine.gate.keep_awake()
            await waiting
    assert machine.closed == []


async def test_a_wait_in_which_the_machine_sleeps_again_is_none(machine: Machine) -> None:
    async def sleeps() -> None:
        machine.now += 60

    with machine.gate.connected(Admitted(cast("Any", None), "t"), machine.closed.append):
        await machine.sleep()
        machine.can_read(sleeps)
        await machine.gate.keep_awake()
        assert machine.gate.has_stood_still
        machine.can_read(machine.fine)
        await machine.gate.keep_awake()
        assert not machine.gate.has_stood_still


async def test_over_a_websocket_of_any_other_server_messages_wait_as_well(
    machine: Machine,
) -> None:
    arriving = asyncio.Queue[MutableMapping[str, Any]]()
    arriving.put_nowait({"type": "websocket.connect"})
    said = asyncio.Queue[str]()
    read: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        said.put_nowait(message["type"])

    async def attend(transport: Transport) -> None:
        while line := await transport.receive():
            read.append(line)

    exchange = SimpleNamespace(receive=arriving.get, send=send, subprotocols=(), path="/acp")
    vars(exchange).update(headers={}, connection=None)
    admitted = Admitted(cast("Any", SimpleNamespace(name="phone")), "t")
    gate = machine.gate
    serving = asyncio.ensure_future(attend_websocket(attend, gate, cast("Any", exchange), admitted))
    assert await said.get() == "websocket.accept"
    await machine.sleep()
    arriving.put_nowait({"type": "websocket.receive", "text": "{}"})
    await passes()
    assert read == []
    await gate.keep_awake()  # nobody knows this token
    async with asyncio.timeout(DEADLINE):
        await serving
    assert await said.get() == "websocket.close"
    assert read == []
