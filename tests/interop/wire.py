"""Lines of ACP as they went over the wire, and the records that programs/recorder.py keeps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]
"""A decoded message, or an object inside of one."""

PROGRAMS = Path(__file__).parent / "programs"


class Line(NamedTuple):
    """One line: its sender ("client" or "agent"), and its text."""

    by: str
    text: str

    def message(self) -> Json | None:
        """The message; None when it is no JSON object."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def recorded(record: Path, *command: str) -> list[str]:
    """`command` with a recorder in front of it that writes to `record`."""
    recorder = [sys.executable, str(PROGRAMS / "recorder.py"), str(record), "--"]
    return [*recorder, *command]


def read_record(record: Path) -> list[list[Line]]:
    """The lines of each run in `record`."""
    runs: list[list[Line]] = []
    for row in record.read_text(encoding="utf-8").splitlines():
        by, text = json.loads(row).values()
        if by == "recorder":
            runs.append([])
        else:
            runs[-1].append(Line(by, text))
    return runs
