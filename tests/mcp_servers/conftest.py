"""MCP servers for the tests: faulty ones of our own, and real ones from npm, started once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from acp_wire.schema import (
    EnvVariable,
    HttpHeader,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    decode,
)
from acp_wire.surroundings import Surroundings
from acphold.mcp_servers.bridge import bridge_server
from acphold.mcp_servers.connections import McpConnection, McpListener, Servers
from acphold.mcp_servers.offers import OurSide
from acphold.mcp_servers.servers import Server
from tests.mcp_servers.http_faults import FaultyHttp, faulty_http
from tests.npm import NODE, installed

FAULTS = Path(__file__).with_name("fault_server.py")
EVERYTHING = "@modelcontextprotocol/server-everything"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"
VERSION = "2026.8.31"

SECRET = "sk-c0ffee-very-secret"
"""Given to servers as an environment variable and in a header; must never be seen again."""

BRIDGE = """
import os, sys
from acphold.mcp_servers.bridge import run_bridge
sys.exit(run_bridge(os.environ))
"""

Remote = McpServerHttp | McpServerSse

Faulty = Callable[..., McpServerStdio]
Connect = Callable[..., McpConnection]
Gather = Callable[..., Servers]


class Told(McpListener):
    """Notes the reason why each server failed, in `reasons`, and the changes of all."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.failures = 0
        self.changes: list[str] = []

    def report_failure(self, server: str, reason: str) -> None:
        self.failures += 1
        self.reasons[server] = reason

    def report_change(self, server: str, what: str) -> None:
        self.changes.append(what)


def bridged(server: Remote) -> McpServerStdio:
    """The entry an agent is handed."""
    return decode(McpServerStdio, bridge_server(server, (sys.executable, "-c", BRIDGE))).value


def program(package: str) -> str:
    """The script that starts a server of npm."""
    folder = installed(f"{package}@{VERSION}")
    return str(folder / "node_modules" / package / "dist" / "index.js")


def on_stdio(package: str, *args: str, **env: str) -> McpServerStdio:
    """A server of npm as a program."""
    pairs = tuple(EnvVariable(name=name, value=value) for name, value in env.items())
    command = (NODE, program(package), *args)
    name = package.rpartition("-")[2]
    return McpServerStdio(name=name, command=command[0], args=command[1:], env=pairs)


@contextmanager
def listening(transport: str) -> Iterator[int]:
    """`everything` over HTTP, on a port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = subprocess.Popen(
        [NODE, program(EVERYTHING), transport],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def everything() -> Iterator[dict[str, Server]]:
    """The server `everything` on stdio, Streamable HTTP and SSE, with a secret each."""
    headers = (HttpHeader(name="Authorization", value=f"Bearer {SECRET}"),)
    with listening("streamableHttp") as http, listening("sse") as sse:
        yield {
            "stdio": on_stdio(EVERYTHING, "stdio", TOKEN=SECRET),
            "http": McpServerHttp(
                name="everything", url=f"http://127.0.0.1:{http}/mcp", headers=headers
            ),
            "sse": McpServerSse(
                name="everything", url=f"http://127.0.0.1:{sse}/sse", headers=headers
            ),
        }


@pytest.fixture
def pids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file into which faulty servers write; those still alive afterwards are killed."""
    (path := tmp_path_factory.mktemp("faulty") / "pids").touch()
    yield path
    for word in path.read_text().split():
        if word.isdigit():
            with suppress(ProcessLookupError):
                os.kill(int(word), signal.SIGKILL)


@pytest.fixture
def faulty(pids: Path) -> Faulty:
    """`faulty(mode)`: our own server on stdio, named by its fault."""

    def server(mode: str, **env: str) -> McpServerStdio:
        env = {"PIDS": str(pids), "TOKEN": SECRET, **env}
        return McpServerStdio(
            name=mode,
            command=sys.executable,
            args=("-S", "-E", str(FAULTS), mode),
            env=tuple(EnvVariable(name=name, value=value) for name, value in env.items()),
        )

    return server


@pytest.fixture
async def faulty_url() -> AsyncIterator[FaultyHttp]:
    """Our own server over HTTP; the address names its fault."""
    async with faulty_http() as server:
        yield server


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """`connect(server)`: a connection that is closed after the test."""
    made: list[McpConnection] = []

    def connection(
        server: Server,
        *,
        listener: McpListener | None = None,
        roots: tuple[str, ...] = (str(tmp_path),),
        **ours: Any,
    ) -> McpConnection:
        side = OurSide(
            cwd=str(tmp_path),
            surroundings=Surroundings.here(),
            roots=roots,
            **{"deadline": 40.0, **ours},
        )
        made.append(McpConnection(server, side, listener))
        return made[-1]

    yield connection
    for one in made:
        await one.aclose()


@pytest.fixture
async def gather(tmp_path: Path) -> AsyncIterator[Gather]:
    """`gather(server, …)`: the servers of a session, closed after the test."""
    made: list[Servers] = []

    def servers(
        *named: Server, deadline: float = 40.0, listener: McpListener | None = None
    ) -> Servers:
        ours = OurSide(
            cwd=str(tmp_path),
            surroundings=Surroundings.here(),
            roots=(str(tmp_path),),
            deadline=deadline,
        )
        made.append(Servers(named, ours, listener))
        return made[-1]

    yield servers
    for one in made:
        await one.aclose()
