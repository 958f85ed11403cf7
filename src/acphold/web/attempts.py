"""Wrong guesses, of tokens and of codes: so many a minute of one address, and of all together.

What is guessed is long enough to be safe from any number that could be tried; this keeps who
guesses from costing others anything. One address that stands for many who come (this machine, a
proxy) counts with all together alone: else a stranger there would lock the owner out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SECONDS: Final = 60.0

OF_ONE: Final = 20
"""Wrong guesses a minute of one address."""

OF_ALL: Final = 1000
"""Wrong guesses a minute of all."""


class Attempts:
    """Those of one kind; `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._wrong: deque[tuple[float, str]] = deque()

    def are_too_many(self, peer: str) -> bool:
        """Whether nothing more is listened to that comes from there; "" is one of many."""
        now = self._now()
        while self._wrong and now >= self._wrong[0][0] + SECONDS:
            self._wrong.popleft()
        if len(self._wrong) >= OF_ALL:
            return True
        return bool(peer) and sum(each == peer for _, each in self._wrong) >= OF_ONE

    def add(self, peer: str) -> None:
        """One more was wrong."""
        if len(self._wrong) < OF_ALL:
            self._wrong.append((self._now(), peer))
