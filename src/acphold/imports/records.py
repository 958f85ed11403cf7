"""The agents' text files, read with limits."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, cast, get_origin

import msgspec
from msgspec import Struct

from acp_wire.workspace.regular_files import contents, open_fd
from acphold.imports.salvage import (
    NO_FORM,
    NOT_OBJECTS,
    LineSalvage,
    RecordLine,
    RowForm,
    salvage_document,
)
from acphold.imports.values import UNREADABLE, Missed, Object, decode, milliseconds, objects

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

_BUFFER: Final = 1 << 17

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
    descriptor = open_fd(path)
    with io.BufferedReader(io.FileIO(descriptor), _BUFFER) as packed, ExitStack() as stack:
        file: BinaryIO = packed
        most = sys.maxsize
        if path.suffix == ".zst":
            from acphold.journal.compression import WINDOW, zstd

            unpacked = stack.enter_context(zstd.ZstdFile(packed, options=WINDOW))
            file = cast("BinaryIO", unpacked)
            most = max(UNPACKED_BYTES, UNPACKED_TIMES * path.stat().st_size)
        elif os.pread(descriptor, 2, 0) in UTF_16:  # not into a buffer: it may begin far behind
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


def mentions(path: Path, words: bytes, begin: int = 0) -> bool:
    """Return True if a file has these bytes behind a place, without looking at its lines."""
    if path.suffix == ".zst":
        return any(words in line.raw for line in lines(path, Missed()))
    tail, left = b"", _end.get(sys.maxsize)
    with open(open_fd(path), "rb") as file:
        file.seek(begin)
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
    for line, _ in decoded(path, LineSalvage(str(path), form, missed), _any_decoder):
        yield line


def records(path: Path, missed: Missed, form: RowForm = NO_FORM) -> Iterator[Object]:
    """Yield the JSON objects of a file of lines, as `record_lines`."""
    for _, record in placed_records(path, missed, form):
        yield record


def placed_records(
    path: Path, missed: Missed, form: RowForm = NO_FORM, begin: int = 0
) -> Iterator[tuple[int, Object]]:
    """Yield the JSON objects of a file of lines from a byte on, each with its offset.

    No row twice: a file may contain itself.
    """
    seen: set[int] = set()
    turn = b""
    for line, record in decoded(path, LineSalvage(str(path), form, missed), OBJECTS, begin=begin):
        if record is None:
            continue
        if form.has_moment and record.keys() >= form.fields:
            raw = line.raw.rstrip()
            turn = raw if form.begins and form.begins in raw else turn
            if (row := hash((turn, raw))) in seen:
                continue
            seen.add(row)
        yield line.offset, record


def decoded(
    path: Path, salvage: LineSalvage, decoder: msgspec.json.Decoder[T], *, begin: int = 0
) -> Iterator[tuple[RecordLine, T | None]]:
    """Yield the objects in a file of lines, with the values that a decoder makes of them.

    None for an object that it refuses.
    """
    take, good = decoder.decode, b""
    for line in lines(path, salvage.missed, begin=begin, as_written=True):
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


MOMENT_MS: Final = 1_000
"""Within this time, equal records may be no copies."""


def each_once(records: Iterable[Object], time: str) -> Iterator[Object]:
    """Yield the records of a document, each once, though its beginning was written twice: one is
    left out that is equal to the one before it or, where its `time` was gone back to, to any. Equal
    ones of one moment may be said one after another.
    """
    seen = set[int]()
    before, latest, went_back = 0, 0, False
    for record in records:
        its, at = hash(msgspec.json.encode(record)), milliseconds(record.get(time)) or latest
        went_back = its in seen and (went_back or at + MOMENT_MS < latest)
        if its != before and not went_back:
            yield record
        seen.add(its)
        before, latest = its, max(at, latest)


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
    found = (readable(b'{"all":%b}' % raw, missed) or {}).get("all", [])
    if not isinstance(found, list | None):
        missed.add(NOT_OBJECTS, raw)
    return objects(found)


def _whole(path: Path, missed: Missed, limit: int) -> bytes | None:
    """Return the whole file in UTF-8; None, and counted, if it cannot be read."""
    try:
        return _in_utf_8(contents(path, min(limit, _end.get(limit))))
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
        return _in_utf_8(contents(path, SMALL_BYTES)).decode(errors="replace")
    except OSError:
        return ""
