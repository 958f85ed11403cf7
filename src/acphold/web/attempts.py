"""Limits on wrong tokens: so many a minute per address, and for all together.

Tokens are too long to guess; this only keeps guessing from costing others anything. An address
shared by many clients (this machine, a proxy) counts only toward the limit for all: otherwise a
stranger behind it could lock the owner out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SECONDS: Final = 60.0

OF_ONE: Final = 20
"""Wrong guesses a minute from one address."""

OF_ALL: Final = 1000
"""Wrong guesses a minute from all addresses."""


class Attempts:
    """Counts wrong guesses of one kind; `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._wrong: deque[tuple[float, str]] = deque()

    def are_too_many(self, peer: str) -> bool:
        """Return True if this address is over a limit; "" is an address shared by many."""
        now = self._now()
        while self._wrong and now >= self._wrong[0][0] + SECONDS:
            self._wrong.popleft()
        if len(self._wrong) >= OF_ALL:
            return True
        return bool(peer) and sum(each == peer for _, each in self._wrong) >= OF_ONE

    def add(self, peer: str) -> None:
        """Count one wrong guess."""
        if len(self._wrong) < OF_ALL:
            self._wrong.append((self._now(), peer))
