"""Sub-agents for a client that does not offer to show them: each is one tool call with its text.

The call has the sub-agent's id. It begins when the sub-agent is announced, or first says something.
Its title is the sub-agent's, its input the task, its content the sub-agent's words and the titles
of its calls; of a long text the end. It ends when the sub-agent does.

Each update repeats the whole text. So one is sent when the text has grown by a third, when the
sub-agent ends, and at the end of a turn: in all only a few times the text's size. The final text is
the same live and in a replay.
"""

from __future__ import annotations

from collections.abc import Mapping

from acphold.history.children import AT_WORK, ChildChange, child_change
from acphold.history.display_terminals import CUT, TEXT_BYTES, from_next_line, newest
from acphold.history.raw_update import (
    content_text,
    encode_object,
    encode_text,
    members,
    string,
    text_block,
    update_kind,
)

LEAST_GROWTH = 512
"""Fewest new characters before a text is sent again."""

FAILURES = ("cancelled", "error", "refusal")
"""Reasons to stop that are failures of a call."""


class _Child:
    def __init__(self, id_: str) -> None:
        self.id = id_
        self.title = ""
        self.status = ""
        self._text = ""
        self._is_cut = False
        self._part = ""
        self._told = 0
        self.has_news = False

    def say(self, part: str, text: str) -> None:
        """Append this text, after an empty line if it is another part."""
        if not text:
            return
        if self._text and part != self._part:
            text = "\n\n" + text
        self._part = part
        whole = self._text + text
        self._text = newest(whole, TEXT_BYTES) if len(whole) > TEXT_BYTES // 6 else whole
        self._is_cut |= len(self._text) < len(whole)
        self._told -= len(whole) - len(self._text)
        self.has_news = True

    @property
    def has_grown(self) -> bool:
        """True if there is enough new text to send it again."""
        new = len(self._text) - max(0, self._told)
        return new >= LEAST_GROWTH and 3 * new >= len(self._text)

    def update(self, kind: str = "tool_call_update", /, **fields: str | bytes) -> bytes:
        """Return an update of its call, with the text if there is news."""
        parts = {"sessionUpdate": encode_text(kind), "toolCallId": encode_text(self.id)}
        for name, value in fields.items():
            parts[name] = value if isinstance(value, bytes) else encode_text(value)
        if self.has_news:
            text = CUT + from_next_line(self._text) if self._is_cut else self._text
            parts["content"] = b'[{"type":"content","content":%b}]' % text_block(text)
            self.has_news, self._told = False, len(self._text)
        return encode_object(parts)


class ShownChildren:
    """See the module."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}

    def told(self, child_id: str, update: bytes) -> list[bytes]:
        """Return the words of a sub-agent, or with "" of the session itself, as updates of
        calls."""
        kind = update_kind(update)
        parts = members(update)
        if (change := child_change(kind, parts)) is not None:
            return self._announced(change)
        if not child_id:
            return []
        told: list[bytes] = []
        child = self._children.get(child_id)
        if kind == "agent_message_chunk":
            part, text = f"m{string(parts.get('messageId'))}", _text(parts.get("content", b""))
        elif kind == "tool_call":
            part, text = f"t{string(parts.get('toolCallId'))}", string(parts.get("title")) or ""
            text = f"[{text}]" if text else ""
        else:
            return []
        if child is None:
            child, begun = self._begun(child_id, child_id, "in_progress")
            told.append(begun)
        child.say(part, text)
        if child.has_grown:
            told.append(child.update())
        return told

    def turn_over(self) -> list[bytes]:
        """Return the text of each call that has news."""
        return [child.update() for child in self._children.values() if child.has_news]

    def _begun(self, id_: str, title: str, status: str, **more: bytes) -> tuple[_Child, bytes]:
        self._children[id_] = child = _Child(id_)
        child.title, child.status = title, status
        fields = {"title": encode_text(title), "kind": b'"other"', "status": encode_text(status)}
        return child, child.update("tool_call", **fields, content=b"[]", **more)

    def _announced(self, change: ChildChange) -> list[bytes]:
        task = change.changes.get("description")
        title = change.changes.get("title") or task
        status = _status(change.changes)
        if (child := self._children.get(change.child)) is None:
            more = {"rawInput": encode_object({"task": encode_text(task)})} if task else {}
            _, begun = self._begun(change.child, title or change.child, status or "pending", **more)
            return [begun]
        fields: dict[str, str | bytes] = {}
        if title and title != child.title:
            child.title = fields["title"] = title
        if status and status != child.status:
            child.status = fields["status"] = status
        return [child.update(**fields)] if fields else []


def _status(changes: Mapping[str, str | None]) -> str:
    """Return the status of a call for a sub-agent's state; "" if it has none."""
    state = changes.get("state")
    if state is None:
        return ""
    if state in AT_WORK:
        return "in_progress"
    if state != "idle":
        return ""
    return "failed" if changes.get("stop_reason") in FAILURES else "completed"


def _text(block: bytes) -> str:
    return content_text(block) or string(members(block).get("text")) or ""
