"""A process that reads conversations for its parent.

Frames arrive on its stdin (four bytes of length, then msgpack): a task, or a request for more of
it. Each is answered with the next piece of the task, or with the reason why there is none. It ends
with its stdin.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from acphold.errors import TranscriptError
from acphold.imports.continuation import KnownPart
from acphold.imports.pieces import NewsPiece, pieces
from acphold.imports.readers import reader
from acphold.imports.sources import Manner, Source

LENGTH_BYTES: Final = 4


class Task(Struct, tag=True):
    """Tell the first piece of a source."""

    source: Source
    known: KnownPart
    manner: Manner


class More(Struct, tag=True):
    """Tell the next piece."""


class ToldPiece(Struct, tag=True):
    """The next piece."""

    piece: NewsPiece


class End(Struct, tag=True):
    """There are no more pieces."""


class Unreadable(Struct, tag=True):
    """The source cannot be read: an OSError."""

    errno: int | None
    message: str
    filename: str | None


class ReadingFailed(Struct, tag=True):
    """The reader fails on it: a TranscriptError."""

    message: str


Answer = ToldPiece | End | Unreadable | ReadingFailed


def frame(message: Struct) -> bytes:
    """Return a message as sent through a pipe."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode_answer(body: bytes) -> Answer:
    """Return a worker's answer."""
    # msgspec does not support Counter.
    return msgspec.msgpack.decode(
        body,
        type=ToldPiece | End | Unreadable | ReadingFailed,
        dec_hook=lambda _, value: Counter(value),
    )


def main() -> None:
    """Serve until stdin ends."""
    # A Ctrl-C on the terminal is for our parent; we end with our stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    telling: Iterator[NewsPiece] = iter(())
    while length := sys.stdin.buffer.read(LENGTH_BYTES):
        body = sys.stdin.buffer.read(int.from_bytes(length, "big"))
        asked = msgspec.msgpack.decode(body, type=Task | More)
        if isinstance(asked, Task):
            found = reader(asked.source.reader)
            telling = pieces(
                asked.source,
                found,
                asked.known,
                whole_turns=asked.manner.whole_turns,
                redact=asked.manner.redact,
            )
        answer: Answer
        try:
            piece = next(telling, None)
            answer = End() if piece is None else ToldPiece(piece)
        except OSError as error:
            filename = None if error.filename is None else str(error.filename)
            answer = Unreadable(error.errno, error.strerror or str(error), filename)
        except TranscriptError as error:
            answer = ReadingFailed(str(error))
        sys.stdout.buffer.write(frame(answer))
        sys.stdout.buffer.flush()
