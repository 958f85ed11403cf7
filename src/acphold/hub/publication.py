"""Entries on their way into a session, and their changes: to its attributes, to its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from acphold.agents.runs import update_of
from acphold.history.attributes import Attributes, fold_settings, fold_update
from acphold.history.entries import QUEUE, TURN_END
from acphold.history.prompt_queue import NO_QUEUE, PromptQueue, after_turn, folded
from acphold.history.raw_update import CHUNK_STARTS, ROLES, update_kind
from acphold.history.times import now_ms
from acphold.hub.attachment import Attachment
from acphold.journal import Append, RowChange

NO_CHANGE = RowChange()


class Publication(Struct, frozen=True):
    """Entries of one kind; see `HubSession.publish`. `is_speech` is set if they are known to be
    speech only: then they change no attributes."""

    kind: str
    raws: Sequence[bytes]
    author: Attachment | None
    then: Callable[[], None] | None
    change: RowChange
    audience: Attachment | None
    is_speech: bool = False

    def after(self, attributes: Attributes) -> Attributes:
        """Return the attributes of the session after these entries, given those before."""
        if self.is_speech:
            return attributes
        if self.kind in ("update", "params"):
            for item in self.raws:
                raw = update_of(self.kind, item)
                if raw.startswith(CHUNK_STARTS):
                    continue
                if (update := update_kind(raw)) not in ROLES:
                    attributes = fold_update(attributes, update, raw)
        elif self.kind == "settings":
            for raw in self.raws:
                attributes = fold_settings(attributes, raw)
        return attributes

    def queue_after(self, queue: PromptQueue, last_seq: int) -> PromptQueue:
        """Return the queue of the session after these entries, which come behind `last_seq`."""
        if self.kind == QUEUE:
            for seq, raw in enumerate(self.raws, last_seq + 1):
                queue = folded(queue, raw, seq, now_ms())
        elif self.kind == TURN_END and queue is not NO_QUEUE:
            queue = after_turn(queue, self.raws[-1], now_ms())
        return queue


def speech(raws: Sequence[bytes]) -> Publication:
    """Return pieces of the agent's messages and thoughts as a publication."""
    return Publication("update", raws, None, None, NO_CHANGE, None, is_speech=True)


class Prepared(Struct, frozen=True):
    """Publications of one session on their way into the journal, with those that were held."""

    held: list[Publication]
    publications: Sequence[Publication]
    attributes: Attributes
    queue: PromptQueue
    append: Append


def both(change: RowChange, later: RowChange) -> RowChange:
    """Return both changes in one."""
    if change is NO_CHANGE or later is NO_CHANGE:
        return change if later is NO_CHANGE else later
    known = {name: value for name, value in asdict(later).items() if value is not UNSET}
    return replace(change, **known)
