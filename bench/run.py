"""One run of the benchmarks: its folder, its sizes, its rounds."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from msgspec import Struct

ROUNDS = 7
QUICK_ROUNDS = 3


class Run(Struct, frozen=True):
    """What every measurement is given; `folder` is empty at the start and removed at the end."""

    folder: Path
    quick: bool
    numbers: count[int]

    @property
    def rounds(self) -> int:
        """How often each thing is measured."""
        return QUICK_ROUNDS if self.quick else ROUNDS

    def size(self, full: int, quick: int) -> int:
        """How much is measured at once."""
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        """A path that nothing stands at yet, in a folder of its own."""
        folder = self.folder / str(next(self.numbers))
        folder.mkdir()
        return folder / name

    def in_turns(self, ways: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
        """Measure each way once a round, in alternating order; the samples by name."""
        samples: dict[str, list[float]] = {name: [] for name in ways}
        order = list(ways.items())
        for _ in range(self.rounds):
            for name, measure in order:
                samples[name].append(measure())
            order.reverse()
        return samples


@contextmanager
def new_run(*, quick: bool, folder: Path | None = None) -> Iterator[Run]:
    """A run with a temporary folder, in `folder` or where the system has its own.

    Programs that are started in the block keep their journals there too, whoever forgets to say.
    """
    place = Path(mkdtemp(prefix="acphold-bench-", dir=folder))
    os.environ["ACPHOLD_JOURNAL"] = str(place / "journal.db")
    try:
        with own_sockets():
            yield Run(place, quick, count())
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def own_sockets() -> Iterator[None]:
    """Sockets and logs of their own, with names that are short enough; daemons end behind it."""
    names = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")
    before = {name: os.environ[name] for name in names if name in os.environ}
    with TemporaryDirectory(prefix="acphold-") as folder:
        os.environ |= dict.fromkeys(names, folder)
        try:
            yield
            stop_all()
        finally:
            for name in names:
                del os.environ[name]
            os.environ |= before


def stop_all() -> None:
    """End the daemons."""
    words = [sys.executable, "-m", "acphold", "agent", "stop", "--all", "--yes"]
    subprocess.run(words, check=True, capture_output=True)


def machine() -> str:
    """What the figures were taken on, and how busy it was with other things."""
    busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{os.cpu_count()} cores, load {busy}"
    )


def added(by: list[float], to: list[float]) -> list[float]:
    """What each sample `by` adds `to` the one that was taken beside it."""
    return [more - less for more, less in zip(by, to, strict=True)]
