"""The programs that are measured, as commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import msgspec

import acp_wire
import acphold
from bench.run import Run
from tests.npm import NODE, installed

PEERS = Path(__file__).resolve().parent / "peers"
EXAMPLES = PEERS.parent.parent / "examples"
TS_SDK = "@agentclientprotocol/sdk@2.4.0"
WS = "ws@8.23.0"
NEWER_PYTHON_SDK = "agent-client-protocol==1.0.0rc3"

Command = list[str]


def scripted_agent() -> Command:
    """An agent that costs next to nothing: what the others are measured against."""
    return [sys.executable, "-I", "-S", os.fspath(PEERS / "scripted_agent.py")]


def python_sdk(script: str) -> Command:
    """A program on the official Python SDK, one of `peers/sdk_*.py`."""
    return [sys.executable, os.fspath(PEERS / f"sdk_{script}.py")]


def newer_python_sdk(run: Run, script: str) -> Command:
    """The same on the release that comes next, which is installed apart, in this run's folder."""
    place = run.folder / "newer-python-sdk"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", os.fspath(place)], check=True)
        pip = [os.fspath(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, NEWER_PYTHON_SDK], check=True)
    return [os.fspath(python), os.fspath(PEERS / f"sdk_{script}.py")]


def typescript_sdk(run: Run, script: str) -> Command:
    """A program on the official TypeScript SDK: `agent` or `client`."""
    # Node looks for packages beside the script, wherever it is started.
    place = run.folder / "typescript"
    if not place.is_dir():
        place.mkdir()
        (place / "node_modules").symlink_to(installed(TS_SDK) / "node_modules")
    name = f"ts_{script}.mjs"
    shutil.copy(PEERS / name, place / name)
    return [NODE, os.fspath(place / name)]


def typescript_server() -> Command:
    """A server on the official TypeScript SDK."""
    sdk = installed(TS_SDK) / "node_modules" / "@agentclientprotocol" / "sdk"
    ws = installed(WS) / "node_modules" / "ws"
    return [NODE, os.fspath(PEERS / "ts_server.mjs"), os.fspath(sdk), os.fspath(ws)]


def acphold_client() -> Command:
    """A client on acphold, as a program has it."""
    return [sys.executable, os.fspath(PEERS / "acphold_client.py")]


def library() -> Command:
    """An agent on acphold, as its author starts it."""
    return [sys.executable, os.fspath(PEERS / "library_agent.py")]


def smallest_library(run: Run) -> Command:
    """The smallest agent on acphold, where nothing is installed but what it needs."""
    place = run.folder / "smallest"
    if not place.is_dir():
        venv.create(place, symlinks=True)
        (packages,) = place.glob("lib/python*/site-packages")
        for package in (acphold, acp_wire, msgspec):
            (packages / package.__name__).symlink_to(package.__path__[0])
    return [os.fspath(place / "bin" / "python"), os.fspath(EXAMPLES / "echo.py")]


def library_server(journal: Path, token: str) -> Command:
    """A server of an agent on acphold, which lets in whoever brings the token."""
    return [sys.executable, os.fspath(PEERS / "library_server.py"), os.fspath(journal), token]


def mcp_server(how: str, *rest: str) -> Command:
    """An MCP server that costs next to nothing: `good SECONDS`, `silent`, `noise` or `leaves`."""
    return [sys.executable, "-I", "-S", os.fspath(PEERS / "mcp_server.py"), how, *rest]


def wrap(agent: Command, journal: str | Path) -> Command:
    """`acphold wrap` as it is installed beside this Python."""
    script = Path(sys.executable).parent / "acphold"
    if not script.exists():
        raise SystemExit(f"no {script}: `pip install -e .` first, or `make bench`")
    return [os.fspath(script), "wrap", "--journal", os.fspath(journal), "--", *agent]


def lone_hub(agent: Command, journal: str | Path) -> Command:
    """An agent in a hub of its own process, as one of the library has it."""
    program = Path(__file__).parents[1] / "tests" / "lone_hub.py"
    return [sys.executable, "-P", os.fspath(program), f"--journal={journal}", "--", *agent]


def sdk_proxy(agent: Command) -> Command:
    """The thinnest proxy the official Python SDK allows; it keeps no journal."""
    return [*python_sdk("proxy"), *agent]


def bare_agent(database: Path) -> Command:
    """The least that an agent in Python which keeps its sessions does."""
    return [sys.executable, os.fspath(PEERS / "bare_agent.py"), os.fspath(database)]


def bare_relay(agent: Command, database: Path) -> Command:
    """What no wrap can be quicker than: bytes handed on unread, with bare commits."""
    return [sys.executable, os.fspath(PEERS / "bare_relay.py"), os.fspath(database), *agent]


def bare_socket_relay(agent: Command, database: Path) -> Command:
    """The same for a server: frames of a WebSocket in place of lines on a pipe."""
    return [sys.executable, os.fspath(PEERS / "bare_socket_relay.py"), os.fspath(database), *agent]
