"""The agents' text files: regular files, read line by line or whole, with limits."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from acphold.imports.values import UNREADABLE, Missed, Object, decoded, objects
from acphold.workspace import regular_files

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


class RecordLine(NamedTuple):
    """One line of a file, without its end, and its offset."""

    offset: int
    raw: bytes


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a text file, decompressed if its name ends in `.zst`; raises OSError."""
    with open(regular_files.opened(path), "rb", buffering=_BUFFER) as file:
        if path.suffix != ".zst":
            yield file
            return
        from acphold.journal.compression import WINDOW, zstd

        with zstd.ZstdFile(file, options=WINDOW) as unpacked:
            yield cast(BinaryIO, unpacked)


def lines(
    path: Path, missed: Missed, *, begin: int = 0, as_written: bool = False
) -> Iterator[RecordLine]:
    """Yield the nonblank lines of a file; those above LINE_BYTES are counted, not read.

    `begin` is the offset of the first one. With `as_written` blank lines are included, and each
    line keeps its surrounding space and its end.

    Of a compressed file, the part beyond any plausible size is counted as one line.

    A last line without a newline is yielded too: its writer may not be done, and its decoder counts
    half a line as unreadable. Damage in a compressed file ends it.
    """
    with _opened(path) as file:
        most = sys.maxsize
        if path.suffix == ".zst":
            most = max(UNPACKED_BYTES, UNPACKED_TIMES * path.stat().st_size)
        end = min(most, _end.get(sys.maxsize))
        if begin:  # a compressed file can only be read from its beginning
            file.seek(begin)
        offset, count = begin, 0
        most_lines = sys.maxsize if most == sys.maxsize else UNPACKED_LINES
        while offset < end and count < most_lines and (raw := _line(file, path, missed)):
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
            missed.add("the rest of a file that unpacks to too much", 0)


def _line(file: BinaryIO, path: Path, missed: Missed) -> bytes:
    try:
        return file.readline(LINE_BYTES + 1)
    except OSError:
        raise
    except Exception as error:  # zstd.ZstdError, without importing it for every file
        if path.suffix != ".zst":
            raise
        missed.add(f"the rest of a damaged file ({error})", 0)
        return b""


def records(path: Path, missed: Missed) -> Iterator[Object]:
    """Yield the JSON objects of a file of lines; other lines are counted."""
    for line in lines(path, missed):
        record = readable(line.raw, missed)
        if record is not None:
            yield record


def readable(raw: bytes, missed: Missed) -> Object | None:
    """Return the JSON object in `raw`; None, and counted, if there is none."""
    try:
        if raw.startswith(b"{"):
            return decoded(raw)
    except UNREADABLE:
        pass
    missed.add("lines that are no JSON objects", raw)
    return None


def document(path: Path, missed: Missed, limit: int = DOCUMENT_BYTES) -> Object:
    """Return the JSON object in a file; empty, and counted, if it cannot be read."""
    raw = _whole(path, missed, limit) or b"{}"
    try:
        return decoded(raw)
    except UNREADABLE:
        missed.add("files that cannot be read", raw)
        return {}


def document_list(path: Path, missed: Missed) -> list[Object]:
    """Return the objects of a JSON array in a file; empty, and counted, if it cannot be read."""
    raw = _whole(path, missed, DOCUMENT_BYTES) or b"[]"
    try:
        return objects(decoded(b'{"all":%b}' % raw), "all")
    except UNREADABLE:
        missed.add("files that cannot be read", raw)
        return []


def list_in(words: object, missed: Missed) -> list[Object]:
    """Return the objects of a JSON array in a text; empty, and counted, if it is none."""
    raw = str(words).encode(errors="replace")
    return objects(readable(b'{"all":%b}' % raw, missed), "all")


def _whole(path: Path, missed: Missed, limit: int) -> bytes | None:
    """Return the whole file; None, and counted, if it cannot be read."""
    try:
        return regular_files.contents(path, min(limit, _end.get(limit)))
    except OSError as error:
        if error.errno == errno.EFBIG:
            missed.add("files that are too large", path.stat().st_size)
        else:
            missed.add("files that cannot be read", 0)
        return None


def small_text(path: Path) -> str:
    """Return the text of a small file; empty if it is missing or unreadable."""
    try:
        return regular_files.contents(path, SMALL_BYTES).decode(errors="replace")
    except OSError:
        return ""
