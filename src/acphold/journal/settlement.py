"""Settling a run of segments: the same in every store."""

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
from acphold.journal import frames, token_reports

PIECE_BYTES: Final = 512 << 10
"""Bytes of history that one transaction rewrites, or removes, at most (beyond one segment)."""

CONTEXT_SEGMENTS: Final = 8
_CONTEXT_ENTRIES: Final = 50
"""Limits of the search backwards for the message that the first chunk of a piece may belong to."""


class Settled(Struct, frozen=True, array_like=True):
    """The state of a session at `settled_through`.

    `snapshots` has the numbers of the updates that the next update of their kind makes void.
    """

    summary: Summary = Summary()
    snapshots: dict[str, int] = {}


encode_settled: Final = msgspec.msgpack.encode
decode_settled: Final = msgspec.msgpack.Decoder(Settled).decode


class Piece:
    """A run of segments, and the result of settling it.

    `before` is the state before the run. With `stored`, the segments are in rows already. Segments
    from before `old_before` (ms) are packed at once. No entry in `apart` is merged with later ones.

    `gone` are the segments whose rows are removed, `new` those that get a row. `messages` is the
    number of messages added to the count, `summary` the summary of the session at the end of the
    run, `usage` the reports in it. `snapshots` has the numbers of the updates that the next update
    of their kind makes void. With `is_packed`, the whole run is packed.
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
        # From what was found: compaction makes some reports void.
        self.usage = token_reports.reports(found)
        self.last_seq = found[-1].last_seq
        self.new = [frames.as_kept(segment, old_before) for segment in self.new]
        self.is_packed = all(segment.at < old_before for segment in found)


def messages(state: SessionState) -> int:
    """Count the messages of users and agents, without thoughts."""
    return sum(
        isinstance(item, Message) and item.role in ("user", "agent") for item in state.timeline
    )


def context(before: list[Segment]) -> SessionState:
    """The state after the last CONTEXT_SEGMENTS, as far as it matters for a late chunk of a message
    that is already counted."""
    entries = [entry for segment in before for entry in segment.entries()]
    return fold(entries[-_CONTEXT_ENTRIES:])


def going_on(summary: Summary, state: SessionState = EMPTY) -> SessionState:
    """Return a state to continue folding from: `summary`, with the conversation of `state`."""
    return replace(state, **{name: getattr(summary, name) for name in Summary.__struct_fields__})
