"""Clearings: the person had the agent forget what was said.

A command is a claim: agents refuse some, and say so in plain words. The clearing is *shown* once
the agent has proved it: by a row of `known_agents.FORGETS`, by the size of its context, or
by its replay. What stands above a shown one is dead: no agent is handed it.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from acp_wire.schema.splice import json_value
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.raw_update import (
    NOTICE,
    items,
    members,
    string,
)

CLEARED_MARK: Final = "acphold/cleared"
"""The `_meta` key of the line that tells a client of a clearing: its value is the command."""

COMMANDS: Final = frozenset({"/clear", "/new", "/reset"})
"""Commands by which people have an agent forget everything."""

PLAN: Final = "plan"
"""`Clearing.how` of a plan that was accepted with an option such as "Yes, and clear context"."""

_CLEARS: Final = re.compile(r"(?i)\bclear(s|ing)?\b[^.,;]{0,24}\b(context|conversation|history)\b")


GOING_BACK: Final = ("/undo", "/rewind")
"""Commands by which people go back before what was said last."""


class Clearing(Struct, frozen=True):
    """The content of an entry CLEARED. One that `confirms` is no clearing of its own: the replay
    has shown that the agent did what it was asked before."""

    how: str = ""
    shown: bool = False
    agent: str = ""
    confirms: bool = False


def clearing_in(raw: bytes) -> Clearing:
    """Return the content of an entry CLEARED."""
    return json_value(raw, Clearing) or Clearing()


def dead_through(entries: Iterable[Entry]) -> tuple[int, int, Clearing | None]:
    """Return the last number up to which entries CLEARED, the oldest first, clear a session, and
    the number and content of a newer one that is not shown; 0 and None without any."""
    dead, asked, claim = 0, 0, None
    for entry in entries:
        clearing = clearing_in(entry.raw)
        if not clearing.shown:
            asked, claim = entry.seq, clearing
        else:
            dead = asked if clearing.confirms else entry.seq
            asked, claim = 0, None
    return dead, asked, claim


def clearing_words(raw: bytes) -> str:
    """Return the line for people about a clearing; "" for one that is not shown."""
    found = clearing_in(raw)
    return f"{found.agent or 'The agent'} has forgotten everything above" if found.shown else ""


def clearing_update(raw: bytes) -> bytes:
    """Return the update that tells a client of a clearing; b"" for one that is not shown."""
    if not (words := clearing_words(raw)):
        return b""
    return msgspec.json.encode(
        {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": f"\n\n[acphold] {words}\n\n"},
            "_meta": {NOTICE: True, CLEARED_MARK: clearing_in(raw).how},
        }
    )


def command_in(prompt: bytes) -> str:
    """Return the prompt's command if it is one of COMMANDS; "" for any other prompt."""
    if len(prompt) > 200:
        return ""
    words = "".join(string(members(block).get("text")) or "" for block in items(prompt)).split()
    return words[0] if len(words) == 1 and words[0] in COMMANDS else ""


def is_plan_that_clears(params: bytes, answer: bytes) -> bool:
    """Return True if this answer to a permission request chose an option that clears the
    context."""
    chosen = members(members(answer).get("outcome", b"")).get("optionId")
    for option in items(members(params).get("options", b"")):
        parts = members(option)
        if chosen is not None and parts.get("optionId") == chosen:
            return _CLEARS.search(string(parts.get("name")) or "") is not None
    return False
