"""The part of `doctor` about the journal: its place, size, health and repair."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path

from acphold import errors
from acphold.cli.findings import Diagnosis
from acphold.cli.journals import file_of, opened, path_of, sessions, unread_remark
from acphold.cli.terminal_text import counted, folder, local, on_one_line, size
from acphold.journal import Journal, ListFilter, history, stores
from acphold.journal.in_file import InFile, Repaired
from acphold.journal.location import scheme_of

LITTLE_SPACE = 64 << 20
"""With fewer bytes free on the journal's disk, it is time to make room."""

MUCH_FREE = 64 << 20
"""With more bytes free inside the file, a command to return them is worth it."""

LARGEST = 3
"""At most this many of the largest sessions are named."""

MOST_BROKEN = 20
"""At most this many breaks of histories are reported."""

WORTH_NAMING = 1 << 20
"""Sessions with fewer bytes are not named for their size."""


def checked_journal(location: str | None) -> list[Diagnosis]:
    """Check the journal: its place, its contents, and that it is whole and private."""
    try:
        inside, path = asyncio.run(_looked_inside(location))
    except errors.NoJournalError as none:
        finding = Diagnosis(f"none yet at {folder(none.place)}; the first session makes it")
        is_file = scheme_of(path_of(location)) is None
        return [finding, *(_room(Path(none.place)) if is_file else ())]
    except errors.AcpholdError as error:
        return [_problem(error)]
    if path is None:
        return [Diagnosis(path_of(location).partition("?")[0]), *inside]
    log = path.with_name(f"{path.name}-wal")
    waiting = size(log.stat().st_size if log.exists() else 0)
    sizes = f"{size(path.stat().st_size)}, and {waiting} in its write-ahead log"
    return [Diagnosis(f"{folder(str(path))}, {sizes}"), *inside, *_room(path)]


async def _looked_inside(location: str | None) -> tuple[list[Diagnosis], Path | None]:
    """Return the findings, and the file if the journal is in one."""
    async with opened(location) as journal:
        prompted = unprompted = 0
        async for row in sessions(journal, ListFilter(include_unprompted=True, archived="include")):
            prompted += row.prompted
            unprompted += not row.prompted
        rest = f", {unprompted:,} more without a prompt" if unprompted else ""
        findings = [Diagnosis(counted(prompted, "session") + rest)]
        what, _, advice = (await unread_remark(journal)).partition("; ")
        unread = [Diagnosis(what, advice)] if what else []
        if (file := journal.file) is None:
            return [*findings, *unread, *await _read_through(journal)], None
        path = Path(file.path)
        findings += [*await _room_of(file), *unread]
        damage = await file.damage()
        if not damage:
            findings.append(Diagnosis("it is whole: every page and every history was read"))
        for sentence in damage:
            advice = f"keep a copy; `sqlite3 {path} .recover` saves what can be read"
            findings.append(Diagnosis(on_one_line(sentence), advice))
        # Facts about sessions besides what was said.
        if spoiled := await file.spoiled():
            some = ", ".join(map(on_one_line, spoiled[:LARGEST]))
            some += ", …" if len(spoiled) > LARGEST else ""
            whose = f"the summary or the usage of {counted(len(spoiled), 'session')}"
            what = f"{whose} is not what was written: {some}"
            findings.append(Diagnosis(what, "`acphold doctor --repair` rebuilds it"))
        # A deletion that was interrupted, by a full disk for example.
        if unswept := await file.unswept():
            what = f"traces of {counted(unswept, 'deleted session')} are still in the file"
            how = "the next turn overwrites it, or `acphold compact` does now"
            findings.append(Diagnosis(f"{what}: {how}", is_past=True))
        if (at := await file.log_cut_at()) is not None:
            what = f"on {local(at)} its write-ahead log had lost its end"
            findings.append(
                Diagnosis(f"{what}: what was written last before that may be missing", is_past=True)
            )
        if (at := await file.went_back_at()) is not None:
            what = f"on {local(at)} an earlier copy was found in the place of the journal"
            how = "what was said since that copy is missing; `acphold restore` keeps it aside"
            findings.append(Diagnosis(f"{what}: {how}", is_past=True))
        return [*findings, *_private(path, was_open=file.was_open_to_others)], path


async def _read_through(journal: Journal) -> list[Diagnosis]:
    """Check each history of a journal that is not in a file: is it readable and whole?"""
    damaged: list[str] = []
    broken = [
        f"there are entries of session {session_id!r}, which there is not"
        for session_id in await stores.without_session(journal)
    ]
    everything = ListFilter(include_unprompted=True, archived="include")
    async for row in sessions(journal, everything):
        try:
            last_seq = 0
            async for segment in history(journal, row.session_id):
                if segment.first_seq != last_seq + 1 and len(broken) < MOST_BROKEN:
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
        return gaps or [Diagnosis("it is whole: every history was read")]
    some = ", ".join(map(on_one_line, damaged[:LARGEST])) + (", …" * (len(damaged) > LARGEST))
    what = f"{counted(len(damaged), 'session')} cannot be read: {some}"
    return [*gaps, Diagnosis(what, "restore a backup of the database")]


def _problem(error: errors.AcpholdError) -> Diagnosis:
    """Split an error of the journal: the advice stands after its last semicolon."""
    what, _, advice = str(error).rpartition("; ")
    return (
        Diagnosis(what, advice)
        if what
        else Diagnosis(advice, "see `acphold help when something is wrong`")
    )


async def _room_of(file: InFile) -> list[Diagnosis]:
    """Find what takes the room in the file, and the largest sessions."""
    found = await file.sizes(LARGEST)
    parts = [f"{size(found.free)} free inside, used for what comes"]
    if found.free > MUCH_FREE:
        parts = [f"{size(found.free)} free inside, which `acphold compact` gives back"]
    if found.conversations is not None and found.index is not None:
        parts = [
            f"conversations {size(found.conversations)}",
            f"search {size(found.index)}",
            *parts,
        ]
    findings = [Diagnosis(", ".join(parts))]
    large = [
        f"{on_one_line(session.title or '(no title)')} ({on_one_line(session.session_id)}, "
        f"{size(session.size)})"
        for session in found.largest
        if session.size >= WORTH_NAMING
    ]
    if large:
        findings.append(Diagnosis(f"largest: {'; '.join(large)}"))
    return findings


def _private(path: Path, *, was_open: bool) -> list[Diagnosis]:
    """Check that others can neither read the conversations nor replace the file."""
    mode, above = (stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent))
    findings = []
    if mode & 0o077:
        findings.append(Diagnosis(f"others can read it: mode {mode:04o}", f"chmod 600 {path}"))
    if above & 0o022 and not above & stat.S_ISVTX:
        findings.append(
            Diagnosis(
                f"others can replace it: its folder has mode {above:04o}",
                f"chmod 700 {path.parent}, or move the journal to a folder of its own",
            )
        )
    if was_open and not findings:
        text = f"others could read it until now: it was made private, mode {mode:04o}"
        return [Diagnosis(text, is_past=True)]
    return findings or [Diagnosis(f"it is private: mode {mode:04o}, its folder {above:04o}")]


def _room(path: Path) -> list[Diagnosis]:
    """Check that there is a folder to write to, and space."""
    place = next(parent for parent in path.parents if parent.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        return [
            Diagnosis(
                f"{folder(str(place))} cannot be written to",
                "make it writable, or name another journal with --journal",
            )
        ]
    free = shutil.disk_usage(place).free
    if free < LITTLE_SPACE:
        return [Diagnosis(f"only {size(free)} are free on its disk", "make room there")]
    return [Diagnosis(f"{size(free)} are free on its disk")]


# -- its repair -----------------------------------------------------------------------------


_NO_REPAIR = "a damaged database is restored from its backup"


def repaired_journal(location: str | None) -> list[Diagnosis]:
    """Rebuild everything that can be rebuilt from the conversations, and report what was wrong."""

    async def repaired() -> Repaired:
        async with opened(location) as journal:
            done = await file_of(journal, "repair", _NO_REPAIR).repair()
            while await journal.index.catch_up(1.0):
                pass
            return done

    try:
        done = asyncio.run(repaired())
    except errors.NoJournalError:
        return [Diagnosis("there is no journal yet, and nothing to repair")]
    except errors.AcpholdError as error:
        return [_problem(error)]
    wrong = ", ".join(map(on_one_line, done.miscounted))
    return [
        Diagnosis(
            f"counts were wrong and were corrected: {wrong}" if wrong else "all counts were right",
            is_past=bool(wrong),
        ),
        Diagnosis(
            f"what was left of {counted(done.left_over, 'session')} that is no more was removed"
            if done.left_over
            else "no traces of deleted sessions were found",
            is_past=bool(done.left_over),
        ),
        Diagnosis("the search index was rebuilt"),
    ]
