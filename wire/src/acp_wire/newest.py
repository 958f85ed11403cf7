"""A dict with a limit: of what comes without end, the newest is kept."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(dict[K, V]):
    """A dict of at most `most` entries: one more, set by `its[key] = value`, replaces the oldest.

    A key that is set again keeps its place in the order.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]
