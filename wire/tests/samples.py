"""A part of many tests at each commit, in turn."""

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

PARTS = 16


def sample(cases: Iterable[T]) -> list[T]:
    """Return a sixteenth of these, or all with HELDOUT=all, which takes longer."""
    if os.environ.get("HELDOUT") == "all":
        return [*cases]
    return [*cases][commit_number() % PARTS :: PARTS]


def choose(names: Sequence[str], one_in: int, number: int) -> list[bool]:
    """Return True for each test that has its turn at this number: each has one in `one_in` numbers
    in a row. Of a test with as many cases, some have theirs at each number."""
    cases: Counter[str] = Counter()
    chosen: list[bool] = []
    for name in names:
        test = name.partition("[")[0]
        chosen.append((crc32(test.encode()) + cases[test]) % one_in == number % one_in)
        cases[test] += 1
    return chosen


@cache
def commit_number() -> int:
    """Return the number of this commit, which is one more than that of the commit before it; where
    those before it are not known, any number that is always the same."""
    try:
        is_shallow, name = _git("rev-parse", "--is-shallow-repository", "HEAD").split()
        if is_shallow == "true":
            return int(name, 16)
        return int(_git("rev-list", "--count", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return 0  # an sdist, or a machine without git


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    folder = Path(__file__).parent
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
