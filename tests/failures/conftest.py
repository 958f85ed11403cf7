"""The tests of this folder kill, stop and flood real processes, which takes its time."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They are run by `make slow`, and so by CI."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("slow")
