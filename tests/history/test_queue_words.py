"""The words for queued prompts, and the moments that people mean: where clocks are set, too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.history.prompt_queue import moment, moment_first, moment_meant, rules

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia")
HOUR = 3600.0


@pytest.fixture(autouse=True)
def _own_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process is as it was, afterwards."""
    yield
    monkeypatch.undo()
    time.tzset()


def move_to(zone: str, monkeypatch: pytest.MonkeyPatch) -> ZoneInfo:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    return ZoneInfo(zone)


def at(zone: ZoneInfo, *when: int, fold: int = 0) -> float:
    year, month, day, hour, minute = when
    return datetime(year, month, day, hour, minute, fold=fold, tzinfo=zone).timestamp()


@pytest.mark.parametrize("zone", ZONES)
@given(
    now=st.integers(1_700_000_000, 1_900_000_000),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
)
def test_an_hour_is_the_next_one_of_that_name_in_any_zone(
    zone: str, now: int, hour: int, minute: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        there = move_to(zone, patch)
        meant = moment_meant(f"{hour:02}:{minute:02}", now) / 1000
        assert now < meant <= now + 26 * HOUR
        then = datetime.fromtimestamp(meant, there)
        skipped = then.replace(hour=hour, minute=minute, fold=0)
        exists = datetime.fromtimestamp(skipped.timestamp(), there).hour == hour
        assert (then.hour, then.minute) == (hour, minute) or not exists


def test_an_hour_that_comes_twice_is_the_next_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    berlin = move_to("Europe/Berlin", monkeypatch)
    night = (2026, 10, 25)
    for now, meant in (
        (at(berlin, *night, 1, 0), at(berlin, *night, 2, 15)),
        (at(berlin, *night, 2, 30), at(berlin, *night, 2, 15, fold=1)),
        (at(berlin, *night, 2, 30, fold=1), at(berlin, 2026, 10, 26, 2, 15)),
    ):
        assert moment_meant("02:15", now) / 1000 == meant


def test_an_hour_that_a_night_leaves_out_is_as_long_after_midnight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    berlin = move_to("Europe/Berlin", monkeypatch)
    night = (2026, 3, 29)
    midnight = at(berlin, *night, 0, 0)
    assert moment_meant("02:30", midnight) / 1000 == midnight + 2.5 * HOUR


def test_a_moment_stays_the_same_when_the_machine_is_carried_to_another_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    berlin = move_to("Europe/Berlin", monkeypatch)
    now = at(berlin, 2026, 11, 20, 22, 0)
    meant = moment_meant("02:00", now)
    assert moment(meant) == "2026-11-21 02:00"
    move_to("America/New_York", monkeypatch)
    assert moment(meant) == "2026-11-20 20:00"
    assert moment_meant("2026-11-21T02:00+01:00", now) == meant
    with pytest.raises(ValueError, match="passed"):
        moment_meant("2026-11-20T15:59", now)


@pytest.mark.parametrize("day", ["2099-01-02 02:00", "2099-01-02T02:00"])
def test_a_text_may_begin_with_a_moment(day: str) -> None:
    at = int(datetime(2099, 1, 2, 2, 0).timestamp() * 1000)
    assert moment_first(f"{day}  run it\nall of it") == (at, "run it\nall of it")
    assert moment_first(day) == (at, "")


def test_an_hour_is_the_next_one() -> None:
    at, words = moment_first("02:00 run it")
    assert at is not None
    then = datetime.fromtimestamp(at / 1000)
    assert (then.hour, then.minute, words) == (2, 0, "run it")
    assert timedelta(0) < then - datetime.now() <= timedelta(days=1, hours=1)


@pytest.mark.parametrize(
    "text", ["run it", "25:00 is no hour", "2:00pm tea", "at 02:00", "02:00:00 x"]
)
def test_any_other_beginning_is_part_of_the_words(text: str) -> None:
    assert moment_first(text) == (None, text)


def test_a_moment_that_is_over_is_refused() -> None:
    with pytest.raises(ValueError, match="that time has passed"):
        moment_first("2001-01-02 02:00 run it")


def test_it_is_said_when_a_queue_goes_on_by_itself() -> None:
    assert rules(goes_on=False, restarts=False) == ""
    assert rules(goes_on=True, restarts=False) == "continues after a failure"
    assert rules(goes_on=True, restarts=True) == "continues after a failure and a restart"
