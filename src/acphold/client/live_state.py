"""The state of a session as its client knows it: everything so far, folded.

The journal's fold does it. The client adds its own prompts, the ends of its turns, its own
settings, and tool calls that it counts as cancelled because it has cancelled their turn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

import msgspec

from acphold.history.entries import CHILD, PARAMS, PROMPT, SETTINGS, TURN_END, UPDATE, Entry
from acphold.history.fold import Fold, SessionState
from acphold.history.raw_update import encode_object, encode_text, update_kind
from acphold.history.timeline import Item, ToolCall

CANCELLED = "cancelled"
"""The status of a tool call whose turn was cancelled, until the agent reports another one.

Source: spec v1, prompt turn, "Cancellation". The schema has no such status: it is never sent.
"""


class LiveState:
    """Folds updates as they come; `value` is the state at any time."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._value: SessionState | None = None
        # Below zero: message ids are made from the numbers of prompts, and those of a journal,
        # which a replay may bring, are above.
        self._numbers = count(-1, -1)
        self._prompt = b""

    @property
    def value(self) -> SessionState:
        """The state now."""
        if self._value is None:
            state = self._fold.state()
            cancelled = {
                item.tool_call_id
                for item in state.timeline
                if isinstance(item, ToolCall) and item.status == CANCELLED
            }
            still_open = tuple(tool for tool in state.open_tools if tool not in cancelled)
            self._value = msgspec.structs.replace(state, open_tools=still_open)
        return self._value

    def hear(self, kind: str, raws: Sequence[bytes]) -> None:
        """Fold updates, or params with more in them than that, as `agents.runs` sorts them, or
        `child` entries."""
        self._value = None
        entry = {"update": UPDATE, CHILD: CHILD}.get(kind, PARAMS)
        add = self._fold.add
        for raw in raws:
            if self._prompt and b"user_message_chunk" in raw and self._is_echo(raw):
                continue
            add(Entry(0, entry, 0, raw))

    def prompted(self, prompt: bytes) -> int:
        """Begin a turn with these content blocks; return its place on the timeline."""
        place = len(self._fold)
        self._prompt = prompt
        self._add(PROMPT, prompt)
        return place

    def turn_ended(self, end: bytes) -> int:
        """End the turn; `end` as in a `turn_end` entry. Return the place behind it."""
        self._prompt = b""
        self._add(TURN_END, end)
        return len(self._fold)

    def opened(self, answer: bytes) -> None:
        """Take the agent's answer to new, load or resume: the initial modes and options."""
        self._add(SETTINGS, answer)

    def set_mode(self, mode_id: str) -> None:
        """Note that the agent accepted this mode from us; not every agent also reports it."""
        kind = b'"current_mode_update"'
        said = encode_object({"sessionUpdate": kind, "currentModeId": encode_text(mode_id)})
        self._add(UPDATE, said)

    def cancel_tools(self) -> None:
        """Mark the tool calls of the running turn that are not finished."""
        for tool in self.value.open_tools:
            said = {"toolCallId": encode_text(tool), "status": encode_text(CANCELLED)}
            self._add(UPDATE, encode_object({"sessionUpdate": b'"tool_call_update"', **said}))

    def tool(self, tool_call_id: str) -> ToolCall | None:
        """Return a tool call as it stands."""
        for item in reversed(self.value.timeline):
            if isinstance(item, ToolCall) and item.tool_call_id == tool_call_id:
                return item
        return None

    def items(self, first: int, behind: int | None) -> tuple[Item, ...]:
        """Return the part of the timeline between two places; to its end if the second is None."""
        return self.value.timeline[first:behind]

    def _add(self, kind: str, raw: bytes) -> None:
        self._value = None
        self._fold.add(Entry(next(self._numbers), kind, int(time.time() * 1000), raw))

    def _is_echo(self, raw: bytes) -> bool:
        """Return True if the agent sends the prompt back, as some do: it is on the timeline
        already."""
        if update_kind(raw) != "user_message_chunk":
            return False
        from acphold.hub.interjections import repeats  # all of the hub, which few clients need

        return repeats(raw, self._prompt)
