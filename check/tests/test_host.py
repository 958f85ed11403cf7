"""The checker as a host: it answers agents, and notices that one waits."""

from __future__ import annotations

import asyncio

from acp_check.dialogue import BARE, Dialogue, Host, listening
from acp_check.record import Json, Record
from acp_wire.transports.streams import MemoryTransport
from tests.memory_subject import MemorySubject
from tests.played_shell import PlayedShell
from tests.virtual_time import play


class Hesitating(Host):
    """Holds a permission some time after its line has come."""

    async def answer(self, method: str, params: Json) -> Json:
        await asyncio.sleep(1)
        return await super().answer(method, params)


async def asks(transport: MemoryTransport) -> None:
    """An agent that asks for a permission, and says nothing more."""
    transport.send(b'{"jsonrpc":"2.0","id":1,"method":"session/request_permission"}\n')
    while await transport.receive():
        pass


def test_a_permission_is_seen_to_wait_when_no_line_comes_after_it() -> None:
    async def seen() -> bool:
        host = Hesitating(BARE, PlayedShell)
        host.decision = "hold"
        running = await MemorySubject("agent", asks).start()
        record = Record("test", BARE)
        dialogue = Dialogue(running, host, record, timeout=10, quiet=0.25, late=1)
        async with listening(dialogue):
            return await dialogue.until(lambda: host.holds or None)

    assert play(seen())
