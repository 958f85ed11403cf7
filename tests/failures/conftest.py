"""The tests of this folder kill, stop and flood real processes, which takes its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.editor import Editor, introduced, scripted_agent
from tests.owners import lone_command

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They are run by `make slow`, and so by CI."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker("slow")


@pytest.fixture
async def client(journal: Path) -> AsyncIterator[Editor]:
    """A client of a scripted agent, of which the session is in a process of its own."""
    async with introduced(lone_command(scripted_agent()), journal=journal) as found:
        yield found
