"""The servers of this user that run on this machine, so that a command finds the one that it means.

Each has a file in the folder for state, which it holds locked: the kernel lets go of that when the
process ends, so who is noted there has its address, and nobody else can have it.
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

from acphold.journal.stores import named
from acphold.transports.runtime_folder import state_folder

log = logging.getLogger(__name__)

LARGEST: Final = 1 << 16
"""Bytes of such a file."""

FILE: Final = ".json"


class Running(Struct, frozen=True):
    """A server: its journal, where this machine reaches it, and how others do; `known_as` is the
    origin for which this user has a token."""

    journal: str
    here: str
    url: str
    known_as: str


@contextmanager
def noted(server: Running) -> Iterator[None]:
    """Note for the block that it runs."""
    try:
        held = _note(server)
    except OSError as exc:  # it serves all the same
        log.warning("`acphold token pair` will not find this server: %s", exc)
        yield
        return
    try:
        yield
    finally:
        path, descriptor = held
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def _note(server: Running) -> tuple[str, int]:
    os.makedirs(_folder(), 0o700, exist_ok=True)
    new = os.path.join(_folder(), f"{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Locked before it has the name by which it is found: one that is not is left over.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, encode(server))
        os.rename(new, new + FILE)
    except BaseException:
        os.unlink(new)
        os.close(descriptor)
        raise
    return new + FILE, descriptor


def running(journal: str | None) -> list[Running]:
    """Those that serve this journal, the newest last; what is left over of others is removed."""
    place = _place(named(journal))
    found: list[tuple[float, Running]] = []
    with suppress(FileNotFoundError):
        for name in os.listdir(_folder()):
            path = os.path.join(_folder(), name)
            if not name.endswith(FILE):
                continue
            with suppress(OSError, MsgspecError), open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    server = decode(file.read(LARGEST), type=Running)
                    if _place(server.journal) == place:
                        found.append((os.fstat(file.fileno()).st_mtime, server))
                else:
                    os.unlink(path)
    return [server for _, server in sorted(found, key=lambda it: it[0])]


def _place(journal: str) -> str:
    return journal if "://" in journal else os.path.realpath(journal)


def _folder() -> str:
    return os.path.join(state_folder(), "serving")
