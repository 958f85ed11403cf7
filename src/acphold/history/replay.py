"""Replay: the updates that give a client the conversation as if it had been there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast, get_args

from msgspec import Struct

from acphold.history.children import said
from acphold.history.compaction import Run
from acphold.history.entries import (
    AUTHOR,
    CHILD,
    PARAMS,
    PROMPT,
    TERMINAL,
    TURN_END,
    UPDATE,
    Segment,
)
from acphold.history.fold import prompt_message_id
from acphold.history.raw_update import (
    UNREADABLE,
    decode_plain_chunk,
    encode_object,
    encode_text,
    items,
    may_be_chunk,
    members,
    string,
    update_kind,
)
from acphold.history.timeline import TurnEnd, TurnOutcome, moment, turn_end
from acphold.schema.updates import is_for_the_moment

CLIENT_MARK = "acphold/client"
"""The `_meta` key of a user's words: the client that they came from."""

TURN_MARK = "acphold/turn"
"""The `_meta` key of the update that marks a turn that was not completed."""


class Replayed(Struct, frozen=True, gc=False):
    """One `session/update` to send: its `update` object, or with `whole_params` all of its params.

    Such params hold the session id that the agent knows; the sender puts the client's there. With
    `in_child` it is the raw of a `child` entry, which names its own session. `seq` is the last
    entry that is told with it; 0 if more of that entry follows.
    """

    raw: bytes
    whole_params: bool = False
    seq: int = 0
    in_child: bool = False


NOBODY = Segment(0, -1, AUTHOR, 0, b"")
"""No author: before the first prompt, and before a prompt whose client gave no name."""


def replay(segments: Iterable[Segment]) -> Iterator[Replayed]:
    """Yield the updates to send for these segments, in order.

    Consecutive plain text is joined, everything else passes byte for byte. A turn that was not
    completed is marked. Notices, and a session's first settings, are left out.
    """
    run: Run | None = None
    end = 0  # of the segment before
    author = NOBODY
    for segment in segments:
        if segment.kind != UPDATE:
            if run is not None:
                yield Replayed(run.joined(), seq=end)
                run = None
            yield from _replay_other(segment, author)
            author = segment if segment.kind == AUTHOR else NOBODY
            continue
        raws = segment.raw.split(b"\n")
        first = segment.last_seq + 1 - len(raws)
        for seq, raw in enumerate(raws, first):
            if may_be_chunk(raw):
                try:
                    chunk = decode_plain_chunk(raw)
                except UNREADABLE:
                    pass
                else:
                    if run is None:
                        run = Run(chunk, raw)
                    elif not run.take(chunk, raw):
                        yield Replayed(run.joined(), seq=seq - 1 if seq > first else end)
                        run = Run(chunk, raw)
                    continue
            if run is not None:
                yield Replayed(run.joined(), seq=seq - 1 if seq > first else end)
                run = None
            if raw and not is_for_the_moment(update_kind(raw)):
                yield Replayed(raw, seq=seq)
        end = segment.last_seq
    if run is not None:
        yield Replayed(run.joined(), seq=end)


def _replay_other(segment: Segment, author: Segment) -> Iterator[Replayed]:
    if segment.kind == PROMPT:
        for entry, (seq, _) in zip(segment.entries(), segment.raws(), strict=True):
            written_by = author.raw if author.last_seq + 1 == entry.seq else b""
            client = written_by[written_by.rfind(b"\n") + 1 :]  # of several, the one before it
            *blocks, last = items(entry.raw) or [b""]
            for block in blocks:
                yield Replayed(prompt_chunk(entry.seq, block, client))
            if last:
                yield Replayed(prompt_chunk(entry.seq, last, client), seq=seq)
    elif segment.kind == PARAMS:
        for seq, raw in segment.raws():
            if not (update := members(raw).get("update", b"")):
                continue
            if not is_for_the_moment(update_kind(update)):
                yield Replayed(raw, whole_params=True, seq=seq)
    elif segment.kind == CHILD:
        for seq, raw in segment.raws():
            update = said(raw).update
            if raw and not is_for_the_moment(update_kind(update)):
                yield Replayed(raw, in_child=True, seq=seq)
    elif segment.kind == TERMINAL:
        for seq, raw in segment.raws():
            yield Replayed(raw, seq=seq)
    elif segment.kind == TURN_END:
        for seq, raw in segment.raws():
            if (end := turn_end(raw, segment.at)).outcome != "completed":
                yield Replayed(turn_mark(end), seq=seq)


def prompt_chunk(seq: int, block: bytes, client: bytes = b"") -> bytes:
    """Return the update that shows a client one content block of the prompt with this `seq`.

    `client` is the `author` entry of the prompt, if it has one.
    """
    meta = b',"_meta":{"%b":%b}' % (CLIENT_MARK.encode(), client) if client else b""
    return b'{"sessionUpdate":"user_message_chunk","messageId":"%b","content":%b%b}' % (
        prompt_message_id(seq).encode(),
        block,
        meta,
    )


def turn_mark(end: TurnEnd) -> bytes:
    """Return the update that tells a client how the turn before it ended; it changes nothing
    else."""
    said = {
        "outcome": end.outcome,
        "stopReason": end.stop_reason,
        "message": end.message,
    }
    parts = {name: encode_text(text) for name, text in said.items() if text}
    if end.resets_at is not None:
        parts["resetsAt"] = b"%d" % end.resets_at
    mark = encode_object(parts)
    return b'{"sessionUpdate":"session_info_update","_meta":{"%b":%b}}' % (
        TURN_MARK.encode(),
        mark,
    )


def marked_end(update: bytes) -> TurnEnd | None:
    """Return the end of a turn that an update tells as `turn_mark` does; None for any other."""
    mark = members(members(members(update).get("_meta", b"")).get(TURN_MARK, b""))
    if (outcome := string(mark.get("outcome"))) is None:
        return None
    return TurnEnd(
        cast("TurnOutcome", outcome) if outcome in get_args(TurnOutcome) else "completed",
        0,
        string(mark.get("stopReason")),
        string(mark.get("message")),
        moment(mark.get("resetsAt", b"")),
    )
