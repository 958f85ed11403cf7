"""What becomes of a run of segments when it is settled: the same in every store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acphold.history.compaction import compact, snapshots
from acphold.history.entries import Segment
from acphold.history.fold import EMPTY, SessionState, Summary, fold
from acphold.history.timeline import Message
from acphold.journal import packing, token_reports

PIECE_BYTES: Final = 512 << 10
"""How much history one transaction rewrites, or removes, at most (beyond one segment)."""

CONTEXT_SEGMENTS: Final = 8
_CONTEXT_ENTRIES: Final = 50
"""How far back to look for the message that the first chunk of a piece may belong to."""


class Settled(Struct, frozen=True, array_like=True):
    """What is known of a session at `settled_through`.

    `snapshots` has the numbers of the updates that the next of their kind makes void.
    """

    summary: Summary = Summary()
    snapshots: dict[str, int] = {}


encode_settled: Final = msgspec.msgpack.encode
decode_settled: Final = msgspec.msgpack.Decoder(Settled).decode


class Piece:
    """A run of segments and what becomes of them.

    `before` is the state that they come behind. With `stored` they are in rows already; what is of
    a time before `old_before` (ms) is packed at once. None of those in `apart` is put together with
    what is behind it.

    `gone` are those whose rows go, `new` those that get one. `messages` came to the count,
    `summary` is what the session is up to then, `usage` what was reported, `snapshots` has the
    numbers of updates that the next of their kind makes void. With `is_packed` all of it is packed.
    """

    def __init__(
        self,
        found: list[Segment],
        before: SessionState,
        *,
        stored: bool,
        old_before: int = 0,
        apart: Collection[int] = (),
    ) -> None:
        compacted = compact(found, apart)
        kept = {*found} & {*compacted} if stored else set()
        self.gone = [segment for segment in found if segment not in kept] if stored else []
        self.new = [segment for segment in compacted if segment not in kept]
        state = fold((entry for segment in compacted for entry in segment.entries()), before)
        self.messages = messages(state) - messages(before)
        self.summary = state.summary()
        self.snapshots = snapshots(compacted)
        # Before compaction makes some of them void.
        self.usage = token_reports.reports(found)
        self.last_seq = found[-1].last_seq
        # What happened long ago is packed at once.
        self.new = [packing.as_kept(segment, old_before) for segment in self.new]
        self.is_packed = all(segment.at < old_before for segment in found)


def messages(state: SessionState) -> int:
    """The messages that count: what users and agents said, without thoughts."""
    return sum(
        isinstance(item, Message) and item.role in ("user", "agent") for item in state.timeline
    )


def context(before: list[Segment]) -> SessionState:
    """The state behind the last CONTEXT_SEGMENTS that came before, as far as it counts for a chunk
    that comes late, and belongs to a message that is counted."""
    entries = [entry for segment in before for entry in segment.entries()]
    return fold(entries[-_CONTEXT_ENTRIES:])


def going_on(summary: Summary, state: SessionState = EMPTY) -> SessionState:
    """A state to fold on from: `summary`, and as much of the conversation as `state` has."""
    return replace(state, **{name: getattr(summary, name) for name in Summary.__struct_fields__})
