"""The promises of every journal, for authors of a store: run them on yours.

    @pytest.mark.parametrize("promise", acphold.testing.JOURNAL_PROMISES, ids=lambda it: it.name)
    async def test_my_store(promise: acphold.testing.JournalPromise, tmp_path: Path) -> None:
        await promise.check(lambda: MyJournal(tmp_path))

Each is checked with its own journal, empty at first. `open_journal` opens it, again for each owner
that a promise needs.
"""

from __future__ import annotations

from typing import Final

from acphold.testing.journal_promises import (  # noqa: F401  importing them notes what they promise
    access,
    leases,
    search,
    sessions,
    settlement,
)
from acphold.testing.journal_promises.promise import PROMISED

JOURNAL_PROMISES: Final = tuple(PROMISED)
"""All promises of a journal."""
