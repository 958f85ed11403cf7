"""The SDK is imported when a session names a server, and not before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import Future

import pytest

from acphold.mcp_servers import bounds, connections
from acphold.mcp_servers.errors import McpConnectError
from tests.mcp_servers.conftest import Connect, Faulty

pytestmark = pytest.mark.slow

HEAVY = "{'mcp', 'pydantic', 'httpx2', 'anyio', 'subprocess', 'urllib', 'ssl', 'shutil'}"


def test_importing_the_connections_imports_neither_the_sdk_nor_anything_heavy() -> None:
    code = f"""
import sys
import acp_wire.errors, acp_wire.schema, acp_wire.rpc, acp_wire.transports, asyncio
before = set(sys.modules)
import acphold.mcp_servers.connections
print(sorted({HEAVY} & (set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=20, check=True, text=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("collects", [True, False])
def test_the_import_leaves_the_collection_of_garbage_as_it_was(collects: bool) -> None:
    code = f"""
import asyncio, gc
from acphold.mcp_servers.connections import load_sdk

gc.enable() if {collects} else gc.disable()
asyncio.run(load_sdk())
print(gc.isenabled())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=True, text=True
    )
    assert done.stdout == f"{collects}\n"


def test_the_loop_stays_live_while_the_sdk_is_imported() -> None:
    code = """
import asyncio, time
from acphold.mcp_servers.connections import load_sdk

async def main():
    loading = asyncio.gather(*(load_sdk() for _ in range(8)))
    began, longest = time.monotonic(), 0.0
    while not loading.done():
        step = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - step)
    print(longest < (time.monotonic() - began) / 2)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=30, check=True, text=True
    )
    assert done.stdout == "True\n"


def test_all_programs_are_started_before_the_sdk_is_imported() -> None:
    code = """
import asyncio
from acphold.mcp_servers import connections
from acphold.mcp_servers.connections import Servers
from acphold.mcp_servers.offers import OurSide
from acphold.mcp_servers.transports import StdioServer
from acp_wire.schema import McpServerStdio
from acp_wire.surroundings import Surroundings

seen = []
start = StdioServer.start

def started(self):
    seen.append(connections._import is None)
    start(self)

StdioServer.start = started

async def main():
    named = [McpServerStdio(name=n, command="/bin/true", args=(), env=()) for n in "abc"]
    servers = Servers(named, OurSide(cwd="/", surroundings=Surroundings.here()))
    servers.start()
    assert await servers.prompts() == await servers.tools() == ()
    await servers.aclose()
    print(seen)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=30, check=True, text=True
    )
    assert done.stdout == "[True, True, True]\n"


async def test_closing_does_not_wait_for_the_import_of_the_sdk(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    importing: Future[None] = Future()
    importing.set_running_or_notify_cancel()
    monkeypatch.setattr(connections, "_import", importing)
    connection = connect(faulty("ok"))
    waiting = asyncio.create_task(connection.ready())
    await asyncio.sleep(0)
    async with asyncio.timeout(bounds.SERVER_CLOSE_SECONDS / 2):
        await connection.aclose()
    assert tasks() == []
    with pytest.raises(McpConnectError, match="it was closed"):
        await waiting


async def test_a_connection_that_closes_too_slowly_is_cancelled_and_leaves_nothing(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect(faulty("ok"))
    await connection.ready()
    monkeypatch.setattr(bounds, "SERVER_CLOSE_SECONDS", 0)
    await connection.aclose()
    assert tasks() == []


def tasks() -> list[str]:
    """The names of the running tasks that hold connections, or close what they held."""
    named = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in named if name == "close" or name.startswith("mcp ")]


async def test_without_the_sdk_the_person_is_told_what_to_install(
    faulty: Faulty, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "has_packages", lambda *names: False)
    monkeypatch.setattr(connections, "_import", None)
    with pytest.raises(McpConnectError, match=r"pip install 'acphold\[mcp\]'"):
        await connect(faulty("ok")).ready()
    monkeypatch.undo()
    monkeypatch.setattr(connections, "_import", None)
    assert (await connect(faulty("ok")).call("ok")).text == "ok {}"
