"""Pending questions and past decisions, for people."""

from __future__ import annotations

from typing import Final

from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line, short_age
from acphold.history.times import now_ms
from acphold.reading.inbox import InboxQuestion
from acphold.reading.session_reader import SHORT_ID

LOOK_SECONDS: Final = 1.0
"""Pause between two looks for new questions."""

NOTHING: Final = "Nothing is waiting for you."


def where(found: InboxQuestion) -> str:
    """Return the question's session."""
    row = found.row
    title, agent = on_one_line(row.title or "(no title)"), on_one_line(agent_name(row.agent))
    return f"{title} · {agent} · {folder(row.cwd)} · {on_one_line(row.session_id)[:SHORT_ID]}"


def age(found: InboxQuestion) -> str:
    """Return the time since the question was asked."""
    age = short_age(found.at, now_ms())
    return "asked just now" if age == "now" else f"asked {age} ago"
