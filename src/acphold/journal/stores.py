"""Stores are made here alone, from what names a journal.

    sqlite:////absolute.db, sqlite:///relative.db, or a path    one file: `journal.sqlite`

A new one gets a folder beside `journal.sqlite`, a scheme here, and a fixture in
tests/journal/contract/conftest.py.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from acphold.errors import JournalBusyError
from acphold.journal.location import default_location, journal_path
from acphold.journal.sqlite import engine
from acphold.journal.sqlite.store import SqliteJournal

if TYPE_CHECKING:
    from acphold.journal.journal import Journal
    from acphold.journal.transcripts import ReadTranscript


def open_journal(
    location: str | os.PathLike[str],
    *,
    create: bool = True,
    at_once: bool = True,
    read_transcript: ReadTranscript | None = None,
) -> Journal:
    """The journal at a URL or path, made if it is missing and `create` is set.

    `read_transcript` reads what an import has only listed. Without `at_once`, one that another
    program holds right now is opened by its first use. Raises JournalBusyError,
    JournalUnavailableError, also for a URL of an unknown kind, NotAJournalError and
    NewerJournalError.
    """
    journal = SqliteJournal(location, create=create, read_transcript=read_transcript)
    with suppress(*() if at_once else (JournalBusyError,)):
        journal.connect()
    return journal


def named(location: str | os.PathLike[str] | None) -> str:
    """The one name of the journal at `location`, or of the default one: of a file, its whole path.

    Raises JournalUnavailableError.
    """
    return journal_path(location or default_location())


def exists(location: str | os.PathLike[str] | None) -> bool:
    """Whether there is a journal to read, so that looking does not make one."""
    return os.path.exists(named(location))


def rewrite(location: str | os.PathLike[str] | None) -> None:
    """Rewrite the file that a journal is in without what is free in it, if nobody has it open.

    Raises JournalBusyError, with nothing done, while anybody has, and JournalUnavailableError.
    """
    from acphold.journal.sqlite.free_pages import rewritten  # late: for `acphold shrink` alone

    rewritten(named(location))


def engine_version() -> str:
    """What keeps journals on this machine, and its version."""
    return engine.version()


def engine_has_search() -> bool:
    """Whether that has the full-text search which a journal needs."""
    return engine.has_search()
