"""The vendor's usage limit, recognised by the way a turn ended, and the moment of its reset.

A limit stops everybody at that account until a moment that the vendor sets, hours or days ahead. A
short refusal that the agent retries by itself is none. Only the agent's own error is believed,
never a text that the model wrote: an answer may quote a limit. Anything unknown is a failure like
others. docs/limits.md has what each agent sends, and in which version.

The moment of the reset is told in a sentence. It is read only after a word that announces a
moment, such as `resets` or `try again at`.

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
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import msgspec
from msgspec import Struct

from acp_wire.rpc.requests import Answer
from acp_wire.schema.splice import json_value
from acphold.conversation.history.raw_update import members, string
from acphold.errors import RemoteError
from acphold.known_agents import KNOWN_AGENTS, short_name
from acphold.live.agents import air
from acphold.live.agents.air import object_in

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


def plausible_moment(moment: float, now: float) -> float | None:
    """Return a moment unless it is past, or too far ahead."""
    return moment if now <= moment <= now + MOST_AHEAD else None


def _moment(text: str, place: int, now: float, zone: tzinfo | None) -> float | None:
    """Return the moment that stands at `place`."""
    wait, end = 0.0, place  # such as `2 hours 3 minutes`
    while part := _PART.match(text, end):
        unit = part[2].casefold()
        wait += float(part[1]) * _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]]
        end = part.end()
    if wait:
        return plausible_moment(now + wait, now)
    if found := _COUNT.match(text, place):
        return plausible_moment(float(found[1]), now)
    try:
        if found := _DATE.match(text, place):
            year, month, day, hour, minute, second = (int(it or 0) for it in found.groups()[:6])
            if (named := found[7]) is not None:
                zone = UTC if named.isalpha() else datetime.strptime(named, "%z").tzinfo
            date = datetime(year, month, day, hour, minute, second, tzinfo=zone)
            return plausible_moment(date.timestamp(), now)
        found = _CLOCK.match(text, place)
        rest = "" if found is None else text[found.end() :].lstrip()
        if found and not rest.startswith("("):  # a zone, but not a known one
            return _next(found, now, zone)
    except (ValueError, OverflowError, OSError):  # no such day, hour or zone
        return None
    return None


def _next(found: re.Match[str], now: float, zone: tzinfo | None) -> float | None:
    """Return the next time that a clock, or a calendar, shows this; None if this machine does not
    know its zone."""
    if not found["half"] and not found["minute"]:
        return None  # a number alone is no time
    if (named := found["zone"]) in ("UTC", "GMT"):
        zone = UTC  # needs no database
    elif named is not None:
        from zoneinfo import ZoneInfo  # rare, and slow to import

        try:
            zone = ZoneInfo(named)
        except Exception:  # not in the database, or there is none on this machine
            return None
    hour = int(found["hour"])
    if found["half"] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"] in "pP" else 0)
    today = datetime.fromtimestamp(now, zone)
    clock = today.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
    # This time on the days that may be meant, earliest first; lazily: next year may lack a day.
    times: Iterable[datetime] = (clock + timedelta(days=days) for days in range(-1, 3))
    if found["month"] is not None:
        month, day = _MONTHS.split().index(found["month"].casefold()) + 1, int(found["day"])
        years = (clock.year, clock.year + 1) if found["year"] is None else (int(found["year"]),)
        times = (clock.replace(year=year, month=month, day=day) for year in years)
    for shown in times:
        for fold in (0, 1):  # an hour that comes twice
            moment = shown.replace(fold=fold).timestamp()
            if moment + MINUTE > now:  # the seconds are not told
                return plausible_moment(max(moment, now), now)
            if moment + MINUTE > now - JUST_PASSED:
                return None
    return None


MOST_WORDS: Final = 300
"""Characters of the agent's words that are kept."""


class Limit(Struct, frozen=True):
    """The vendor's limit, reached in a turn.

    `agent` is the agent's name in `known_agents`, `resets_at` seconds since the epoch, None if the
    agent told no moment that can be believed; `words` is what it said, in one line.
    """

    agent: str
    resets_at: float | None
    words: str


class _AirFailure(Struct):
    """A failure as JetBrains' clients are told of it: in the answer's `_meta`, not as an error."""

    category: str = ""
    severity: str = ""
    title: str = ""
    actions: tuple[str, ...] = ()


class _Error(Struct):
    """An error object of an agent."""

    code: int = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _ClaudeWindow(Struct):
    status: str = ""
    resetsAt: float | None = None


# -- the errors of each agent -----------------------------------------------------------------

_INTERNAL: Final = "Internal error: "

_CLAUDE_WORDS: Final = re.compile(
    r"(?:You.ve (?:hit|reached) your\b|You.re out of (?:usage|extra)|Your org is out of usage"
    r"|Claude (?:AI )?usage limit reached|(?:5-hour|Weekly|Opus weekly|Session) limit reached)",
    re.IGNORECASE,
)


def _claude(error: _Error) -> str | None:
    words = error.message.removeprefix(_INTERNAL)
    return words if _CLAUDE_WORDS.match(words) else None


def _claude_moment(updates: Iterable[bytes]) -> float | None:
    """Return the reset that the adapter told beside its usage, the newest."""
    resets_at = None
    for raw in updates:
        if b"_claude/rateLimit" in raw:
            window = json_value(object_in(raw, "_meta", "_claude/rateLimit"), _ClaudeWindow)
            if window is not None and window.status == "rejected":
                resets_at = window.resetsAt
    return resets_at


_CODEX_KINDS: Final = {b'"usageLimitExceeded"', b'"usage_limit_exceeded"'}


def _codex(error: _Error) -> str | None:
    data = members(bytes(error.data))
    kinds = {data.get("codexErrorInfo"), data.get("codex_error_info")}  # Zed's, to 0.16
    return string(data.get("message")) or "" if kinds & _CODEX_KINDS else None


_GEMINI_DAY: Final = "You have exhausted your daily quota on this model"
_GEMINI_WAIT: Final = re.compile(
    r"^(?:You have exhausted your capacity on this model\. Your quota will reset after"
    r"|Suggested retry after|.*Please retry in)\s",
    re.MULTILINE,
)
_GEMINI_RETRIES: Final = 300.0
"""Seconds that Gemini CLI waits by itself; it ends the turn for a longer time, and for a shorter
one after several attempts."""


def _gemini(error: _Error) -> str | None:
    words = error.message
    if error.code != 429:
        return None
    if words.startswith(_GEMINI_DAY):
        return words
    told = _GEMINI_WAIT.search(words[:MOST_LETTERS])
    wait = None if told is None else moment_told(words[told.start() :], 0.0)
    return words if wait is not None and wait > _GEMINI_RETRIES else None


_OPENCODE_WORDS: Final = re.compile(
    r"\b(?:usage|daily|weekly|monthly|\d{1,2}-hour) (?:usage )?(?:limit|quota)\b", re.IGNORECASE
)


def _opencode(error: _Error) -> str | None:
    """The words are the vendor's, whichever that is."""
    name = members(bytes(error.data)).get("errorName")
    words = error.message.removeprefix(_INTERNAL)
    is_limit = name == b'"APIError"' and _OPENCODE_WORDS.search(words[:MOST_LETTERS])
    return words if is_limit else None


class VendorLimits(Struct, frozen=True):
    """The way in which an agent tells of its vendor's limit over ACP.

    `words_of` returns the agent's words if an error is the limit, and `moment_of` the reset that
    updates of the turn told, if they did.
    """

    words_of: Callable[[_Error], str | None]
    moment_of: Callable[[Iterable[bytes]], float | None] = lambda _: None


VENDOR_LIMITS: Final[Mapping[str, VendorLimits]] = {
    "claude": VendorLimits(_claude, _claude_moment),
    "codex": VendorLimits(_codex),
    "gemini": VendorLimits(_gemini),
    "opencode": VendorLimits(_opencode),
}
"""The table, by the agent's name in `known_agents`."""


def limit_of(
    names: Iterable[str],
    answer: Answer,
    updates: Iterable[bytes] = (),
    *,
    now: float,
    zone: tzinfo | None = None,
) -> Limit | None:
    """Return the limit that ended a turn, or None if it ended otherwise.

    `names` are the agent's, the surest first: its own at `initialize`, the key that its sessions
    are kept under. The first that `known_agents` has counts. `answer` is its answer to the prompt,
    and `updates` are those of the turn, oldest first; they are read only if the answer is a limit.
    `now` is seconds since the epoch. `zone` is that of times without one; None is this machine's.
    """
    known = next((name for name in map(short_name, names) if name in KNOWN_AGENTS), "")
    if (limits := VENDOR_LIMITS.get(known)) is None:
        return None
    words = None
    if isinstance(answer, RemoteError):
        usual = _Error(answer.code, answer.message)
        error = json_value(answer.raw, _Error) if answer.raw else usual
        words = None if error is None else limits.words_of(error)
    elif isinstance(answer, bytes) and b"sessionFailure" in answer:
        match json_value(air.fields_in(answer).get("sessionFailure"), _AirFailure):
            # Of the limits, only the vendor's has no action: a session's own has `new_session`.
            case _AirFailure("limit", "error", title, ()):
                words = title
    if words is None:
        return None
    told = limits.moment_of(updates)
    moment = moment_told(words, now, zone) if told is None else plausible_moment(told, now)
    return Limit(known, moment, " ".join(words.split())[:MOST_WORDS])
