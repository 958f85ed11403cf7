"""A journal in a folder of its own for each test, and those at a URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from acphold.journal.journal import Journal
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stores import open_journal
from tests.journal.conversations import open_file
from tests.postgresql import Databases


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of this test's journal."""
    return tmp_path / "journal.db"


@pytest.fixture
def location(databases: Databases) -> Iterator[str]:
    """The URL of a new journal in a database."""
    with databases.new() as url:
        yield url


@pytest_asyncio.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    """A new journal at `path`."""
    opened = open_file(path, busy_seconds=0.2)
    yield opened
    await opened.aclose()


def opened(url: str, *, create: bool = False) -> aclosing[Journal]:
    """The journal at a URL for a block, at whose end it is closed."""
    return aclosing(open_journal(url, create=create))
