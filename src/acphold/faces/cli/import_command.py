"""`acphold import`: reads conversations that other agents keep on disk into the journal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from acphold import imports
from acphold.errors import IllegibleNameError, TranscriptError, UnknownSessionError
from acphold.faces.cli import options
from acphold.faces.cli.background_import import finish_index, memory_file, start_if_left
from acphold.faces.cli.command_line import Exit, UsageError, at_ctrl_c, command, confirm
from acphold.faces.cli.journals import journal_if_any, unread_remark
from acphold.faces.cli.settings import agents_on_path
from acphold.faces.cli.terminal_text import (
    folder,
    on_one_line,
    progress_bars,
    quantity,
    size,
    tell,
    visible,
    visible_json,
)
from acphold.imports import (
    ABANDONED,
    NAMES,
    OUTCOMES,
    Home,
    ImportSelection,
    Intake,
    Source,
    TakenSource,
    reader,
)
from acphold.journal import stores
from acphold.journal.stores import open_journal
from acphold.known_agents import short_name
from acphold.live.reading.local_reader import existing_journal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


OFFERED = ", ".join(NAMES)

COMPRESSED = ".zst"
"""Suffix of a transcript that its program has compressed."""

NEXT = "`acphold` lists them: type to search, press Enter to continue one."
BESIDE = "The last 30 days are searchable; the rest follows in the background …"


def _named(arguments: Sequence[str]) -> str:
    """Return the hint for the name of an agent without its option."""
    names = [word for word in arguments if word in NAMES]
    return f"did you mean: acphold import --agent {names[0]}?" if names else ""


@command("import", "[OPTIONS]", options.JOURNAL, meant=_named)
def import_conversations(
    *,
    agents: list[str] | None = options.value(
        "NAME",
        f"only this agent's conversations; repeatable: {OFFERED}",
        "--agent",
        action="append",
        choices=NAMES,
        type=short_name,
    ),
    name: str | None = options.value(
        "NAME", "store them under this name, as in `wrap --name`; needs one --agent"
    ),
    home: str | None = options.value("HOME", "use this folder as the home folder", "--from"),
    cwd: str | None = options.value("DIR", "only conversations of this folder"),
    since: int = options.since("only conversations changed"),
    session: str | None = options.value(
        "ID", "only this conversation, even if it was deleted here: then it asks first"
    ),
    sure: bool = options.SURE,
    branches: bool = options.flag("also import abandoned branches, each as its own conversation"),
    wait: bool = options.flag("wait until everything in the journal is searchable"),
    redact: bool = options.flag("remove secrets, and report how many of which kind"),
    dry_run: bool = options.flag("only print what would be imported"),
    as_json: bool = options.json("one object per agent"),
) -> int:
    """Import conversations that other agents keep on disk.

    Imported conversations are listed, found and loaded like your own, even after the originals are
    gone. Importing again adds new ones and new turns. acphold only reads the agents' files. It
    skips sessions that are open; the next import gets them.

    Conversations of the last 30 days are searchable at once. The rest follows in the background;
    --wait waits for it.
    """
    if wait and (dry_run or session is not None):
        raise UsageError("--wait cannot be combined with --dry-run or --session")
    if name is not None and len(agents or ()) != 1:
        raise UsageError("--name needs exactly one --agent; see `acphold import --help`")
    if home is not None and not os.path.isdir(home):
        what = "there is no such folder; see `acphold import --help`"
        if os.path.exists(home):
            near = Path(home).absolute().parent
            what = f"it is a file; use the home folder that it is in, such as {near}"
        raise UsageError(f"--from {home}: {what}")
    there = None if home is None else Home(Path(home).resolve())
    run = _ImportRun(
        there or Home(Path.home(), dict(os.environ)),
        ImportSelection(cwd, redact=redact),
        name,
        since,
        branches,
        {name: Tally() for name in NAMES if name in (agents or NAMES)},
    )
    location = stores.journal_name()
    if session is not None or dry_run:
        with at_ctrl_c():  # nothing has to be finished: a journal is whole at any time
            if session is not None:
                return asyncio.run(run.one(session, sure=sure))
            asyncio.run(run.dry())
            run.report(as_json=as_json, dry=True)
        return Exit.OK
    try:  # a Ctrl-C cancels: raised inside of the loop, it could lose the end of a process's output
        asyncio.run(run.real(location, as_json=as_json, wait=wait))
    except (KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run.report_interruption())
        raise KeyboardInterrupt from None
    return Exit.OK


class _ImportRun(Struct):
    """One call of the command: its options, and its results by the agents' names."""

    home: Home
    selection: ImportSelection
    name: str | None
    since: int
    branches: bool
    tallies: dict[str, Tally]
    was_named: Callable[[OSError], bool] = lambda _: False

    async def real(self, location: str, *, as_json: bool, wait: bool) -> None:
        """Import what there is; with `wait`, go on until all is searchable."""
        async with imports.ending_at_ctrl_c(), aclosing(open_journal(location)) as journal:
            intake = Intake(journal, self.selection, at_once=True)
            memory, selection = None, self.selection
            if not self.home.is_given and self.name is None and selection.cwd is None:
                # All conversations of the user's own home: growth of these is imported by itself.
                self.was_named = imports.was_named(memory_file(location))
                memory = imports.ImportMemory(
                    self.home, self.tallies, since=self.since, redact=selection.redact
                )
            with progress_bars(quiet=as_json) as bars:
                await self._import_changed(intake, bars)
                await imports.give_up_lost(journal)
            if memory is not None:
                memory.keep(memory_file(location))
            self.report(as_json=as_json)
            is_new = any(tally.outcomes["new"] for tally in self.tallies.values())
            if is_new and not as_json and sys.stdout.isatty():
                print(NEXT, flush=True)
            notice = partial(print, file=sys.stderr if as_json else sys.stdout, flush=True)
            if wait:
                with progress_bars() as bars:
                    task = bars.add_task("", total=None)
                    async for left in finish_index(journal):
                        bars.update(task, description=f"{quantity(left, 'session')} to go")
                notice("Everything is searchable.")
            elif await start_if_left(journal, location):
                notice(BESIDE)

    async def one(self, session_id: str, *, sure: bool) -> int:
        """Read a session that is only listed; or import a conversation that is not here: ask first
        if it was deleted here, unless `sure`."""
        async with existing_journal() as journal:
            with suppress(UnknownSessionError):
                its = (await journal.resolve(session_id)).session_id
                await imports.read_listed(journal, its, redact=self.selection.redact)
                return Exit.OK
            with imports.searching() as search:
                found = imports.find_conversation(session_id, self.home, self.tallies)
            for error in search.unreadable:
                tell(f"cannot read {on_one_line(imports.failure(error, str(self.home.path)))}")
            intake = Intake(journal, self.selection)
            question = f"{visible(found[0].default_id)} was deleted here. Import it again?"
            expected = [await intake.expect(source, reader(source.reader)) for source in found]
            if "deleted" in expected and not confirm(question, "imported", sure=sure):
                return Exit.ERROR
            for source in found:
                tally = self.tallies[source.reader]
                with tally.counting(source):
                    tally.count(await intake.take(source, reader(source.reader), deleted=True))
            self.report(as_json=False)
        return Exit.OK

    async def report_interruption(self) -> None:
        """After a Ctrl-C, tell what is done and how to continue."""
        done = sum(
            tally.outcomes[word] for tally in self.tallies.values() for word in ("new", "grown")
        )
        then = "the next `acphold search` reads them in the background, `acphold import` at once"
        async with journal_if_any() as journal:
            left = "" if journal is None else await unread_remark(journal, then)
        left = left or "There may be more; `acphold import` continues"
        kept = f": {quantity(done, 'conversation')}" if done else ""
        tell(f"\nInterrupted; all that was read is kept{kept}. {left}.")

    async def _import_changed(self, intake: Intake, bars: Progress) -> None:
        """Import all sources that are new or have grown."""
        wanted: dict[str, list[Source]] = {}
        new: list[Source] = []
        tasks: dict[str, TaskID] = {}
        looking = bars.add_task("looking", total=None)
        for name, tally in self.tallies.items():
            wanted[name] = []
            with imports.interruptible():
                found = self._sources(reader(name))
            changed, unchanged = await intake.select_changed(found, reader(name))
            tally.outcomes.update(unchanged)
            for source in changed:
                with tally.counting(source):
                    outcome = await intake.expect(source, reader(name))
                    if outcome in ("new", "grown"):
                        wanted[name].append(source)
                    else:
                        tally.count(TakenSource(outcome))
                    if outcome == "new":
                        new.append(source)
            if wanted[name]:
                tasks[name] = bars.add_task(name, total=len(wanted[name]))
        bars.remove_task(looking)
        if sum(source.size for source in new) >= imports.WORTH_LISTING:
            await intake.list_first(new)

        async def take(source: Source, read_pieces: imports.PieceReader) -> None:
            tally = self.tallies[source.reader]
            with tally.counting(source):
                taken = await intake.take(source, reader(source.reader), read_pieces)
                tally.count(taken, source.paths[0])
            bars.advance(tasks[source.reader])

        for wave in imports.WAVES:
            sources = [source for name in wave & wanted.keys() for source in wanted[name]]
            # People search mostly for recent conversations.
            sources.sort(key=lambda source: -source.changed_at)
            await imports.each(sources, take)

    async def dry(self) -> None:
        """Count what `real` would import."""
        async with journal_if_any() as journal:
            intake = Intake(journal, self.selection) if journal else None
            for name, tally in self.tallies.items():
                for source in self._sources(reader(name)):
                    with tally.counting(source):
                        if intake is None:
                            outcome = imports.forecast(source, reader(name), self.selection)
                        else:
                            outcome = await intake.forecast(source, reader(name))
                        tally.count(TakenSource(outcome))

    def _sources(self, reading: imports.Reader) -> list[Source]:
        """Find the sources that were asked for."""
        found: list[Source] = []
        tally = self.tallies[reading.name]
        with imports.searching() as search:
            for source in reading.find(self.home):
                search.known.update(source.paths)
                if source.changed_at >= self.since * 1_000_000:
                    agent = self.name or source.agent
                    found.append(replace(source, agent=agent, given=self.home.is_given))
            tally.unknown = search.unknown()
        for failure in search.unreadable:
            tally.count_failure(failure, str(self.home.path), is_known=self.was_named(failure))
        tally.compressed = sum(source.paths[0].endswith(COMPRESSED) for source in found)
        tally.files = sum(len(source.paths) - 1 for source in found)
        names = (short_name(source.agent) for source in found if source.agent)
        tally.listed_as = Counter(name for name in names if name != reading.name)
        if not self.branches or reading.branches is None:
            return found
        whole: list[Source] = []
        for source in found:
            whole.append(source)
            try:
                whole.extend(reading.branches(source))
            except Exception as error:
                tally.count_failure(error, source.paths[0])
        return whole

    def report(self, *, as_json: bool, dry: bool = False) -> None:
        """Print the outcome for each agent."""
        shown = {name: tally for name, tally in self.tallies.items() if tally.total}
        for name, tally in shown.items():
            if as_json:
                line = json.dumps({"agent": name} | tally.json(), ensure_ascii=False)
                print(visible_json(line))
            else:
                print(f"{name:<10} {tally.line(dry=dry)}")
        if len(shown) > 1 and not as_json:
            total = quantity(sum(tally.total for tally in shown.values()), "conversation")
            files = sum(tally.files for tally in shown.values())
            belong = f"   {quantity(files, 'more file')} belong to them" if files > 1 else ""
            print(f"{'all':<10} {total:>22}{belong}")
        if not shown and not as_json:
            programs = len(self.tallies.keys() - {"acphold"})
            whose = f"the {programs} programs" if programs > 1 else next(iter(self.tallies))
            begun = next(iter(agents_on_path()), "demo")
            print(
                visible(
                    f"No conversations of {whose} found in {self.home.path}; `acphold help import`"
                    f" has the places. `acphold chat {begun}` begins one."
                )
            )
        for name, tally in self.tallies.items():
            for message in [] if as_json else tally.messages(branches=self.branches):
                tell(f"{name}: {message}")
        sys.stdout.flush()


class Tally(Struct):
    """The outcomes of one agent's sources; `files` are those beside the first of each, `listed_as`
    the agents that a source names itself; `unknown` are files that look like conversations of a
    form that is not known."""

    outcomes: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    missed_bytes: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    compressed: int = 0
    files: int = 0
    listed_as: Counter[str] = field(default_factory=Counter)
    failures: dict[str, bool] = {}
    """What could not be read, and whether an earlier import has said so."""
    unknown: list[str] = []
    lost_folders: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The number of conversations; files without any message do not count."""
        read = self.outcomes.total() - self.outcomes["empty"]
        return read + len(self.failures) + len(self.unknown)

    @contextmanager
    def counting(self, source: Source) -> Iterator[None]:
        """Count the source if it cannot be read in this block."""
        try:
            yield
        except (OSError, TranscriptError, IllegibleNameError) as error:
            self.count_failure(error, source.paths[0])

    def count(self, taken: TakenSource, path: str = "") -> None:
        """Count the outcome of a source; `path` is its file's, if it was read."""
        if path and taken.outcome == "empty" and taken.facts.missed.is_foreign:
            self.unknown.append(path)
        self.outcomes[taken.outcome] += 1
        facts = taken.facts
        self.missed.update(facts.missed.counts)
        self.missed_bytes.update(facts.missed.sizes)
        self.removed.update(facts.removed)
        if facts.is_lost and taken.outcome != "empty":
            self.lost_folders[facts.folder] += 1

    def count_failure(self, error: Exception, path: str, *, is_known: bool = False) -> None:
        """Count a source that could not be read."""
        self.failures[on_one_line(imports.failure(error, path))] = is_known

    def json(self) -> dict[str, object]:
        return {
            "found": self.total,
            **{word: self.outcomes[word] for word in OUTCOMES},
            "failed": len(self.failures),
            "compressed": self.compressed,
            "failures": [*self.failures],
            "unknown": self.unknown,
            "missed": dict(self.missed),
            "missedBytes": dict(self.missed_bytes),
            "removed": dict(self.removed),
        }

    def line(self, *, dry: bool) -> str:
        counts = [
            f"{meaning} {self.outcomes[word]:,}"
            for word, meaning in OUTCOMES.items()
            if self.outcomes[word]
        ]
        if self.failures:
            counts.append(f"unreadable {len(self.failures):,}")
        if self.unknown:
            counts.append(f"unknown {len(self.unknown):,}")
        what = quantity(self.total, "conversation")
        about = [f"{self.compressed:,} compressed"] if self.compressed else []
        if self.listed_as:
            about.append(f"listed as {on_one_line(', '.join(sorted(self.listed_as)))}")
        more = f"   ({'; '.join(about)})" if about else ""
        return f"{what:>22}   {'would be ' if dry else ''}{', '.join(counts)}{more}"

    def messages(self, *, branches: bool) -> list[str]:
        """Return lines about unreadable, unknown and removed content; with `branches`, nothing of
        these was left out."""
        messages = [f"cannot read {it}" for it, is_known in self.failures.items() if not is_known]
        if known := sum(self.failures.values()):
            its = quantity(known, "file")
            messages.append(f"cannot read {its}, as before; `acphold doctor` says why")
        if self.unknown:
            messages.append(name_unknown(self.unknown))
        if folders := self.lost_folders:
            count = quantity(folders.total(), "conversation")
            such = on_one_line(next(iter(folders)))
            messages.append(
                f"{count} in folders that are not here, such as {such}; "
                "`acphold continue ID --cwd DIR` continues one elsewhere"
            )
        missed = self.missed.copy()
        if branches:
            del missed[ABANDONED]
        if missed:
            most = [f"{what} ({count:,})" for what, count in missed.most_common(5)]
            more = f" and {len(missed) - 5} more kinds" if len(missed) > 5 else ""
            lost = self.missed_bytes.total()
            how_much = f": {size(lost)}" if lost else ""
            messages.append(f"skipped {on_one_line(', '.join(most))}{more}{how_much}")
        if self.removed:
            kinds = [f"{kind} {count:,}" for kind, count in self.removed.most_common()]
            messages.append(f"removed: {on_one_line(', '.join(kinds))}")
        return messages


SHOWN_FILES = 3
"""Most files of an unknown form that are named."""


def name_unknown(paths: list[str]) -> str:
    """Return a sentence about files of an unknown form."""
    named = ", ".join(on_one_line(folder(path)) for path in paths[:SHOWN_FILES])
    more = ", …" if len(paths) > SHOWN_FILES else ""
    return f"{quantity(len(paths), 'file')} of an unknown form: {named}{more}"
