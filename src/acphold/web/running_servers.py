"""The servers of a journal that run on this machine, so that a command finds the one it means.

Each holds a file among what belongs to the journal (`machine.locked_file`), with its address.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from acphold.journal_location import belongings, default_location
from acphold.machine.locked_file import LockedFile, hold, is_held, read_note

log = logging.getLogger(__name__)


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
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    held: LockedFile | None = None
    try:
        if (held := hold(os.path.join(_folder(server.journal), name))) is not None:
            held.note(encode(server).decode())
    except OSError as exc:  # it serves all the same
        log.warning("`acphold access pair` will not find this server: %s", exc)
    try:
        yield
    finally:
        if held is not None:
            held.release()


def running(journal: str | os.PathLike[str] | None = None) -> list[Running]:
    """Return the servers of this journal, or of the default one, the newest last; remove files left
    over from others."""
    folder = _folder(os.fspath(journal or default_location()))
    found: list[tuple[float, Running]] = []
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with suppress(OSError, MsgspecError):
                if is_held(path):
                    found.append((os.stat(path).st_mtime, decode(read_note(path), type=Running)))
                else:
                    os.unlink(path)
    return [server for _, server in sorted(found, key=lambda it: it[0])]


def _folder(journal: str) -> str:
    return os.path.join(belongings(journal), "serving")
