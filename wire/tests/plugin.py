"""Fixtures for the tests of all distributions: real processes, waiting for them, few imports."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import combinations, compress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.samples import choose, commit_number

# A busy machine is no fault of an example; pytest-timeout bounds each test.
# The same examples at every run: a failure repeats. `pytest --hypothesis-profile=search`, as in
# `make soak`, looks for new ones: twice as many, where a test does not set their number itself.
search = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", search)
settings.register_profile("tests", search, derandomize=True, max_examples=50)
settings.load_profile("tests")

MEMORY = "/dev/shm"
ENOUGH_BYTES = 4 << 30

# Each test makes a journal, a repository or a database. Files in memory save a tenth of the CPU
# time, half of the cost of a new database, and all waiting for the disk.
with suppress(OSError):
    free = os.statvfs(MEMORY)
    is_usable = os.access(MEMORY, os.W_OK | os.X_OK) and not free.f_flag & os.ST_NOEXEC
    if is_usable and free.f_bavail * free.f_frsize >= ENOUGH_BYTES:
        tempfile.tempdir = os.environ.setdefault("TMPDIR", MEMORY)

Until = Callable[..., None]
Agent = Callable[[str], list[str]]


MARKS = frozenset({"interop", "postgresql", "slow"})
"""Those by which the runs of the Makefile choose."""

ONE_IN = int(os.environ.get("ONE_IN") or 1)
"""One in this many tests is run; see `tests.samples`."""

MARKED: list[tuple[Path, str]] = []
"""Folders whose tests may have a mark that their files do not name; conftest.py fills it."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which `-m` would choose no test is not even imported, by none of the workers."""
    chosen: str = config.option.markexpr
    used = {*re.findall(r"\w+", chosen)} - {"and", "or", "not"}
    if not used or used - MARKS or not collection_path.match("test_*.py"):
        return None
    sure, may = marks_of(collection_path)
    open_ones = sorted(may - sure)
    for count in range(len(open_ones) + 1):
        for some in combinations(open_ones, count):
            if eval(chosen, {}, {mark: mark in {*sure, *some} for mark in MARKS}):
                return None
    return True


@cache
def marks_of(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """By its text: the marks that each test in this file has, and those that one may have."""
    text = file.read_text(encoding="utf-8")
    whole = "".join(re.findall(r"^pytestmark = .*", text, re.M))
    for folder in file.parents:
        if folder.name == "tests":
            break
        if (shared := folder / "conftest.py").exists():
            text += shared.read_text(encoding="utf-8")
    may = {mark for mark in MARKS if f"mark.{mark}" in text or f'marker("{mark}")' in text}
    may |= {mark for folder, mark in MARKED if folder in file.parents}
    return frozenset(mark for mark in MARKS if f"mark.{mark}" in whole), frozenset(may)


gc.disable()  # collected tests stay to the end of the run: some million objects in each worker


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """A mark that comes from elsewhere would leave its test out of every run.

    With ONE_IN=3, a third of the tests that `-m` selects is run. Those that failed last are always
    run, and those that may be skipped: that they are not shows what the machine has.
    """
    for test in items:
        has = MARKS.intersection(mark.name for mark in test.iter_markers())
        if lacking := has - marks_of(test.path)[1]:
            raise pytest.UsageError(f"{test.nodeid}: write `mark.{min(lacking)}` in its file")
    yield
    if ONE_IN > 1:
        cache = getattr(config, "cache", None)
        failed = {} if cache is None else cache.get("cache/lastfailed", {})
        has_turn = choose([test.nodeid for test in items], ONE_IN, commit_number())
        chosen = [
            turn or test.nodeid in failed or test.get_closest_marker("skipif") is not None
            for turn, test in zip(has_turn, items, strict=True)
        ]
        config.hook.pytest_deselected(items=[*compress(items, (not it for it in chosen))])
        items[:] = compress(items, chosen)


def pytest_report_header() -> str | None:
    return f"one test in {ONE_IN}, in turn" if ONE_IN > 1 else None


@pytest.fixture(autouse=True, scope="session")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the sockets, logs and locks of the tests, apart from your own. Sessions are in
    no repository unless a test makes one, because snapshots would be taken of its files."""
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield folder


@pytest.fixture
def until() -> Until:
    """`until(condition, seconds=30)`: return when `condition()` holds, fail after `seconds`."""

    def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        began = time.monotonic()
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(pause_after(time.monotonic() - began))
            began = time.monotonic()

    return wait


def pause_after(seconds: float) -> float:
    """The pause before the next look for something, after one that took so long: who looks all the
    time takes the CPU time of what is waited for."""
    return max(0.01, 2 * seconds)


@pytest.fixture
def agent() -> Agent:
    """`agent(code)`: the command that runs Python `code` with os, signal, sys and time at hand."""

    def command(code: str) -> list[str]:
        return [sys.executable, "-S", "-E", "-u", "-c", f"import os, signal, sys, time\n{code}"]

    return command


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    """A file for agents to write pids into; those still alive after the test are killed."""
    (path := tmp_path / "pids").touch()
    yield path
    for pid in path.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
