"""The agents' text files, read with limits; and records that name their parents, as a tree.

A conversation forks when the person goes back to an earlier prompt. Only the branch that ends last
is told. A record belongs to an abandoned branch if its path to the root passes a prompt that is not
on the path from the last end. Results of parallel calls are siblings too, but not branches.

A record may precede its parent. One whose parent is in no line begins another tree, but nobody went
back there: only a link was lost, so each such tree is told. Going back to the very beginning leaves
a prompt that never had a parent; of several of those, only one tree is told.
"""

from __future__ import annotations

import codecs
import errno
import io
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar, cast, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_wire.workspace import regular_files
from acphold.imports.salvage import (
    NO_FORM,
    NOT_OBJECTS,
    LineSalvage,
    RecordLine,
    RowForm,
    salvage_document,
)
from acphold.imports.sources import Source
from acphold.imports.values import UNREADABLE, Missed, Object, decode, objects

LINE_BYTES: Final = 16 << 20
"""The longest line that is read: a picture of ten megabytes fits.

Decoding one this long takes up to four times its size in memory.
"""

DOCUMENT_BYTES: Final = 64 << 20
"""The longest file that is one JSON document, which has to be read whole."""

SMALL_BYTES: Final = 1 << 20
"""The longest small file beside transcripts: a title, a folder, a list of them."""

UNPACKED_BYTES: Final = 64 << 20
"""Size that any compressed file may unpack to; a larger one, UNPACKED_TIMES its size.

Rollouts of a hundred megabytes are packed to a twentieth.
"""

UNPACKED_TIMES: Final = 100

UNPACKED_LINES: Final = 1_000_000
"""Lines of a compressed file: each takes time, however short it is."""

TOO_LONG: Final = "lines that are too long"
TOO_LARGE: Final = "files that are too large"
UNREAD: Final = "files that cannot be read"
DAMAGED: Final = "damaged parts of files"

UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_BUFFER: Final = 1 << 20

_end: ContextVar[int] = ContextVar("end")


@contextmanager
def only_beginnings(size: int) -> Iterator[None]:
    """Read files within the block as if each ended after the line at byte `size`."""
    before = _end.set(size)
    try:
        yield
    finally:
        _end.reset(before)


def lines(
    path: Path, missed: Missed, *, begin: int = 0, as_written: bool = False
) -> Iterator[RecordLine]:
    """Yield the nonblank lines of a file; those above LINE_BYTES are counted, not read.

    `begin` is the offset of the first one. With `as_written` blank lines are included, and each
    line keeps its surrounding space and its end. A text in UTF-16 becomes UTF-8.

    Of a compressed file, the part beyond any plausible size is counted as one line.

    A last line without a newline is yielded too: its writer may not be done, and its decoder counts
    half a line as unreadable. Damage in a compressed file ends it.
    """
    descriptor = regular_files.open_fd(path)
    with io.BufferedReader(io.FileIO(descriptor), _BUFFER) as packed, ExitStack() as stack:
        file: BinaryIO = packed
        most = sys.maxsize
        if path.suffix == ".zst":
            from acphold.journal.compression import WINDOW, zstd

            unpacked = stack.enter_context(zstd.ZstdFile(packed, options=WINDOW))
            file = cast("BinaryIO", unpacked)
            most = max(UNPACKED_BYTES, UNPACKED_TIMES * path.stat().st_size)
        elif packed.peek(2)[:2] in UTF_16:
            file = io.BytesIO(_in_utf_8(packed.read(DOCUMENT_BYTES)))
        end = min(most, _end.get(sys.maxsize))
        if begin:  # a compressed file can only be read from its beginning
            file.seek(begin)
        offset, count = begin, 0
        most_lines = sys.maxsize if most == sys.maxsize else UNPACKED_LINES
        while offset < end and count < most_lines:
            try:
                raw = file.readline(LINE_BYTES + 1)
            except OSError:
                raise
            except Exception as error:  # zstd.ZstdError, without importing it for every file
                if path.suffix != ".zst":
                    raise
                missed.add(f"the rest of a damaged file ({error})", 0)
                break
            if not raw:
                break
            size = len(raw)
            if size > LINE_BYTES and not raw.endswith(b"\n"):
                while size < most and (piece := file.readline(_BUFFER)):
                    size += len(piece)
                    if piece.endswith(b"\n"):
                        break
                missed.add(TOO_LONG, size)
            elif as_written or (raw := raw.strip()):
                yield RecordLine(offset, raw)
            offset += size
            count += 1
        if offset >= most or count >= most_lines:
            missed.add("the rest of a file that is too large when unpacked", 0)


def mentions(path: Path, words: bytes) -> bool:
    """Return True if a file has these bytes somewhere, without looking at its lines."""
    if path.suffix == ".zst":
        return any(words in line.raw for line in lines(path, Missed()))
    tail, left = b"", _end.get(sys.maxsize)
    with open(regular_files.open_fd(path), "rb") as file:
        while left > 0 and (piece := file.read(min(_BUFFER, left))):
            if words in piece or words in tail + piece[: len(words)]:
                return True
            tail, left = piece[-len(words) :], left - len(piece)
    return False


class _AnyObject(Struct, gc=False):
    """Stands for any object, of which nothing is kept."""


_any_decoder: Final = msgspec.json.Decoder(_AnyObject)
OBJECTS: Final = msgspec.json.Decoder(Object)
_items_decoder: Final = msgspec.json.Decoder(list[object])

T = TypeVar("T")
D = TypeVar("D", Object, list[object])


def record_lines(path: Path, missed: Missed, form: RowForm = NO_FORM) -> Iterator[RecordLine]:
    """Yield the JSON objects in a file of lines, not decoded, whatever is damaged around them.

    The rest is counted; see `salvage`. `form` tells rows from other objects.
    """
    for line, _ in _decoded(path, LineSalvage(str(path), form, missed), _any_decoder):
        yield line


def records(path: Path, missed: Missed, form: RowForm = NO_FORM) -> Iterator[Object]:
    """Yield the JSON objects of a file of lines, as `record_lines`."""
    for _, record in _decoded(path, LineSalvage(str(path), form, missed), OBJECTS):
        if record is not None:
            yield record


def _decoded(
    path: Path, salvage: LineSalvage, decoder: msgspec.json.Decoder[T]
) -> Iterator[tuple[RecordLine, T | None]]:
    """Yield the objects in a file of lines, with the values that a decoder makes of them.

    None for an object that it refuses.
    """
    take, good = decoder.decode, b""
    for line in lines(path, salvage.missed, as_written=True):
        raw = line.raw
        try:
            value = take(raw)
        except UNREADABLE:
            if raw.isspace():
                salvage.extend(raw)
                continue
            for piece in salvage.take(line, good, LINE_BYTES):
                try:
                    yield piece, msgspec.convert(decode(piece.raw), decoder.type)
                except UNREADABLE:
                    yield piece, None
            continue
        if salvage.is_holding:
            if b'"' not in raw:  # it has no members, so it is text
                salvage.extend(raw)
                continue
            salvage.drop()
        good = raw
        yield line, value
    salvage.drop()


def readable(raw: bytes, missed: Missed) -> Object | None:
    """Return the JSON object in `raw`; None, and counted, if there is none."""
    try:
        return decode(raw)
    except UNREADABLE:
        missed.add(NOT_OBJECTS, raw)
        return None


def document(path: Path, missed: Missed, limit: int = DOCUMENT_BYTES) -> Object:
    """Return the JSON object in a file, as far as it is whole; the rest is counted."""
    return _loaded(path, missed, limit, OBJECTS) or {}


def document_list(path: Path, missed: Missed) -> list[Object]:
    """Return the objects of a JSON array in a file, as far as it is whole; the rest is counted."""
    items = _loaded(path, missed, DOCUMENT_BYTES, _items_decoder) or []
    return [item for item in items if isinstance(item, dict)]


def _loaded(path: Path, missed: Missed, limit: int, decoder: msgspec.json.Decoder[D]) -> D | None:
    """Return the whole parts of a document; None if there are none."""
    raw = _whole(path, missed, limit)
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        missed.add("files of an unknown form", raw)
        return None
    except UNREADABLE:
        value, lost = salvage_document(raw)
    if not value or not isinstance(value, get_origin(decoder.type) or object):
        missed.add(UNREAD, raw)
        return None
    if lost:
        missed.add(DAMAGED, lost)
    return cast("D", value)


def list_in(words: object, missed: Missed) -> list[Object]:
    """Return the objects of a JSON array in a text; empty, and counted, if it is none."""
    raw = str(words).encode(errors="replace")
    return objects(readable(b'{"all":%b}' % raw, missed), "all")


def _whole(path: Path, missed: Missed, limit: int) -> bytes | None:
    """Return the whole file in UTF-8; None, and counted, if it cannot be read."""
    try:
        return _in_utf_8(regular_files.contents(path, min(limit, _end.get(limit))))
    except OSError as error:
        if error.errno == errno.EFBIG:
            missed.add(TOO_LARGE, path.stat().st_size)
        else:
            missed.add(UNREAD, 0)
        return None


def _in_utf_8(raw: bytes) -> bytes:
    """Return a text without its byte order mark, which tools of Windows write, in UTF-8."""
    if raw.startswith(UTF_16):
        return raw.decode("utf-16", "replace").encode("utf-8", "replace")
    return raw.removeprefix(codecs.BOM_UTF8)


def small_text(path: Path) -> str:
    """Return the text of a small file; empty if it is missing or unreadable."""
    try:
        return _in_utf_8(regular_files.contents(path, SMALL_BYTES)).decode(errors="replace")
    except OSError:
        return ""


# -- trees of records ----------------------------------------------------------------------------

HELD_BYTES: Final = 8 << 20
"""Bytes of records held back until their parents are told."""

_NONE: Final = -1
"""Stands for a parent's number: the record has none."""

_LOST: Final = -2
"""Stands for a parent's number: the record names one that is in no line."""

_ALONE: Final = -3
"""Stands for a parent's number: the line is not part of the tree."""

_PROMPT, _COMMAND = 1, 2
"""A typed text for the agent, or a command for the program."""


class RecordTree:
    """The lines of a file by number, in file order; compact enough for millions."""

    def __init__(self, form: RowForm = NO_FORM) -> None:
        self._form = form
        self._is_damaged = False
        self._numbers: dict[int, int] = {}
        self._named = array("q")  # parents by the hashes of their ids; 0, the hash of "", for none
        self._prompts = bytearray()
        self._alone = bytearray()
        self._copies: set[int] = set()
        self._last = _NONE
        self._leaf = 0
        self.abandoned_prompts = 0
        """Number of prompts on untold branches; known as soon as one line is told."""

    # -- built -----------------------------------------------------------------------------

    def heads(
        self, path: Path, decoder: msgspec.json.Decoder[T]
    ) -> Iterator[tuple[RecordLine, T | None]]:
        """Yield the records of a file, each of which has to be added, and what a decoder makes of
        them; None if it refuses one."""
        salvage = LineSalvage(str(path), self._form, Missed())
        yield from _decoded(path, salvage, decoder)
        self._is_damaged = salvage.seen > 0

    def add(
        self, record_id: str, parent_id: str | None, *, typed: bool, command: bool = False
    ) -> None:
        """Add the next line, a record; `typed` if a person wrote it, including a `command`.

        It becomes the live end. With a repeated id it is a copy, and is not told again. A line
        without an id is not part of the tree; it is told in any case.
        """
        self._alone.append(not record_id)
        if not record_id:
            self._named.append(0)
            self._prompts.append(False)
            return
        number = len(self._named)
        self._named.append(hash(parent_id or ""))
        self._prompts.append(_COMMAND if typed and command else typed)
        self._last, self._leaf = self._numbers.setdefault(hash(record_id), number), 0
        if self._last != number:
            self._copies.add(number)

    def live_at(self, record_id: str) -> None:
        """Make this record, if it is in the file, the live end, until another one follows."""
        self._leaf = hash(record_id)

    # -- queries, once it is complete ----------------------------------------------------------

    def select(self, lines: Iterable[RecordLine], end: int | None = None) -> Iterator[RecordLine]:
        """Yield the lines that are told, with the live end at number `end`.

        In order, except that a line before its parent is told after that.
        """
        waiting, parents = self._selection(end), self._links.parents
        self.abandoned_prompts = sum(
            typed == _PROMPT and not waiting[number] and number not in self._copies
            for number, typed in enumerate(self._prompts)
        )
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
            due = [(number, line)]
            while due:
                number, line = due.pop()
                yield line
                waiting[number] = 0
                free = held.pop(number, [])
                size -= sum(len(child.raw) for _, child in free)
                due += reversed(free)

    @cached_property
    def _links(self) -> _TreeLinks:
        parents = array("q", (self._numbers.get(name, _LOST) for name in self._named))
        for number, name in enumerate(self._named):
            if not name:
                parents[number] = _ALONE if self._alone[number] else _NONE
        order = array("q")
        seen = bytearray(len(parents))
        for number in range(len(parents)):
            way, above = [], number
            while above >= 0 and not seen[above]:
                seen[above] = 1
                way.append(above)
                above = parents[above]
            if above in way:  # a record may be its own ancestor
                parents[way[-1]] = _LOST
            order.extend(reversed(way))
        leaves = bytearray(b"\1" * len(parents))
        for number, parent in enumerate(parents):
            if number in self._copies:
                leaves[number] = 0
            elif parent >= 0:
                leaves[parent] = 0
        return _TreeLinks(parents, order, leaves)

    def _selection(self, end: int | None) -> bytearray:
        """Return for each line if it is told."""
        if not any(self._named):  # no record has a parent, so it is just a list
            return bytearray(number not in self._copies for number in range(len(self._named)))
        parents, order, leaves = self._links
        roots = array("q", range(len(parents)))
        for number in order:
            if parents[number] >= 0:
                roots[number] = roots[parents[number]]
        # Each tree ends with its last leaf; the one with the live end, there.
        ends = {root: n for n, root in enumerate(roots) if leaves[n] and parents[n] != _ALONE}
        here = roots[self._last] if ends else _NONE
        end = self._numbers.get(self._leaf) if end is None else end
        if end is not None and end < len(roots):
            here = roots[end]
            ends[here] = end
        begun = [root for root in ends if parents[root] == _NONE and self._prompts[root]]
        for root in begun:
            if root != (here if here in begun else begun[-1]):
                del ends[root]
        live = bytearray(len(parents))
        for number in ends.values():
            while number >= 0 and not live[number]:
                live[number] = 1
                number = parents[number]
        kept = bytearray(len(parents))
        for number in order:
            parent = parents[number]
            if parent >= 0 and not live[number]:
                kept[number] = kept[parent] and not self._prompts[number]
            else:
                kept[number] = live[number] or parent == _ALONE
        for number in self._copies:
            kept[number] = 0
        return kept

    def read(
        self, source: Source, missed: Missed, take: Callable[[Object], None]
    ) -> Iterator[None]:
        """Give the records of `source`, or of the branch that is its item, to `take`."""
        end = int(source.item) if source.item else None
        path = source.path
        told = record_lines(path, missed, self._form) if self._is_damaged else lines(path, missed)
        for line in self.select(told, end):
            if (record := readable(line.raw, missed)) is not None:
                take(record)
                yield
        if end is None:
            missed.count_abandoned(self.abandoned_prompts)

    def branches(self, source: Source) -> Iterator[Source]:
        """Yield the untold branches of `source`, as conversations of their own."""
        for end in self.branch_ends():
            yield replace(source, session_id=f"{source.session_id}~{end}", item=str(end))

    def branch_ends(self) -> list[int]:
        """Return the last record of each untold branch, oldest first."""
        kept, (parents, order, leaves) = self._selection(None), self._links
        eldest: dict[int, int] = {}
        for number, parent in enumerate(parents):
            eldest.setdefault(parent, number)
        branch = array("q", bytes(8 * len(kept)))
        last: dict[int, int] = {}
        for number in order:
            if kept[number] or number in self._copies:
                continue
            parent = parents[number]
            inside = parent >= 0 and not kept[parent]
            if inside and self._prompts[number] and eldest[parent] != number:
                inside = False  # a fork inside a branch
            branch[number] = branch[parent] if inside else number
            if leaves[number]:
                last[branch[number]] = max(number, last.get(branch[number], number))
        return sorted(last.values())


class _TreeLinks(NamedTuple):
    """Parent numbers by line; all numbers, parents before children; and leaf flags."""

    parents: array[int]
    order: array[int]
    leaves: bytearray
