"""Times as people and programs read them."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acphold.cli.when import age, iso

SECOND = 1000
DAY = 86_400 * SECOND


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (-DAY, "just now"),
        (59 * SECOND, "just now"),
        (60 * SECOND, "1 minute ago"),
        (7_199 * SECOND, "1 hour ago"),
        (2 * DAY, "2 days ago"),
        (15 * DAY, "2 weeks ago"),
        (100 * DAY, "3 months ago"),
        (800 * DAY, "2 years ago"),
    ],
)
def test_an_age_is_in_the_largest_unit_that_fits(passed: int, words: str) -> None:
    now = 1_800_000_000_000
    assert age(now - passed, now) == words


@given(st.integers(0, 4_000_000_000_000))
def test_iso_times_are_utc_and_can_be_read_back(at: int) -> None:
    assert round(datetime.fromisoformat(iso(at)).timestamp() * 1000) == at
