"""The one place where stores are created, from the URL or path of a journal.

    sqlite:////absolute.db, sqlite:///relative.db, or a path    one file: `journal.sqlite`
    postgresql://, postgres://                                  a database: `journal.postgresql`
    any other URL                                               the store registered for its scheme

CONTRIBUTING.md says how to add one. Other packages claim a scheme with `register`, or in their
metadata, as an entry point of the group `acphold.stores`.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, Protocol

from acphold.errors import JournalBusyError, JournalUnavailableError
from acphold.extras import require
from acphold.journal.location import default_location, journal_path, scheme_of
from acphold.journal.sqlite.store import SqliteJournal

if TYPE_CHECKING:
    from acphold.journal.journal import Journal
    from acphold.journal.stored_journal import ReadTranscript

ENTRY_POINTS: Final = "acphold.stores"
"""The group of entry points by which packages offer stores: the name is a scheme, the value an
OpenStore."""


class OpenStore(Protocol):
    """Opens the journals at URLs of a scheme."""

    def __call__(
        self, url: str, *, create: bool, read_transcript: ReadTranscript | None
    ) -> Journal:
        """Return the journal at this URL, created if it is missing and `create` is set.

        `read_transcript` reads a session that an import has only listed; it gets the URL and the id
        of the session. Anything slow is left to the first use of the journal. Raises
        JournalUnavailableError.
        """


def open_postgresql(url: str, *, create: bool, read_transcript: ReadTranscript | None) -> Journal:
    """Return the journal in a database; raises JournalUnavailableError, and MissingExtraError
    without its driver."""
    require("postgres", "a postgresql:// journal")
    from acphold.journal.postgresql.store import PostgresqlJournal  # late: an optional package

    return PostgresqlJournal(url, create=create, read_transcript=read_transcript)


_registered: dict[str, OpenStore] = {"postgres": open_postgresql, "postgresql": open_postgresql}


def register(scheme: str, open_store: OpenStore) -> None:
    """Register `open_store` for the journals at URLs of this scheme, in this process."""
    _registered[scheme.lower()] = open_store


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
    JournalUnavailableError (also for a URL of an unknown scheme), NotAJournalError and
    NewerJournalError.
    """
    url = os.fspath(location)
    if (open_store := _store(scheme_of(url))) is not None:
        return open_store(url, create=create, read_transcript=read_transcript)
    journal = SqliteJournal(location, create=create, read_transcript=read_transcript)
    with suppress(*() if at_once else (JournalBusyError,)):
        journal.connect()
    return journal


def named(location: str | os.PathLike[str] | None) -> str:
    """Return the one name of the journal at `location`, or of the default one: for a file, its
    absolute path.

    Raises JournalUnavailableError.
    """
    url = os.fspath(location or default_location())
    if scheme_of(url) in ("postgres", "postgresql"):
        return _without_password(url)
    return journal_path(url) if _store(scheme_of(url)) is None else url


def _without_password(url: str) -> str:
    """Return the URL without its password, and put the password into the environment.

    The name is shown to people, and is passed to other programs of ours on their command lines,
    which everybody on the machine can read. The environment that they inherit is private.
    """
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


def exists(location: str | os.PathLike[str] | None) -> bool:
    """True if there is a journal to read; looking creates none.

    True for any URL of a store without a file: only the store itself can tell, and it creates none
    unless asked to.
    """
    name = named(location)
    return scheme_of(name) is not None or os.path.exists(name)


def _store(scheme: str | None) -> OpenStore | None:
    """The OpenStore for this scheme; None if `journal.sqlite` handles it, or reports it as
    unknown."""
    if scheme in (None, "sqlite"):
        return None
    assert scheme is not None
    if scheme not in _registered:
        from importlib.metadata import entry_points  # late: hardly anybody has such a store

        for point in entry_points(group=ENTRY_POINTS, name=scheme):
            try:
                register(scheme, point.load())
            except Exception as error:
                raise JournalUnavailableError(
                    f"the store for {scheme}:// journals ({point.value}) cannot be loaded: {error}"
                ) from error
    return _registered.get(scheme)


def restore(location: str | os.PathLike[str] | None, backup: str) -> str | None:
    """Replace the file of a journal with a backup; return the new path of the former file, if any.

    Raises JournalBusyError if anybody has it open, with nothing changed, and the errors of
    `open_journal` for a file that is not a journal.
    """
    from acphold.journal.sqlite.backup import restored  # late: for `acphold restore` alone

    return restored(named(location), backup)


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
