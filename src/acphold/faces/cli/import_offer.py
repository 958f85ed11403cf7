"""The conversations that agents left on this disk, offered where nothing was imported yet: by plain
`acphold`, and by the page of `serve`, which later tells of those that are not current here."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from acphold.errors import AcpError, TranscriptError
from acphold.faces.cli import bounds
from acphold.faces.cli.index_beside import memory_file
from acphold.faces.cli.settings import agents_without_import
from acphold.imports import (
    NAMES,
    OUTCOMES,
    Home,
    Intake,
    Outcome,
    Reader,
    Source,
    forecast,
    reader,
    searching,
)
from acphold.journal.stores import open_journal
from acphold.journal_location import VARIABLE as JOURNAL
from acphold.machine.own_program import own_command, run_beside

Left = dict[str, dict[str, int]]
"""Numbers of conversations that are not current here, by agent and reason."""


def count_conversations(home: Home, agents: Iterable[str] = NAMES) -> tuple[dict[str, int], bool]:
    """Count the conversations on disk by agent, as an import does: files without any message do not
    count. False if there was no time to count them all."""
    until = time.monotonic() + bounds.FIRST_LOOK_SECONDS
    found: Counter[str] = Counter()
    small: list[tuple[str, Source]] = []
    with searching():
        for name in agents:
            for source in reader(name).find(home):
                found[name] += 1
                if source.size < bounds.SMALL_TRANSCRIPT:
                    small.append((name, source))
                if time.monotonic() > until:
                    return found, False
        for name, source in small:
            if time.monotonic() > until:
                return found, False
            with suppress(Exception):  # `import` reports it
                found[name] -= forecast(source, reader(name)) == "empty"
    return +found, True


async def count_left(
    intake: Intake | None, sources: list[Source], reading: Reader
) -> Counter[Outcome]:
    """Count what an import would add, by outcome, each conversation once; files without any message
    do not count."""
    changed, left = sources, Counter[Outcome]()
    counted = set[str]()
    if intake is not None:
        changed, left = await intake.select_changed(sources, reading)
        del left["same"]
    for number, source in enumerate(changed):
        outcome: Outcome = "empty"
        if number >= bounds.DOCTOR_TRANSCRIPTS:
            outcome = "new" if intake is None else await intake.expect(source, reading)
        else:
            with suppress(OSError, TranscriptError):  # `import` reports these
                if intake is None:
                    outcome = forecast(source, reading)
                else:
                    outcome = await intake.forecast(source, reading)
        if outcome in ("new", "grown", "differs") and source.default_id not in counted:
            counted.add(source.default_id)
            left[outcome] += 1
    return left


async def _left_by_agent(location: str, home: Home, agents: Iterable[str]) -> Left:
    """Return the conversations on disk that are not current in a journal, by agent and reason."""
    left: Left = {}
    kept = open_journal(location, create=False)
    try:
        for name in agents:
            reading = reader(name)
            with searching() as search:
                counted = await count_left(Intake(kept), [*reading.find(home)], reading)
            why = {OUTCOMES[outcome]: number for outcome, number in counted.items()}
            why |= {"unreadable": len(search.unreadable)} if search.unreadable else {}
            if why:
                left[name] = why
    finally:
        await kept.aclose()
    return left


class ImportOffer:
    """The import into the journal of this name; a `web.import_requests.Importing`."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._found: tuple[dict[str, int], bool] = {}, True
        self._left: Left = {}
        self._looked_at = -math.inf
        self._alone = asyncio.Lock()

    async def find(self) -> tuple[dict[str, int], bool]:
        """See `web.import_requests.Importing`; the disk is looked at once a minute at most."""
        await self._look()
        return self._found

    async def left(self) -> Left:
        """See `web.import_requests.Importing`."""
        await self._look()
        return self._left

    async def _look(self) -> None:
        async with self._alone:
            if time.monotonic() - self._looked_at < bounds.OFFER_SECONDS:
                return
            self._found, self._left = ({}, True), {}
            home, agents = Home(Path.home(), dict(os.environ)), self._agents()
            if not os.path.exists(memory_file(self._location)):
                self._found = await asyncio.to_thread(count_conversations, home, agents)
            elif agents:
                # In a thread with a loop of its own: looking takes a while.
                look = partial(_left_by_agent, self._location, home, agents)
                with suppress(OSError, AcpError):  # a list is shown without it
                    self._left = await asyncio.to_thread(lambda: asyncio.run(look()))
            self._looked_at = time.monotonic()

    async def run(self) -> str:
        """See `web.import_requests.Importing`; the import is a process of its own."""
        self._looked_at = -math.inf
        agents = list(self._agents() if (await self.find())[0] else await self.left())
        self._looked_at = -math.inf
        if not agents:
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
        """Return the agents to import from."""
        without = agents_without_import()
        return [] if without is None else [name for name in NAMES if name not in without]
