"""Fixtures for the tests of several rooms: a journal, real processes, and waiting for them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import httpcore2
import pytest

import tests
from acphold.machine.runtime_folder import is_of_daemon, sockets
from acphold.machine.unix import pid_at
from tests.distributions import FOLDERS
from tests.empty_journal import empty
from tests.postgresql import Databases, pooled, shared

if TYPE_CHECKING:
    from tests.hub.shared import Shared
    from tests.served import Guest

pytest_plugins = ["tests.plugin", "tests.editor"]
pytest.register_assert_rewrite("tests.journal.promises")

# The tests of the other distributions share what is here, and this is one package with theirs.
tests.__path__ = [*tests.__path__, *(str(folder / "tests") for folder in FOLDERS.values())]

# In a background job of a shell SIGINT is ignored, and would be by all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["ACPHOLD_SETTINGS"] = "/nonexistent/settings.toml"  # not your own settings

HERE = Path(__file__).resolve().parent

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


def pytest_configure() -> None:
    from tests.plugin import MARKED  # late: pytest has to import it first

    MARKED.extend((HERE.parent / folder, "postgresql") for folder in ON_BOTH)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    test = metafunc.definition
    if "journal" not in metafunc.fixturenames or not test.nodeid.startswith(ON_BOTH):
        return
    if test.get_closest_marker("of_a_file") is None:
        database = pytest.param("postgresql", marks=pytest.mark.postgresql)
        metafunc.parametrize("journal", ["sqlite", database], indirect=True)


@pytest.fixture
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The journal of a test; still a path where it is in a database (see `Url`)."""
    path = tmp_path / "journal.db"
    if getattr(request, "param", "sqlite") == "sqlite":
        yield empty(path) if request.node.nodeid.startswith((*ON_BOTH, "tests/imports/")) else path
        return
    databases: Databases = request.getfixturevalue("databases")
    with databases.new() as url:
        found = Url(path)
        found.url = url
        yield found


@pytest.fixture
async def house(journal: Path) -> AsyncIterator[Shared]:
    """A hub over a puppet agent: see `tests.hub.shared`. Name it last: what else a test has been
    given is there until it has ended."""
    from tests.hub.shared import shared as hub  # late: three rooms want it

    async with hub(journal) as found:
        yield found


@pytest.fixture
async def client(journal: Path, log: Path) -> AsyncIterator[Guest]:
    """A client of a scripted agent behind a hub; see `log`."""
    from tests.served import wrapped  # late, too

    async with wrapped(journal, log=str(log)) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file in which a scripted agent logs its input; read it with `tests.editor.received`."""
    return tmp_path / "agent.jsonl"


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


@pytest.fixture(autouse=True, scope="module")
def no_daemon_left(runtime_folder: Path) -> Iterator[None]:
    """The daemons of these tests end with them: one would linger for half a minute, and one with a
    turn that never ends for ever."""
    yield
    for path in sockets():
        if is_of_daemon(path) and (pid := pid_at(path)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


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
def databases_pooled(databases_16: Databases) -> Iterator[Databases]:
    """The same, behind Debian's PgBouncer, in its mode that parts connections most."""
    with pooled(databases_16.server) as found:
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
