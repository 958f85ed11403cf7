"""The content of a journal: entries with their times, in segments and in turns.

A turn begins with a prompt, and with its author if that is known; in an agent's own replay, with
the user's words. It ends where the next one begins. Entries before the first turn belong to none.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from acphold.conversation.history.children import child_update
from acphold.conversation.history.raw_update import members, storable, string, update_kind

LAST_SEQ: Final = (1 << 32) - 1
"""Highest number of an entry."""

LATEST_MS: Final = 253_402_214_400_000
"""9999-12-31 in UTC: Python cannot write a later time as a date in every time zone."""


def now_ms() -> int:
    """Return milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def clamp_moment(at: int) -> int:
    """Return the moment nearest to `at`, ms since the epoch, that can be written as a date."""
    return min(max(at, 0), LATEST_MS - 1)


def in_utc(at: int) -> datetime:
    """Return a time (ms since the epoch)."""
    return datetime.fromtimestamp(clamp_moment(at) / 1000, UTC)


def iso(at: int) -> str:
    """Return a time (ms since the epoch) as ISO 8601 in UTC: `2026-01-31T12:00:00.000Z`."""
    if not 0 <= at < LATEST_MS:
        at = clamp_moment(at)
    hours, ms = divmod(at, 3_600_000)
    seconds = ms // 1000
    return f"{_hour(hours)}{_TWO[seconds // 60]}:{_TWO[seconds % 60]}.{ms % 1000:03}Z"


_TWO: Final = [f"{number:02}" for number in range(60)]
"""Numbers in two digits: formatting each takes longer than the rest."""


@lru_cache(1000)
def _hour(hours: int) -> str:
    """Return the hour so many hours after 1970 began: `2026-01-31T12:`."""
    days, hour = divmod(hours, 24)
    return f"{date(1970, 1, 1) + timedelta(days)}T{_TWO[hour]}:"


def milliseconds(updated_at: str | None) -> int:
    """Return an ISO 8601 time in ms since the epoch; 0, the end of the list, if there is none.

    A time before 1970 counts as none: Go writes an unset one as that of the year 1. So does one
    that no clock shows: see LATEST_MS.
    """
    try:
        at = int(datetime.fromisoformat(updated_at or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return at if 0 < at < LATEST_MS else 0


UPDATE: Final = "update"
"""The exact bytes of one ACP `update` object (`params.update` of `session/update`)."""

PARAMS: Final = "params"
"""A whole `session/update` params object that carried more than `sessionId` and `update`."""

PROMPT: Final = "prompt"
"""The JSON array of content blocks that a user sent (`params.prompt` of `session/prompt`)."""

SETTINGS: Final = "settings"
"""`{"modes": …, "configOptions": …}` of a `session/new`, load or resume answer; both optional.

With `"anew": true` those of the agent before are void.
"""

TURN_END: Final = "turn_end"
"""`{"stopReason": "…"}`, `{"error": {"code": …, "message": "…"}}` or `{"interrupted": true}`.

`{"interrupted": null}` is the end of an imported turn without an answer.
"""

ECHO: Final = "echo"
"""An update of the agent that only repeats the user's prompt: kept, never replayed."""

TERMINAL: Final = "terminal"
"""A `tool_call_update` whose `content` has the output of terminals as text, for later clients.

It is folded and replayed as an update, and not delivered to clients that show the terminals.
"""

QUESTION: Final = "question"
"""`{"id": "…", "method": "…", "params": …}`: a request of the agent to a person."""

ANSWER: Final = "answer"
"""`{"question": "…", "outcome": "…", "result": …, "client": …, "message": "…"}`: the outcome.

The last three are optional; see `history.decisions`.
"""

AUTHOR: Final = "author"
"""`{"name": "…", "version": "…"}`: the program that sent the prompt right after it.

It is an entry of its own: for readers of older journals a prompt is only the array of its blocks. A
crash between the two leaves an author without a prompt, which means nothing.
"""

SENT: Final = "sent"
"""`{"id": "…"}`: the sending client's own id for the prompt after it; stands before its author,
too."""

CHILD: Final = "child"
"""An update in a sub-agent's session: the params of its `session/update`, with the child's id.

If it came as another notification it is `{"method": "…", "params": …}`: see `history.children`.
"""

QUEUE: Final = "queue"
"""A change of the queue of prompts: see `history.prompt_queue`. A copy does not take it along."""

MOVED: Final = "moved"
"""`{"id": "…", "from": "…", "to": "…"}`: the session went from one machine to another, in the move
with this id; see `hub.moves`. The fold skips it."""

BACK: Final = "back"
"""`{"left": [[…, …], …]}`: the person went back in the agent's own program, and the turns with the
entries from each first to each last number were left; they are void, and stand elsewhere."""

FORGOTTEN: Final = "forgotten"
"""`{"turns": ["…"]}`: the identities of turns that a person had taken out of it with an earlier
release: see `imports.turns`. They come back with no import."""

FORGOTTEN_TEXT: Final = "forgotten text"
"""In the place of an agent's name: the mark of a text that a person had removed everywhere."""

HANDED_OVER: Final = "handed_over"
"""`{"session": "…", "lastSeq": …, "digest": "…", …}`: the prompt before or behind it brought the
agent earlier entries as text: see `history.handovers`. The fold and the replay skip it."""

CLEARED: Final = "cleared"
"""`{"how": "…", "shown": …}`: the person had the agent forget everything above with
the command `how`; not `shown` while nothing proves that it did."""

KINDS: Final = (
    UPDATE,
    PARAMS,
    PROMPT,
    SETTINGS,
    TURN_END,
    ECHO,
    TERMINAL,
    QUESTION,
    ANSWER,
    AUTHOR,
    CHILD,
    SENT,
    QUEUE,
    BACK,
    CLEARED,
)
"""The kinds that the fold and the replay know; any other is kept and skipped."""


REPLY: Final = "acphold/reply"
"""The `_meta` key, at the end of an imported turn, of a digest of the id of its first reply: a copy
of the turn, in a fork, has the same one."""

SO_FAR: Final = "acphold/soFar"
"""In `_meta` of a turn's end that an import made up: the usage of the whole session until then."""

NEWLINE: Final = 10
"""As a byte: Python finds a number in bytes six times as fast as other bytes."""

LONG_BYTES: Final = 512 << 10
"""Updates of more bytes are long: see `beginnings`."""

HEAD_BYTES: Final = 256 << 10
"""Bytes of a long one that are read: 20,000 characters, even if each is an escape of twelve."""

Run: TypeAlias = tuple[str, Sequence[bytes]]
"""Consecutive entries of one kind: the kind, and the raw bytes of each."""


class Entry(Struct, frozen=True, gc=False):
    """One event of a session; `at` is ms since the epoch, UTC."""

    seq: int
    kind: str
    at: int
    raw: bytes

    @property
    def update(self) -> bytes:
        """The update that it holds, perhaps of a sub-agent; b"" for other entries."""
        if self.kind == CHILD:
            return child_update(self.raw).update
        if self.kind == PARAMS:
            return members(self.raw).get("update", b"")
        return self.raw if self.kind in (UPDATE, TERMINAL) else b""


def exact_entry_json(entry: Entry) -> str:
    """Return an entry for a file: the update keeps its bytes, except those that are not UTF-8."""
    update = entry.raw.decode(errors="replace")
    if entry.kind == PROMPT:
        update = f'{{"prompt":{update}}}'
    kind = msgspec.json.encode(storable(entry.kind)).decode()
    return f'{{"seq":{entry.seq},"kind":{kind},"at":"{iso(entry.at)}","update":{update}}}'


def id_of_sent(raw: bytes) -> str:
    """Return the id in an entry of the kind SENT."""
    return string(members(raw).get("id")) or ""


class PastEntry(Struct, frozen=True, gc=False):
    """An event at `at`, from before the journal had the session.

    `seq` is the number that it had in another journal, 0 if it had none; `turn` is, for a prompt
    and what ends a part of a turn, the identity of that in a program's transcript.
    """

    kind: str
    at: int
    raw: bytes
    seq: int = 0
    turn: str = ""


class Segment(Struct, frozen=True, gc=False):
    """A run of entries of one kind that were journalled together, their raws joined by newlines.

    JSON on one line holds no newline, so the join can be undone. After compaction one raw may stand
    for all of `first_seq` to `last_seq`; such a segment is one entry. An empty raw was an update
    that a later one made void: it keeps its number, and says nothing.
    """

    first_seq: int
    last_seq: int
    kind: str
    at: int
    raw: bytes

    def entries(self) -> list[Entry]:
        """Return the entries of this run, oldest first.

        A compacted entry is numbered `last_seq`, as readers go on after it; a prompt keeps its own
        number, because the message id that clients see is made from it.
        """
        if NEWLINE not in self.raw:
            seq = self.first_seq if self.kind == PROMPT else self.last_seq
            return [Entry(seq, self.kind, self.at, self.raw)]
        raws = self.raw.split(b"\n")
        return [Entry(seq, self.kind, self.at, raw) for seq, raw in enumerate(raws, self.first_seq)]

    def raws(self) -> Iterator[tuple[int, bytes]]:
        """Return each raw with its number; a raw for several numbers has the last of them."""
        raws = self.raw.split(b"\n")
        return zip(range(self.last_seq + 1 - len(raws), self.last_seq + 1), raws, strict=True)

    @property
    def is_merged(self) -> bool:
        """True if one raw stands for several numbers."""
        return self.raw.count(b"\n") != self.last_seq - self.first_seq

    def after(self, seq: int) -> Segment:
        """Return this segment without its entries up to `seq`; itself if it cannot be cut there."""
        if seq < self.first_seq or b"\n" not in self.raw:
            return self
        raw = self.raw.split(b"\n", seq - self.first_seq + 1)[-1]
        return Segment(seq + 1, self.last_seq, self.kind, self.at, raw)

    def up_to(self, seq: int) -> Segment:
        """Return this segment without its entries above `seq`; itself if it cannot be cut there."""
        if seq >= self.last_seq or self.is_merged:
            return self
        raw = b"\n".join(self.raw.split(b"\n", seq - self.first_seq + 1)[:-1])
        return Segment(self.first_seq, seq, self.kind, self.at, raw)


def on_one_line(raw: bytes) -> bytes:
    """Return JSON on one line that came in a frame of its own, perhaps laid out over lines.

    Between two tokens a space means the same; a bare newline inside a string is not JSON.
    """
    return raw.replace(b"\n", b" ")


def in_one(first_seq: int, kind: str, raws: Sequence[bytes], at: int) -> Segment:
    """Return entries of one kind as one segment; ValueError for none."""
    count = len(raws)
    if count == 1:
        raw = on_one_line(raws[0]) if NEWLINE in raws[0] else raws[0]
    elif count:
        raw = b"\n".join(raws)
        if raw.count(b"\n") != count - 1:
            raw = b"\n".join(map(on_one_line, raws))
    else:
        raise ValueError("nothing to append")
    return Segment(first_seq, first_seq + count - 1, kind, at, raw)


def in_segments(past: Iterable[PastEntry], first_seq: int) -> Iterator[Segment]:
    """Yield past entries in runs of one kind and one time, numbered from `first_seq`.

    An entry keeps its number if that is still free, and also takes unused numbers before it. A
    prompt is known by its first number, so unused numbers before it become void.
    """

    def alike(segment: Segment) -> tuple[str, int, bool]:
        return segment.kind, segment.at, segment.first_seq == segment.last_seq

    for (kind, at, is_single), group in groupby(_single_segments(past, first_seq), alike):
        run = [*group]
        if is_single and len(run) > 1:
            raw = b"\n".join([segment.raw for segment in run])
            yield Segment(run[0].first_seq, run[-1].last_seq, kind, at, raw)
        else:
            yield from run


def _single_segments(past: Iterable[PastEntry], first_seq: int) -> Iterator[Segment]:
    """Yield a segment for each entry, and for numbers without one."""
    for entry in past:
        last_seq = max(first_seq, entry.seq)
        if entry.kind == PROMPT and first_seq < last_seq:
            yield Segment(first_seq, last_seq - 1, UPDATE, entry.at, b"")
            first_seq = last_seq
        yield Segment(first_seq, last_seq, entry.kind, entry.at, on_one_line(entry.raw))
        first_seq = last_seq + 1


class Origin(Struct, frozen=True, rename="camel"):
    """The source of a conversation: a session, up to entry `seq`, held with `agent`.

    When a session itself moves to another agent, `session_id` is its own id.
    """

    session_id: str
    agent: str
    seq: int


class TurnSpan(Struct, frozen=True):
    """A turn and its entries, `first` to `last`; turns are numbered from 1.

    `is_open` says that a prompt began it and no entry ends it: it runs, or a crash cut it off.
    """

    number: int
    first: int
    last: int
    is_open: bool = False


async def turn_spans(segments: AsyncIterable[Segment]) -> list[TurnSpan]:
    """Return the turns of a whole session, oldest first."""
    starts: list[int] = []
    author = -1  # the last entry that names the author of a prompt
    is_open = False
    last_seq = 0
    in_words = False  # True inside a message of the user that an agent replays
    words_id: str | None = None  # the id of that message
    async for segment in segments:
        kind = segment.kind
        for seq, raw in enumerate(segment.raw.split(b"\n"), segment.first_seq):
            if kind == AUTHOR:
                author = seq
            elif kind == PROMPT:
                starts.append(author if author == seq - 1 else seq)
                is_open, in_words = True, False
            elif kind == TURN_END:
                is_open = False
            elif kind in (UPDATE, PARAMS) and not is_open and raw:  # replayed by an agent
                update = raw if kind == UPDATE else members(raw).get("update", b"")
                was_in_words = in_words
                in_words = b'"user_message_chunk"' in update and (
                    update_kind(update) == "user_message_chunk"
                )
                if in_words:
                    message_id = string(members(update).get("messageId"))
                    if not was_in_words or message_id != words_id:
                        starts.append(seq)
                    words_id = message_id
        last_seq = segment.last_seq
    return [
        TurnSpan(number, first, following - 1, is_open and number == len(starts))
        for number, (first, following) in enumerate(pairwise([*starts, last_seq + 1]), 1)
    ]


def span_at(spans: Sequence[TurnSpan], seq: int) -> TurnSpan | None:
    """Return the turn that entry `seq` belongs to; None before the first one."""
    place = bisect_right(spans, seq, key=lambda span: span.first)
    return spans[place - 1] if place else None
