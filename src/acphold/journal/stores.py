"""The one place where stores are created, from the URL or path of a journal.

sqlite:////absolute.db, sqlite:///relative.db, or a path    one file: `journal.sqlite`
postgresql://, postgres://                                  a database: `journal.postgresql`
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from acphold.errors import JournalBusyError
from acphold.extras import require
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal_location import default_location, journal_path, scheme_of

if TYPE_CHECKING:
    from acphold.journal.journal import Journal
    from acphold.journal.sqlite.backup import Restored
    from acphold.journal.stored_journal import ReadTranscript


DATABASES: Final = ("postgres", "postgresql")
"""The schemes of the URLs of databases."""


def open_journal(
    location: str | os.PathLike[str],
    *,
    create: bool = True,
    at_once: bool = True,
    read_transcript: ReadTranscript | None = None,
) -> Journal:
    """Return the journal at a URL or path, created if it is missing and `create` is set.

    `read_transcript` reads a session that an import has only listed. With `at_once=False`, a
    journal that another program is holding is opened at its first use. Raises JournalBusyError,
    JournalUnavailableError (also for a URL of an unknown scheme), NotAJournalError,
    NewerJournalError, and MissingExtraError without the driver of a database.
    """
    url = os.fspath(location)
    if scheme_of(url) in DATABASES:
        require("postgres", "a postgresql:// journal")
        from acphold.journal.postgresql.store import (
            PostgresqlJournal,  # late: an optional package
        )

        return PostgresqlJournal(url, create=create, read_transcript=read_transcript)
    journal = SqliteJournal(location, create=create, read_transcript=read_transcript)
    with suppress(*() if at_once else (JournalBusyError,)):
        journal.connect()
    return journal


def journal_name(location: str | os.PathLike[str] | None = None) -> str:
    """Return the one name of the journal at `location`, or of the default one: for a file, its
    absolute path.

    Raises JournalUnavailableError.
    """
    url = os.fspath(location or default_location())
    if scheme_of(url) not in DATABASES:
        return journal_path(url)
    # Without its password, which goes into the environment. The name is shown to people, and is
    # passed to other programs of ours on their command lines, which everybody on the machine can
    # read. The environment that they inherit is private.
    from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

    parts = urlsplit(url)
    user, separator, host = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    if colon:
        os.environ["PGPASSWORD"] = unquote(password)
        parts = parts._replace(netloc=f"{name}{separator}{host}")
    options = parse_qsl(parts.query, keep_blank_values=True)
    for option, value in options:
        if option == "password":
            os.environ["PGPASSWORD"] = value
            kept = [it for it in options if it[0] != "password"]
            parts = parts._replace(query=urlencode(kept, safe="/,", quote_via=quote))
    return url if parts == urlsplit(url) else urlunsplit(parts)


def exists() -> bool:
    """True if the default journal is there to read; looking creates none.

    True for any URL of a store without a file: only the store itself can tell, and it creates none
    unless asked to.
    """
    name = journal_name()
    return scheme_of(name) is not None or os.path.exists(name)


def restore(backup: str, *, carries_over: bool) -> Restored:
    """Replace the file of the default journal with a backup; what was revoked since stays revoked,
    if `carries_over` is set. Tokens and shares are held (`Access.accept`).

    Raises JournalBusyError if anybody has it open, with nothing changed, and the errors of
    `open_journal` for a file that is not a journal.
    """
    from acphold.journal.sqlite.backup import restore_file  # late: for `restore` alone

    return restore_file(journal_name(), backup, carries_over=carries_over)


async def without_session(journal: Journal) -> list[str]:
    """Some of the ids under which a journal in a database keeps entries without a session."""
    from acphold.journal.postgresql.store import PostgresqlJournal  # late: it brings psycopg

    return await journal.without_session() if isinstance(journal, PostgresqlJournal) else []


def engine_version() -> str:
    """The program that keeps journals on this machine, and its version."""
    return f"SQLite {sqlite3.sqlite_version}"


def engine_has_search() -> bool:
    """True if it has the full-text search (FTS5) that a journal needs."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
        except sqlite3.OperationalError:
            return False
    return True
