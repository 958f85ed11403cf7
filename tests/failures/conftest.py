"""The tests of this folder kill, stop and flood real processes, which takes its time."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They are run by `make slow`, and so by CI."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker("slow")
