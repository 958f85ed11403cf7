"""Salvage from damaged lines and documents: programs are killed in the middle of a write.

A line may hold several objects; zeros that a crash left; half an object, with a whole one behind
it that was written after the restart; or only the beginning of an object, because a string in it
contains a raw line end. A document may have no end, or something behind it.

An object behind half of another is a row only if it ends the line, has all the fields of the
program's rows, and the id of its conversation: half a row may contain whole objects, too, such as
the output of a tool. Rows without ids must not stand in the place of a value, either.

Of a document, the members and the items of the outermost array are taken that are whole: an item
is a message, and half a message would be another one.

No byte is decoded more than DECODINGS times; what a file's budget of steps does not suffice for
counts as lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from acp_wire.schema.salvage import repair
from acphold.imports.values import UNREADABLE, Missed, Object
from acphold.safety.budget import Budget
from acphold.safety.errors import OutOfStepsError

DECODINGS: Final = 3
"""Times that any byte of a damaged line or document is decoded, on average."""

STEPS: Final = 5_000_000
STEPS_PER_BYTE: Final = 20
"""Steps for what is damaged in a file, and for each byte of it."""

OBJECT_STEPS: Final = 500
"""Steps to take an object, however short."""

LOOKS: Final = 32
"""Times that all before is looked through: for rows without ids in the half before them, for what
compactions kept."""

MOST_VALUES: Final = 16
"""Values in a document that are looked at."""

NOT_OBJECTS: Final = "lines that are not JSON objects"
ZEROS: Final = "zeros in the place of records"

SHALLOW: Final = 2
"""Objects inside each other that are taken apart to find a document's outermost array."""

_CONTROL: Final = re.compile(r"[\0-\x1f]")
_JUNK: Final = re.compile(r"[\s\0\ufeff,]*")
_WHITE: Final = re.compile(r"[\s\0]*")
_ESCAPED_OR_QUOTE: Final = re.compile(rb'\\.|"', re.DOTALL)
_MARK: Final = re.compile(rb'\\.|["{}\[\]]', re.DOTALL)
_REVERSED_MARK: Final = re.compile(rb'"(\\*)|[{}]')
"""Matches a quote with the backslashes before it, or a brace, in a text from its end."""

_HOLE: Final = "\0" * 8
"""So many zeros in a string are no text: what is lost there may be of several objects."""

_decode: Final = json.JSONDecoder(strict=False).raw_decode


def _scan(text: str, at: int = 0) -> tuple[object, int]:
    """Return the object at a place in a text, and its end."""
    value, end = _decode(text, at)
    if (hole := text.find(_HOLE, at, end)) >= 0:
        raise json.JSONDecodeError("Zeros in a string", text, hole)
    return value, end


class RecordLine(Struct, frozen=True, gc=False):
    """One line of a file, or one of several objects on it, and its offset."""

    offset: int
    raw: bytes


class RowForm(NamedTuple):
    """The fields that all of a program's rows have, and the one with their conversation's id.

    With `has_moment` one of them is a time or an id: of two equal rows one is a copy, unless a row
    between them has the bytes `begins` of the beginning of another turn.
    """

    fields: frozenset[str]
    conversation: str = ""
    has_moment: bool = False
    begins: bytes = b""


NO_FORM: Final = RowForm(frozenset())
"""The form of rows that cannot be told from other objects."""


class LineSalvage:
    """Takes what decodes from the damaged lines of one file, and counts the rest.

    `place` is the file's path, which may contain the conversation's id.
    """

    def __init__(self, place: str, form: RowForm, missed: Missed) -> None:
        self._place = place.encode(errors="replace")
        self._form = form
        self.missed = missed
        self._held: list[bytes] = []
        """Half an object that ends within a string, and the lines that may go on with it."""
        self._held_size = self._held_at = 0
        self._is_text = False
        self.budget = Budget(STEPS, STEPS_PER_BYTE)
        self.seen = self.decoded = 0
        """Bytes of damaged lines, and how many were decoded."""

    @property
    def is_holding(self) -> bool:
        """True if the last line may go on in the next one."""
        return bool(self._held)

    def take(self, line: RecordLine, before: bytes, limit: int) -> Iterator[RecordLine]:
        """Yield the objects in a damaged line, which was decoded in vain.

        `before` is the last good line. Up to `limit` bytes of lines are one object.
        """
        self.budget.read(len(line.raw))
        self.seen += len(line.raw)
        self.decoded += len(line.raw)
        self.missed.torn.append((line.offset, len(line.raw)))
        text = repair(line.raw).decode("utf-8", "replace")
        found, at, is_open = self._objects(text)
        rest = text[at:].encode("utf-8", "replace")
        behind = self._behind(rest, before, is_ended=line.raw.endswith(b"\n"))
        if self._held:
            if not found and not behind and self._held_size + len(line.raw) <= limit:
                yield from self._go_on(line)
                return
            self.drop()
        rest_at = line.offset + len(line.raw) - len(rest)
        for begin, end, value in found:
            yield RecordLine(line.offset + begin, _on_one_line(text[begin:end], value))
        for begin, end in behind:
            yield RecordLine(rest_at + begin, rest[begin:end])
        lost = len(rest.rstrip()) - sum(end - begin for begin, end in behind)
        if zeros := line.raw.count(0) - rest.count(0):
            self.missed.add(ZEROS, zeros)
        if is_open and not behind:
            self._held, self._held_size, self._held_at = [rest], len(rest), rest_at
            self._is_text = True
        elif rest.strip():
            self.missed.add(NOT_OBJECTS, lost)

    def drop(self) -> None:
        """Count the half that was held back: nothing goes on with it."""
        if self._held:
            self.missed.add(NOT_OBJECTS, b"".join(self._held).rstrip())
        self._held, self._held_size = [], 0

    def extend(self, raw: bytes) -> None:
        """Add a line to a string that is open, if there is one."""
        if self._held:
            self._held.append(raw)
            self._held_size += len(raw)

    def _go_on(self, line: RecordLine) -> Iterator[RecordLine]:
        """Yield the object whose half was held back, if it ends with this line."""
        self.extend(line.raw)
        quotes = sum(found[0] == b'"' for found in _ESCAPED_OR_QUOTE.finditer(line.raw))
        self._is_text ^= quotes % 2 == 1
        if self._is_text or not line.raw.rstrip().endswith(b"}"):
            return
        if self.decoded + self._held_size > DECODINGS * self.seen:
            return
        whole = b"".join(self._held)
        text = repair(whole).decode("utf-8", "replace")
        found, at, is_open = self._objects(text)
        if len(found) == 1 and not text[at:].strip():
            self._held, self._held_size = [], 0
            begin, end, value = found[0]
            yield RecordLine(self._held_at, _on_one_line(text[begin:end], value))
        elif not is_open:
            self.drop()

    def _objects(self, text: str) -> tuple[list[tuple[int, int, object]], int, bool]:
        """Return the objects at the beginning of a text with their places, and that of its rest.

        And True if the rest is half an object that ends within a string.
        """
        found: list[tuple[int, int, object]] = []
        at = 0
        while True:
            match = _JUNK.match(text, at)
            begin = match.end() if match else at
            if not text.startswith("{", begin):
                return found, begin if begin == len(text) else at, False
            try:
                self.budget.spend(OBJECT_STEPS)
                value, end = _scan(text, begin)
                self.budget.spend(end - begin)
            except OutOfStepsError:
                return found, begin, False
            except UNREADABLE as error:
                self.budget.spent += len(text) - begin
                self.decoded += len(text) - begin
                is_open = str(error).startswith("Unterminated string")
                return found, begin, is_open
            self.decoded += end - begin
            found.append((begin, end, value))
            at = end

    def _behind(self, rest: bytes, before: bytes, *, is_ended: bool) -> list[tuple[int, int]]:
        """Return the places of the rows that end a text, behind half a one."""
        found: list[tuple[int, int]] = []
        known: dict[str, bool] = {}
        end, looked = _without_space(rest, len(rest)), 0
        backwards = rest[::-1] if self._form.fields else b""  # once: there may be many rows
        while backwards and (begin := _last_object(backwards, end)) is not None:
            self.decoded += end - begin
            try:
                self.budget.spend(OBJECT_STEPS + end - begin)
                row, _ = _scan(rest[begin:end].decode("utf-8", "replace"))
            except (*UNREADABLE, OutOfStepsError):
                break
            if not isinstance(row, dict) or not row.keys() >= self._form.fields:
                break
            has_id = False
            if self._form.conversation:
                name = str(row[self._form.conversation])
                has_id = known[name] = name in known or self._has_id(row, before)
            if self._form.conversation and not has_id:
                break
            if not (has_id and is_ended):
                looked += begin
                if looked > LOOKS * len(rest) or _is_place_of_value(rest[:begin]):
                    break
            found.append((begin, end))
            end = _without_space(rest, begin)
        return found[::-1]

    def _has_id(self, row: Object, before: bytes) -> bool:
        name = json.dumps(row[self._form.conversation], ensure_ascii=False).encode()
        if name[:1] != b'"' or len(name) <= 2:
            return False
        # In a string, such quotes would be escaped.
        key = re.escape(self._form.conversation.encode())
        field = re.compile(rb'"%b":\s*%b' % (key, re.escape(name)))
        of_file = re.compile(rb"(?<![\w-])%b(?![\w-])" % re.escape(name[1:-1]))
        return (field.search(before) or of_file.search(self._place)) is not None


def _on_one_line(text: str, value: object) -> bytes:
    """Return an object as a line: JSON allows no raw line end, or tab, inside of a string."""
    is_one = _CONTROL.search(text) is None
    return text.encode("utf-8", "replace") if is_one else json.dumps(value).encode()


def _without_space(raw: bytes, end: int) -> int:
    """Return the end of a text without white space and zeros before `end`."""
    while end and raw[end - 1] in b" \t\r\n\0":
        end -= 1
    return end


def _last_object(backwards: bytes, end: int) -> int | None:
    """Return where the object begins that ends at `end` of a text, which is given backwards; None
    if there is none."""
    size = len(backwards)
    if not backwards.startswith(b"}", size - end):
        return None
    depth, is_text = 0, False
    for mark in _REVERSED_MARK.finditer(backwards, size - end):
        kind = mark[0][:1]
        if kind == b'"':
            if len(mark[1]) % 2 == 0:
                is_text = not is_text
            elif not is_text:
                return None  # an escape outside of a string
        elif not is_text:
            depth += 1 if kind == b"}" else -1
            if not depth:
                return size - mark.end()
    return None


def _is_place_of_value(half: bytes) -> bool:
    """Return True if a value could follow: an object there is one, rather than another row."""
    last = half.rstrip()[-1:]
    if last not in (b":", b",", b"[") or not half.startswith(b"{"):
        return last in (b":", b",", b"[")
    inside, is_text = bytearray(), False
    for mark in _MARK.finditer(half):
        kind = mark[0]
        if kind == b'"':
            is_text = not is_text
        elif is_text or kind.startswith(b"\\"):
            continue
        elif kind in b"{[":
            inside += kind
        elif inside:
            inside.pop()
    return not is_text and (last != b"," or inside.endswith(b"["))


# -- documents -----------------------------------------------------------------------------------


def salvage_document(raw: bytes, budget: Budget | None = None) -> tuple[object, int]:
    """Return what decodes of a damaged document, and how many bytes do not, at least one if it
    breaks off; None if nothing does. Of several whole ones it is the longest."""
    budget = budget or Budget(STEPS, STEPS_PER_BYTE)
    budget.read(len(raw))
    text = repair(raw).decode("utf-8", "replace")
    begin = _skip(text, 0)
    longest = found = _parts(text, begin, SHALLOW, budget)
    first = begin
    for _ in range(MOST_VALUES):
        begin = _skip(text, found.end)
        if not found.is_whole or begin == len(text):
            break
        found = _parts(text, begin, SHALLOW, budget)
        is_longer = found.is_whole and found.end - begin > longest.end - first
        if is_longer and _are_alike(found.value, longest.value):
            longest, first = found, begin
    around = text[:first].strip() + text[longest.end :].strip()
    return longest.value, len(around.encode("utf-8", "replace")) or int(not longest.is_whole)


def _are_alike(one: object, other: object) -> bool:
    """Return True if both may be states of one document: a part of one has other members."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() <= other.keys() or other.keys() <= one.keys()
    return type(one) is type(other)


class _Parts(NamedTuple):
    """The whole parts of a value, and its end, or the place where it breaks off."""

    value: object
    end: int
    is_whole: bool


def _parts(text: str, at: int, shallow: int, budget: Budget) -> _Parts:
    """Return a value as far as it is whole: the items of an array, the members of an object and,
    `shallow` objects deep, theirs."""
    is_object = text.startswith("{", at)
    if not (text.startswith("[", at) or (is_object and shallow)):
        return _whole(text, at, budget)
    members: Object = {}
    items: list[object] = []
    found, close = (members, "}") if is_object else (items, "]")
    at = _skip(text, at + 1)
    while not text.startswith(close, at):
        if is_object:
            name = _whole(text, at, budget)
            colon = _skip(text, name.end)
            if not isinstance(name.value, str) or not text.startswith(":", colon):
                return _Parts(found, at, is_whole=False)
            part = _parts(text, _skip(text, colon + 1), shallow - 1, budget)
            if part.is_whole or part.value:
                members[name.value], at = part.value, part.end
        else:
            part = _whole(text, at, budget)
            items += [part.value] if part.is_whole else []
            at = part.end
        if not part.is_whole:
            return _Parts(found, at, is_whole=False)
        at = _skip(text, at)
        at = _skip(text, at + text.startswith(",", at))
    return _Parts(found, at + 1, is_whole=True)


def _whole(text: str, at: int, budget: Budget) -> _Parts:
    try:
        budget.spend(OBJECT_STEPS)
        value, end = _scan(text, at)
        budget.spend(end - at)
        return _Parts(value, end, is_whole=True)
    except (*UNREADABLE, OutOfStepsError):
        return _Parts(None, at, is_whole=False)


def _skip(text: str, at: int) -> int:
    found = _WHITE.match(text, at)
    return found.end() if found else at
