"""Each seam against each store. To add a store, add to STORES how a test gets a new journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import pytest_asyncio

from acphold.journal.journal import Journal
from acphold.journal.stores import open_journal


@contextmanager
def _sqlite(request: pytest.FixtureRequest) -> Iterator[str]:
    yield f"sqlite:///{request.getfixturevalue('tmp_path')}/journal.db"


def _in(databases: str) -> Callable[[pytest.FixtureRequest], AbstractContextManager[str]]:
    """In a database of the server that a fixture gives."""

    def made(request: pytest.FixtureRequest) -> AbstractContextManager[str]:
        found: AbstractContextManager[str] = request.getfixturevalue(databases).new()
        return found

    return made


STORES: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[str]]] = {
    "sqlite": _sqlite,
    "postgresql": _in("databases"),
    "postgresql 15": _in("databases_15"),
    "pgbouncer": _in("databases_pooled"),  # and version 16
}
"""Each store by its name: the URL of a new journal, for as long as a test runs."""

MARKS: dict[str, pytest.MarkDecorator | tuple[()]] = {
    "sqlite": (),
    "postgresql": pytest.mark.postgresql,
}
"""Of those that need no programs of Debian: the marks of their tests."""


@pytest.fixture(
    params=[pytest.param(name, marks=MARKS.get(name, pytest.mark.interop)) for name in STORES]
)
def location(request: pytest.FixtureRequest) -> Iterator[str]:
    """The location of this test's journal: a path or a URL."""
    with STORES[request.param](request) as url:
        yield url


@pytest_asyncio.fixture
async def journal(location: str) -> AsyncIterator[Journal]:
    """A new journal."""
    opened = open_journal(location)
    yield opened
    await opened.aclose()
