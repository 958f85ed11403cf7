"""What the tests of every room share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a test keeps its journal."""
    return tmp_path / "journal.db"
