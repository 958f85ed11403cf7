"""Fixtures for the tests of several rooms: a journal, real processes, and waiting for them."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import combinations
from pathlib import Path

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

from tests.postgresql import Databases, pooled, shared

pytest.register_assert_rewrite("tests.journal.promises")

# A busy machine is no fault of an example; pytest-timeout bounds each test.
# The same examples at every run: a failure repeats. `pytest --hypothesis-profile=search`, as in
# `make soak`, looks for new ones: twice as many, where a test does not set their number itself.
search = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", search)
settings.register_profile("tests", search, derandomize=True, max_examples=50)
settings.load_profile("tests")

os.environ["ACPHOLD_SETTINGS"] = "/nonexistent/settings.toml"  # not your own settings

HERE = Path(__file__).resolve().parent

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
TypeChecker = Callable[[Path], tuple[str, int]]


Defaults = Callable[..., Path]


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Defaults:
    """`defaults(unstable=True)`: a settings file with these options for all agents; its path."""

    def written(**options: object) -> Path:
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in options.items()]
        path = tmp_path / "defaults.toml"
        path.write_text("".join(["[defaults]\n", *lines]))
        monkeypatch.setenv("ACPHOLD_SETTINGS", str(path))
        return path

    return written


class Url(type(Path())):  # type: ignore[misc]
    """A path where a test would keep its journal; it is at a URL, which its text is."""

    url = ""

    def __str__(self) -> str:
        return self.url or str(super().__str__())

    __fspath__ = __str__


ON_BOTH = ("tests/hub/", "tests/reading/", "tests/server/")
"""The rooms of which the tests run on each store, but for those that are marked as of a file."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    test = metafunc.definition
    if "journal" not in metafunc.fixturenames or not test.nodeid.startswith(ON_BOTH):
        return
    if test.get_closest_marker("of_a_file") is None:
        database = pytest.param("postgresql", marks=pytest.mark.postgresql)
        metafunc.parametrize("journal", ["sqlite", database], indirect=True)


MARKS = frozenset({"interop", "postgresql", "slow"})
"""Those by which the runs of the Makefile choose."""


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
        if folder == HERE:
            break
        if (shared := folder / "conftest.py").exists():
            text += shared.read_text(encoding="utf-8")
    may = {mark for mark in MARKS if f"mark.{mark}" in text or f'marker("{mark}")' in text}
    if f"{file.relative_to(HERE.parent)}".startswith(ON_BOTH):
        may.add("postgresql")
    return frozenset(mark for mark in MARKS if f"mark.{mark}" in whole), frozenset(may)


gc.disable()  # collected tests stay to the end of the run: some million objects in each worker


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mark that comes from elsewhere would leave its test out of every run."""
    for test in items:
        has = MARKS.intersection(mark.name for mark in test.iter_markers())
        if lacking := has - marks_of(test.path)[1]:
            raise pytest.UsageError(f"{test.nodeid}: write `mark.{min(lacking)}` in its file")


@pytest.fixture
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The journal of a test; still a path where it is in a database (see `Url`)."""
    path = tmp_path / "journal.db"
    if getattr(request, "param", "sqlite") == "sqlite":
        yield path
        return
    databases: Databases = request.getfixturevalue("databases")
    with databases.new() as url:
        found = Url(path)
        found.url = url
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file in which a scripted agent logs its input; read it with `tests.editor.received`."""
    return tmp_path / "agent.jsonl"


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


@pytest.fixture(autouse=True, scope="session")
def certificates() -> Iterator[None]:
    """The certificates of the machine, read once: httpx2 takes 20 ms to do so for each client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Databases]:
    """A PostgreSQL, which begins with the first test that needs it; see `tests.postgresql`."""
    with shared(_of_all(tmp_path_factory, worker_id)) as found:
        yield found


def _of_all(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder that all workers of a run share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def databases_16(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Databases]:
    """The same, of version 16."""
    with shared(_of_all(tmp_path_factory, worker_id), 16) as found:
        yield found


@pytest.fixture(scope="session")
def databases_15(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Databases]:
    """The same, of Debian's version 15."""
    with shared(_of_all(tmp_path_factory, worker_id), 15) as found:
        yield found


@pytest.fixture(scope="session")
def databases_pooled(databases_15: Databases) -> Iterator[Databases]:
    """The same, behind Debian's PgBouncer, in its mode that parts connections most."""
    with pooled(databases_15.server) as found:
        yield found


@pytest.fixture(scope="session")
def type_checker() -> TypeChecker:
    """`type_checker(folder)`: the output of mypy on the Python files in `folder`, and its status.

    Its cache of all other files is kept between runs, and used by one process at a time.
    """
    cache = Path(__file__).resolve().parents[1] / ".mypy_cache" / "of_tests"

    def check(folder: Path) -> tuple[str, int]:
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), "."]
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "in_use").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout, done.returncode

    return check


@pytest.fixture
def until() -> Until:
    """`until(condition, seconds=10)`: return when `condition()` holds, fail after `seconds`."""

    def wait(condition: Callable[[], bool], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    return wait


@pytest.fixture
def agent() -> Agent:
    """`agent(code)`: the command that runs Python `code` with os, signal, sys and time at hand."""

    def command(code: str) -> list[str]:
        return [sys.executable, "-S", "-E", "-u", "-c", f"import os, signal, sys, time\n{code}"]

    return command


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    """A file for agents to write pids into; those still alive after the test are killed."""
    path = tmp_path / "pids"
    path.touch()
    yield path
    for pid in path.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
