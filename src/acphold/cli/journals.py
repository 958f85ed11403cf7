"""The journal a command works on: the option that names it, opening it, reading it in pages."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import click

from acphold.journal import Entry, Journal, SqliteJournal, default_location
from acphold.journal.location import VARIABLE, journal_path

F = TypeVar("F", bound=Callable[..., object])


def journal_option(function: F) -> F:
    """`--journal URL`, which a command gets as `journal`: what it says, else the default place."""
    return click.option(
        "--journal",
        metavar="URL",
        callback=lambda ctx, param, value: value or default_location(),
        help=f"The journal: a path, or sqlite:////absolute/path ({VARIABLE}).",
    )(function)


def exists(location: str) -> bool:
    """Whether there is a journal to read, so that looking does not make one."""
    return os.path.exists(journal_path(location))


@asynccontextmanager
async def opened(location: str) -> AsyncIterator[Journal]:
    """The journal for the block; JournalUnavailableError when there is none yet."""
    journal = SqliteJournal.open(location, create=False)
    try:
        yield journal
    finally:
        await journal.aclose()


async def entries(journal: Journal, session_id: str) -> AsyncIterator[Entry]:
    """All entries of a session, oldest first, a page of them in memory at a time."""
    after = 0
    while segments := await journal.read(session_id, after):
        for segment in segments:
            for entry in segment.entries():
                yield entry
        after = segments[-1].last_seq
