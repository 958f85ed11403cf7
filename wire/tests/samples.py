"""A part of many tests at each commit: another one with the next, and all where all are wanted."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

SIXTEENTH = 16


def sample(cases: Iterable[T]) -> list[T]:
    """Return a sixteenth of these, or all with HELDOUT=all, which takes longer."""
    if os.environ.get("HELDOUT") == "all":
        return [*cases]
    return [*cases][commit_number() % SIXTEENTH :: SIXTEENTH]


def choose(names: Sequence[str], one_in: int, number: int) -> list[bool]:
    """Tell which of these tests are tried: one in so many, with each number others, and all of them
    with as many numbers on end. A test of so many cases is tried each time, with some of them."""
    cases: Counter[str] = Counter()
    chosen: list[bool] = []
    for name in names:
        test = name.partition("[")[0]
        chosen.append((crc32(test.encode()) + cases[test]) % one_in == number % one_in)
        cases[test] += 1
    return chosen


@cache
def commit_number() -> int:
    """Return the same number at one commit, for each worker and for a test that is repeated."""
    try:
        told = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return 0  # an sdist, or a machine without git
    return int(told.stdout, 16)
