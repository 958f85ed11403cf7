"""Replace the journal with a backup, for `acphold restore`.

SQLite keeps the latest writes in a log beside the file, and would apply the log of one file to
another of the same name. So the backup is checked and prepared elsewhere. It replaces the journal
in one step, while nobody has the journal open and it has no log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from tempfile import TemporaryDirectory

from acphold.errors import JournalBusyError, JournalError, JournalUnavailableError
from acphold.journal.sqlite import checks, leases, owner_files
from acphold.journal.sqlite.connection import connect, is_busy, writing
from acphold.journal.sqlite.file import FAULTS, JournalFile, failure, log_files
from acphold.journal.sqlite.online_copy import write_out

BUSY_SECONDS = 5.0


def restored(path: str, backup: str) -> str | None:
    """Replace the journal at `path` with a copy of `backup`; return the new path of the former
    file.

    Raises JournalBusyError if anybody has it open, with nothing changed, and JournalError.
    """
    if not os.path.isfile(backup):
        raise JournalUnavailableError(f"there is no file {backup}; name a backup")
    if os.path.exists(path) and os.path.samefile(path, backup):
        raise JournalUnavailableError(f"{backup} is the journal itself; name its backup")
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".acphold-restore-") as made:
            ready = os.path.join(made, "journal.db")
            for suffix in ("", "-wal"):
                with suppress(*(FileNotFoundError,) if suffix else ()):
                    shutil.copyfile(f"{backup}{suffix}", f"{ready}{suffix}")
            _make_ready(ready, backup)
            write_out(ready)
            with _alone(path):
                aside = _set_aside(path)
                os.replace(ready, path)
        write_out(folder)
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot put {backup} in the place of {path}: {error.strerror or error}; make room "
            "there, or make it writable"
        ) from error
    return aside


def _make_ready(path: str, backup: str) -> None:
    """Check that it is a whole journal, migrate it, and begin a new era."""
    try:
        file = JournalFile.open(path, create=False, busy_seconds=BUSY_SECONDS)
    except JournalError as error:  # its words are about the copy, which nobody knows
        raise type(error)(str(error).replace(path, backup)) from error
    try:
        if damage := checks.damage(file.connection):
            raise JournalUnavailableError(
                f"the backup {backup} is not whole ({damage[0]}); restore another one"
            )
        with writing(file.connection):
            leases.renew_era(file.connection)
        file.stand_alone()
    except FAULTS as error:
        raise failure(error, backup) from error
    finally:
        file.close()


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """During the block nobody else has the journal open, and it has no log; raises
    JournalBusyError."""
    if any(owner_files.lives(path, id_) for id_ in owner_files.known(path)):
        raise _busy(path)
    if not os.path.exists(path):
        yield
        return
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(connect(path, 0.0)))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # Leaving write-ahead logging takes exclusive access, and keeps others out.
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if is_busy(error):
                raise _busy(path) from error
            # It is damaged, maybe the reason for restoring: its log is set aside with it.
        yield


def _busy(path: str) -> JournalBusyError:
    return JournalBusyError(
        f"somebody has the journal {path} open; close the editors that use it, end `acphold "
        "serve`, and try again with --stop, which ends what runs in the background"
    )


def _set_aside(path: str) -> str | None:
    """Give the journal another name, together with its other files; None if there is no journal."""
    if not os.path.exists(path):
        return None
    aside = f"{path}-before-{datetime.now():%Y-%m-%d-%H%M%S.%f}"
    for file in log_files(path):
        os.replace(file, f"{aside}{file.removeprefix(path)}")
    os.link(path, aside)  # a link, so that there is a journal under the name at all times
    return aside
