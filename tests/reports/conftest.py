"""A journal in a folder of its own for each test."""

from __future__ import annotations

from tests.journal.conftest import journal, path

__all__ = ["journal", "path"]
