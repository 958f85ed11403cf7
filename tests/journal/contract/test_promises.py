"""Every store keeps what acphold relies on."""

from __future__ import annotations

import pytest

from acphold.journal.stores import open_journal
from tests.journal.promises.promise import JournalPromise
from tests.journal.promises.suite import JOURNAL_PROMISES


@pytest.mark.parametrize("promise", JOURNAL_PROMISES, ids=lambda promise: promise.name)
async def test_our_stores_keep_what_a_journal_promises(
    location: str, promise: JournalPromise
) -> None:
    await promise.check(lambda: open_journal(location))
