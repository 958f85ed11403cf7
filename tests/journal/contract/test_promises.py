"""Every store of ours passes the checks that `acphold.testing` offers for theirs."""

from __future__ import annotations

import pytest

from acphold.journal.stores import open_journal
from acphold.testing import JOURNAL_PROMISES, JournalPromise


@pytest.mark.parametrize("promise", JOURNAL_PROMISES, ids=lambda promise: promise.name)
async def test_our_stores_keep_what_a_journal_promises(
    location: str, promise: JournalPromise
) -> None:
    await promise.check(lambda: open_journal(location))
