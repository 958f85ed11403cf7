"""Who owns a session: the one answer that everybody asks for, and nobody computes again.

An owner is a process with a journal open, under an id of its own that no other ever has. Whether it
lives is known to the journal alone: no path, host name, process number or clock says it. What is
told here of host and process is for people to read.

    Free      nobody owns it, or who did has ended: it may be acquired
    Here      this process owns it
    At        another process does, which lives; it serves at its addresses
    Gone      another process did, whose connection to the journal has ended a moment ago, or
              that has none by which it lives, and has not told in time that it is there
    Silent    another process does, which lives and has told nothing for long: stopped, or blocked

Who is gone has ended, mostly; or its connection alone was lost, and it comes back with another one,
or it tells a little late that it is there. So its sessions are taken at once where nobody serves at
its addresses any more, else when it has been silent for long: before that it ends what it does
there by itself.

A silent owner is taken over only on behalf of somebody who wants something of the session; it can
write no more then, for its epoch is old.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

RENEW_SECONDS: Final = 10.0
"""How often an owner tells that it is there."""

LATE_SECONDS: Final = 1.25 * RENEW_SECONDS
"""After how long without a word it is late."""

SILENT_SECONDS: Final = 30.0
"""After how long without a word an owner is silent."""


class Owner(Struct, frozen=True):
    """A process that owns sessions. `id` is what it is compared by.

    `addresses` are URLs at which it lets others share its sessions; none if it does not.
    """

    id: str
    host: str
    pid: int
    addresses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Free(Struct, frozen=True):
    """Nobody owns the session; `epoch` is that of the lease before."""

    epoch: int


class Here(Struct, frozen=True):
    """This process owns it."""

    epoch: int
    yields: bool = False


class At(Struct, frozen=True):
    """Another process owns it. What `yields` may be taken from it at any time: an import's."""

    owner: Owner
    epoch: int
    yields: bool = False


class Gone(At, frozen=True):
    """Another process owned it, and has ended or lost its connection to the journal."""


class Silent(Struct, frozen=True):
    """Another process owns it, and has told nothing for `seconds`."""

    owner: Owner
    epoch: int
    yields: bool = False
    seconds: float = SILENT_SECONDS


Whose: TypeAlias = Free | Here | At | Silent
"""Who owns a session: see the module."""
