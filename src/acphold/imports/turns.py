"""The turns that a journal and a transcript have of one conversation, and what follows from both.

A turn is known by its identity: the program's own id of the prompt, or the words with their time
(`EntryWriter.prompt`). Turns that were said here, through `wrap`, have none, and neither have those
of an import before identities were kept: a transcript's turn is one of these by its words, in
order, and with the time of an imported one.

Nothing depends on the place of a turn in a file. What both have is left alone; what only the
transcript has is new; what only the journal has stays, unless a newer prompt of the person stands
in its place: then it was left.
"""

# See docs/decisions.md, 28 and 29.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from functools import cached_property
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from acphold.conversation.history.entries import (
    ANSWER,
    AUTHOR,
    CHILD,
    ECHO,
    PARAMS,
    PROMPT,
    QUESTION,
    SENT,
    TERMINAL,
    TURN_END,
    UPDATE,
)
from acphold.conversation.history.handovers import read_handed_over
from acphold.conversation.history.raw_update import members, plain_chunk, string, update_kind
from acphold.conversation.history.timeline import turn_end
from acphold.imports.entry_writer import BY_WORDS, prompt_text
from acphold.imports.record_tree import is_left
from acphold.imports.values import digest_of

ENOUGH_CHARACTERS: Final = 40
"""Characters that two prompts must share at an end, if one of them goes on there: agents add text
before and after a prompt, and short words begin or end many others."""

CONTENT: Final = frozenset(
    {ANSWER, CHILD, ECHO, PARAMS, PROMPT, QUESTION, TERMINAL, TURN_END, UPDATE}
)
"""The kinds of entries that make up a turn; others around them are about the session."""


TOLD: Final = 60
"""Characters of a prompt that are looked for in a conversation that was handed over."""

SAME_MS: Final = 10 * 60_000
"""A turn that was said here has, in its agent's file, a time within it, or so many ms around it."""

WORTH_TELLING: Final = 64
"""Of this many entries that would be told anew, one has to be new, while a source is written to."""

NO_ANSWER: Final = digest_of("")
"""`ReadTurn.answer` where the agent said nothing."""

SAID: Final = re.compile(r"[\da-f]{16} \d{1,9} \d{1,18}( \d{1,18})?")
"""Matches the name of a turn that was said here: see `ReadTurn.may_be`. An imported session may
have anything in its place."""


class ReadTurn(Struct):
    """A turn as it is compared.

    `words` are the prompt's, `answer` a digest of the agent's, both without white space, `joined`
    one of the answer before it and its own; of the last turn, and one to be compared with it,
    `last` is the answer itself; `end` is the entry that ended it, if it is the last one. `at` is
    the time of the prompt, `until` of the newest entry, `count` the number of entries in the
    transcript, if that is known, and `digest` theirs; `size` is the number of entries on this side.
    `is_here` is True if nothing but the journal is known to have it, `was_here` if it was said here
    and a source has it by now, `may_be_missing` if it was sent into a running turn or cut off:
    programs may not keep such. `prompt` is the number of its prompt, `spans` are those of its
    entries; `offset` is the byte of its source at which it begins, if that is known. `part` is the
    agent's id of the part of the session that it is of, if that is not the first one; with
    `is_handed`, a conversation was handed over with its prompt, which `words` leaves out.
    """

    identity: str = ""
    words: str = ""
    at: int = 0
    answer: str = ""
    joined: str = ""
    count: int = 0
    digest: str = ""
    is_here: bool = False
    was_here: bool = False
    may_be_missing: bool = False
    prompt: int = 0
    spans: list[tuple[int, int]] = []
    last: str = ""
    end: bytes = b""
    offset: int = 0
    until: int = 0
    size: int = 0
    part: str = ""
    is_handed: bool = False

    @property
    def moment(self) -> str:
        """A digest of the words with their time: stands for a turn without an identity."""
        return digest_of(f"{self.at} {self.words}")

    def may_be(self, said: str, *, has_time: bool) -> bool:
        """Return True if a turn that was said here has these words, or they go on at an end, and it
        `has_time` of its own that is near. `said` has a digest of its words, their length, and the
        times of its beginning and end."""
        digest, size, begin, *end = said.split(" ")
        if has_time and not self.is_near(int(begin), int([begin, *end][-1])):
            return False
        parts = [self.words]
        if ENOUGH_CHARACTERS <= int(size) < len(self.words):
            parts += [self.words[: int(size)], self.words[-int(size) :]]
        return digest in map(digest_of, parts)

    def is_near(self, begin: int, end: int) -> bool:
        """Return True if its time may be that of a turn that was said here then."""
        return begin - SAME_MS <= self.at <= end + SAME_MS

    @property
    def key(self) -> str:
        """Its identity, or what stands for it."""
        return self.identity or self.moment

    @property
    def name(self) -> str:
        """A digest of its prompt's id: names what follows from it, if that is left."""
        return self.key[:8]


class ReadTurns:
    """Collects the turns in the entries of one side, in order."""

    def __init__(
        self,
        read: Callable[[str], str] = str,
        own: Callable[[str], str] = str,
        *,
        replays: bool = True,
        kept: str = "",
    ) -> None:
        """`read` is applied to texts, and `own` to prompts; with `replays`, the words that an agent
        replays begin turns, too. The answer itself is kept of the turn `kept`, by its identity, as
        of the last one."""
        self._replays, self._kept, self._own = replays, kept, own
        self.found: list[ReadTurn] = []
        self.before: list[tuple[int, int]] = []
        """The entries before the first turn."""
        self._read = read
        self._texts: list[str] = []
        self._answer_before = ""
        self._is_open = False
        self._in_words = False
        self._named: list[int] = []

    def add(
        self, seq: int, kind: str, at: int, raw: bytes, first: int = 0, *, is_kept: bool = True
    ) -> None:
        """Add the next entry that is not void; it stands for the numbers from `first` to `seq`. Its
        turn's size is without it if the journal lacks it, not `is_kept`."""
        if kind in (AUTHOR, SENT):
            self._named.append(seq)
            return
        if self.found and kind != PROMPT:
            self.found[-1].count += 1
        if kind not in CONTENT:
            return
        if kind == PROMPT:
            said = self._read(prompt_text(raw))
            self._begin(squeeze(own := self._own(said)), at)
            turn = self.found[-1]
            turn.is_handed = own != said
            for named in self._named:
                _extend(turn.spans, named, named)
            turn.prompt = seq
            turn.is_here = bool(self._named)
        self._named.clear()
        update = raw if kind == UPDATE else b""
        if kind == PARAMS:
            update = members(raw).get("update", b"")
        if b"_message_chunk" in update:
            self._said(update, at)
        else:
            self._in_words = False
        if not self.found:
            _extend(self.before, first or seq, max(seq, first))
            return
        turn = self.found[-1]
        _extend(turn.spans, first or seq, max(seq, first))
        turn.until = max(turn.until, at)
        if b'"session_info_update"' in update:
            return
        if is_kept and kind != TURN_END:
            turn.size += seq - (first or seq) + 1
        turn.end = raw if kind == TURN_END else b""
        if kind == TURN_END:
            self._is_open = False
            turn.may_be_missing |= turn_end(raw, at).outcome != "completed"

    def _begin(self, words: str, at: int) -> None:
        self._close()
        self.found.append(ReadTurn(words=words, at=at, count=1, may_be_missing=self._is_open))
        self._is_open, self._in_words = True, False

    def _said(self, update: bytes, at: int) -> None:
        if b'"user_message_chunk"' in update and update_kind(update) == "user_message_chunk":
            said = string(members(members(update).get("content", b"")).get("text")) or ""
            text = self._read(said)
            if self._in_words:
                self.found[-1].words = squeeze(f"{self.found[-1].words}{text}")
            elif self._replays and not self._is_open:  # replayed by an agent
                self._begin(squeeze(text), at)
                self._is_open, self._in_words = False, True
            return
        self._in_words = False
        if self.found and (chunk := plain_chunk(update)) and chunk.kind == "agent_message_chunk":
            self._texts.append(chunk.content.text)

    def _close(self) -> None:
        if self.found:
            self.found[-1].last = text = squeeze(self._read("".join(self._texts)))
            self.found[-1].answer = digest_of(text)
            self.found[-1].joined = digest_of(f"{self._answer_before}{text}")
            self._answer_before = text
            if len(self.found) > 1:
                before = self.found[-2]
                before.end = b""
                before.last = before.last if before.identity == self._kept else ""
        self._texts = []

    def close(self) -> list[ReadTurn]:
        """Return the turns, complete."""
        self._close()
        if self.found and self._is_open:
            self.found[-1].may_be_missing = True
        return self.found


def squeeze(words: str) -> str:
    """Return words as they are compared: without white space."""
    return "".join(words.split())


def _whole(answer: str) -> str:
    """Return an answer without half a character, where its file was cut."""
    return answer.rstrip("\ufffd")


def _extend(spans: list[tuple[int, int]], first: int, last: int) -> None:
    if spans and spans[-1][1] >= first - 1:
        spans[-1] = spans[-1][0], last
    else:
        spans.append((first, last))


def is_like(one: str, other: str) -> bool:
    """Return True if two texts are one prompt: equal, or one is the other with more at one end."""
    short, long = sorted((one, other), key=len)
    return one == other or (
        len(short) >= ENOUGH_CHARACTERS and (long.startswith(short) or long.endswith(short))
    )


def names_of(turn: ReadTurn, among: Sequence[ReadTurn]) -> list[str]:
    """Return what a turn is known by in copies and forks: its identity, and its moment, as some
    programs give their copies new ids; not a moment that two have, or one without a time."""
    same = [it for it in among if (it.at, it.words) == (turn.at, turn.words)]
    if turn.identity and (not turn.at or len(same) > 1):
        return [turn.identity]
    return [name for name in (turn.identity, turn.moment) if name]


class KnownPart(Struct, frozen=True):
    """The journal's turns of a conversation; none if all of a source is new.

    With `given`, anybody may have written the source: words prove nothing, unless all turns that
    both have are the same, with their answers. `is_same_place` decides between ways of one time.
    With `is_known_place`, all of the source was taken in before: where it is another text by now,
    the person began anew there.
    Without `is_same_reader`, two programs wrote the conversation down: each has ids of its own.
    If there were `losses` when ours were read, an id may have been lost: the words with their time
    decide, too. An import was killed that moved those of ours with prompts in `moving`. Turns in
    `forgotten` are not told; each is named by its identity or its `ReadTurn.moment`. A turn that
    was said here is named as in `ReadTurn.may_be`, which several of theirs may match: then the one
    that is nearest to it in time is not told. With `only`, no turns but these are told. From number
    `anew` on, unless that is -1, theirs are told in the place of ours that are the same. The title
    with the digest `hidden_title` is not told. `handed` are the digests of what was handed over.
    With `is_part`, the source has none of what was said before its first turn; without `is_end`,
    the session goes on with turns of other parts behind these.
    """

    turns: list[ReadTurn] = []
    given: bool = False
    is_same_place: bool = True
    is_known_place: bool = False
    is_same_reader: bool = True
    losses: int = 0
    moving: frozenset[int] = frozenset()
    forgotten: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    anew: int = -1
    hidden_title: str = ""
    handed: frozenset[str] = frozenset()
    is_part: bool = False
    is_end: bool = True

    def own_words(self, prompt: str) -> str:
        """Return a person's words in a prompt, without a conversation that was handed over here: a
        mark is believed if we wrote it, a text of an earlier release if it tells our turns."""
        mark, told, own = read_handed_over(prompt)
        if mark is None:
            said = squeeze(told)
            is_ours = any(it.words and f"User:{it.words[:TOLD]}" in said for it in self.turns)
        else:
            is_ours = mark.digest in self.handed
        return own if told and is_ours else prompt

    def taken_out(self, theirs: Sequence[ReadTurn]) -> dict[int, list[str]]:
        """Return the numbers of theirs that a person had taken out, with all names of each."""
        out: set[int] = set()
        if not self.forgotten:
            return {}
        times = Counter(turn.at for turn in theirs)
        for said in filter(SAID.fullmatch, self.forgotten):
            at = int(said.split(" ")[2])
            same = [
                (abs(turn.at - at), n)
                for n, turn in enumerate(theirs)  # some programs keep few times, or none
                if turn.may_be(said, has_time=turn.at > 0 and times[turn.at] == 1)
            ]
            out.update(n for _, n in sorted(same)[:1])
        for n, turn in enumerate(theirs):
            if not self.forgotten.isdisjoint((turn.identity, turn.moment)):
                out.add(n)
        return {n: names_of(theirs[n], theirs) for n in sorted(out)}


NOTHING: Final = KnownPart()


Verdict = Literal["related", "strange", "differs"]
"""The relation of a transcript to a session: they share turns; they share none; it goes on
otherwise than somebody went on here."""


class Comparison(Struct):
    """The outcome of a comparison; numbers are indexes into their turns, or into ours.

    `known` maps our turns to theirs, `met` to the identities that these give them. `news` are their
    turns to be told, in order; `-1 - ours` stands for one of ours that moves among them. `void` are
    our turns that go: told twice, or moved. `left` are ours that a newer prompt was put in the
    place of, `behind` the identities of theirs that stand behind a newer way of ours. `rest` is
    their part of our last common turn, if it goes on, else -1. With `has_all`, they have each of
    our turns. `fuller` is the first of ours behind what was said here of which they have more,
    inside of it, else -1; with `can_wait`, little more for what would be told anew. `missed` counts
    what their reader could not interpret. `taken_out` are the numbers, in the source, of theirs
    that a person had taken out, and the names of each; the others are compared, and counted,
    without them. `sure` are those of ours that are theirs by more than their words. With `is_anew`,
    nothing but their place relates them; theirs were said in these `folders`. `is_handed` is True
    if theirs begin with a conversation that was handed over here.
    """

    verdict: Verdict = "related"
    known: dict[int, int] = field(default_factory=dict)
    met: dict[int, str] = field(default_factory=dict)
    news: list[int] = field(default_factory=list)
    void: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    rest: int = -1
    has_all: bool = False
    fuller: int = -1
    can_wait: bool = False
    missed: Counter[str] = field(default_factory=Counter)
    taken_out: dict[int, list[str]] = field(default_factory=dict)
    sure: set[int] = field(default_factory=set)
    is_anew: bool = False
    folders: list[str] = field(default_factory=list)
    is_handed: bool = False


def compare(
    known: KnownPart,
    theirs: Sequence[ReadTurn],
    *,
    has_lost: bool = False,
    left: Set[str] = frozenset(),
) -> Comparison:
    """Compare the journal's turns with theirs; see the module. If a source `has_lost` something
    since, what it lacks may stand there, unreadable, so it was not left. It has the turns with the
    names in `left`, too, but the person went back from them."""
    found, ours, given = Comparison(), known.turns, known.given
    if not known.is_same_reader and not given:
        ours = [replace(turn, identity="") for turn in ours]
    found.is_handed = bool(theirs) and theirs[0].is_handed
    matching = _Matching(found.known, ours, theirs)
    if theirs and (found.is_handed or known.is_part):
        matching.since = theirs[0].at - SAME_MS
    surplus = matching.surplus
    matching.match(given=given, is_damaged=known.losses > 0)
    found.sure = {n for n, at in found.known.items() if matching.is_sure(n, at)}
    was_left = any(turn.identity and turn.name in left for turn in ours)
    if known.is_known_place and theirs and not (has_lost or was_left or found.known or given):
        # None was said only here.
        found.is_anew = was_left = bool(ours) and all(turn.identity for turn in ours)
    if not found.known and (ours or given) and (given or not was_left):
        found.verdict = "strange"
        said_here = [turn.words for turn in ours if turn.is_here]
        if not given and any(is_like(a, turn.words) for a in said_here for turn in theirs):
            found.verdict = "differs"
        return found
    matching.unmatch()
    found.met = {
        n: theirs[there].identity
        for n, there in found.known.items()
        if not (known.turns[n].identity and theirs[there].identity.startswith(BY_WORDS))
    }
    end = max(found.known, default=-1)
    found.has_all = len({*found.known} | surplus) == len(ours) and (
        end < 0 or found.known[end] < len(theirs) - 1 or len(theirs[-1].last) >= len(ours[end].last)
    )
    if is_its_own := known.is_same_reader and (known.is_same_place or not given):
        kept = max((n for n, turn in enumerate(ours) if turn.is_here or turn.was_here), default=-1)
        more = {n: theirs[there].size - ours[n].size for n, there in found.known.items()}
        more = {n: size for n, size in more.items() if size > 0 and kept < n != end}
        if (first := min(more, default=-1)) >= 0:
            found.fuller = first
            again = sum(turn.size for turn in theirs[found.known[first] :])
            found.can_wait = again > WORTH_TELLING * sum(more.values())
    met = {*found.known.values()}
    last_here = max(found.known, default=-1)
    last_there = max(met, default=-1)
    after = [n for n in range(last_here + 1, len(ours)) if n not in surplus]
    behind = [n for n in range(last_there + 1, len(theirs)) if n not in met]
    inside = [n for n in range(last_there) if n not in met]
    found.void = sorted(surplus)
    standing = [n for n in after if not (ours[n].is_here and ours[n].may_be_missing)]
    if standing and behind:
        if any(ours[n].is_here for n in standing):
            found.verdict = "differs"
            return found
        times = [ours[n].at for n in standing], [theirs[n].at for n in behind]
        if has_lost:
            pass
        elif is_left(*times, if_equal=known.is_same_place):
            found.left = standing
        else:
            found.behind, behind = [theirs[n].identity for n in behind], []
    found.news = behind
    if (inside or known.moving or known.anew >= 0) and found.known:
        _insert(found, known, theirs, inside)
    end = max((n for n in found.known if n not in surplus), default=-1)
    if end >= 0 and all(n in {*found.void, *found.left} for n in range(end + 1, len(ours))):
        our, there, their = ours[end], found.known[end], theirs[found.known[end]]
        is_moved = end in found.void
        if our.count and their.digest == our.digest:
            goes_on = their.count > our.count
            found.rest = there if goes_on and not is_moved else -1
        else:
            is_longer = our.last != their.last and their.last.startswith(_whole(our.last))
            is_longer |= is_its_own and bool(our.identity) and their.size > our.size
            goes_on = not our.is_here and is_longer
            if goes_on and not is_moved:
                found.void = sorted([*found.void, end])
                found.news = [there, *found.news]
        if goes_on and is_moved:
            found.news = [there if told == -1 - end else told for told in found.news]
    return found


class _Matching:
    """Fills `known` with their turns for ours; `surplus` are those of ours that are told twice."""

    def __init__(
        self, known: dict[int, int], ours: Sequence[ReadTurn], theirs: Sequence[ReadTurn]
    ) -> None:
        self._known, self._ours, self._theirs = known, ours, theirs
        self._met: set[int] = set()
        self.since = 0
        """The time before which theirs have nothing, in ms since the epoch; 0 if unknown."""
        self.surplus: set[int] = set()

    def match(self, *, given: bool, is_damaged: bool) -> None:
        """Match by identity, else by time, else by words."""
        known, ours, theirs = self._known, self._ours, self._theirs
        told = set[str]()
        for n in range(len(ours) - 1, -1, -1):
            if (name := ours[n].identity) in told:
                self.surplus.add(n)  # it was told again, and the import was killed then
            elif name and not name.startswith(BY_WORDS):
                told.add(name)
        self._pair(lambda turn: turn.identity, lambda turn: turn.identity, once=True)
        if any(turn.identity.startswith(BY_WORDS) for turn in (*ours, *theirs)):
            # Of these, one side has only the words, but for what else identifies them.
            digests = slice(len(BY_WORDS), 2 * len(BY_WORDS))
            self._pair(lambda turn: turn.identity[digests], lambda turn: turn.identity, once=False)
        is_migrated = not known  # a program may give its turns new ids, all at once
        self._pair(_moment, lambda turn: not (turn.is_here or turn.identity), once=True)
        # Of two places, one may have older ids: what precedes a common turn is common, too.
        ends = (None, None) if is_migrated or is_damaged else (max(known), max(known.values()))
        self._pair(_moment, lambda turn: turn.identity, once=False, before=ends)
        if known or not given:
            is_sure = bool(known)
            self._match_words(is_sure=is_sure)
            first = min(known.items(), default=(1, 1))
            is_any_same = any(ours[a].words == theirs[b].words for a, b in known.items())
            is_likely = is_any_same and (len(known) > 1 or 0 in first)
            if not is_sure and first != (0, 0) and not is_likely:
                known.clear()
        else:
            pairs = list(zip(ours, theirs, strict=False))
            if all(not a.identity and (a.words, a.answer) == (b.words, b.answer) for a, b in pairs):
                known.update((n, n) for n in range(len(pairs)))

    def _pair(
        self,
        key: Callable[[ReadTurn], object],
        which: Callable[[ReadTurn], object],
        *,
        once: bool,
        before: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """Match those `which` have the same key, in order, `before` one of ours and one of theirs;
        with `once`, others are surplus."""
        free: dict[object, list[int]] = {}
        for there, turn in enumerate(self._theirs[: before[1]]):
            free.setdefault(key(turn), []).append(there)
        for n, turn in enumerate(self._ours[: before[0]]):
            if n in self._known or n in self.surplus or not which(turn):
                continue
            same = free.get(key(turn), [])
            if (there := next((x for x in same if x not in self._met), -1)) >= 0:
                self._known[n] = there
                self._met.add(there)
            elif same and once:
                self.surplus.add(n)

    def _match_words(self, *, is_sure: bool) -> None:
        """Match the other turns of ours by their words, between those that are known; not against
        their answers and times, if it `is_sure` that both are one conversation."""
        known, ours, theirs = self._known, self._ours, self._theirs
        upper = len(theirs)
        limits: list[int] = []  # for each of ours, the next of theirs that is known behind it
        for n in range(len(ours) - 1, -1, -1):
            limits.append(upper)
            upper = min(upper, known.get(n, upper))
        limits.reverse()
        place = 0
        for n, turn in enumerate(ours):
            if n in known:
                place = max(place, known[n] + 1)
            elif not (turn.identity or n in self.surplus or 0 < turn.at < self.since):
                free = (x for x in range(place, limits[n]) if x not in self._met)
                same = (x for x in free if is_like(turn.words, theirs[x].words))
                if is_sure:
                    same = (x for x in same if not self._is_another(turn, theirs[x]))
                there = next(same, None)
                if there is not None:
                    known[n], place = there, there + 1

    def _is_another(self, our: ReadTurn, their: ReadTurn) -> bool:
        """Return True if a turn that was said here is not theirs in spite of its words: it has
        another answer, and theirs a time of its own that is not near."""
        if not our.is_here or our.answer == their.answer or their.is_near(our.at, our.until):
            return False
        return NO_ANSWER not in (our.answer, their.answer) and self._times[their.at] == 1

    @cached_property
    def _times(self) -> Counter[int]:
        return Counter(turn.at for turn in self._theirs if turn.at)

    def is_sure(self, ours: int, there: int) -> bool:
        """Return True if a turn of ours is one of theirs by more than its words."""
        our, their = self._ours[ours], self._theirs[there]
        if their.is_handed:
            return True
        if our.identity or our.is_here or not their.at:
            return our.identity == their.identity != ""
        return _moment(our) == _moment(their)

    def unmatch(self) -> None:
        """Let those of ours be told anew that have the answer of another turn as well: the line of
        its prompt, which they have, was lost."""
        known, ours, theirs = self._known, self._ours, self._theirs
        met = {*known.values()}
        for n, there in [*known.items()]:
            behind = theirs[there + 1] if there + 1 < len(theirs) and there + 1 not in met else None
            if behind is None or ours[n].is_here or ours[n].answer == theirs[there].answer:
                continue
            if ours[n].answer in (behind.answer, behind.joined):
                del known[n]
                self.surplus.add(n)


def _is_cut(their: ReadTurn, our: ReadTurn) -> bool:
    """Return True if a turn at the end of a source has less than ours, as in a cut file."""
    count = sum(last + 1 - first for first, last in our.spans)
    # Ours may have a title and an end that were added.
    return len(their.last) < len(our.last) or their.count + 2 < count


def _moment(turn: ReadTurn) -> tuple[str, int]:
    return turn.words, turn.at


def _insert(
    found: Comparison, known: KnownPart, theirs: Sequence[ReadTurn], inside: list[int]
) -> None:
    """Tell those of theirs that stand before some of ours: these move behind them, each with what
    follows it here. Those that were said here stay, and theirs are told behind. Ours that are told
    anew go, but for one of which they have the beginning."""
    ours, last = known.turns, len(theirs) - 1
    upper = min(inside, default=max(found.known.values()))
    first = max(found.known) + 1
    for n in sorted(found.known, reverse=True):
        there = found.known[n]
        first = n if there > upper else first
        upper = min(upper, there) if known.moving else upper
    again = {n for n in found.known if 0 <= known.anew <= n}
    again -= {n for n in again if found.known[n] == last and _is_cut(theirs[last], ours[n])}
    if not (inside or again or known.moving):
        return
    out = {*found.void, *found.left}
    due = {n for n, turn in enumerate(ours) if turn.prompt in known.moving} - out
    moved = [n for n in range(min(first, *again, *due, len(ours)), len(ours)) if n not in out]
    if any(ours[n].is_here for n in moved):
        moved = [n for n in moved if 0 <= known.anew <= n]
        told, inside = inside, []
        for there in told:
            before = max((n for n, at in found.known.items() if at < there), default=-1)
            behind = min((n for n, at in found.known.items() if at > there), default=len(ours))
            # Where all of ours have theirs, it is none of them in other words.
            if before >= 0 and all(n in found.known for n in range(before + 1, behind)):
                inside.append(there)
    order = [(there, -1, there) for there in inside]
    place = -1
    for n in moved:
        place = found.known.get(n, place)
        order.append((place, n, place if n in again else -1 - n))
    found.news = [*(told for _, _, told in sorted(order)), *found.news]
    found.void = sorted({*found.void, *moved})
