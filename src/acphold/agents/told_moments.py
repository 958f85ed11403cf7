"""The moment that a sentence of a stranger tells: "resets 3pm (Europe/Berlin)", "try again in 2 h".

A sentence is read only behind a word that announces a moment, such as `resets` or `try again at`.

    form          examples
    ------------  ------------------------------------------------------------------
    a date        `2026-07-30 16:11:46 +0800`, `2026-07-30T08:11:46Z`
    a time        `3pm (Europe/Berlin)`, `at 2:57 PM`, `14:05 UTC`: the next one
    a day         `Oct 6, 1pm (America/New_York)`, `Jul 5th, 2026 8:19 PM`: the next one
    a wait        `in 5 days 22 hours 11 minutes`, `after 8h44m7s`, `in 4hr 10min`
    a count       `limit reached|1759507200`, `resets at 1759507200`: seconds since the epoch

A time without a zone is one of this machine, where the agent runs, or of `zone`. The past, and
anything later than MOST_AHEAD, is no moment. A vendor may be late: a time that has just passed is
the past, not one of tomorrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

MOST_AHEAD: Final = 35 * 86400.0
"""Seconds to the latest moment that is believed: vendors count in months at most."""

JUST_PASSED: Final = 1800.0
"""Seconds for which a time without a date is past before it is one of the next day."""

MOST_LETTERS: Final = 2000
"""Characters of a text that are read."""

_ANNOUNCED: Final = re.compile(
    r"\b(?:resets?|(?:try|trying)\ again|retry(?:ing)?|renews|available\ again)\b"
    r"(?:\s+(?:at|on|in|after|by))?\s+"
    r"|\blimit\ reached\s?\|",
    re.IGNORECASE | re.VERBOSE,
)
_COUNT: Final = re.compile(r"(\d{10})(\d{3})?(?!\d)")
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d{1,9})?)?"
    r"(?:\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
)
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
_CLOCK: Final = re.compile(
    rf"(?:(?P<month>{_MONTHS.replace(' ', '|')})[a-z]{{0,6}}\.?\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    r"(?:,?\s(?P<year>\d{4}))?(?:,|\sat)?\s)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::\d\d)?)?(?:\s?(?P<half>[ap])\.?m\b\.?)?"
    r"(?:\s\(?(?P<zone>(?-i:[A-Z]{2,5}\b|[A-Z][A-Za-z_]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){1,2}))\)?)?",
    re.IGNORECASE,
)
_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(
    r"(?:,|\sand)?\s?(\d{1,9}(?:\.\d{1,9})?)\s?"
    r"(ms|milliseconds?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])",
    re.IGNORECASE,
)
MINUTE: Final = 60.0


def moment_told(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """Return the first moment that `text` tells, in seconds since the epoch; None if it tells none
    that can be believed at `now`.

    `zone` is that of times without one; None is this machine's.
    """
    text = text[:MOST_LETTERS]
    for announced in _ANNOUNCED.finditer(text):
        if (moment := _moment(text, announced.end(), now, zone)) is not None:
            return moment
    return None


def believed(moment: float, now: float) -> float | None:
    """Return a moment unless it is past, or too far ahead."""
    return moment if now <= moment <= now + MOST_AHEAD else None


def _moment(text: str, place: int, now: float, zone: tzinfo | None) -> float | None:
    """Return the moment that stands at `place`."""
    if wait := _wait(text, place):
        return believed(now + wait, now)
    if found := _COUNT.match(text, place):
        return believed(float(found[1]), now)
    try:
        if found := _DATE.match(text, place):
            return believed(_date(found, zone).timestamp(), now)
        found = _CLOCK.match(text, place)
        rest = "" if found is None else text[found.end() :].lstrip()
        if found and not rest.startswith("("):  # a zone, but not a known one
            return _next(found, now, zone)
    except (ValueError, OverflowError, OSError):  # no such day, hour or zone
        return None
    return None


def _wait(text: str, place: int) -> float:
    """Return the seconds of a wait such as `2 hours 3 minutes`; 0 if there is none."""
    seconds = 0.0
    while part := _PART.match(text, place):
        unit = part[2].casefold()
        seconds += float(part[1]) * _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]]
        place = part.end()
    return seconds


def _date(found: re.Match[str], zone: tzinfo | None) -> datetime:
    year, month, day, hour, minute, second = (int(number or 0) for number in found.groups()[:6])
    named = found[7]
    if named is not None:
        zone = UTC if named.isalpha() else datetime.strptime(named, "%z").tzinfo
    return datetime(year, month, day, hour, minute, second, tzinfo=zone)


def _next(found: re.Match[str], now: float, zone: tzinfo | None) -> float | None:
    """Return the next time that a clock, or a calendar, shows this."""
    if not found["half"] and not found["minute"]:
        return None  # a number alone is no time
    if found["zone"] is not None:
        zone = _zone(found["zone"])
    hour = int(found["hour"])
    if found["half"] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"] in "pP" else 0)
    today = datetime.fromtimestamp(now, zone)
    clock = today.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
    for shown in _days(clock, found):
        for fold in (0, 1):  # an hour that comes twice
            moment = shown.replace(fold=fold).timestamp()
            if moment + MINUTE > now:  # the seconds are not told
                return believed(max(moment, now), now)
            if moment + MINUTE > now - JUST_PASSED:
                return None
    return None


def _days(clock: datetime, found: re.Match[str]) -> Iterator[datetime]:
    """Yield this time on the days that may be meant, earliest first."""
    if found["month"] is None:
        for days in range(-1, 3):
            yield clock + timedelta(days=days)
        return
    month, day = _MONTHS.split().index(found["month"].casefold()) + 1, int(found["day"])
    if found["year"] is not None:
        yield clock.replace(year=int(found["year"]), month=month, day=day)
        return
    yield clock.replace(month=month, day=day)
    yield clock.replace(year=clock.year + 1, month=month, day=day)


def _zone(name: str) -> tzinfo:
    """Return the zone of this name; raises ValueError if this machine does not know it."""
    if name in ("UTC", "GMT"):
        return UTC  # needs no database
    from zoneinfo import ZoneInfo  # rare, and slow to import

    try:
        return ZoneInfo(name)
    except Exception as error:  # not in the database, or there is none on this machine
        raise ValueError(name) from error
