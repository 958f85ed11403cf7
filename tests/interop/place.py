"""The surroundings of one test: its folders, journal and processes, and a record of the wires."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.editor import DEADLINE
from tests.interop.client import Client, connected
from tests.interop.official_schema import violations
from tests.interop.processes import Family
from tests.interop.wire import read_record, recorded


class Place:
    """Folders are made below `root`. `work` is the working directory of the sessions."""

    def __init__(self, root: Path) -> None:
        self._settings = root / "settings.toml"
        self._settings.write_text("[defaults]\nlinger = 0.2\n")
        self.family = Family()
        self.work = root / "work"
        self.home = root / "home"
        self.stderr = root / "stderr"
        self._journal = root / "journal.db"
        self._at_client = root / "client.jsonl"
        self._at_agent = root / "agent.jsonl"
        self.work.mkdir()
        self.home.mkdir()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment for the first process of a run."""
        own = {"ACPHOLD_JOURNAL": str(self._journal), "ACPHOLD_SETTINGS": str(self._settings)}
        return self.family.environment(**{**own, **more})

    def wrapped(self, agent: Sequence[str], *options: str) -> list[str]:
        """The command of `agent` behind `acphold wrap`, with a recorder on either side."""
        acphold = [sys.executable, "-m", "acphold", "wrap", *options, "--"]
        return recorded(self._at_client, *acphold, *recorded(self._at_agent, *agent))

    @asynccontextmanager
    async def client(self, command: Sequence[str], **env: str) -> AsyncIterator[Client]:
        """A client of `command`, whose stderr goes to the file `stderr`."""
        environment = self.environment(**env)
        with self.stderr.open("ab") as stderr:
            async with connected(command, environment, self.work, stderr) as client:
                yield client

    async def acphold(self, env: dict[str, str], *words: str, typed: str = "") -> str:
        """Run a command in the folder of the sessions, with this input; return its output."""
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "acphold", *words],
            env=self.environment(**env),
            cwd=self.work,
            input=typed,
            capture_output=True,
            text=True,
            timeout=DEADLINE * 2,
            check=True,
        )
        return str(ended.stdout)

    @contextmanager
    def serving(self, agent: Sequence[str], **more: str) -> Iterator[tuple[str, str]]:
        """The address of a server in front of `agent`, and a token."""
        env = self.environment(**{"XDG_STATE_HOME": str(self.home), **more})
        acphold = [sys.executable, "-m", "acphold"]
        words = [*acphold, "serve", "--json", "--listen", "127.0.0.1:0", "--", *agent]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=env, stdout=pipe, text=True, cwd=self.work) as process:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            making = [*acphold, "access", "token"]
            token = subprocess.check_output(making, env=env, text=True).strip()
            try:
                yield url, token
            finally:
                process.terminate()

    def wrong_lines(self) -> list[str]:
        """Messages of acphold, to the client and to the agent, that violate the official schema."""
        towards_client = (violations(run, "agent") for run in read_record(self._at_client))
        towards_agent = (violations(run, "client") for run in read_record(self._at_agent))
        return [wrong for runs in (towards_client, towards_agent) for run in runs for wrong in run]
