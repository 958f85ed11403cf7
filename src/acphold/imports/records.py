"""The agents' text files: read line by line or whole, with a limit on each line."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from acphold.imports.values import UNREADABLE, Object, decoded, objects

LINE_BYTES: Final = 16 << 20
"""The longest line that is read: a picture of ten megabytes fits; decoding one this long takes
up to four times its size in memory."""

DOCUMENT_BYTES: Final = 64 << 20
"""The longest file that is one JSON document, which can only be read whole."""

_BUFFER: Final = 1 << 20

_end: ContextVar[int] = ContextVar("end")


@contextmanager
def only_beginnings(size: int) -> Iterator[None]:
    """Within the block files are read as if each ended behind the line that is at byte `size`."""
    before = _end.set(size)
    try:
        yield
    finally:
        _end.reset(before)


class Line(NamedTuple):
    """One line of a file, without its end, and where it begins."""

    offset: int
    raw: bytes


def opened(path: Path) -> BinaryIO:
    """The bytes of a text file, decompressed if its name ends in `.zst`; raises OSError."""
    if path.suffix != ".zst":
        return open(path, "rb", buffering=_BUFFER)
    import zstandard

    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        open(path, "rb"),  # noqa: SIM115 - the stream closes it
        closefd=True,
        read_across_frames=True,
    )
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), _BUFFER))


def lines(path: Path, missed: Counter[str]) -> Iterator[Line]:
    """The lines of a file that hold anything; those above LINE_BYTES are counted, not read.

    What ends without a newline is a line too: its writer may be about to go on, and a half line
    is counted as unreadable by whoever decodes it. Damage in a compressed file ends it.
    """
    end = _end.get(sys.maxsize)
    with opened(path) as file:
        offset = 0
        while offset < end and (raw := _line(file, path, missed)):
            size = len(raw)
            if size > LINE_BYTES and not raw.endswith(b"\n"):
                size += _rest_of_line(file)
                missed["lines that are too long"] += 1
            elif raw := raw.strip():
                yield Line(offset, raw)
            offset += size


def _line(file: BinaryIO, path: Path, missed: Counter[str]) -> bytes:
    try:
        return file.readline(LINE_BYTES + 1)
    except OSError:
        raise
    except Exception as error:  # zstandard.ZstdError, without importing it for every file
        if path.suffix != ".zst":
            raise
        missed[f"the rest of a damaged file ({error})"] += 1
        return b""


def _rest_of_line(file: BinaryIO) -> int:
    size = 0
    while piece := file.readline(_BUFFER):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def records(path: Path, missed: Counter[str]) -> Iterator[Object]:
    """The JSON objects of a file of lines; what is none is counted."""
    for line in lines(path, missed):
        record = readable(line.raw, missed)
        if record is not None:
            yield record


def readable(raw: bytes, missed: Counter[str]) -> Object | None:
    """The JSON object in `raw`; None, and counted, when there is none."""
    try:
        return decoded(raw)
    except UNREADABLE:
        missed["lines that are no JSON objects"] += 1
        return None


def document(path: Path, missed: Counter[str]) -> Object:
    """The JSON object that a file is; empty, and counted, when it cannot be read."""
    try:
        if path.stat().st_size > min(DOCUMENT_BYTES, _end.get(DOCUMENT_BYTES)):
            missed["files that are too large"] += 1
            return {}
        return decoded(path.read_bytes())
    except (OSError, *UNREADABLE):
        missed["files that cannot be read"] += 1
        return {}


def document_list(path: Path, missed: Counter[str]) -> list[Object]:
    """The objects of the JSON array that a file is; empty, and counted, when it cannot be read."""
    try:
        if path.stat().st_size > min(DOCUMENT_BYTES, _end.get(DOCUMENT_BYTES)):
            missed["files that are too large"] += 1
            return []
        return objects(decoded(b'{"all":%b}' % path.read_bytes()), "all")
    except (OSError, *UNREADABLE):
        missed["files that cannot be read"] += 1
        return []
