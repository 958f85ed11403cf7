"""Pending questions and past decisions, for people."""

from __future__ import annotations

from typing import Final

from acphold.conversation.history.prompt_queue import describe_queue
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.terminal_text import folder, on_one_line, quantity, this_terminal, titled
from acphold.journal.rows import SessionRow
from acphold.live.reading.local_reader import LocalReader

NOTHING: Final = "Nothing is waiting for you."


def where(row: SessionRow, short: str) -> str:
    """Return the session of what waits, with its `short` id."""
    title, agent = titled(row.title), on_one_line(agent_name(row.agent))
    return f"{title} · {agent} · {folder(row.cwd)} · {on_one_line(short)}"


def describe_hold(row: SessionRow) -> str:
    """Return how many prompts of a session are held, and why."""
    return on_one_line(describe_queue(row.queued, row.held, row.held_until))


def how_to_resume(short: str) -> str:
    """Return the command by which they go on."""
    return f"acphold queue {on_one_line(short)} resume"


async def new_rules(reader: LocalReader) -> str:
    """Return a line about rules made elsewhere that nobody has been shown yet; "" for none."""
    found = await reader.new_rules(this_terminal())
    if not found:
        return ""
    told = f"A new rule: {on_one_line(found[0])}"
    if len(found) > 1:
        told = quantity(len(found), "new rule")
    return f"{told}, made elsewhere. See: acphold rules"
