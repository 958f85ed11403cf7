"""Stores are made here alone, from what names a journal.

    sqlite:////absolute.db, sqlite:///relative.db, or a path    one file: `journal.sqlite`
    postgresql://, postgres://                                  a database: `journal.postgresql`
    any other URL                                               who has claimed its scheme

A new one of ours gets a folder beside `journal.sqlite`, a scheme here, and a line in STORES of
tests/journal/contract/conftest.py. One of others claims its scheme with `register`, or in the
metadata of its package, as an entry point of the group `acphold.stores`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from acphold.errors import JournalBusyError, JournalUnavailableError
from acphold.journal.location import default_location, journal_path, scheme_of
from acphold.journal.sqlite import engine
from acphold.journal.sqlite.store import SqliteJournal

if TYPE_CHECKING:
    from acphold.journal.journal import Journal
    from acphold.journal.transcripts import ReadTranscript

ENTRY_POINTS: Final = "acphold.stores"
"""The group of entry points by which packages offer stores: a scheme, and its OpenStore."""


class OpenStore(Protocol):
    """What opens the journals at URLs of a scheme."""

    def __call__(
        self, url: str, *, create: bool, read_transcript: ReadTranscript | None
    ) -> Journal:
        """The journal at this URL, made if it is missing and `create` is set.

        `read_transcript` reads what an import has only listed: it is given the URL and the id of
        the session. What takes time is left to the first use of it. Raises
        JournalUnavailableError.
        """


def open_postgresql(url: str, *, create: bool, read_transcript: ReadTranscript | None) -> Journal:
    """The journal in a database; JournalUnavailableError, also where its driver is missing."""
    try:
        from acphold.journal.postgresql.store import PostgresqlJournal  # late: an optional package
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise JournalUnavailableError(
            "postgresql:// journals need the package psycopg: pip install 'acphold[postgres]'"
        ) from error
    return PostgresqlJournal(url, create=create, read_transcript=read_transcript)


_registered: dict[str, OpenStore] = {"postgres": open_postgresql, "postgresql": open_postgresql}


def register(scheme: str, open_store: OpenStore) -> None:
    """Have `open_store` open the journals at URLs of this scheme, in this process."""
    _registered[scheme.lower()] = open_store


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
    url = os.fspath(location)
    if (open_store := _store(scheme_of(url))) is not None:
        return open_store(url, create=create, read_transcript=read_transcript)
    journal = SqliteJournal(location, create=create, read_transcript=read_transcript)
    with suppress(*() if at_once else (JournalBusyError,)):
        journal.connect()
    return journal


def named(location: str | os.PathLike[str] | None) -> str:
    """The one name of the journal at `location`, or of the default one: of a file, its whole path.

    Raises JournalUnavailableError.
    """
    url = os.fspath(location or default_location())
    if scheme_of(url) in ("postgres", "postgresql"):
        return _without_password(url)
    return journal_path(url) if _store(scheme_of(url)) is None else url


def _without_password(url: str) -> str:
    """A URL without the password in it, which from now on the environment has.

    A name is shown to people, and given to other programs of ours on their command lines, which
    everybody on the machine can read; what they inherit can not.
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
    """Whether there is a journal to read, so that looking does not make one.

    Of one that is in no file its store tells, which makes none unless it is to.
    """
    name = named(location)
    return scheme_of(name) is not None or os.path.exists(name)


def _store(scheme: str | None) -> OpenStore | None:
    """What opens URLs of this scheme; None where `journal.sqlite` does, or says that nobody can."""
    if scheme in (None, "sqlite"):
        return None
    assert scheme is not None
    if scheme not in _registered:
        from importlib.metadata import entry_points  # late: next to nobody has such a store

        for point in entry_points(group=ENTRY_POINTS, name=scheme):
            try:
                register(scheme, point.load())
            except Exception as error:
                raise JournalUnavailableError(
                    f"the store for {scheme}:// journals ({point.value}) cannot be loaded: {error}"
                ) from error
    return _registered.get(scheme)


def rewrite(location: str | os.PathLike[str] | None) -> None:
    """Rewrite the file that a journal is in without what is free in it, if nobody has it open.

    Raises JournalBusyError, with nothing done, while anybody has, and JournalUnavailableError.
    """
    from acphold.journal.sqlite.free_pages import rewritten  # late: for `acphold shrink` alone

    rewritten(named(location))


def restore(location: str | os.PathLike[str] | None, backup: str) -> str | None:
    """Put a backup in the place of the file that a journal is in; where the former one is then.

    Raises JournalBusyError, with nothing done, while anybody has it open, and the errors of
    `open_journal` for what is no journal.
    """
    from acphold.journal.sqlite.restoring import restored  # late: for `acphold restore` alone

    return restored(named(location), backup)


async def without_session(journal: Journal) -> list[str]:
    """Ids under which a journal in a database keeps entries, and no session; some of them."""
    from acphold.journal.postgresql.store import PostgresqlJournal  # late: it brings psycopg

    return await journal.without_session() if isinstance(journal, PostgresqlJournal) else []


def engine_version() -> str:
    """What keeps journals on this machine, and its version."""
    return engine.version()


def engine_has_search() -> bool:
    """Whether that has the full-text search which a journal needs."""
    return engine.has_search()
