"""The servers of a journal that run on this machine, so that a command finds the one it means.

Each has a file among what belongs to the journal, which it keeps locked: the kernel releases the
lock when the process ends, so a locked file belongs to a running server, and nobody else has its
address.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from acphold.journal_location import belongings, default_location
from acphold.web import bounds

log = logging.getLogger(__name__)

FILE: Final = ".json"


class Running(Struct, frozen=True):
    """A running server: its journal, its address on this machine, and its address for others.

    `known_as` is the origin for which this user has a token.
    """

    journal: str
    here: str
    url: str
    known_as: str


@contextmanager
def noted(server: Running) -> Iterator[None]:
    """Record the server as running for the block."""
    folder = _folder(server.journal)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        new = os.path.join(folder, f"{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Lock it before it gets its final name: a file that is not locked counts as left over.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, encode(server))
            os.rename(new, new + FILE)
        except BaseException:
            os.unlink(new)
            os.close(descriptor)
            raise
    except OSError as exc:  # it serves all the same
        log.warning("`acphold access pair` will not find this server: %s", exc)
        yield
        return
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new + FILE)
        os.close(descriptor)


def running(journal: str | os.PathLike[str] | None = None) -> list[Running]:
    """Return the servers of this journal, or of the default one, the newest last; remove files left
    over from others."""
    folder = _folder(os.fspath(journal or default_location()))
    found: list[tuple[float, Running]] = []
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not name.endswith(FILE):
                continue
            with suppress(OSError, MsgspecError), open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    server = decode(file.read(bounds.SERVER_FILE_BYTES), type=Running)
                    found.append((os.fstat(file.fileno()).st_mtime, server))
                else:
                    os.unlink(path)
    return [server for _, server in sorted(found, key=lambda it: it[0])]


def _folder(journal: str) -> str:
    return os.path.join(belongings(journal), "serving")
