"""The findings of `acphold doctor`: about the journal, and about files kept with conversations."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from acp_wire.surroundings import Surroundings
from acp_wire.tasks import timeout
from acphold import errors
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.prompt_queue import DAY_MS
from acphold.faces.cli import bounds
from acphold.faces.cli.journals import file_of, sessions, unread_remark
from acphold.faces.cli.settings import agent_keys, snapshot_settings
from acphold.faces.cli.terminal_text import (
    age,
    at_work,
    console,
    folder,
    local,
    on_one_line,
    quantity,
    size,
    tell,
    titled,
    visible,
)
from acphold.journal import stores
from acphold.journal.journal import Journal, history
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import InFile, TurnSnapshot
from acphold.journal_location import scheme_of
from acphold.live.hub.kept_files import remains
from acphold.live.hub.kept_stores import relatives, stores_of, tidy
from acphold.live.reading.local_reader import existing_journal
from acphold.safety.snapshots.checkouts import checkout_of
from acphold.safety.snapshots.git import program
from acphold.safety.snapshots.snapshot import is_too_high

GUTTER = 5
"""Columns for the marks."""


class Diagnosis(Struct, frozen=True):
    """One thing that was checked; with `advice` it is wrong, and the advice says what to do.

    With `is_past` it was wrong before, or is another program's way: good to know.
    """

    text: str
    advice: str = ""
    is_past: bool = False

    @classmethod
    def of(cls, words: str) -> Diagnosis:
        """Return a problem told in these words: the advice stands behind the first semicolon."""
        what, _, advice = words.partition("; ")
        return cls(what, advice)


class DiagnosisReport:
    """Prints findings, and counts the problems."""

    def __init__(self) -> None:
        self.problems = 0
        self._console = console()
        self._waits = ExitStack()

    def section(self, title: str, findings: Iterable[Diagnosis]) -> None:
        """Print all findings about one subject."""
        from rich.text import Text  # late: others want the kept files only

        from acphold.faces.screen.layout import Beside

        self._waits.close()
        self._console.print(Text(title, "heading"))
        for finding in findings:
            mark, style = ("!", "busy") if finding.is_past else ("✓", "good")
            if finding.advice:
                mark, style = "✗", "bad"
            text = Text(visible(finding.text), "bad" if finding.advice else "")
            self._console.print(Beside(mark, style, text, gutter=GUTTER))
            if finding.advice:
                self.problems += 1
                advice = Text(visible(finding.advice))
                self._console.print(Beside("→", "faint", advice, gutter=GUTTER))
        self._console.print()

    def wait(self, what: str) -> None:
        """Tell the person what takes a while."""
        words = visible(f"{what}; Ctrl-C leaves")
        if self._console.is_terminal:
            self._console.print(words, style="faint")
        elif sys.stderr.isatty():
            tell(words)
        self._waits.enter_context(at_work())

    def sum_up(self) -> None:
        """Print the last line."""
        if self.problems:
            self._console.print(f"{quantity(self.problems, 'problem')} found", style="bad")
        else:
            self._console.print("No problems found", style="good")


def check_journal(*, deep: bool) -> list[Diagnosis]:
    """Check the journal: its place, its contents, and that it is private; with `deep`, that it is
    whole, for which all of it is read."""
    try:
        inside, path = asyncio.run(_look_inside(deep=deep))
    except errors.NoJournalError as none:
        finding = Diagnosis(f"none yet at {folder(none.place)}; the first session creates it")
        is_file = scheme_of(stores.journal_name()) is None
        return [finding, *(_room(Path(none.place)) if is_file else ())]
    except errors.AcpError as error:
        return [_problem(error)]
    if path is None:
        return [Diagnosis(stores.journal_name().partition("?")[0]), *inside]
    log = path.with_name(f"{path.name}-wal")
    waiting = size(log.stat().st_size if log.exists() else 0)
    sizes = f"{size(path.stat().st_size)}, and {waiting} in its write-ahead log"
    return [Diagnosis(f"{folder(str(path))}, {sizes}"), *inside, *_room(path)]


async def _look_inside(*, deep: bool) -> tuple[list[Diagnosis], Path | None]:
    """Return the findings, and the file if the journal is in one."""
    async with existing_journal() as journal:
        prompted = unprompted = 0
        async for row in sessions(journal, ListFilter(include_unprompted=True, archived="include")):
            prompted += row.prompted
            unprompted += not row.prompted
        rest = f", {unprompted:,} more without a prompt" if unprompted else ""
        findings = [Diagnosis(quantity(prompted, "session") + rest)]
        unread = [Diagnosis.of(words)] if (words := await unread_remark(journal)) else []
        if not deep:
            text = "not read in full; `acphold doctor --deep` checks every history"
            unread.append(Diagnosis(text))
        if (file := journal.file) is None:
            return [*findings, *unread, *(await _read_through(journal) if deep else ())], None
        path = Path(file.path)
        findings += [*await _room_of(file, bounds.NAMED_SESSIONS if deep else 0), *unread]
        damage = await file.damage() if deep else []
        if deep and not damage:
            findings.append(Diagnosis("it is intact: every page and every history was checked"))
        for sentence in damage:
            advice = f"keep a copy; `sqlite3 {path} .recover` saves what can be read"
            findings.append(Diagnosis(on_one_line(sentence), advice))
        # Facts about sessions besides what was said.
        if spoiled := await file.find_spoiled():
            whose = f"the summary of {quantity(len(spoiled), 'session')}"
            what = f"{whose} is corrupted: {_some(spoiled)}"
            findings.append(Diagnosis(what, "`acphold doctor --repair` rebuilds it"))
        # Just deleted, or the sweep was interrupted, by a full disk for example.
        if unswept := await file.unswept():
            what = f"traces of {quantity(unswept, 'deletion')} are still in the file"
            how = "acphold overwrites them within a minute, or `acphold journal compact` now"
            findings.append(Diagnosis(f"{what}: {how}", is_past=True))
        if (at := await file.log_cut_at()) is not None:
            what = f"on {local(at)} the end of its write-ahead log was missing"
            lost = "the last changes before that may be lost"
            findings.append(Diagnosis(f"{what}: {lost}", is_past=True))
        if (at := await file.went_back_at()) is not None:
            what = f"on {local(at)} acphold found an earlier copy in place of the journal"
            how = "everything newer is missing; `acphold journal restore` keeps it aside"
            findings.append(Diagnosis(f"{what}: {how}", is_past=True))
        return [*findings, *_private(path, was_open=file.was_open_to_others)], path


async def _read_through(journal: Journal) -> list[Diagnosis]:
    """Check each history of a journal that is not in a file: is it readable and whole?"""
    damaged: list[str] = []
    broken = [
        f"there are entries of session {session_id!r}, which does not exist"
        for session_id in await stores.without_session(journal)
    ]
    everything = ListFilter(include_unprompted=True, archived="include")
    async for row in sessions(journal, everything):
        try:
            last_seq = 0
            async for segment in history(journal, row.session_id):
                if segment.first_seq != last_seq + 1 and len(broken) < bounds.BROKEN_HISTORIES:
                    broken.append(
                        f"session {row.session_id!r}: entry {segment.first_seq} follows {last_seq}"
                    )
                last_seq = segment.last_seq
        except errors.NotAJournalError:
            damaged.append(row.session_id)
        except (errors.UnknownSessionError, errors.RewrittenError):
            pass  # it was deleted or has gone on: so it can be read
    advice = "restore a backup of the database, or delete the session"
    gaps = [Diagnosis(on_one_line(sentence), advice) for sentence in broken]
    if not damaged:
        return gaps or [Diagnosis("it is intact: every history was checked")]
    what = f"{quantity(len(damaged), 'session')} cannot be read: {_some(damaged)}"
    return [*gaps, Diagnosis(what, "restore a backup of the database")]


def _some(session_ids: Sequence[str]) -> str:
    names = ", ".join(map(on_one_line, session_ids[: bounds.NAMED_SESSIONS]))
    return names + (", …" if len(session_ids) > bounds.NAMED_SESSIONS else "")


def _problem(error: errors.AcpError) -> Diagnosis:
    """Split an error of the journal: the advice stands after its last semicolon."""
    what, _, advice = str(error).rpartition("; ")
    if not what:
        what, advice = advice, "see `acphold help when something is wrong`"
    return Diagnosis(what, advice)


async def _room_of(file: InFile, largest: int) -> list[Diagnosis]:
    """Find what takes the room in the file, and this many of the largest sessions."""
    found = await file.sizes(largest)
    text = f"{size(found.free)} free inside, reused for new entries"
    if found.free > bounds.MUCH_FREE_BYTES:
        text = f"{size(found.free)} free inside, which `acphold journal compact` reclaims"
    if found.conversations is not None and found.index is not None:
        text = f"conversations {size(found.conversations)}, search {size(found.index)}, {text}"
    findings = [Diagnosis(text)]
    large = [
        f"{titled(session.title)} ({on_one_line(session.session_id)}, {size(session.size)})"
        for session in found.largest
        if session.size >= bounds.LARGE_SESSION_BYTES
    ]
    if large:
        findings.append(Diagnosis(f"largest: {'; '.join(large)}"))
    return findings


def _private(path: Path, *, was_open: bool) -> list[Diagnosis]:
    """Check that others can neither read the conversations nor replace the file."""
    mode, above = (stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent))
    findings = []
    if mode & 0o077:
        findings.append(Diagnosis(f"other users can read it: mode {mode:04o}", f"chmod 600 {path}"))
    if above & 0o022 and not above & stat.S_ISVTX:
        text = f"other users can replace it: its folder has mode {above:04o}"
        advice = f"chmod 700 {path.parent}, or move the journal to a separate folder"
        findings.append(Diagnosis(text, advice))
    if was_open and not findings:
        text = f"other users could read it until now: acphold made it private, mode {mode:04o}"
        return [Diagnosis(text, is_past=True)]
    return findings or [Diagnosis(f"it is private: mode {mode:04o}, its folder {above:04o}")]


def _room(path: Path) -> list[Diagnosis]:
    """Check that there is a folder to write to, and space."""
    place = next(parent for parent in path.parents if parent.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        advice = "make it writable, or name another journal with --journal"
        return [Diagnosis(f"{folder(str(place))} is not writable", advice)]
    free = shutil.disk_usage(place).free
    if free < bounds.LITTLE_SPACE_BYTES:
        return [Diagnosis(f"only {size(free)} free on its disk", "free some space there")]
    return [Diagnosis(f"{size(free)} free on its disk")]


# -- its repair -----------------------------------------------------------------------------


_NO_REPAIR = "restore a damaged database from its backup"


async def repair_journal() -> list[Diagnosis]:
    """Rebuild everything that can be rebuilt from the conversations, and report what was wrong."""
    try:
        async with existing_journal() as journal:
            done = await file_of(journal, "repair", _NO_REPAIR).repair()
            while await journal.index.catch_up(bounds.INDEX_STEP_SECONDS):
                pass
            removed = await remove_files(journal)
    except errors.NoJournalError:
        return [Diagnosis("there is no journal yet, so nothing to repair")]
    except errors.AcpError as error:
        return [_problem(error)]
    counts = Diagnosis("all counts were right")
    traces = Diagnosis("no traces of deleted sessions were found")
    if wrong := ", ".join(map(on_one_line, done.miscounted)):
        counts = Diagnosis(f"corrected wrong counts: {wrong}", is_past=True)
    if left := done.left_over:
        text = f"removed the remains of {quantity(left, 'deleted session')}"
        traces = Diagnosis(text, is_past=True)
    index = Diagnosis("the search index was complete")
    if missing := done.unindexed:
        text = f"put {quantity(missing, 'session')} into the search index again"
        index = Diagnosis(text, is_past=True)
    return [counts, traces, index, *removed]


def _is_off() -> bool:
    """True if the settings file has `snapshots` false for all agents. False for a broken file,
    which `doctor` reports: nothing is removed because of it."""
    try:
        return not any(snapshot_settings().values())
    except errors.SettingsError:
        return False


async def remove_from_disk(journal: Journal, *, now: bool = False) -> None:
    """Remove the files of deleted sessions, and say so if that takes too long; their words, too, if
    it is to be `now`."""
    if now and journal.file is not None:
        try:
            await journal.file.sweep()
        except errors.JournalUnavailableError as error:
            raise errors.JournalUnavailableError(
                f"what was deleted is hidden, but not overwritten yet: {error}, then run "
                "`acphold journal compact`"
            ) from error
        if left := await journal.file.unswept():
            whose = quantity(left, "deleted session")
            tell(
                f"The words of {whose} are not overwritten yet: another process is reading the "
                "journal. acphold tries again when that is done."
            )
    try:
        async with timeout(bounds.FILES_GONE_SECONDS):
            await tidy(journal)
    except TimeoutError:
        tell("Removing kept files takes a while; acphold removes the rest later.")


async def files_of(journal: Journal, row: SessionRow) -> list[str]:
    """Return a line about the kept files of a session; none if it has none and is not to."""
    one = (await journal.snapshots.newest([row.session_id])).get(row.session_id)
    if one is not None:
        return [on_one_line(describe_snapshot(one))]
    try:
        values = snapshot_settings()
    except errors.SettingsError:
        return []
    own = (values[name] for name in values if name and row.agent in agent_keys(name))
    if not (its := next(own, values[""])):
        return []
    checkout = checkout_of(row.cwd)
    if program() is None:
        why = "git is not installed"
    elif is_too_high(row.cwd if checkout is None else checkout.top, Surroundings.here().home):
        why = "it is your home folder, or above it"
    elif checkout is None and its != "all":
        why = "its folder is not in a git repository"
    else:
        why = "no turn of it ran behind acphold with `snapshots` on"
    return [f"files not kept: {why}"]


SNAPSHOT_STATES = {
    "likely": ", likely",
    "late": "; the agent was already at work",
    "later": "; taken at the next turn, because acphold had exited",
}


def describe_snapshot(one: TurnSnapshot) -> str:
    """Return the words on the newest snapshot of a session."""
    if one.state == "refused":
        return f"files not kept: {one.reason}"
    words = f"files kept, {age(one.at, now_ms())}{SNAPSHOT_STATES.get(one.state, '')}"
    if one.left_out_count:
        words += f"; {quantity(one.left_out_count, 'file')} left out"
    return words


async def check_files() -> list[Diagnosis]:
    """Say where files are kept, how large they are, and why some are not."""
    is_off = _is_off()
    findings = [_setting()]
    if not is_off and program() is None:
        what = "git is not on PATH: no files are kept until you install it"
        findings.append(Diagnosis(what, is_past=True))
    try:
        async with existing_journal() as journal:
            stores = await stores_of(journal)
            rows = await journal.snapshots.of_all()
            begun = await remains(journal)
    except errors.AcpError:  # there is none, or it is reported with the journal
        return findings
    here = {store.id: store for store in stores}
    if here:
        total = size(sum(store.size() for store in here.values()))
        text = f"{folder(stores.folder)}: {quantity(len(here), 'project')}, {total}"
        if is_off:
            text += "; `acphold doctor --repair` removes them"
        findings.append(Diagnosis(text, is_past=is_off))
    for other in relatives(stores):
        text = (
            f"{folder(other.folder)}: belongs to a copy of this journal, or to a database that "
            "held it before; remove the folder if that no longer exists"
        )
        findings.append(Diagnosis(text, is_past=True))
    elsewhere = {its for its, one in rows if one.is_kept and one.store not in here}
    if elsewhere:
        text = f"the files of {quantity(len(elsewhere), 'session')} are not on this machine"
        findings.append(Diagnosis(text, is_past=True))
    for place in (it for it, is_used in begun.items() if os.path.isdir(it) and not is_used):
        text = (
            f"{folder(place)}: a fork or a move was cut off while it laid files out here; the next "
            "one removes the folder, unless something in it was changed"
        )
        findings.append(Diagnosis(on_one_line(text), is_past=True))
    # Why the last snapshots of some sessions were not taken.
    last = dict(rows)  # oldest first
    reasons = Counter((one.root, one.reason) for one in last.values() if one.state == "refused")
    for (root, why), count in reasons.most_common(bounds.REFUSALS):
        text = on_one_line(f"{folder(root)}: {why} ({quantity(count, 'session')})")
        findings.append(Diagnosis(text, is_past=True))
    return findings


def _setting() -> Diagnosis:
    try:
        values = snapshot_settings()
    except errors.SettingsError as error:
        return Diagnosis(visible(f"not known: {error}"), is_past=True)
    if not any(values.values()):
        return Diagnosis("not kept: `snapshots` is false in the settings")
    names = ", ".join(name for name in values if name and values[name])
    if values[""]:
        without = ", ".join(name for name in values if name and not values[name])
        names = f"for all agents{without and f' but {without}'}"
    kept = f"kept at the beginning and the end of each turn: {names}"
    return Diagnosis(on_one_line(kept))


async def remove_files(journal: Journal) -> list[Diagnosis]:
    """Remove all files that are kept, if the settings say that none are to be, and none were in the
    last day: a process that still runs may have another setting."""
    if not _is_off():
        return []
    stores = await stores_of(journal)
    before = sum(store.size() for store in stores)
    if not before:
        return []
    kept = [one.at for _, one in await journal.snapshots.of_all() if one.is_kept]
    if now_ms() - max(kept, default=0) < DAY_MS:
        await tidy(journal)
        text = (
            "kept files were not removed: some are less than a day old, and the process that "
            "keeps them may still run; run `acphold doctor --repair` a day after it has exited"
        )
        return [Diagnosis(text, is_past=True)]
    await tidy(journal, all_of_them=True)
    left = sum(store.size() for store in stores)
    text = f"removed kept files, {size(before - left)}, because `snapshots` is false"
    if left:
        text += f"; {size(left)} are in use and will be removed next time"
    return [Diagnosis(visible(text), is_past=True)]
