"""Ownership of a session: one answer that everybody asks for, and nobody computes again.

An owner is a process with a journal open, under an id that no other process ever has. Only the
journal knows whether an owner lives: no path, host name, process number or clock decides it. The
host and process named here are for people to read.

    Free      nobody owns it, or its owner has ended: it may be acquired
    Here      this process owns it
    At        another process owns it, and serves at its addresses. It seems

              alive     as far as is known
              gone      the connection that shows that it lives has just ended; or it has no such
                        connection, and its last report is late. Never so in a file
              silent    it lives, but has not reported for long: stopped, or blocked

A process that seems gone has usually ended. It may also have lost only its connection and come back
with another one, or be a little late to report. So its sessions are taken at once if nobody serves
at its addresses any more, and otherwise once it has been silent for long: before that time, the
process itself ends its work there.

A silent owner is replaced only for somebody who wants something from the session. It cannot write
after that, because its epoch is old.
"""

# See docs/decisions.md, 15.

from __future__ import annotations

from typing import Literal, TypeAlias

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
    """Nobody owns the session; `epoch` is that of the last lease."""

    epoch: int


class Here(Struct, frozen=True):
    """This process owns it."""

    epoch: int
    yields: bool = False


class At(Struct, frozen=True):
    """Another process owns it, or did so until a moment ago. With `yields`, it may be taken over at
    any time, as from an import."""

    owner: Owner
    epoch: int
    yields: bool = False
    seems: Literal["alive", "gone", "silent"] = "alive"


Whose: TypeAlias = Free | Here | At
"""The owner of a session: see the module."""


def seems(silent: float, *, is_proved: bool) -> Literal["alive", "gone", "silent"]:
    """Judge an owner by the `silent` seconds since its last report; `is_proved` if something else
    shows that it lives."""
    if silent > bounds.SILENT_SECONDS:
        return "silent"
    return "gone" if silent > bounds.LATE_SECONDS and not is_proved else "alive"


def owner_of_row(id_: str, host: str, pid: int, addresses: str) -> Owner:
    """The owner in the columns of a row; `addresses` are JSON."""
    return Owner(id_, host, pid, msgspec.json.decode(addresses, type=tuple[str, ...]))


def is_owned(whose: Whose) -> bool:
    """Return True if a process, this or another one, owns the session."""
    return not isinstance(whose, Free)


def other_owner(whose: Whose) -> Owner | None:
    """Return the other process that owns the session; None if nobody does, or this one."""
    return whose.owner if isinstance(whose, At) else None


def is_free(whose: Whose) -> bool:
    """Return True if a session may be taken for a moment: nobody has it, or has ended."""
    return isinstance(whose, Free) or whose.yields or seems_gone(whose)


def seems_gone(whose: Whose) -> bool:
    """Return True if another process owned the session, which has ended or lost its connection to
    the journal."""
    return isinstance(whose, At) and whose.seems == "gone"


def seems_silent(whose: Whose) -> bool:
    """Return True if another process owns the session, which has not reported for long."""
    return isinstance(whose, At) and whose.seems == "silent"


def refuse_held(session_id: str, whose: Whose, over: int | None = None) -> None:
    """Raise HeldElsewhereError if another process has the session and does not yield it.

    `over` is the epoch of an owner that may be replaced all the same.
    """
    if isinstance(whose, At) and not whose.yields and whose.epoch != over:
        owner = whose.owner
        raise HeldElsewhereError(
            session_id,
            str(owner),
            whose.epoch,
            owner.id,
            owner.addresses,
            is_silent=seems_silent(whose),
        )
