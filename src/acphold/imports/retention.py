"""Agents that delete their own transcripts, and the settings against it.

Claude Code deletes those untouched for `cleanupPeriodDays`, 30 by default; with 0 it writes none at
all. Gemini CLI does so after `general.sessionRetention.maxAge`, `30d` by default, and beyond
`maxCount`. The others delete nothing by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from acphold.imports.readers import reader
from acphold.imports.records import SMALL_BYTES, document
from acphold.imports.sources import Home
from acphold.imports.values import Missed, Object, looked_up, number, text

FOR_GOOD_DAYS: Final = 3650
"""A longer retention counts as forever."""


class Deletion(Struct, frozen=True):
    """An agent that deletes its transcripts: `when`, and the `setting` in `file` against it.

    `reader` is the name of its reader.
    """

    reader: str
    agent: str
    when: str
    setting: str
    file: Path


def deletions(home: Home) -> Iterator[Deletion]:
    """Yield the agents with conversations in this home folder that they will delete."""
    for name, label, folder, look in (
        ("claude", "Claude Code", home.folder(".claude", "CLAUDE_CONFIG_DIR"), _claude),
        ("gemini", "Gemini CLI", home.folder(".gemini", "GEMINI_CLI_HOME", ".gemini"), _gemini),
    ):
        file = folder / "settings.json"
        missed = Missed()
        settings = document(file, missed, SMALL_BYTES) if file.exists() else {}
        if missed.counts or next(reader(name).find(home), None) is None:
            continue
        if found := look(settings):
            yield Deletion(name, label, *found, file)


def _claude(settings: Object) -> tuple[str, str] | None:
    days = number(settings, "cleanupPeriodDays")
    setting = '"cleanupPeriodDays": 99999'
    if days == 0:
        return "keeps no conversations at all", setting
    if (days := 30 if days is None else days) >= FOR_GOOD_DAYS:
        return None
    return f"deletes conversations after {_counted(days, 'day')}", setting


def _gemini(settings: Object) -> tuple[str, str] | None:
    retention = looked_up(settings, "general", "sessionRetention")
    if looked_up(retention, "enabled") is False:
        return None
    age = text(retention, "maxAge") or "30d"
    if written := re.fullmatch(r"(\d{1,9})([hdwm])", age):
        age = _counted(int(written[1]), _UNITS[written[2]])
    most = number(retention, "maxCount")
    many = f", and beyond {most:,} of them" if most is not None else ""
    setting = '"general": {"sessionRetention": {"enabled": false}}'
    return f"deletes conversations after {age}{many}", setting


_UNITS: Final = {"h": "hour", "d": "day", "w": "week", "m": "month"}
"""Units of an age in Gemini CLI's settings; source: the documentation of its `maxAge`."""


def _counted(count: float, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
