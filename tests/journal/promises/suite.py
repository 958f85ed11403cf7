"""The promises of every journal, each checked with a journal of its own, empty at first."""

from __future__ import annotations

from typing import Final

from tests.journal.promises import (  # noqa: F401  importing them notes what they promise
    access,
    leases,
    search,
    sessions,
    settlement,
)
from tests.journal.promises.promise import PROMISED

JOURNAL_PROMISES: Final = tuple(PROMISED)
"""All promises of a journal."""
