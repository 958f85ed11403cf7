"""A journal to import into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from acphold.journal.journal import Journal
from acphold.journal.stores import open_journal


@pytest.fixture
async def opened(journal: Path) -> AsyncIterator[Journal]:
    """The journal of the test, open."""
    async with aclosing(open_journal(journal)) as found:
        yield found
