"""The moment that a text tells: forms, zones, day wraps, and texts that mean harm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from acphold.live.agents.vendor_limits import JUST_PASSED, MINUTE, MOST_AHEAD, moment_told

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 7, 30, 13, 30, 20, tzinfo=UTC).timestamp()
"""15:30:20 in Berlin, 6:30:20 in Los Angeles."""


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("You've hit your session limit · resets 4pm (Europe/Berlin)", "2026-07-30T16:00+02:00"),
        ("resets 12:50am (America/Los_Angeles)", "2026-07-31T00:50-07:00"),
        ("resets 2:59pm (Europe/Berlin)", "2026-07-31T14:59+02:00"),
        ("resets Aug 3, 1pm (America/New_York)", "2026-08-03T13:00-04:00"),
        ("or try again at 2:57 PM.", "2026-07-31T14:57+02:00"),
        ("or try again at Aug 5th, 2026 8:19 PM.", "2026-08-05T20:19+02:00"),
        ("resets at 14:05 UTC", "2026-07-30T14:05Z"),
        ("try again in 2 hours 3 minutes.", "2026-07-30T15:33:20Z"),
        ("or try again in 5 days 22 hours 11 minutes.", "2026-08-05T11:41:20Z"),
        ("Your quota will reset after 8h44m7s.", "2026-07-30T22:14:27Z"),
        ("limit reached. Resets in 4hr 10min.", "2026-07-30T17:40:20Z"),
        ("Suggested retry after 3600s.", "2026-07-30T14:30:20Z"),
        ("Please retry in 900.5s", "2026-07-30T13:45:20.500Z"),
        ("It will reset at 2026-07-30 23:11:46 +0800 CST.", "2026-07-30T15:11:46Z"),
        ("resets at 2026-07-30T15:11:46.123Z", "2026-07-30T15:11:46Z"),
        ("resets at 2026-07-30 18:00", "2026-07-30T18:00+02:00"),
        (f"Claude AI usage limit reached|{int(NOW) + 7200}", "2026-07-30T15:30:20Z"),
        (f"resets at {int(NOW) + 60}000", "2026-07-30T13:31:20Z"),
    ],
)
def test_the_forms_of_a_moment(text: str, moment: str) -> None:
    assert moment_told(text, NOW, BERLIN) == at(moment)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "try again later",
        "it is 3pm (Europe/Berlin)",
        "resets 25:00 UTC",
        "resets 13pm",
        "resets 0am",
        "resets 3 times",
        "resets 3pm (Nowhere/Atlantis)",
        "resets 3pm (Etc/../passwd)",
        "resets 3pm PT",
        "resets Feb 30, 3pm",
        "resets Jun 3, 3pm (Europe/Berlin)",
        "resets at 2026-07-30T08:11:46Z",
        "resets at 2026-13-41T08:11:46Z",
        "resets at 2026-07-30T08:11:46+99:99",
        "try again in 900000000 days",
        "try again in 36 days",
        "limit reached|0000000001",
        "limit reached|9999999999",
    ],
)
def test_what_tells_no_moment_that_can_be_believed(text: str) -> None:
    assert moment_told(text, NOW, BERLIN) is None


def test_a_time_without_a_zone_is_one_of_this_machine() -> None:
    shown = datetime.fromtimestamp(NOW + 3 * 3600).replace(second=0)
    assert moment_told(f"try again at {shown:%I:%M %p}", NOW) == shown.timestamp()


def test_the_minute_that_runs_now_is_now_not_tomorrow() -> None:
    assert moment_told("try again at 3:30 PM", NOW, BERLIN) == NOW


@pytest.mark.parametrize("text", ["resets 3:20pm", "try again at 3:01 PM", "resets 15:29"])
def test_a_time_that_has_just_passed_is_no_moment_not_one_of_tomorrow(text: str) -> None:
    assert moment_told(text, NOW, BERLIN) is None


def test_a_time_of_yesterday_s_last_minutes_has_just_passed_after_midnight() -> None:
    midnight = datetime(2026, 7, 31, 0, 5, tzinfo=BERLIN).timestamp()
    assert moment_told("resets 11:50pm (Europe/Berlin)", midnight) is None


def test_an_hour_that_comes_twice_is_the_next_of_both() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    second = first.replace(fold=1).timestamp()
    between = first.timestamp() + 2400
    assert moment_told("resets 2:30am (Europe/Berlin)", first.timestamp() - 60) == first.timestamp()
    assert moment_told("resets 2:30am (Europe/Berlin)", between) == second


SECONDS = st.integers(946_684_800, 4_000_000_000)
ZONES = st.sampled_from(["Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Asia/Tokyo"])


def is_near_a_change(shown: datetime) -> bool:
    """True within some hours of a change of the clocks."""
    hours = timedelta(hours=3)
    return (shown.astimezone(UTC) - hours).astimezone(shown.tzinfo).utcoffset() != (
        (shown.astimezone(UTC) + hours).astimezone(shown.tzinfo).utcoffset()
    )


@given(SECONDS, ZONES, st.integers(0, 23), st.integers(0, 59))
def test_a_clock_is_read_as_its_next_time_within_a_day(
    now: int, zone: str, hour: int, minute: int
) -> None:
    clock = datetime(2000, 1, 1, hour, minute)
    moment = moment_told(f"resets {clock:%I:%M%p} ({zone})", now)
    shown = datetime.fromtimestamp(now if moment is None else moment, ZoneInfo(zone))
    if moment is None:
        passed = (shown.hour - hour) * 3600 + (shown.minute - minute) * 60 + shown.second
        is_just_passed = passed % 86400 < JUST_PASSED + MINUTE
        assert is_just_passed or is_near_a_change(shown)
        return
    assert now <= moment <= now + 26 * 3600  # the day on which clocks are set back has 25 hours
    assert (shown.hour, shown.minute) == (hour, minute) or is_near_a_change(shown)


@given(SECONDS, ZONES, st.integers(60, int(MOST_AHEAD) - 60))
def test_a_day_and_a_time_come_back(now: int, zone: str, ahead: int) -> None:
    then = datetime.fromtimestamp(now + ahead, ZoneInfo(zone))
    text = f"resets {then:%b} {then.day}, {then:%I:%M%p} ({zone})"
    moment = moment_told(text, now)
    assert moment is not None
    assert abs(moment - (now + ahead)) < 60 + 3600 * is_near_a_change(then)


@given(SECONDS, st.integers(0, 34), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_a_wait_is_the_sum_of_its_parts(
    now: int, days: int, hours: int, minutes: int, seconds: int
) -> None:
    wait = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
    for text in (
        f"try again in {days} days {hours} hours {minutes} minutes {seconds} seconds",
        f"will reset after {days}d{hours}h{minutes}m{seconds}s",
        f"Resets in {days}d, {hours}hr {minutes}min and {seconds} sec.",
    ):
        assert moment_told(text, now) == now + wait


PIECES = """resets;try again;at;in;after;limit reached;|;3pm;12:50am;(Europe/Berlin);UTC;Oct 6,;am;
pm;1759507200;99999999;h;m;days;2026-07-30T;16:11:46;+08:00;-99:99;\0;٣;·;-1;0;1e9;(((;Feb 29,"""
WORDS = st.sampled_from(PIECES.split(";"))


@given(st.lists(WORDS | st.text(max_size=8), max_size=40), SECONDS, st.sampled_from([" ", ""]))
def test_a_text_of_a_stranger_never_raises_nor_tells_an_absurd_moment(
    words: list[str], now: int, between: str
) -> None:
    moment = moment_told("resets " + between.join(words), now)
    assert moment is None or now <= moment <= now + MOST_AHEAD


def test_a_long_text_is_read_to_a_limit() -> None:
    assert moment_told("resets " * 200_000 + "3pm UTC", NOW) is None
