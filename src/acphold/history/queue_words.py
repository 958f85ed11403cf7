"""Words for the prompts that wait in a session, for people."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Final

_HELD: Final = {
    "person": "held",
    "failed": "held: the last turn failed",
    "refused": "held: the agent refused the last prompt",
    "cancelled": "held: the last turn was cancelled",
    "interrupted": "held: the last turn was interrupted",
    "limited": "held: a limit was reached",
    "reopened": "held: the session was opened anew",
}

_HOUR: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")

_BEGINS: Final = re.compile(rf"((?:\d{{4}}-\d\d-\d\d[T ])?{_HOUR.pattern})(?:\s+(.*))?", re.DOTALL)
"""A moment, and the words behind it."""


def wait(count: int) -> str:
    """Say how many prompts wait."""
    return "1 prompt waits" if count == 1 else f"{count} prompts wait"


def held(reason: str, until: int | None = None) -> str:
    """Say why they are held, and until when (ms since the epoch); "" if they are not."""
    if not reason:
        return ""
    why = _HELD.get(reason, f"held: {reason}")
    return why if until is None else f"{why}, until {moment(until)}"


def held_prompts(count: int, reason: str, until: int | None = None) -> str:
    """Say how many prompts wait, why, and until when."""
    return ", ".join(filter(None, [wait(count), held(reason, until)]))


def rules(*, goes_on: bool, restarts: bool) -> str:
    """Say when it goes on by itself; "" if it holds in both cases, as it does by default."""
    cases = ["a failure"] * goes_on + ["a restart"] * restarts
    return f"goes on after {' and '.join(cases)}" if cases else ""


def moment(at: int) -> str:
    """Say a moment (ms since the epoch) in this machine's zone: the hour, and the day if it is not
    today's."""
    then = datetime.fromtimestamp(at / 1000)
    is_today = then.date() == datetime.now().date()
    return f"{then:%H:%M}" if is_today else f"{then:%Y-%m-%d %H:%M}"


def moment_meant(text: str, now: float | None = None) -> int:
    """Return the moment (ms since the epoch) that a person means: an hour, the next one in this
    machine's zone, or a date and hour; ValueError for another text, or a moment in the past.

    `now` is in seconds since the epoch, by default what the clock says. An hour that a change of
    the clocks leaves out is the moment as long after midnight.
    """
    now = time.time() if now is None else now
    if hour := _HOUR.fullmatch(text):
        today = datetime.fromtimestamp(now).replace(second=0, microsecond=0, fold=0)
        then = today.replace(hour=int(hour[1]), minute=int(hour[2]))
        # Where clocks are set back an hour comes twice in a night.
        following = (then, then.replace(fold=1), then + timedelta(days=1))
        return next(int(it.timestamp() * 1000) for it in following if it.timestamp() > now)
    then = datetime.fromisoformat(text)
    if then.timestamp() < now:
        raise ValueError("that moment is over")
    return int(then.timestamp() * 1000)


def moment_first(text: str) -> tuple[int | None, str]:
    """Return the moment that a text begins with, as for `moment_meant`, and the words behind it;
    None and the text if it begins with none. ValueError for a moment in the past."""
    found = _BEGINS.fullmatch(text)
    return (None, text) if found is None else (moment_meant(found[1]), found[4] or "")
