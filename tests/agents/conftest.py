"""What the tests of agents written here share."""

from __future__ import annotations

from tests.library.conftest import work

__all__ = ["work"]
