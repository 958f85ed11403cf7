"""The living part of a conversation, and what a person left: of any reader's records, as a tree.

A conversation forks when the person goes back to an earlier place and says something else there.
Only a newer prompt leaves anything behind: the turns that follow the same turn, if nothing was said
in them since. A pointer to an old record does not, nor does a result that comes late, a command for
the program, a prompt that the program sent again because nothing answered it, or two programs that
write at the same time; going back alone takes nothing away. In doubt a turn is told. Of two copies
that went apart, `is_left` decides.

A record names its parent, or follows the last one (LAST), in a log where going back is a record, or
marks those that are taken back. It may precede its parent. One whose parent is in no line begins
another tree, but nobody went back there: only a link was lost, so each such tree is told. Going
back to the very beginning leaves a prompt that never had a parent. Where all name one parent, also
the answers to later prompts, it is just a list.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from acphold.imports.entry_writer import EntryWriter, NotStraightError
from acphold.imports.records import decoded, lines, mentions, readable, record_lines, records
from acphold.imports.salvage import LOOKS, NO_FORM, LineSalvage, RecordLine, RowForm
from acphold.imports.sources import Source
from acphold.imports.values import ABANDONED, Missed, Object, digest_of

HELD_BYTES: Final = 8 << 20
"""Bytes of records held back until their parents are told."""

_NONE: Final = -1
"""Stands for a parent's number: the record has none."""

_LOST: Final = -2
"""Stands for a parent's number: the record names one that is in no line."""

_ALONE: Final = -3
"""Stands for a parent's number: the line is not part of the tree."""

_PROMPT, _COMMAND, _ANSWER = 1, 2, 3
"""A typed text for the agent, a command for the program, an answer of the agent."""

CLASHES: Final = "records with the id of another one"

LAST: Final = "\0last"
"""Stands for a parent: the record before this one, or before the one gone back to."""

T = TypeVar("T")


def is_left(here: Iterable[int], there: Iterable[int], *, if_equal: bool) -> bool:
    """Return True if, of two copies that went apart, the one here was left for the other one: the
    way with the newest prompt is alive. Both are given by the times (ms) of their prompts."""
    ours, theirs = max(here), max(there)
    return theirs > ours or (theirs == ours and if_equal)


class KeptPart(NamedTuple):
    """The records that a compaction kept, by the ids of the first and the last one, and of the one
    behind it which a prompt names that is put in the place of the first."""

    first: str = ""
    last: str = ""
    anchor: str = ""


class RecordTree:
    """The records of a conversation by number, in file order; compact enough for millions."""

    def __init__(self, form: RowForm = NO_FORM, *, begin: int = 0) -> None:
        """The tree of the lines from the byte `begin` on, where a prompt stands."""
        self._form, self._begin = form, begin
        self.begun_as = ""
        """The id of the conversation that this one was before, if its reader found one."""
        self._is_damaged = False
        self._numbers: dict[int, int] = {}
        self._named = array("q")  # parents by the hashes of their ids; 0, the hash of "", for none
        self._roles = bytearray()
        self._typed: dict[int, tuple[str, int]] = {}  # the id and a hash of the words
        self._alone = bytearray()
        self._copies: set[int] = set()
        self._said: dict[int, int] = {}
        # Prompts that say the same as an earlier one: its number, and the hash of their own id.
        self._asked_again: dict[int, tuple[int, int]] = {}
        self._walked: set[int] = set()  # above these there is none of them
        self._clashes = 0
        self._way: dict[int, None] = {}  # hashes of ids, up to the last record of a log
        self._newest = self._compacted = 0  # the last record's hash, the last compaction's number
        # What stands behind that for records from before it: for those it kept, themselves.
        self._behind: dict[int, int] = {}
        self._anchor = 0  # stands for what is before the first prompt that was kept
        self._looks = 0  # at records that compactions may have kept
        self._taken_back = ""  # the first record of those before the next one

    # -- built -----------------------------------------------------------------------------

    def heads(
        self, path: Path, decoder: msgspec.json.Decoder[T]
    ) -> Iterator[tuple[RecordLine, T | None]]:
        """Yield the records of a file, each of which has to be added, and what a decoder makes of
        them; None if it refuses one."""
        salvage = LineSalvage(str(path), self._form, Missed())
        yield from decoded(path, salvage, decoder, begin=self._begin)
        self._is_damaged = salvage.seen > 0
        self._said, self._asked_again, self._walked = {}, {}, set()

    def add(
        self,
        record_id: str,
        parent_id: str | None,
        *,
        typed: bool,
        command: bool = False,
        answers: bool = False,
        words: object = "",
        name: str = "",
        taken_back: bool = False,
        compacts: KeptPart | None = None,
        said: int = 0,
    ) -> None:
        """Add the next line, a record.

        `typed` if a person wrote it, including a `command`; its `words` are compared with others,
        `name` is its own id, if that is another one. `answers` if the agent said something in it,
        more than that it failed. With a repeated id it is a copy, and is not told again. A line
        without an id is not part of the tree; it is told in any case. `taken_back` if the person
        went back to before it: the next one that is not follows those before. Nobody goes back
        behind one that `compacts`, but for what it kept: one that names a record from before that
        follows the last one, and so do others that name the same one: a prompt behind what was kept
        can be gone back to.
        `said` is a hash of what it says, and when: one that has that of another is a copy with an
        id of its own; a prompt only if it follows the same one, or one that follows it is, too.
        """
        if self._taken_back and not taken_back:
            self.go_back(self._taken_back)
        self._taken_back = (self._taken_back or record_id) if taken_back else ""
        number = len(self._named)
        self._alone.append(not record_id)
        parent = next(reversed(self._way), 0) if parent_id is LAST else hash(parent_id or "")
        if typed and not command and self._anchor and parent == self._anchor:
            parent = self._behind[parent]
        elif self._numbers.get(parent, number) < self._compacted:
            is_named = not command and hash(record_id) not in self._numbers
            parent = self._behind.setdefault(parent, self._newest) if is_named else self._newest
        self._named.append(parent if record_id else 0)
        role = (_COMMAND if command else _PROMPT) if typed else _ANSWER if answers else 0
        self._roles.append(role if record_id else 0)
        if not record_id:
            return
        its_words, own = hash(str(words)) if words else 0, hash(record_id)
        if (first := self._numbers.setdefault(own, number)) != number:
            self._copies.add(number)
            is_other = typed and self._typed.get(first, ("", its_words))[1] != its_words
            self._clashes += is_other or role != self._roles[first]
            return
        self._newest = own
        if compacts is not None:
            self._compacted = number
            self._keep(compacts)
        if parent_id is LAST:
            self._way[own] = None
        if said and (first := self._said.setdefault(said, number)) != number:
            above = self._numbers.get(self._named[first], _NONE)
            if typed and (above < 0 or above != self._numbers.get(parent)):
                self._asked_again[number] = first, own
            else:
                self._pass_for(number, first, own)
                self._find_asked_again(number)
                return
        if typed:
            self._typed[number] = name or record_id, its_words

    def _keep(self, part: KeptPart) -> None:
        """Let records that name one of those that a compaction kept follow that."""
        first, its, above = hash(part.first), dict[int, int](), hash(part.last)
        most = LOOKS * len(self._named) - self._looks
        while above in self._numbers and above not in its and first not in its:
            if len(its) >= most:
                break
            its[above] = above
            above = self._named[self._numbers[above]]
        self._looks += len(its)
        self._behind = its if first in its else {}
        self._anchor = 0
        if self._behind and self._numbers[first] in self._typed:
            self._anchor = hash(part.anchor)
            self._behind[self._anchor] = above

    def _pass_for(self, number: int, first: int, own: int) -> None:
        """Let a record with this hash of its id stand for the first one that says the same."""
        self._copies.add(number)
        self._numbers[own] = first
        self._roles[number] = 0
        self._typed.pop(number, None)

    def _find_asked_again(self, copy: int) -> None:
        """Let the prompt that a copy follows stand for the first one that says the same."""
        below, above = copy, self._numbers.get(self._named[copy], _NONE)
        while self._asked_again and next(iter(self._asked_again)) <= above < below:
            if above in self._asked_again:
                self._pass_for(above, *self._asked_again.pop(above))
                return
            if above in self._walked:
                return
            self._walked.add(above)
            below, above = above, self._numbers.get(self._named[above], _NONE)

    def go_back(self, record_id: str) -> None:
        """Go back to before a record of the way so far: the next one follows that."""
        if hash(record_id) in self._way:
            while self._way.popitem()[0] != hash(record_id):
                pass

    def go_on_from(self, record_id: str) -> None:
        """Let the next record follow this one; "" for none."""
        self._way = {hash(record_id): None}

    # -- queries, once it is complete ----------------------------------------------------------

    def choose(self, item: str = "", missed: Missed | None = None) -> None:
        """Choose what is told: what is alive, or the branch of this name; the prompts of the
        others are counted."""
        end = self.branch_ends().get(item) if item else None
        self._told = self._selection(end)
        if missed is not None and not item:
            own = self._typed.keys() - self._sent_again.keys()
            left = [n for n in own if self._roles[n] == _PROMPT and not self._told[n]]
            missed.counts.update({ABANDONED: len(left)} if left else {})
            missed.counts.update({CLASHES: self._clashes} if self._clashes else {})
            missed.left.update(digest_of(self._typed[n][0], 4) for n in left)

    def tells(self, record_id: str) -> bool:
        """Return True if a record is told; one that is not in the tree is."""
        number = self._numbers.get(hash(record_id))
        return number is None or bool(self._told[number])

    def select(self, lines: Iterable[RecordLine]) -> Iterator[RecordLine]:
        """Yield the lines that are told, in order, but one before its parent after that."""
        waiting, parents = bytearray(self._told), self._links.parents
        held: dict[int, list[tuple[int, RecordLine]]] = {}
        size = 0
        for number, line in enumerate(lines):
            if number >= len(waiting):
                break  # it was added after the tree was built
            if not waiting[number]:
                continue
            parent = parents[number]
            if parent >= 0 and waiting[parent] and size + len(line.raw) <= HELD_BYTES:
                held.setdefault(parent, []).append((number, line))
                size += len(line.raw)
                continue
            yield line
            waiting[number] = 0
            due = held.pop(number)[::-1] if number in held else []
            while due:
                number, line = due.pop()
                yield line
                waiting[number] = 0
                size -= len(line.raw)
                due += reversed(held.pop(number, []))

    @cached_property
    def _links(self) -> _TreeLinks:
        parents = array("q", (self._numbers.get(name, _LOST) for name in self._named))
        for number, name in enumerate(self._named):
            if not name:
                parents[number] = _ALONE if self._alone[number] else _NONE
        order = array("q")
        seen = bytearray(len(parents))
        for number, parent in enumerate(parents):
            if parent < number and (parent < 0 or seen[parent]):  # as nearly all
                if not seen[number]:
                    seen[number] = 1
                    order.append(number)
                continue
            way, above = [], number
            while above >= 0 and not seen[above]:
                seen[above] = 1
                way.append(above)
                above = parents[above]
            if above in way:  # a record is its own ancestor: the first one of these is the eldest
                ring = way[way.index(above) :]
                eldest = ring.index(min(ring)) + 1
                way[way.index(above) :] = ring[eldest:] + ring[:eldest]
                parents[way[-1]] = _LOST
            order.extend(reversed(way))
        # The turn of each record: the number of its prompt. Before the first one it is -1 where the
        # conversation begins, and a number of its own where a link was lost.
        turns = array("q", bytes(8 * len(parents)))
        above_turn: dict[int, int] = {}
        for number in order:
            parent = parents[number]
            turn = turns[parent] if parent >= 0 else -3 - number
            if number in self._typed:
                above_turn[number] = _NONE if parent == _NONE else turn
                turn = number
            turns[number] = turn
        return _TreeLinks(parents, order, turns, above_turn)

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """Each prompt's place in a walk of the tree, and the size of its subtree; descendants have
        the next places."""
        above = self._links.above
        prompts = [number for number in self._links.order if number in self._typed]
        sizes = dict.fromkeys([_NONE, *prompts], 1)
        for number in reversed(prompts):
            sizes[max(above[number], _NONE)] += sizes[number]
        spans: dict[int, tuple[int, int]] = {}
        free = {_NONE: 0}
        for number in prompts:
            parent = max(above[number], _NONE)
            spans[number] = free[parent], sizes[number]
            free[parent], free[number] = free[parent] + sizes[number], free[parent] + 1
        return spans

    @cached_property
    def _sent_again(self) -> dict[int, int]:
        """Prompts that nothing answered, each with the one that was sent in its place."""
        answered = {
            self._links.turns[number] for number, role in enumerate(self._roles) if role == _ANSWER
        }
        again: dict[int, int] = {}
        before = _NONE
        for number, (_, words) in self._typed.items():
            if words and before not in answered and self._typed.get(before, ("", 0))[1] == words:
                begin, size = self._spans[before]
                if not begin <= self._spans[number][0] < begin + size:
                    again[before] = number
            before = number
        return again

    def _is_list(self) -> bool:
        """Return True if no record has a parent, or all have the same one, also the answers to
        later prompts."""
        parent = next(filter(None, self._named), 0)
        if not parent:
            return True
        begin = self._numbers.get(parent, 0)
        later = next((n for n in self._typed if n > begin), len(self._named))
        return _ANSWER in self._roles[later:] and all(it in (0, parent) for it in self._named)

    @cached_property
    def _left(self) -> set[int]:
        """The prompts that a newer one was put in the place of."""
        if self._is_list():
            return set()
        links, again = self._links, self._sent_again
        above = dict(links.above)
        for before, number in again.items():
            above[number] = above[before]
        last = {number: number for number in self._typed}
        first: dict[int, int] = {}  # the first prompt in each turn and those that follow it
        for number in reversed(links.order):
            if number not in self._typed:
                continue
            if self._roles[number] == _PROMPT:
                first[number] = min(number, first.get(number, number))
            if (parent := above[number]) >= 0:
                last[parent] = max(last.get(parent, parent), last[number])
                if number in first:
                    first[parent] = min(first.get(parent, first[number]), first[number])
        newest: dict[int, int] = {}
        for number, its_first in first.items():
            newest[above[number]] = max(newest.get(above[number], _NONE), its_first)
        left = {
            number
            for number in self._typed
            if newest.get(above[number], _NONE) > last[number] or number in again
        }
        for number in links.order:
            if number in self._typed and above[number] in left:
                left.add(number)
        return left

    def _selection(self, end: int | None) -> bytearray:
        """Return for each line if it is told."""
        parents, order, turns, above = self._links
        left = self._left
        if end is not None:
            way: set[int] = set()
            turn = turns[end]
            while turn >= 0:
                way.add(turn)
                turn = above[turn]
            begins = {above[number] for number in way}
            left = {
                number
                for number in self._typed
                if number not in way and (number in left or above[number] in way | begins)
            }
            for number in order:
                if number in self._typed and above[number] in left and number not in way:
                    left.add(number)
        kept = bytearray(turns[number] not in left for number in range(len(parents)))
        for number in self._copies:
            kept[number] = 0
        return kept

    def _is_straight(self) -> bool:
        """Return True if each record but the first follows one of these, and nobody went back."""
        if self._is_damaged or self._copies or self._left:
            return False
        inside = (parent for parent in self._links.parents if parent != _ALONE)
        return next(inside, _ALONE) == _LOST and all(parent >= 0 for parent in inside)

    def read(
        self, source: Source, writer: EntryWriter, take: Callable[[Object], None]
    ) -> Iterator[None]:
        """Give the records of `source`, or of the branch that is its item, to `take`.

        Raises NotStraightError if it was begun in the middle, and that does not suffice.
        """
        missed = writer.missed
        if self._begin and not self._is_straight():
            raise NotStraightError
        self.choose(source.item, missed)
        path = source.path
        if self._is_damaged:
            told = record_lines(path, missed, self._form)
        else:
            told = lines(path, missed, begin=self._begin)
        for line in self.select(told):
            if (record := readable(line.raw, missed)) is not None:
                writer.offset = line.offset
                take(record)
                yield

    def branches(self, source: Source) -> Iterator[Source]:
        """Yield the untold branches of `source`, as conversations of their own."""
        for name in self.branch_ends():
            yield replace(source, session_id=f"{source.session_id}~{name}", item=name)

    def branch_ends(self) -> dict[str, int]:
        """Return the last prompt of each untold branch, oldest first, by a digest of the id of its
        first."""
        above = self._links.above
        left = self._left - self._sent_again.keys()
        eldest: dict[int, int] = {}
        for number in self._typed:
            eldest.setdefault(above[number], number)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number in self._links.order:
            if number in left:
                parent = above[number]
                # Another one behind the same turn is a fork inside of the branch.
                inside = parent in left and eldest[parent] == number
                first[number] = first[parent] if inside else number
                last[first[number]] = number
        found: dict[str, int] = {}
        for end, begin in sorted((end, begin) for begin, end in last.items()):
            name = digest_of(self._typed[begin][0], 4)
            found[digest_of(f"{name} {begin}", 4) if name in found else name] = end
        return found


def rewound(
    paths: Collection[Path], mark: bytes, form: RowForm, begin: int = 0
) -> Iterator[Object]:
    """Yield the records of logs, if one has the mark of a person who went back in it: else all is
    told. Raises NotStraightError if they are read on from the byte `begin`."""
    if any(mentions(path, mark, begin) for path in paths):
        if begin:
            raise NotStraightError
        for path in paths:
            yield from records(path, Missed(), form)


def branches_of(grow: Callable[[Source], RecordTree]) -> Callable[[Source], Iterator[Source]]:
    """Return the `branches` of a reader that grows a tree of a source."""
    return lambda source: grow(source).branches(source)


class _TreeLinks(NamedTuple):
    """Parent numbers by line; all numbers, parents before children; the turn of each; and the turn
    above each prompt."""

    parents: array[int]
    order: array[int]
    turns: array[int]
    above: dict[int, int]
