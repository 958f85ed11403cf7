"""Lines cut from a byte stream, wherever the reads fall."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acphold.rpc.framing import HEAD, TAIL, LineBuffer, Oversize

LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8)


def fed(buffer: LineBuffer, stream: bytes, size: int) -> list[bytes | Oversize]:
    reads = [stream[start : start + size] for start in range(0, len(stream), size)]
    return [frame for read in reads for frame in buffer.feed(read)]


@given(LINES, st.integers(1, 40), st.integers(1, 40))
def test_frames_do_not_depend_on_where_reads_fall(
    lines: list[bytes], size: int, limit: int
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    whole = fed(LineBuffer(limit), stream, len(stream) or 1)
    assert fed(LineBuffer(limit), stream, size) == whole
    expected = [
        Oversize(line[: min(HEAD, limit)], line[-TAIL:], len(line)) if len(line) > limit else line
        for line in lines
        if len(line) > limit or line.strip()
    ]
    assert whole == expected


def test_an_unfinished_line_is_kept_until_its_newline_comes() -> None:
    buffer = LineBuffer(100)
    assert buffer.feed(b'{"a":') == []
    assert buffer.feed(b"1}") == []
    assert buffer.feed(b'\n{"b":2}\n{"c"') == [b'{"a":1}', b'{"b":2}']
    assert buffer.feed(b":3}\n") == [b'{"c":3}']


def test_a_carriage_return_and_blank_lines_disturb_nothing() -> None:
    assert LineBuffer(100).feed(b"\n\r\n  \n{}\r\n") == [b"{}\r"]


@pytest.mark.parametrize("size", [1000, 64 * 1024])
def test_a_line_over_the_limit_costs_only_its_two_ends(size: int) -> None:
    buffer = LineBuffer(1024)
    piece = b"x" * size
    for _ in range(10_000_000 // size):
        assert buffer.feed(piece) == []
    held = sum(sys.getsizeof(value) for value in vars(buffer).values())
    assert held < HEAD + 10 * TAIL + size
    (frame,) = buffer.feed(b"end\n")
    assert isinstance(frame, Oversize)
    assert frame.size == 10_000_000 // size * size + 3
    assert frame.tail.endswith(b"xend")


def test_the_line_behind_one_over_the_limit_is_whole() -> None:
    frames = LineBuffer(4).feed(b"too long\nabc\n")
    assert frames == [Oversize(b"too ", b"too long", 8), b"abc"]
