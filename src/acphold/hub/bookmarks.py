"""Places that clients may come back to: while there are any, a session is not settled.

A client that asks for positions goes on behind the last one it was told, also over a new
connection. That is exact as long as nothing behind it was merged, and merging is what settling
does. So it is put off: a little while such a client is attached, for a connection may be dead
before anybody notices, and longer once its connection is lost.
"""

from __future__ import annotations

KEPT_SECONDS = 600.0
"""How long a client has to come back to its place. What is not settled is not found by a search, so
this is no day; who comes later loads the session."""

UNNOTICED_SECONDS = 60.0
"""How long a connection may be dead before it is lost here: an ssh that asks whether the other side
is there does so every half minute or so."""


class Bookmarks:
    """The places of one session that are kept; all times are those of the event loop."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def leave(self, now: float) -> None:
        """The connection of a client was lost."""
        self._ends.append(now + KEPT_SECONDS)

    def take(self) -> None:
        """A client that asks for positions has come: the oldest place is nobody's any more."""
        if self._ends:
            self._ends.pop(0)

    @property
    def until(self) -> float:
        """When the last of them ends; 0 when there is none."""
        return max(self._ends, default=0.0)
