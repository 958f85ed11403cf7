"""What `acphold doctor` looks at, and what it finds."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
import stat
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from acphold import __version__
from acphold.cli.look import counted, folder, on_one_line, size
from acphold.errors import AcpholdError
from acphold.journal import Journal, ListFilter, ListKey, SqliteJournal
from acphold.journal.location import journal_path

LITTLE_SPACE = 64 << 20
"""Bytes free on the journal's disk below which it is time to make room."""

PAGE = 500
"""Sessions counted at once."""


class Finding(Struct, frozen=True):
    """One thing that was looked at; with `advice` it is wrong, and that is what to do."""

    text: str
    advice: str = ""


# -- this installation ----------------------------------------------------------------------


def checked_installation() -> list[Finding]:
    """Versions, and whether editors find us."""
    return [
        Finding(f"acphold {__version__}, msgspec {msgspec.__version__}"),
        Finding(f"Python {platform.python_version()}, {folder(sys.executable)}"),
        _sqlite(),
        _on_path(),
    ]


def _sqlite() -> Finding:
    version = f"SQLite {sqlite3.sqlite_version}"
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    except sqlite3.OperationalError:
        return Finding(
            f"{version} of this Python has no full-text search (FTS5)",
            "install acphold with another Python; those of python.org and uv have it",
        )
    finally:
        connection.close()
    return Finding(f"{version}, with full-text search (FTS5)")


def _on_path() -> Finding:
    found = shutil.which("acphold")
    if found is not None:
        return Finding(f"the command is {folder(found)}")
    return Finding(
        f"`acphold` is not on PATH: in an editor's settings write {sys.executable} -m acphold"
    )


# -- the journal ----------------------------------------------------------------------------


def checked_journal(location: str) -> list[Finding]:
    """Where it is, what is in it, and whether it is whole and private."""
    try:
        path = Path(journal_path(location))
        if not path.exists():
            none = Finding(f"none yet at {folder(str(path))}; the first session makes it")
            return [none, *_room(path)]
        inside = asyncio.run(_looked_inside(location, path))
    except AcpholdError as error:
        return [_problem(error)]
    return [Finding(f"{folder(str(path))}, {_sizes(path)}"), *inside, *_private(path), *_room(path)]


async def _looked_inside(location: str, path: Path) -> list[Finding]:
    journal = SqliteJournal.open(location, create=False)
    try:
        return [Finding(await _contents(journal)), *_whole(path, await journal.damage())]
    finally:
        await journal.aclose()


def _problem(error: AcpholdError) -> Finding:
    """Errors of the journal say both what is wrong and, behind the last semicolon, what to do."""
    what, _, advice = str(error).rpartition("; ")
    return Finding(what, advice) if what else Finding(advice, "see docs/operations.md")


def _sizes(path: Path) -> str:
    log = path.with_name(f"{path.name}-wal")
    waiting = log.stat().st_size if log.exists() else 0
    return f"{size(path.stat().st_size)}, and {size(waiting)} in its write-ahead log"


async def _contents(journal: Journal) -> str:
    prompted = await _count(journal, ListFilter())
    unprompted = await _count(journal, ListFilter(include_unprompted=True)) - prompted
    rest = f", {unprompted} more without a prompt" if unprompted else ""
    return counted(prompted, "session") + rest


async def _count(journal: Journal, wanted: ListFilter) -> int:
    count = 0
    after: ListKey | None = None
    while rows := await journal.page(wanted, after, PAGE):
        count += len(rows)
        after = rows[-1].key
    return count


def _whole(path: Path, damage: list[str]) -> list[Finding]:
    if not damage:
        return [Finding("it is whole: every page and every history was read")]
    advice = f"keep a copy; `sqlite3 {path} .recover` saves what can be read"
    return [Finding(on_one_line(sentence), advice) for sentence in damage]


def _private(path: Path) -> list[Finding]:
    """Whether others can read the conversations, or put another file in their place."""
    mode, above = (stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent))
    findings = []
    if mode & 0o077:
        findings.append(Finding(f"others can read it: mode {mode:04o}", f"chmod 600 {path}"))
    if above & 0o022 and not above & stat.S_ISVTX:
        findings.append(
            Finding(
                f"others can replace it: its folder has mode {above:04o}",
                f"chmod 700 {path.parent}, or move the journal to a folder of its own",
            )
        )
    return findings or [Finding(f"it is private: mode {mode:04o}, its folder {above:04o}")]


def _room(path: Path) -> list[Finding]:
    """Whether there is a folder to write to, and space."""
    place = next(parent for parent in path.parents if parent.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        return [
            Finding(
                f"{folder(str(place))} cannot be written to",
                "make it writable, or name another journal with --journal",
            )
        ]
    free = shutil.disk_usage(place).free
    if free < LITTLE_SPACE:
        return [Finding(f"only {size(free)} are free on its disk", "make room there")]
    return [Finding(f"{size(free)} are free on its disk")]
