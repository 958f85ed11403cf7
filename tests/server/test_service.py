"""A process that serves: when it ends by itself."""

from __future__ import annotations

import asyncio
import socket
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from acp_wire.transports.pipes import PipeTransport
from acphold.live.server import bounds, daemon
from acphold.machine.first_frame import HANDED_OVER
from acphold.machine.unix import UnixListener
from tests.hub.shared import shared
from tests.server.fronts import front_desks


async def test_a_client_that_comes_as_the_process_ends_is_not_let_in_and_sent_away(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "DAEMON_IDLE_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short

    async def attend(transport: PipeTransport, place: str | None) -> None:
        raise AssertionError("let in")

    async def moved(path: str) -> None:
        raise AssertionError("moved")

    listener = UnixListener("owner.sock", attend, moved)
    listener.bind()
    async with shared(journal) as house:
        await house.client()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect("owner.sock")
            client.send(HANDED_OVER)
            desks, kept = front_desks(house.hub, lambda *_: nullcontext())  # type: ignore[arg-type]
            await daemon._wait_until_idle(desks, kept, listener, stays=False)
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""  # it starts the next one
    assert not listener.is_attending
    await listener.aclose()
