"""`acphold import`: what other agents keep on disk, into the journal."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from acphold.cli.command_line import Exit, Parser, UsageError, add_journal
from acphold.cli.journals import exists, path_of
from acphold.cli.terminal_text import counted, on_one_line, visible, visible_json
from acphold.imports import NAMES, Home, Intake, Reader, Selection, Source, reader
from acphold.journal import SqliteJournal

if TYPE_CHECKING:
    from rich.progress import Progress

WATCH_SECONDS = 5.0
"""Between two looks of `--watch`: agents write several times a second, people read slower."""

_AGO = re.compile(r"(\d+)([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


def parser() -> Parser:
    """The arguments of `import`."""
    made = Parser(import_conversations, "import")
    made.add_argument(
        "--agent",
        dest="agents",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"only this agent's, may be repeated: {', '.join(NAMES)}",
    )
    made.add_argument(
        "--from", dest="home", metavar="HOME", help="a folder to take as the home folder"
    )
    made.add_argument("--cwd", metavar="DIR", help="only conversations held in this folder")
    made.add_argument(
        "--since",
        metavar="WHEN",
        type=_since,
        default=0.0,
        help="only those changed since: 2026-01-31, or 12h, 30d, 8w ago",
    )
    made.add_argument(
        "--branches",
        action="store_true",
        help="also what a person went back from, each as a conversation of its own",
    )
    made.add_argument(
        "--watch", action="store_true", help="go on: take in what comes, by finished turns"
    )
    made.add_argument("--dry-run", action="store_true", help="only say what would be taken in")
    made.add_argument(
        "--json", dest="as_json", action="store_true", help="one JSON object for each agent"
    )
    add_journal(made)
    return made


def import_conversations(
    *,
    agents: list[str] | None,
    home: str | None,
    cwd: str | None,
    since: float,
    branches: bool,
    watch: bool,
    dry_run: bool,
    as_json: bool,
    journal: str | None,
) -> int:
    """Take in the conversations that other agents keep on disk.

    They are then listed, found and loaded like those held through acphold, also after the
    originals are gone. What is there already is left as it is, and what came to it is added;
    what lies on disk is only read.
    """
    if home is not None and not os.path.isdir(home):
        raise UsageError(f"--from {home}: there is no such folder; see `acphold import --help`")
    run = _Run(
        [reader(name) for name in NAMES if name in (agents or NAMES)],
        Home(Path(home).resolve()) if home else Home(Path.home(), dict(os.environ)),
        Selection(
            None if cwd is None else os.path.abspath(os.path.expanduser(cwd)), whole_turns=watch
        ),
        since=since,
        branches=branches,
    )
    location = path_of(journal)
    asyncio.run(run.dry(location) if dry_run else run.real(location, quiet=as_json, watch=watch))
    run.report(as_json=as_json, dry=dry_run)
    return Exit.OK


def _since(value: str) -> float:
    """A time as seconds since the epoch."""
    if ago := _AGO.fullmatch(value):
        return time.time() - int(ago[1]) * _HOURS[ago[2]] * 3600
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{value!r}: give a date (2026-01-31), or 12h, 30d or 8w for so long ago"
        ) from None


class _Run:
    """One call of the command: what was asked for, and what became of it."""

    def __init__(
        self,
        readers: list[Reader],
        home: Home,
        selection: Selection,
        *,
        since: float,
        branches: bool,
    ) -> None:
        self._readers = readers
        self._home = home
        self._selection = selection
        self._since = since
        self._branches = branches
        self._tallies = {reading.name: Tally() for reading in readers}

    async def real(self, location: str, *, quiet: bool, watch: bool) -> None:
        journal = SqliteJournal.open(location)
        try:
            intake = Intake(journal, self._selection)
            await self._take_all(intake, quiet=quiet)
            while watch:
                await asyncio.sleep(WATCH_SECONDS)
                await self._take_all(intake, quiet=True)
        finally:
            await journal.aclose()

    async def _take_all(self, intake: Intake, *, quiet: bool) -> None:
        with _progress(quiet=quiet) as progress:
            for reading in self._readers:
                sources = self._sources(reading)
                task = progress.add_task(reading.name, total=len(sources)) if progress else None
                for source in sources:
                    await self._take(intake, source, reading)
                    if progress and task is not None:
                        progress.advance(task)

    async def _take(self, intake: Intake, source: Source, reading: Reader) -> None:
        tally = self._tallies[reading.name]
        try:
            taken = await intake.take(source, reading)
        except OSError as error:
            tally.failed(error, source.paths[0])
            return
        tally.outcomes[taken.outcome] += 1
        tally.missed.update(taken.missed)

    async def dry(self, location: str) -> None:
        if not exists(location):
            for reading in self._readers:
                self._tallies[reading.name].outcomes["new"] = len(self._sources(reading))
            return
        journal = SqliteJournal.open(location, create=False)
        try:
            intake = Intake(journal, self._selection)
            for reading in self._readers:
                for source in self._sources(reading):
                    outcome = await intake.expect(source, reading)
                    self._tallies[reading.name].outcomes[outcome] += 1
        finally:
            await journal.aclose()

    def _sources(self, reading: Reader) -> list[Source]:
        """Those asked for, the newest first: what is looked for is mostly new."""
        found: list[Source] = []
        try:
            found.extend(
                source
                for source in reading.find(self._home)
                if source.changed_at / 1e9 >= self._since
            )
        except OSError as error:
            self._tallies[reading.name].failed(error, str(self._home.path))
        found.sort(key=lambda source: -source.changed_at)
        return list(self._with_branches(reading, found)) if self._branches else found

    def _with_branches(self, reading: Reader, found: Iterable[Source]) -> Iterator[Source]:
        for source in found:
            yield source
            if reading.branches is not None:
                yield from reading.branches(source)

    def report(self, *, as_json: bool, dry: bool) -> None:
        shown = {name: tally for name, tally in self._tallies.items() if tally.found}
        for name, tally in shown.items():
            if as_json:
                told = json.dumps({"agent": name} | tally.json(), ensure_ascii=False)
                print(visible_json(told))
            else:
                print(f"{name:<10} {tally.line(dry=dry)}")
        if not shown and not as_json:
            print(visible(f"No conversations of other agents were found in {self._home.path}."))
        for name, tally in self._tallies.items():
            for message in [] if as_json else tally.messages():
                print(f"{name}: {message}", file=sys.stderr)


class Tally:
    """What became of the sources of one agent."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self._failures: list[str] = []

    @property
    def found(self) -> int:
        """How many conversations there are; files in which nobody said anything are none."""
        return self.outcomes.total() - self.outcomes["empty"] + len(self._failures)

    def failed(self, error: OSError, path: str) -> None:
        """A source could not be read."""
        where = error.filename or path
        self._failures.append(f"{on_one_line(str(where))}: {error.strerror or error}")

    def json(self) -> dict[str, object]:
        return {
            "found": self.found,
            **{word: self.outcomes[word] for word in _WORDS},
            "failed": len(self._failures),
            "missed": dict(self.missed),
        }

    def line(self, *, dry: bool) -> str:
        told = [
            f"{meaning} {self.outcomes[word]:,}"
            for word, meaning in _WORDS.items()
            if self.outcomes[word]
        ]
        if self._failures:
            told.append(f"unreadable {len(self._failures):,}")
        what = counted(self.found, "conversation")
        return f"{what:>22}   {'would be ' if dry else ''}{', '.join(told)}"

    def messages(self) -> list[str]:
        """A line for what could not be read, and one for what was not understood."""
        messages = [f"cannot read {failure}" for failure in self._failures]
        if self.missed:
            most = [f"{count:,} {what}" for what, count in self.missed.most_common(5)]
            more = f" and {len(self.missed) - 5} more kinds" if len(self.missed) > 5 else ""
            messages.append(f"passed over {on_one_line(', '.join(most))}{more}")
        return messages


_WORDS = {
    "new": "new",
    "grown": "grown",
    "same": "unchanged",
    "elsewhere": "in other folders",
    "busy": "in use, left for later",
    "deleted": "deleted here before",
    "differs": "different here, left as they are",
}


def _progress(*, quiet: bool) -> Progress | nullcontext[None]:
    """Bars on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)
