"""Samples of long tables of cases: a sixteenth at each commit, another one with the next."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PARTS = 16


def sample(cases: Iterable[T]) -> list[T]:
    """Return a sixteenth of these, or all with HELDOUT=all, which takes longer."""
    if os.environ.get("HELDOUT") == "all":
        return [*cases]
    return [*cases][_seed() % PARTS :: PARTS]


@cache
def _seed() -> int:
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
