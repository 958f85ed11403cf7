"""Each seam against each store: who adds one adds to STORES how a test gets a new journal of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from acphold.journal import Journal
from acphold.journal.stores import open_journal

pytest.register_assert_rewrite("acphold.testing.journal_promises")

STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/journal.db",
}
"""Each store by its name: the URL of a new journal, given a folder that the test has for itself."""


@pytest.fixture(params=STORES)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What names the journal of this test."""
    return STORES[request.param](tmp_path)


@pytest_asyncio.fixture
async def journal(location: str) -> AsyncIterator[Journal]:
    """A new journal."""
    opened = open_journal(location)
    yield opened
    await opened.aclose()
