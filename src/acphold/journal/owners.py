"""Ownership of a session: one answer that everybody asks for, and nobody computes again.

An owner is a process with a journal open, under an id that no other process ever has. Only the
journal knows whether an owner lives: no path, host name, process number or clock decides it. The
host and process named here are for people to read.

    Free      it may be acquired: nobody owns it, its owner has ended, or is silent: it has not
              reported for SILENT_SECONDS; or its owner yields it to whoever wants it, as an import
              does, and a process that is about to end
    Here      this process owns it
    At        another process owns it, and serves at its addresses; if it does not report until
              then, it is silent

On a database, an owner has ended when the connection that shows that it lives has, and nobody
serves at its addresses any more. It may also have lost only that connection and come back with
another one. So if that cannot be seen from here, it keeps its sessions until it is silent: before
that time, the process itself ends its work there.

Whoever takes a session that is free replaces an owner that is only silent. It cannot write after
that, because its epoch is old. An owner that is late reports before it begins a turn, and then
looks at the lease: it is lost, or nobody can take the session any more.
"""

# See docs/decisions.md, 15.

from __future__ import annotations

import time
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from acphold.errors import HeldElsewhereError
from acphold.journal import bounds


class Owner(Struct, frozen=True):
    """A process that owns sessions. Owners are compared by `id`.

    Others reach it at the URLs in `addresses` to share its sessions; empty if it does not share
    them.
    """

    id: str
    host: str
    pid: int
    addresses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Free(Struct, frozen=True):
    """The session may be acquired; `epoch` is that of the last lease. Its owner `is_silent` if only
    that makes it free."""

    epoch: int
    is_silent: bool = False


class Here(Struct, frozen=True):
    """This process owns it."""

    epoch: int


class At(Struct, frozen=True):
    """Another process owns it, and is silent behind `until`, by `clock`, if it does not report."""

    owner: Owner
    epoch: int
    until: float


Whose: TypeAlias = Free | Here | At
"""The owner of a session: see the module."""


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Return seconds of a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def owned_by(owner: Owner, epoch: int, silent: float) -> At | Free:
    """Return the owner of a session that another process lives to own, and that last reported
    `silent` seconds ago."""
    if silent > bounds.SILENT_SECONDS:
        return Free(epoch, is_silent=True)
    # A little later, as `silent` is rounded, perhaps by another clock.
    return At(owner, epoch, clock() + bounds.SILENT_SECONDS - silent + 0.1)


def owner_of_row(id_: str, host: str, pid: int, addresses: str) -> Owner:
    """The owner in the columns of a row; `addresses` are JSON."""
    return Owner(id_, host, pid, msgspec.json.decode(addresses, type=tuple[str, ...]))


def refuse_held(session_id: str, whose: Whose) -> None:
    """Raise HeldElsewhereError if another process owns the session."""
    if isinstance(whose, At):
        raise HeldElsewhereError(session_id, str(whose.owner), whose.epoch)
