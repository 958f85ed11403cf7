"""A real `acphold serve` for the tests of this folder, with the demo agent behind it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen, run
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

import acphold
from acphold.live.reading.processes import LiveSession, Process
from tests.cli.command_line import run_here
from tests.watched_processes import started_with
from tests.web.in_process import Site, site

ACPHOLD = (sys.executable, "-m", "acphold")
AGENT = (*ACPHOLD, "agent", "demo")

Live = dict[str, tuple[LiveSession, Process]]


SECONDS = 60.0
"""For a daemon to end; a busy machine needs some."""


@dataclass
class Served:
    """A server that runs: its address, the code that it told, and its surroundings."""

    url: str
    pair: str
    folder: Path
    env: dict[str, str] = field(repr=False)
    process: Popen[str] = field(repr=False)
    words: list[str] = field(repr=False)
    agents: list[str] = field(default_factory=list)

    def start_again(self) -> None:
        """Kill it with its daemon, and start it as it was started; it has another code then."""
        self.kill()
        self.start_alone_again()

    def kill(self) -> None:
        """Kill it with its daemon, as the end of the machine does."""
        self.process.kill()
        self.process.wait()
        for daemon in self.daemons():
            daemon.kill()
            daemon.wait(SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send it and its daemon a signal."""
        for pid in [self.process.pid, *(daemon.pid for daemon in self.daemons())]:
            os.kill(pid, number)

    def start_alone_again(self) -> None:
        """Kill and start it; its daemon goes on."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process, told = started(self.words, self.env)
        self.url, self.pair = told["url"], told["pair"]

    @property
    def daemon(self) -> psutil.Process:
        """The daemon with the agents and sessions of the server."""
        (found,) = self.daemons()
        return found

    def daemons(self) -> list[psutil.Process]:
        """All daemons with its runtime folder."""
        found = []
        for pid in started_with("XDG_RUNTIME_DIR", self.env["XDG_RUNTIME_DIR"]):
            with suppress(psutil.Error):  # it ends
                if "daemon" in (process := psutil.Process(pid)).cmdline():
                    found.append(process)
        return found

    @property
    def agents_running(self) -> list[psutil.Process]:
        """The demo agents that run for the server."""
        children = [it for daemon in self.daemons() for it in daemon.children(recursive=True)]
        return [child for child in children if child.cmdline()[-2:] == ["agent", "demo"]]

    def run(self, *words: str) -> str:
        """Run a command of ours as the user who serves, and return its output."""
        done = run_here(words, self.env)
        assert done.code == 0, done.err
        return done.out.strip()

    def run_as_process(self, *words: str) -> str:
        """The same, of a command that does something about signals."""
        done = run((*ACPHOLD, *words), env=self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def token(self, *words: str) -> str:
        """A new token."""
        return self.run("access", "token", *words)

    @asynccontextmanager
    async def session(
        self, token: str = "", *, cwd: Path | None = None, **options: Any
    ) -> AsyncIterator[acphold.RemoteSession]:
        """A new session of a client of ours, with this token or a new one."""
        async with acphold.connect(self.url, token=token or self.token(), **options) as agent:
            yield await agent.new_session(cwd=cwd or self.folder)


def started(words: list[str], env: dict[str, str]) -> tuple[Popen[str], dict[str, Any]]:
    """A server, and its report once clients may come."""
    process = Popen(words, env=env, stdout=PIPE, text=True)
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return process, told


@contextmanager
def serving(
    folder: Path,
    *options: str,
    agent: tuple[str, ...] = AGENT,
    variables: Mapping[str, str] | None = None,
    inside: Sequence[str] = (),
    altered: str = "",
) -> Iterator[Served]:
    """Serve for the block; without an agent, those of the settings or of PATH.

    `inside` are words before the command, which then run it; `altered` is code that runs in the
    program before it starts, and may change `server`, its module.
    """
    with TemporaryDirectory(prefix="run-", dir="/tmp") as short:  # a socket's path is no long one
        yield from _served(folder, short, options, agent, variables or {}, inside, altered)


def _served(
    folder: Path,
    short: str,
    options: Sequence[str],
    agent: Sequence[str],
    variables: Mapping[str, str],
    inside: Sequence[str],
    altered: str,
) -> Iterator[Served]:
    env = {
        **os.environ,
        "ACPHOLD_JOURNAL": str(folder / "journal.db"),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": short,
        **variables,
    }
    program = (
        f"from acphold.web import server; {altered}; from acphold.__main__ import main; main()"
    )
    command = (sys.executable, "-c", program) if altered else ACPHOLD
    words = [*inside, *command, "serve", "--json", "--listen", "127.0.0.1:0", *options]
    words += ["--", *agent] if agent else []
    process, told = started(words, env)
    served = Served(told["url"], told["pair"], folder, env, process, words, told["agents"])
    try:
        yield served
    finally:
        served.process.terminate()
        served.process.communicate()
        for daemon in served.daemons():
            daemon.terminate()  # a kill would leave the write-ahead log beside the journal
            daemon.wait(SECONDS)
        assert served.process.returncode == 0


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server of all tests that let others have turns there."""
    with serving(tmp_path_factory.mktemp("shared")) as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of this test's own."""
    with serving(tmp_path) as found:
        yield found


async def until_closed(receive: object) -> None:
    """Wait for the end of a WebSocket; throws further messages away."""
    from websockets.exceptions import ConnectionClosed

    async with asyncio.timeout(30):
        try:
            while True:
                await receive()  # type: ignore[operator]
        except ConnectionClosed:
            return


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """The sessions that are live, as the test says."""
    found: Live = {}

    async def live_at(_: object) -> Live:
        return found

    monkeypatch.setattr("acphold.live.reading.processes.live_at", live_at)
    return found


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acphold.live.reading.bounds.LOOK_SECONDS", 0.05)


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Site]:
    """The application in this process: see `tests.web.in_process.site`."""
    async with site(tmp_path) as found:
        yield found
