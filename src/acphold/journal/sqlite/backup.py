"""Putting a backup of the journal back; `in_file` makes one.

SQLite keeps the latest writes in a log beside the file, and would apply the log of one file to
another of the same name. So the backup is checked and prepared elsewhere. It replaces the journal
in one step, while nobody has the journal open and it has no log.

A backup has the tokens, shares and rules of its moment. Those that were revoked since are revoked
in the restored journal, too, and rules are as they were last, pauses included: they wait there
until their person has accepted them (`journal.lineage`). If the former journal is gone, or was
another one, nobody can tell what was revoked, and all tokens and shares are held
(`journal.sql.access_rows`), as where any of them are held already.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from acphold.conversation.history.entries import FORGOTTEN, FORGOTTEN_TEXT
from acphold.errors import JournalBusyError, JournalError, JournalUnavailableError
from acphold.journal import bounds
from acphold.journal.sql.access_rows import Confirmed, access_here
from acphold.journal.sqlite import file_system, in_file, leases
from acphold.journal.sqlite.connection import Connection, connect, is_busy, writing
from acphold.journal.sqlite.file import FAULTS, JournalFile, failure, log_files, upgrade
from acphold.journal.sqlite.session_rows import SqliteTables


class Restored(Struct, frozen=True):
    """A journal was restored: the new path of the `former` file, if there was one. `is_known` is
    True if what it had revoked was carried over, and so the tokens and shares may be good."""

    former: str | None
    is_known: bool


def restore_file(path: str, backup: str, *, carries_over: bool) -> Restored:
    """Replace the journal at `path` with a copy of `backup`.

    With `carries_over`, what was revoked in the former journal stays so; otherwise tokens, shares
    and rules are those of the backup. All tokens and shares are held then. Raises JournalBusyError
    if anybody has it open, with nothing changed, and JournalError.
    """
    if not os.path.isfile(backup):
        raise JournalUnavailableError(f"{backup} does not exist or is not a file; name a backup")
    if os.path.exists(path) and os.path.samefile(path, backup):
        raise JournalUnavailableError(f"{backup} is the journal itself; name its backup")
    folder = os.path.dirname(path)
    aside: str | None = None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".acphold-restore-") as made:
            ready = os.path.join(made, "journal.db")
            for suffix in ("", "-wal"):
                with suppress(*(FileNotFoundError,) if suffix else ()):
                    shutil.copyfile(f"{backup}{suffix}", f"{ready}{suffix}")
            _make_ready(ready, backup)
            with _alone(path) as former:
                is_known = carries_over and _carry_over(former, ready)
                _carry_marks(former, ready)
                in_file.write_out(ready)
                if os.path.exists(path):
                    aside = f"{path}-before-{datetime.now():%Y-%m-%d-%H%M%S.%f}"
                    for file in log_files(path):
                        os.replace(file, f"{aside}{file.removeprefix(path)}")
                    os.link(path, aside)  # a link: there is a journal under the name at all times
                os.replace(ready, path)
        in_file.write_out(folder)
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot replace {path} with {backup}: {error.strerror or error}; free space on its "
            "disk, or make its folder writable"
        ) from error
    return Restored(aside, is_known)


def _carry_over(former: Connection | None, path: str) -> bool:
    """Take revocations over from the former journal into the file at `path`.

    Return False if that cannot be, so that its tokens and shares have to stay held: the former one
    was another journal, or cannot be read; or access is held in one of them, and a person has to
    look at that.
    """
    if former is None:
        return False
    with closing(sqlite3.connect(path, isolation_level=None)) as restored:
        try:
            if leases.meta(former, "cursor_secret") != leases.meta(restored, "cursor_secret"):
                return False
            access = leases.meta(restored, "access")
            if access and msgspec.json.decode(access, type=Confirmed).held:
                return False
            if access_here(SqliteTables(former))[0].held:
                return False
            revoked = former.execute(
                "SELECT revoked_at, id FROM access_tokens WHERE revoked_at IS NOT NULL"
            ).fetchall()
            shares = former.execute("SELECT session_id, tenant, prompts FROM shares").fetchall()
            rules = former.execute("SELECT person, number, rule FROM rules").fetchall()
        except sqlite3.Error:  # it is damaged, or of an old release
            return False
        restored.execute("BEGIN IMMEDIATE")
        restored.executemany(
            "UPDATE access_tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", revoked
        )
        found = restored.execute("SELECT session_id, tenant, prompts FROM shares").fetchall()
        may_prompt = {(session_id, tenant): prompts for session_id, tenant, prompts in shares}
        restored.execute("DELETE FROM shares")
        restored.executemany(
            "INSERT INTO shares (session_id, tenant, prompts) VALUES (?, ?, ?)",
            [
                (session_id, tenant, prompts and may_prompt[session_id, tenant])
                for session_id, tenant, prompts in found
                if (session_id, tenant) in may_prompt
            ],
        )
        restored.executemany("INSERT OR REPLACE INTO rules VALUES (?, ?, ?)", rules)
        restored.execute("COMMIT")
    return True


def _carry_marks(former: Connection | None, path: str) -> None:
    """Carry over what a person has removed for good; a damaged journal has no such marks."""
    marks: list[tuple[str, str]] = []
    kinds = (FORGOTTEN, FORGOTTEN_TEXT)
    with suppress(sqlite3.Error):
        which = "SELECT agent, downstream_id FROM links WHERE session IS NULL AND agent IN (?, ?)"
        marks = former.execute(which, kinds).fetchall() if former is not None else []
    with closing(sqlite3.connect(path, isolation_level=None)) as restored:
        restored.executemany(
            "INSERT OR IGNORE INTO links (agent, downstream_id) VALUES (?, ?)", marks
        )


def _make_ready(path: str, backup: str) -> None:
    """Check that it is a whole journal, migrate it, and begin a new era."""
    try:
        file = JournalFile.open(path, create=False, busy_seconds=bounds.BUSY_SECONDS)
        if file.connection.older:
            file.close()
            upgrade(path, bounds.BUSY_SECONDS)
            file = JournalFile.open(path, create=False, busy_seconds=bounds.BUSY_SECONDS)
    except FAULTS as error:
        raise failure(error, backup) from error
    except JournalError as error:  # its words are about the copy, which nobody knows
        raise type(error)(str(error).replace(path, backup)) from error
    try:
        if damage := in_file.damage(file.connection):
            raise JournalUnavailableError(
                f"the backup {backup} is damaged ({damage[0]}); restore another one"
            )
        with writing(file.connection):
            leases.renew_era(file.connection)
        file.stand_alone()
    except FAULTS as error:
        raise failure(error, backup) from error
    finally:
        file.close()


@contextmanager
def _alone(path: str) -> Iterator[Connection | None]:
    """During the block nobody else has the journal open, and it has no log; yield a connection to
    it, None if there is no journal or it cannot be read. Raises JournalBusyError."""
    if any(leases.lives(path, id_) for id_ in leases.owner_ids(path)):
        raise _busy(path)
    if not os.path.exists(path):
        yield None
        return
    with ExitStack() as stack:
        former: Connection | None = None
        try:
            file_system.hold(path)
            stack.callback(file_system.let_go, path)  # which would end the connection's locks
            connection = stack.enter_context(closing(connect(path, 0.0)))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # Leaving write-ahead logging takes exclusive access, and keeps others out.
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            former = connection
        except sqlite3.Error as error:
            if is_busy(error):
                raise _busy(path) from error
            # It is damaged, maybe the reason for restoring: its log is set aside with it.
        yield former


def _busy(path: str) -> JournalBusyError:
    return JournalBusyError(
        f"the journal {path} is in use; close the editors that use it, stop `acphold serve`, and "
        "try again with --stop, which also stops daemons"
    )
