"""The conversations that agents left on this disk and that could be imported.

Plain `acphold` and the page of `serve` offer them where nothing was imported yet; later the page,
and `doctor`, tell of those that are not current here.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing, suppress
from pathlib import Path

from msgspec import Struct

from acphold.errors import AcpError, TranscriptError
from acphold.faces.cli import bounds
from acphold.faces.cli.background_import import memory_file
from acphold.faces.cli.settings import agents_without_import
from acphold.imports import (
    NAMES,
    OUTCOMES,
    Home,
    Intake,
    Outcome,
    Source,
    forecast,
    reader,
    searching,
)
from acphold.journal.journal import Journal
from acphold.journal.stores import open_journal
from acphold.journal_location import VARIABLE as JOURNAL
from acphold.machine.own_program import own_command, run_beside


class Importable(Struct):
    """The numbers of conversations on disk that are not current here, by agent and outcome, each
    counted once; files without any message do not count. Unless `is_all`, there was no time to look
    at all. `unreadable` has, by agent, what could not be read."""

    left: dict[str, Counter[Outcome]] = {}
    is_all: bool = True
    unreadable: dict[str, list[OSError]] = {}

    def total(self, name: str) -> int:
        """Return the number of one agent's."""
        return self.left[name].total()


async def find_importable(
    home: Home, agents: Iterable[str], journal: Journal | None, seconds: float = math.inf
) -> Importable:
    """Find what an import would add to a journal, or to a new one, within this time."""
    until = time.monotonic() + seconds
    found = Importable()
    intake = None if journal is None else Intake(journal)
    for name in agents:
        reading = reader(name)
        sources: list[Source] = []
        with searching() as search:
            for source in reading.find(home):
                sources.append(source)
                if time.monotonic() > until:
                    break
        if search.unreadable:
            found.unreadable[name] = search.unreadable
        left, counted = Counter[Outcome](), set[str]()
        if intake is not None:
            sources, left = await intake.select_changed(sources, reading)
            del left["same"]
        for number, source in enumerate(sources):
            outcome: Outcome = "empty"
            found.is_all &= time.monotonic() < until
            # Of many, some certainly hold a conversation; and a large one does.
            if number >= bounds.READ_TRANSCRIPTS or not found.is_all:
                outcome = "new" if intake is None else await intake.expect(source, reading)
            elif intake is None and source.size >= bounds.SMALL_TRANSCRIPT:
                outcome = "new"
            else:
                with suppress(OSError, TranscriptError):  # `import` reports these
                    if intake is None:
                        outcome = forecast(source, reading)
                    else:
                        outcome = await intake.forecast(source, reading)
            if outcome in ("new", "grown", "differs") and source.default_id not in counted:
                counted.add(source.default_id)
                left[outcome] += 1
        if left := +left:
            found.left[name] = left
    return found


class ImportOffer:
    """The import into the journal of this name; a `web.import_requests.Importing`."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._found = Importable()
        self._is_first = False
        self._looked_at = -math.inf
        self._alone = asyncio.Lock()

    async def find(self) -> tuple[dict[str, int], bool]:
        """See `web.import_requests.Importing`; the disk is looked at once a minute at most."""
        found = await self._look()
        if not self._is_first:
            return {}, True
        return {name: found.total(name) for name in found.left}, found.is_all

    async def left(self) -> dict[str, dict[str, int]]:
        """See `web.import_requests.Importing`."""
        found = await self._look()
        if self._is_first:
            return {}
        words = {
            name: {OUTCOMES[outcome]: number for outcome, number in left.items()}
            for name, left in found.left.items()
        }
        for name, errors in found.unreadable.items():
            words.setdefault(name, {})["unreadable"] = len(errors)
        return words

    async def _look(self) -> Importable:
        async with self._alone:
            if time.monotonic() - self._looked_at >= bounds.OFFER_SECONDS:
                self._is_first = not os.path.exists(memory_file(self._location))
                # In a thread with a loop of its own: looking takes a while.
                self._found = await asyncio.to_thread(lambda: asyncio.run(self._find()))
                self._looked_at = time.monotonic()
            return self._found

    async def _find(self) -> Importable:
        home, agents = Home(Path.home(), dict(os.environ)), self._agents()
        if self._is_first:
            return await find_importable(home, agents, None, bounds.FIRST_LOOK_SECONDS)
        with suppress(OSError, AcpError):  # a list is shown without it
            async with aclosing(open_journal(self._location, create=False)) as journal:
                return await find_importable(home, agents, journal)
        return Importable()

    async def run(self) -> str:
        """See `web.import_requests.Importing`; the import is a process of its own."""
        self._looked_at = -math.inf
        found = await self._look()
        self._looked_at = -math.inf
        if not (agents := [*{**found.left, **found.unreadable}]):
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
