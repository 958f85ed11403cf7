"""Durations of appends to journals in this process, for monitoring."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
"""The upper bound of each bucket, in seconds."""


class Durations:
    """A histogram of durations: `counts` has a number for each of BOUNDS, and one for all that took
    longer; `total` is the sum, in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def note(self, seconds: float) -> None:
        """Count one more duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


APPENDS: Final = Durations()
"""Appends to all journals that this process has open, from the call to the commit."""
