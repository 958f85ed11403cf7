"""A place for each test, and nothing of it left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.interop.place import Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Folders and processes of one test; at its end no process of it may be left."""
    place = Place(tmp_path)
    yield place
    await place.family.gone()
