"""Replay: the updates that give a client the conversation as if it had been there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast, get_args

from msgspec import Struct

from acphold.conversation.history.children import child_update
from acphold.conversation.history.clearings import clearing_update
from acphold.conversation.history.compaction import Run
from acphold.conversation.history.entries import (
    AUTHOR,
    CHILD,
    CLEARED,
    PARAMS,
    PROMPT,
    TERMINAL,
    TURN_END,
    UPDATE,
    Entry,
    Segment,
)
from acphold.conversation.history.fold import prompt_message_id
from acphold.conversation.history.raw_update import (
    LONG,
    encode_object,
    encode_text,
    is_for_the_moment,
    items,
    members,
    plain_chunk,
    string,
    update_kind,
)
from acphold.conversation.history.timeline import (
    OUTCOMES,
    TurnEnd,
    TurnOutcome,
    moment,
    turn_end,
    with_limit,
)

CLIENT_MARK = "acphold/client"
"""The `_meta` key of a user's words: the client that they came from."""

TURN_MARK = "acphold/turn"
"""The `_meta` key of the update that marks a turn that was not completed."""


class Replayed(Struct, frozen=True, gc=False):
    """One `session/update` to send: its `update` object, or with `whole_params` all of its params.

    Such params hold the agent's id of the session; the sender replaces it with the client's. With
    `in_child` it is the raw of a `child` entry, which names its own session. `seq` is the last
    entry that is sent with it; 0 if more of that entry follows.
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
    through = 0  # the last entry of the run
    author = NOBODY
    for segment in segments:
        if segment.kind != UPDATE:
            if run is not None:
                yield Replayed(run.join(), seq=through)
                run = None
            yield from _replay_other(segment, author)
            author = segment if segment.kind == AUTHOR else NOBODY
            continue
        for seq, raw in segment.raws():
            chunk = plain_chunk(raw)
            if run is not None:
                if chunk is not None and run.take(chunk, raw):
                    through = seq
                    continue
                yield Replayed(run.join(), seq=through)
                run = None
            if chunk is not None:
                run, through = Run(chunk, raw), seq
            elif raw and not is_for_the_moment(update_kind(raw)):
                yield Replayed(raw, seq=seq)
    if run is not None:
        yield Replayed(run.join(), seq=through)


def _replay_other(segment: Segment, author: Segment) -> Iterator[Replayed]:
    """Yield the updates for a segment that does not hold plain updates."""
    if segment.kind == PROMPT:
        for entry, (seq, _) in zip(segment.entries(), segment.raws(), strict=True):
            authors = author.raw if author.last_seq + 1 == entry.seq else b""
            client = authors[authors.rfind(b"\n") + 1 :]  # the last one precedes the prompt
            *blocks, last = items(entry.raw) or [b""]
            for block in blocks:
                yield Replayed(prompt_chunk(entry.seq, block, client))
            if last:
                yield Replayed(prompt_chunk(entry.seq, last, client), seq=seq)
        return
    for seq, raw in segment.raws():
        if segment.kind == PARAMS:
            update = members(raw).get("update", b"")
            if update and not is_for_the_moment(update_kind(update)):
                yield Replayed(raw, whole_params=True, seq=seq)
        elif segment.kind == CHILD:
            if raw and not is_for_the_moment(update_kind(child_update(raw).update)):
                yield Replayed(raw, in_child=True, seq=seq)
        elif segment.kind == TERMINAL:
            yield Replayed(raw, seq=seq)
        elif segment.kind == CLEARED:
            if line := clearing_update(raw):
                yield Replayed(line, seq=seq)
        elif segment.kind == TURN_END:
            end = turn_end(raw, segment.at)
            if end.outcome != "completed":
                yield Replayed(turn_mark(end), seq=seq)


def prompt_chunk(seq: int, block: bytes, client: bytes) -> bytes:
    """Return the update that shows a client one content block of the prompt with this `seq`.

    `client` is the `author` entry of the prompt, if it has one.
    """
    meta = b',"_meta":{"%b":%b}' % (CLIENT_MARK.encode(), client) if client else b""
    return b'{"sessionUpdate":"user_message_chunk","messageId":"%b","content":%b%b}' % (
        prompt_message_id(seq).encode(),
        block,
        meta,
    )


def named_user(entry: Entry, before: Entry | None) -> str | None:
    """Return the name of the user who said this; None for nobody in particular.

    The entry `before` a prompt has its author.
    """
    by = b""
    if entry.kind == PROMPT and before is not None and before.kind == AUTHOR:
        by = before.raw
    elif (
        entry.kind == UPDATE  # said in the turn
        and (len(entry.raw) <= LONG or update_kind(entry.raw) == "user_message_chunk")
        and CLIENT_MARK.encode() in entry.raw
    ):
        by = members(members(entry.raw).get("_meta", b"")).get(CLIENT_MARK, b"")
    return string(members(by).get("user"))


def turn_mark(end: TurnEnd) -> bytes:
    """Return the update that tells a client how the turn before it ended; it changes nothing
    else."""
    texts = {"outcome": end.outcome, "stopReason": end.stop_reason, "message": end.message}
    parts = {name: encode_text(text) for name, text in texts.items() if text}
    if end.resets_ms is not None:
        parts["resetsAt"] = b"%d" % end.resets_ms
    return b'{"sessionUpdate":"session_info_update","_meta":{"%b":%b}}' % (
        TURN_MARK.encode(),
        encode_object(parts),
    )


def as_entry(end: TurnEnd) -> bytes:
    """Return the content of a `turn_end` entry, of which `timeline.turn_end` makes this end."""
    if end.outcome == "interrupted":
        return b'{"interrupted":true}'
    if end.outcome == "unanswered":
        return b'{"interrupted":null}'
    if end.outcome == "failed":
        error = {"code": b"-32603", "message": encode_text(end.message or "")}
        return encode_object({"error": encode_object(error)})
    reason = end.stop_reason or {it: name for name, it in OUTCOMES.items()}.get(end.outcome, "")
    entry = encode_object({"stopReason": encode_text(reason)})
    if end.outcome == "limited" and end.message is not None:
        return with_limit(entry, end.message, end.resets_ms)
    return entry


def turn_end_in(update: bytes) -> TurnEnd | None:
    """Return the end of a turn that an update marks as `turn_mark` does; None for any other."""
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
