"""Sessions from another machine: opened over a WebSocket, and the same as here."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

import acphold
from acphold.web.connections import (
    STATE,
    Connections,
    Receive,
    Scope,
    Send,
    ServedConnection,
    limits_for,
)
from acphold.web.protocols import Arrival, HttpProtocol
from tests.web.certificates import new_authority
from tests.web.conftest import ACPHOLD, Served

pytestmark = pytest.mark.slow


async def test_an_editor_that_knows_only_commands_pairs_and_talks_over_connect(
    served: Served, tmp_path: Path
) -> None:
    far = {**served.env, "XDG_STATE_HOME": str(tmp_path / "laptop")}
    paired = f"{served.url}/#pair={served.pair}"
    async with acphold.connect(*ACPHOLD, "connect", paired, env=far) as agent:
        session = await agent.new_session(cwd=served.folder)
        assert "hi" in (await session.prompt("quick: hi")).text
    # From then on without the code; and the same address does no harm.
    for url in (served.url, paired):
        async with acphold.connect(*ACPHOLD, "connect", url, env=far) as agent:
            assert [info.session_id async for info in agent.sessions()] == [session.id]


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers nothing."""


@asynccontextmanager
async def arriving(
    connections: Connections, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[tuple[str, int], asyncio.Future[ServedConnection]]]:
    """A server for the block: its address, and the connection of who comes first."""
    config = Config(_nothing, lifespan="off", interface="asgi3")
    config.load()
    arrived = asyncio.get_running_loop().create_future()

    def made(state: dict[str, ServedConnection]) -> HttpProtocol:
        arrived.set_result(state[STATE])
        return HttpProtocol(config, ServerState(), state)

    server = await asyncio.get_running_loop().create_server(
        lambda: Arrival(connections, None, made), "127.0.0.1", 0, ssl=tls
    )
    yield server.sockets[0].getsockname(), arrived
    server.close()


async def test_a_message_goes_at_once_and_does_not_wait_for_the_one_before_to_arrive() -> None:
    async with arriving(Connections(limits_for(1024))) as (place, arrived):
        _, writer = await asyncio.open_connection(*place)
        connected = (await arrived).transport.get_extra_info("socket")
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_a_connection_over_tls_that_is_closed_twice_stops_no_check_of_the_others(
    tmp_path: Path,
) -> None:
    authority = new_authority(tmp_path, "desk.example", "127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(authority.certificate, authority.key)
    connections = Connections(limits_for(1024))
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    async with arriving(connections, tls) as (place, arrived):
        _, writer = await asyncio.open_connection(
            *place, ssl=trusting, server_hostname="desk.example"
        )
        served = await arrived
        served.transport.close()
        served.transport.close()
        await connections.check()
        served.abort()
        writer.close()
