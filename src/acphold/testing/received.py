"""Updates received by a client, for a test to examine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from acphold.history.entries import UPDATE, Entry
from acphold.history.fold import SessionState, fold
from acphold.history.timeline import Message, ToolCall, shortened

if TYPE_CHECKING:
    from acphold.schema import Update


class Received(Struct, frozen=True):
    """A session's received updates, in order; `raws` are their bytes, unchanged."""

    updates: tuple[Update, ...]
    raws: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<Received {len(self.raws)} updates: {shortened(self.text)!r}>"

    @property
    def text(self) -> str:
        """All text of the agent's messages."""
        return self._said("agent")

    @property
    def thoughts(self) -> str:
        """All text of the agent's thoughts."""
        return self._said("thought")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Each tool call in its final state."""
        return [item for item in self.state.timeline if isinstance(item, ToolCall)]

    @property
    def state(self) -> SessionState:
        """All of it, folded."""
        return fold(Entry(seq, UPDATE, 0, raw) for seq, raw in enumerate(self.raws, 1))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of a kind (`plan`, `notice`, `tool_call_update` …), as JSON."""
        found = [msgspec.json.decode(raw, type=dict[str, Any]) for raw in self.raws]
        return [update for update in found if update["sessionUpdate"] == kind]

    def _said(self, role: str) -> str:
        items = [item for item in self.state.timeline if isinstance(item, Message)]
        return "".join(item.text for item in items if item.role == role)
