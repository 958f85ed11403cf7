"""Turns of one conversation as two sides have them, and the turns that both have.

One side is the journal, the other an agent's replay or transcript. A turn is the same on both by
the ids of its messages, which some agents repeat; else by its words, and its answer or its time.
Most agents send neither ids nor times: then the longest common run decides, of equal ones the last,
and beside it the next longest. Nothing depends on the number of turns on either side.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

from _blake2 import blake2b  # hashlib brings OpenSSL, for which an editor would wait
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.entries import PARAMS, PROMPT, TURN_END, UPDATE, Entry
from acphold.conversation.history.handovers import HandOver, read_handed_over, without_choice
from acphold.conversation.history.raw_update import (
    ATTRIBUTE_KINDS,
    items,
    members,
    string,
    update_kind,
)
from acphold.conversation.history.timeline import turn_end

ENOUGH_CHARACTERS: Final = 40
"""Characters without white space that prove something: of an answer, or of a prompt that an agent
keeps with more before or behind it. Short words begin or end many others."""

SAME_MS: Final = 10 * 60_000
"""Two turns of the same words, with times further apart, are different ones."""

KEPT_WORDS: Final = 2000
"""Characters that are kept of a prompt; of a longer one its two ends, and a digest."""

MOST_TURNS: Final = 5000
"""Newest turns of a side that are compared."""

MOST_IDS: Final = 16
"""Ids that are kept of a turn."""

MOST_STEPS: Final = 500_000
"""Pairs that are looked at, in a third of a second; after that what was found by then is shared."""

_MOST_TEXT: Final = 256 << 10
"""Characters of a prompt that are read: more than any conversation that is handed over."""


class ComparedTurn(Struct):
    """A turn as it is compared.

    `words` are the person's own, without white space; `answer` is a digest of the agent's, of
    `answer_size` characters; `ids` are those of the agent's messages. `at` is its time in ms since
    the epoch, 0 if unknown. A conversation that was handed over with its prompt has a `mark`, and
    is `handed_over` even without one. `first` is its first entry, or update; `is_cut` says that it
    did not end as it should.
    """

    words: str = ""
    answer: str = ""
    answer_size: int = 0
    ids: frozenset[str] = frozenset()
    at: int = 0
    mark: HandOver | None = None
    handed_over: bool = False
    first: int = 0
    is_cut: bool = False


class ComparedTurns:
    """Collects the turns of one side, in order; memory is bounded, however long that is.

    `summarized` is True if there is a summary before the first turn, or among them.
    """

    def __init__(self) -> None:
        self._found: deque[ComparedTurn] = deque(maxlen=MOST_TURNS - 1)
        self.summarized = False
        self._turn: ComparedTurn | None = None
        self._words: list[str] = []
        self._size = 0
        self._answer = blake2b(digest_size=8)
        self._said_by_user: str | None = None

    def add_entry(self, entry: Entry) -> None:
        """Add an entry of the journal."""
        if entry.kind == PROMPT:
            self._begin(entry.seq, entry.at)
            self._take_words("\n".join(map(_text, items(entry.raw))))
            self._said_by_user = None
        elif entry.kind == UPDATE and entry.raw:
            self.add(entry.raw, entry.seq, entry.at)
        elif entry.kind == TURN_END and self._turn is not None:
            self._turn.is_cut = turn_end(entry.raw, entry.at).outcome != "completed"
        elif entry.kind == PARAMS:
            self.add(members(entry.raw).get("update", b""), entry.seq, entry.at)

    def add(self, update: bytes, number: int = 0, at: int = 0) -> None:
        """Add an update; the user's words in it begin a turn."""
        kind = update_kind(update)
        if kind.startswith("compaction"):
            self.summarized = True
        if kind not in ("user_message_chunk", "agent_message_chunk"):
            if kind not in ATTRIBUTE_KINDS:
                self._said_by_user = None
            return
        parts = members(update)
        text = _text(parts.get("content", b""))
        id_ = string(parts.get("messageId")) or ""
        if kind == "user_message_chunk":
            if self._said_by_user is None or (id_ and id_ != self._said_by_user):
                self._begin(number, at)
            self._said_by_user = id_ or self._said_by_user or ""
            self._take_words(text)
            return
        self._said_by_user = None
        if (turn := self._turn) is not None:
            squeezed = "".join(text.split())
            turn.answer_size += len(squeezed)
            self._answer.update(squeezed.encode(errors="replace"))
            if id_ and len(turn.ids) < MOST_IDS:
                turn.ids |= {id_}

    def turns(self) -> list[ComparedTurn]:
        """Return the turns so far; the newest may go on."""
        return [*self._found, *([self._newest()] if self._turn is not None else ())]

    def _newest(self) -> ComparedTurn:
        assert self._turn is not None
        mark, told, own = read_handed_over(said := "".join(self._words))
        return replace(
            self._turn,
            mark=mark,
            handed_over=bool(told),
            words=_cut("".join(without_choice(own or said).split())),  # a mark may be quoted
            answer=self._answer.hexdigest() if self._turn.answer_size else "",
        )

    def _begin(self, number: int, at: int) -> None:
        if self._turn is not None:
            self._found.append(self._newest())
        self._turn = ComparedTurn(first=number, at=at)
        self._words, self._size, self._answer = [], 0, blake2b(digest_size=8)

    def _take_words(self, text: str) -> None:
        self._words.append(text[: max(0, _MOST_TEXT - self._size)])
        self._size += len(text)


def _text(block: bytes) -> str:
    return string(members(block).get("text")) or ""


def _cut(words: str) -> str:
    if len(words) <= KEPT_WORDS:
        return words
    half = KEPT_WORDS // 2
    digest = blake2b(words.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{words[:half]}\0{digest}\0{words[-half:]}"


def _parts(words: str) -> set[str]:
    """Return what words share with all that are alike: themselves, and long enough ends."""
    ends = (words[:ENOUGH_CHARACTERS], words[-ENOUGH_CHARACTERS:])
    return {words, *ends} if len(words) >= ENOUGH_CHARACTERS else {words} - {""}


def is_alike(one: str, other: str) -> bool:
    """Return True if two texts without white space are one prompt: equal, or one is the other with
    more at an end."""
    short, long = sorted((one, other), key=len)
    return one == other or (
        len(short) >= ENOUGH_CHARACTERS and (long.startswith(short) or long.endswith(short))
    )


def shared_run(ours: Sequence[ComparedTurn], theirs: Sequence[ComparedTurn]) -> dict[int, int]:
    """Return the turns that both have, in order: the place in ours, and that in theirs."""
    steps = [MOST_STEPS]
    shared = _by_ids(ours, theirs)
    for key in _KEYS:
        for place, end, there, behind in [*_gaps(shared, len(ours), len(theirs))]:
            left = [key(turn) for turn in ours[place:end]]
            right = [key(turn) for turn in theirs[there:behind]]

            def is_near(n: int, m: int, place: int = place, there: int = there) -> bool:
                one, other = ours[place + n].at, theirs[there + m].at
                return not one or not other or abs(one - other) <= SAME_MS

            for n, m in _runs(left, right, is_near, steps):
                shared[place + n] = there + m
    for place, end, there, behind in [*_gaps(shared, len(ours), len(theirs))]:
        places: dict[str, list[int]] = {}
        for m in range(there, behind):
            for part in _parts(theirs[m].words):
                places.setdefault(part, []).append(m)
        for n in range(end - 1, place - 1, -1):  # from the end; none may come before the next
            near = {m for part in _parts(ours[n].words) for m in places.get(part, ()) if m < behind}
            steps[0] -= len(near)
            if steps[0] <= 0:
                break
            alike = (m for m in near if is_alike(ours[n].words, theirs[m].words))
            if (last := max(alike, default=-1)) >= 0:
                shared[n] = behind = last
    return dict(sorted(shared.items()))


def _both(turn: ComparedTurn) -> Hashable:
    return (turn.words, turn.answer) if turn.words and turn.answer else None


def _answer(turn: ComparedTurn) -> Hashable:
    return turn.answer if turn.answer_size >= ENOUGH_CHARACTERS else None


def _words(turn: ComparedTurn) -> Hashable:
    return turn.words or None


_KEYS: Final = (_both, _answer, _words)
"""What two turns may have in common, the best proof first; None proves nothing."""


def _by_ids(ours: Sequence[ComparedTurn], theirs: Sequence[ComparedTurn]) -> dict[int, int]:
    places = {id_: m for m, turn in enumerate(theirs) for id_ in turn.ids}
    shared: dict[int, int] = {}
    last = -1
    for n, turn in enumerate(ours):
        m = max((places.get(id_, -1) for id_ in turn.ids), default=-1)
        if m > last:
            shared[n] = last = m
    return shared


def _gaps(shared: Mapping[int, int], ours: int, theirs: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the places between two shared turns: from and to, in ours and in theirs."""
    pairs = [(-1, -1), *sorted(shared.items()), (ours, theirs)]
    for (n, m), (end, behind) in pairwise(pairs):
        if n + 1 < end and m + 1 < behind:
            yield n + 1, end, m + 1, behind


def _runs(
    left: Sequence[Hashable],
    right: Sequence[Hashable],
    is_near: Callable[[int, int], bool],
    steps: list[int],
) -> Iterator[tuple[int, int]]:
    """Yield the places of equal keys: those in the longest run, of equals the last, then those in
    the longest runs before and behind it. If that takes too many steps, those at the end."""
    ends = zip(reversed(left), reversed(right), strict=False)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] is not None and pair[0] == pair[1], ends))
    at_end = [(len(left) - n, len(right) - n) for n in range(1, alike + 1)]
    near = [pair for pair in at_end if is_near(*pair)]
    if steps[0] <= 0 or len(near) == min(len(left), len(right)):
        yield from near
        return
    places: dict[Hashable, list[int]] = {}
    for m, key in enumerate(right):
        if key is not None:
            places.setdefault(key, []).append(m)
    parts = [(0, len(left), 0, len(right))]
    while parts:
        begin, end, there, behind = parts.pop()
        best, best_n, best_m = 0, begin, there
        lengths: dict[int, int] = {}
        for n in range(begin, end):
            longer: dict[int, int] = {}
            for m in places.get(left[n], ()):
                steps[0] -= 1
                if there <= m < behind and is_near(n, m):
                    longer[m] = length = lengths.get(m - 1, 0) + 1
                    if length >= best:
                        best, best_n, best_m = length, n + 1 - length, m + 1 - length
            lengths = longer
            if steps[0] <= 0:
                parts.clear()
                break
        if best:
            yield from ((best_n + n, best_m + n) for n in range(best))
        if best and steps[0] > 0:
            parts += [
                (begin, best_n, there, best_m),
                (best_n + best, end, best_m + best, behind),
            ]
