"""The places of the processes that come to our sockets: see `machine.place`.

A sandbox may share the folder of the sockets. Whoever runs in it is of our user, and may be an
agent's command, which the sandbox is there to hold: if it could prompt, or answer what an agent
asks, it could allow its own escape. So a process of another place only looks, and so does everybody
for whom it vouches, unless the person has allowed that place by its name.

The names of allowed places are in a file in the person's state folder, never in a project or the
journal. A name is of a place as long as that lives: another one never gets it.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from acp_wire.newest import Newest
from acp_wire.state_folder import state_folder, write_private
from acphold.live.server.principals import LOCAL_PROCESS, OTHER_PLACE, Principal
from acphold.machine.place import describe_place, name_of_place, place_of

log = logging.getLogger(__name__)

UNKNOWN: Final = "unknown"
"""The name of a place that the kernel does not tell: it cannot be allowed."""

MOST_ALLOWED: Final = 64
"""Most names in the file; the oldest are forgotten, as most of their places have ended."""


def _file() -> str:
    return os.path.join(state_folder(), "places.json")


def allowed_places() -> list[str]:
    """Return the names of the places that the person has allowed."""
    with suppress(OSError, msgspec.MsgspecError), open(_file(), "rb") as file:
        return msgspec.json.decode(file.read(1 << 16), type=list[str])
    return []


def set_allowed(name: str, *, allowed: bool) -> None:
    """Allow a place from now on, or no longer; raises OSError."""
    others = [it for it in allowed_places() if it != name]
    names = [*others, *([name] if allowed else [])][-MOST_ALLOWED:]
    write_private(_file(), msgspec.json.encode(names))


class Places:
    """Tells who a process is, by its place. Those that were `seen` are kept with a description, by
    name."""

    def __init__(self, seen: Newest[str, str]) -> None:
        self._seen = seen
        self._own: str | None = None  # without it, everybody is from elsewhere
        with suppress(OSError):
            self._own = place_of()

    def is_ours(self, place: str | None) -> bool:
        """Return True if this is the place of this process."""
        return place is not None and place == self._own

    async def principal_of(self, place: str | None) -> Principal:
        """Return who a process in this place is; None for one that has gone, or hides."""
        if self.is_ours(place):
            return LOCAL_PROCESS
        name = "" if place is None else await asyncio.to_thread(name_of_place, place)
        if name and name in allowed_places():
            return LOCAL_PROCESS
        if name and place is not None:
            self._seen[name] = describe_place(place, self._own or "")
        log.warning("a process of another sandbox or container, %s, only looks", name or UNKNOWN)
        return replace(OTHER_PLACE, place=name or UNKNOWN)
