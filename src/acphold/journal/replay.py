"""Replay: what is sent to a client so that it has the conversation as if it had been there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from acphold.journal.compaction import Run
from acphold.journal.entries import PARAMS, PROMPT, UPDATE, Entry, Segment
from acphold.journal.fold import prompt_message_id
from acphold.journal.raw_update import (
    UNREADABLE,
    decode_plain_chunk,
    items,
    may_be_chunk,
    members,
    update_kind,
)


class Replayed(Struct, frozen=True, gc=False):
    """One `session/update` to send: its `update` object, or with `whole_params` all of its params.

    Such params hold the session id that the agent knows; the sender puts the client's there.
    """

    raw: bytes
    whole_params: bool = False


def replay(segments: Iterable[Segment]) -> Iterator[Replayed]:
    """What to send for these segments, in order.

    Plain text in a row is joined, everything else passes byte for byte. Notices were for the
    moment, and what a session opened with stands in the answer to the client: neither is sent.
    """
    run: Run | None = None
    for segment in segments:
        if segment.kind != UPDATE:
            if run is not None:
                yield Replayed(run.joined())
                run = None
            yield from _replay_other(segment)
            continue
        for raw in segment.raw.split(b"\n"):
            if may_be_chunk(raw):
                try:
                    chunk = decode_plain_chunk(raw)
                except UNREADABLE:
                    pass
                else:
                    if run is None:
                        run = Run(chunk, raw)
                    elif not run.take(chunk):
                        yield Replayed(run.joined())
                        run = Run(chunk, raw)
                    continue
            if run is not None:
                yield Replayed(run.joined())
                run = None
            if not _is_notice(raw):
                yield Replayed(raw)
    if run is not None:
        yield Replayed(run.joined())


def _replay_other(segment: Segment) -> Iterator[Replayed]:
    if segment.kind == PROMPT:
        for entry in segment.entries():
            yield from _replay_prompt(entry)
    elif segment.kind == PARAMS:
        for raw in segment.raw.split(b"\n"):
            if not _is_notice(members(raw).get("update", b"")):
                yield Replayed(raw, whole_params=True)


def _replay_prompt(entry: Entry) -> Iterator[Replayed]:
    for block in items(entry.raw):
        yield Replayed(prompt_chunk(entry.seq, block))


def prompt_chunk(seq: int, block: bytes) -> bytes:
    """The update that shows a client one content block of the prompt with this `seq`."""
    return b'{"sessionUpdate":"user_message_chunk","messageId":"%b","content":%b}' % (
        prompt_message_id(seq).encode(),
        block,
    )


def _is_notice(raw: bytes) -> bool:
    return b"notice" in raw and update_kind(raw) == "notice"
