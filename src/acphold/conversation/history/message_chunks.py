"""Which entries continue a message, for those who search it as one text.

See `fold` for the definition of a message.
"""

from __future__ import annotations

from typing import Any, Final

from acphold.conversation.history.display_terminals import PRINTED
from acphold.conversation.history.entries import CHILD, ECHO, PARAMS, PROMPT, TERMINAL, UPDATE
from acphold.conversation.history.raw_update import ROLES
from acphold.safety.redaction.texts import Chunk

_UPDATES: Final = frozenset({UPDATE, PARAMS, TERMINAL, ECHO})
_TOOLS: Final = ("tool_call", "tool_call_update")


class Messages:
    """Assigns entries, in order, to the messages they have a piece of."""

    def __init__(self) -> None:
        self._children: dict[str, Messages] = {}
        self._seen: set[int] = set()
        self._unnamed = ""
        self._count = 0

    def chunk(self, kind: str, value: Any) -> Chunk | None:
        """Return the piece of a message in an entry, or None."""
        if kind == PROMPT:
            self._begins("")
            blocks = value if isinstance(value, list) else []
            return Chunk(PROMPT, (PROMPT, str(self._count)), _with_text(blocks), is_whole=True)
        if kind == CHILD:
            # Each sub-agent speaks for itself.
            params = value.get("params", value) if isinstance(value, dict) else None
            if not isinstance(params, dict):
                return None
            child = f"child {params.get('childSessionId', params.get('sessionId'))}"
            found = self._children.setdefault(child, Messages()).chunk(UPDATE, params.get("update"))
            if found is None:
                return None
            what, which = found.message
            return Chunk(f"{child} {found.role}", (f"{child} {what}", which), found.holders)
        update = value.get("update") if kind == PARAMS and isinstance(value, dict) else value
        update_type = update.get("sessionUpdate") if isinstance(update, dict) else None
        if kind not in _UPDATES or not isinstance(update, dict) or not isinstance(update_type, str):
            return None
        if update_type in _TOOLS:
            self._comes_up("tool", update.get("toolCallId"))
            # What a terminal has printed, which `display_terminals` joins.
            meta = update.get("_meta")
            told = [meta.get(name) for name in PRINTED] if isinstance(meta, dict) else []
            printed = [it for it in told if isinstance(it, dict)]
            printed = [it for it in printed if isinstance(it.get("data"), str)]
            if not printed:
                return None
            which = f"{update.get('toolCallId')} {printed[0].get('terminal_id')}"
            return Chunk("terminal", ("terminal", which), frozenset(map(id, printed)))
        if not update_type.endswith("_chunk"):
            return None
        message_id = update.get("messageId", update.get("compactionId"))
        holders = _with_text([update.get("content")])
        if kind == ECHO or update_type not in ROLES:  # not part of the conversation
            return Chunk(
                f"{kind} {update_type}", (f"{kind} {update_type}", str(message_id)), holders
            )
        if isinstance(message_id, str):
            self._comes_up(update_type, message_id)
            return Chunk(update_type, (update_type, f"id {message_id}"), holders)
        if self._unnamed != update_type:
            self._begins(update_type)
        return Chunk(update_type, (update_type, str(self._count)), holders)

    def _begins(self, unnamed: str) -> None:
        """Begin another message; without an id, it lasts until something else appears."""
        self._unnamed = unnamed
        self._count += 1

    def _comes_up(self, what: str, known_by: Any) -> None:
        """Note something in the conversation, which ends the open message if it is new."""
        key = hash((what, str(known_by)))
        if key not in self._seen:
            self._seen.add(key)
            self._unnamed = ""


def _with_text(blocks: list[Any]) -> frozenset[int]:
    return frozenset(
        id(block)
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    )
