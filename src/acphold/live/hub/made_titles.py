"""Titles that the person's own command makes of a first turn: what it is given, and what is taken
of what it prints.

The rule's title stands until then, and stays if the command fails. One that the agent or a person
has given meanwhile stays, too.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import UPDATE
from acphold.conversation.history.message_chunks import Messages
from acphold.conversation.history.raw_update import items, members, string, update_kind
from acphold.conversation.history.titles import shorten
from acphold.errors import AcpError
from acphold.journal.rows import RowChange
from acphold.live.hub import bounds
from acphold.live.hub.annotations import as_title, title_update
from acphold.live.hub.session import HubSession
from acphold.safety.budget import Budget
from acphold.safety.redaction.redactor import Redactor

log = logging.getLogger(__name__)

STEPS: Final = 20_000_000
"""Steps to redact a first turn."""

_CONTROLS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[^\[\]])")
"""Sequences for a terminal: ECMA-48, and those of titles and links."""


async def first_turn(session: HubSession, prompt: bytes, before: int, home: str) -> bytes:
    """Return what was said in the turn behind entry `before`, the prompt first, redacted as for
    others to see; at most TITLED_BYTES of it. Raises OutOfStepsError."""
    said = [string(members(block).get("text")) or "" for block in items(prompt)] + ["\n\n"]
    async for segment in session.segments(before):
        for entry in segment.entries():
            if entry.kind == UPDATE and update_kind(entry.raw) == "agent_message_chunk":
                content = members(entry.raw).get("content", b"")
                said.append(string(members(content).get("text")) or "")
        if sum(map(len, said)) >= bounds.READ_FOR_TITLE:
            break
    text = "".join(said)
    if len(text) > bounds.READ_FOR_TITLE:  # a secret that is cut in two would not be found
        text = text[: bounds.READ_FOR_TITLE].rpartition("\n")[0]

    def redact(checkpoint: Checkpoint) -> bytes:
        redactor = Redactor(home, Messages, Budget(STEPS, checkpoint=checkpoint))
        return str(redactor.value(text)).encode(errors="replace")

    shown = await Threads(1).run_in_steps(redact)
    return shown[: bounds.TITLED_BYTES].decode(errors="ignore").encode()


async def take_title(
    session: HubSession, by_rule: str | None, made: dict[str, str], printed: bytes
) -> None:
    """Give the session the first line that a command printed as its title, if it still has the
    rule's, and note it as `made`."""
    lines = _CONTROLS.sub("", printed.decode(errors="replace")).splitlines()
    shown = ("".join(c if c.isprintable() else " " for c in line) for line in lines)
    if (title := next(filter(None, map(as_title, shown)), None)) is None:
        log.warning("session %s: the command printed no title", session.id)
        return
    try:
        await session.verify()
        if session.attributes.title == by_rule:
            made[session.id] = title = shorten(title)
            update = title_update(title, "command")
            await session.publish("update", [update], change=RowChange(title=title))
    except AcpError as exc:
        log.info("session %s keeps its title: %s", session.id, exc)
