"""The place of the process that owns a session: where its transport leads, whatever it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acphold.errors import MethodNotFoundError
from acphold.journal.owners import At, Owner
from acphold.live.agents.client_methods import Place
from acphold.live.reading.one_question import dial_owner
from acphold.machine import unix
from acphold.machine.addresses import unix_address
from acphold.machine.runtime_folder import runtime_folder


class Answering:
    """An owner that knows no method."""

    async def on_request(self, request: Request) -> bytes:
        raise MethodNotFoundError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


async def attend(transport: Transport, place: str | None) -> None:
    async with connected(Peer(transport, Answering())) as pump:
        await asyncio.wait([pump])


async def moved(path: str) -> None:
    return None


@pytest.mark.parametrize(("namespace", "place"), [("ours", "process"), ("a sandbox", "network")])
async def test_an_owner_in_another_sandbox_counts_as_another_machine(
    namespace: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{runtime_folder()}/one-{namespace[:1]}"

    class Journal:
        async def owner(self, session_id: str) -> At:
            return At(Owner("o", "here", 1, (unix_address(path),)), 1, 0.0)

    journal: Any = Journal()
    async with asyncio.timeout(30), unix.listening(path, attend, moved):
        monkeypatch.setattr(unix, "place_of", lambda pid=None: namespace if pid else "ours")
        found = await dial_owner(journal, "s")
        assert found is not None
        assert found[2] == place
        await found[1].aclose()
