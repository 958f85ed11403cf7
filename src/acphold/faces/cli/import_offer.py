"""The conversations that agents left on this disk, offered where nothing was imported yet: by plain
`acphold`, and by the page of `serve`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path

from acp_wire.processes.own_program import own_command, run_beside
from acphold.faces.cli import bounds
from acphold.faces.cli.index_beside import memory_file
from acphold.faces.cli.settings import agents_without_import
from acphold.imports import NAMES, Home, noting_unreadable, reader
from acphold.journal_location import VARIABLE as JOURNAL


def count_conversations(home: Home, agents: Iterable[str] = NAMES) -> tuple[dict[str, int], bool]:
    """Count the conversations on disk by agent; False if there was no time to count them all."""
    until = time.monotonic() + bounds.FIRST_LOOK_SECONDS
    found: dict[str, int] = {}
    with noting_unreadable():
        for name in agents:
            try:
                for _ in reader(name).find(home):
                    found[name] = found.get(name, 0) + 1
                    if time.monotonic() > until:
                        return found, False
            except Exception:
                continue
    return found, True


class ImportOffer:
    """The import into the journal of this name; a `web.import_requests.Importing`."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._found: tuple[dict[str, int], bool] | None = None
        self._found_at = 0.0
        self._alone = asyncio.Lock()

    async def find(self) -> tuple[dict[str, int], bool]:
        """See `web.import_requests.Importing`; the disk is looked at once a minute at most."""
        async with self._alone:
            agents = self._agents()
            if not agents:
                return {}, True
            now = time.monotonic()
            if self._found is None or now - self._found_at > bounds.OFFER_SECONDS:
                home = Home(Path.home(), dict(os.environ))
                self._found = await asyncio.to_thread(count_conversations, home, agents)
                self._found_at = now
            return self._found

    async def run(self) -> str:
        """See `web.import_requests.Importing`; the import is a process of its own."""
        if not (agents := self._agents()):
            return ""  # somebody else was first
        names = [word for name in agents for word in ("--agent", name)]
        command = own_command("import", "--json", *names)
        env = {**os.environ, JOURNAL: self._location}  # it may have a password
        try:
            code, _, told = await run_beside(command, bounds.OFFERED_IMPORT_SECONDS, env=env)
        except TimeoutError:
            return "it took too long; run `acphold import` on the server"
        lines = told.decode(errors="replace").strip().splitlines()
        if code == 0:
            return ""
        return lines[-1] if lines else f"the import ended with exit code {code}"

    def _agents(self) -> list[str]:
        """Return the agents to import from; none once something was imported."""
        without = agents_without_import()
        if without is None or os.path.exists(memory_file(self._location)):
            return []
        return [name for name in NAMES if name not in without]
