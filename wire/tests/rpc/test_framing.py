"""Lines cut from a byte stream, wherever the reads fall."""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from acp_wire.rpc.framing import HEAD, LONG, STEP, TAIL, LineBuffer, Nesting, Oversize

LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8)
TOKENS = [b"[", b"]", b"{", b"}", b'"', b"\\", b'\\"', b"\\\\", b",", b"x", b"[[", b"}]"]


def reads(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def fed(buffer: LineBuffer, stream: bytes, size: int) -> list[bytes | Oversize]:
    return [frame for read in reads(stream, size) for frame in buffer.feed(read)]


def levels(text: bytes) -> int:
    """Nesting depth of a JSON text, byte by byte: slow, but plainly right."""
    level = deepest = 0
    in_text = escaped = False
    for byte in text:
        character = chr(byte)
        escaped, was_escaped = False, escaped
        if was_escaped and character in '\\"':
            continue
        if character == "\\":
            escaped = True
        elif character == '"':
            in_text = not in_text
        elif not in_text and character in "[{":
            level += 1
        elif not in_text and character in "]}":
            level -= 1
        deepest = max(deepest, level)
    return deepest


@given(LINES, st.integers(1, 40), st.integers(1, 40))
def test_frames_do_not_depend_on_where_reads_fall(
    lines: list[bytes], size: int, limit: int
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    whole = fed(LineBuffer(limit), stream, len(stream) or 1)
    assert fed(LineBuffer(limit), stream, size) == whole
    problem = "a message of {} bytes is over the limit of {}"
    expected = [
        Oversize(problem.format(len(line), limit), line, line) if len(line) > limit else line
        for line in lines
        if len(line) > limit or line.strip()
    ]
    assert whole == expected


def test_a_carriage_return_and_blank_lines_disturb_nothing() -> None:
    assert LineBuffer(100).feed(b"\n\r\n  \n{}\r\n") == [b"{}\r"]
    buffer = LineBuffer(100)
    assert buffer.feed(b"  ") + buffer.feed(b" \n{}") + buffer.feed(b"\r\n") == [b"{}\r"]


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
    assert f"of {10_000_000 // size * size + 3} bytes" in frame.problem
    assert (len(frame.head), len(frame.tail)) == (HEAD, TAIL)
    assert frame.tail.endswith(b"xend")


def test_a_long_line_that_is_just_as_long_as_it_may_be_is_whole() -> None:
    line = bytes(range(32, 127)) * ((HEAD + TAIL) // 90)
    buffer = LineBuffer(limit=len(line))
    assert buffer.feed(line) == []
    assert buffer.feed(b"\n") == [line]


# -- nesting --------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(TOKENS), max_size=60).map(b"".join), st.integers(1, 7))
def test_nesting_is_followed_wherever_the_pieces_begin(text: bytes, size: int) -> None:
    deepest = levels(text)
    for limit in range(max(deepest - 2, 0), deepest + 2):
        nesting = Nesting(limit)
        for piece in reads(text, size):
            nesting.add(piece)
        assert ("deeper" in nesting.problem) == (deepest > limit)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("padding", [0, LONG, 2 * HEAD])
@pytest.mark.parametrize("size", [1000, 10**9])
def test_a_line_nested_too_deep_is_told_from_one_that_is_not(
    opening: bytes, padding: int, size: int
) -> None:
    closing = opening[::-1].translate(bytes.maketrans(b"[{", b"]}"), b'"a:')
    text = json.dumps("]}[{\\" * (padding // 5)).encode()
    per_round = len(closing)
    for rounds, deep in ((20 // per_round, False), (20 // per_round + 1, True)):
        line = opening * rounds + text + closing * rounds
        (frame,) = fed(LineBuffer(10**9, depth=20), line + b"\n", size)
        problem = "a message nested deeper than 20 levels"
        assert frame == (Oversize(problem, line[:HEAD], line[-TAIL:]) if deep else line)


@pytest.mark.parametrize("size", [7, 1000, 10**9])
@pytest.mark.parametrize("count", [4000, 4001])
def test_a_line_of_too_many_parts_is_told_from_one_of_many_commas(size: int, count: int) -> None:
    texts = json.dumps(["[{,\\" * 9, '",' * 5000, *["{,"] * (count - 3)]).encode()
    (frame,) = fed(LineBuffer(10**9, depth=20, parts=3999), texts + b"\n", size)
    problem = "a message of more than 3999 parts"
    too_many = Oversize(problem, texts[:HEAD], texts[-TAIL:])
    assert frame == (texts if count == 4000 else too_many)


HEAVY = {
    "flat": b"[],",
    "in texts": b'"[{",',
    "in steep waves": b"[" * 490 + b"]" * 490 + b",",
    "at the edge": b"[" * 490 + b"[]," * 500 + b"1" + b"]" * 490 + b",",
    "objects": b'{"a":{}},',
    "escapes": b'"\\"[{\\\\",',
    "empty texts": b'"",',
}


@pytest.mark.parametrize("unit", HEAVY.values(), ids=HEAVY)
def test_a_line_full_of_brackets_takes_little_more_memory_than_its_bytes(unit: bytes) -> None:
    line = b"[" + unit * (1_000_000 // len(unit)) + b"1]\n"
    pieces = reads(line, 64 * 1024)
    buffer = LineBuffer(10**9, depth=500)
    tracemalloc.start()
    try:
        frames = [frame for piece in pieces for frame in buffer.feed(piece)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frames == [line[:-1]]
    assert peak < 2.2 * len(line) + 6 * STEP * 10


def test_a_line_nested_too_deep_costs_only_its_two_ends() -> None:
    buffer = LineBuffer(10**9, depth=500)
    for _ in range(1000):
        assert buffer.feed(b"[" * 10_000) == []
    held = sum(sys.getsizeof(value) for value in vars(buffer).values())
    assert held < 3 * HEAD
    (frame,) = buffer.feed(b"]\n")
    assert isinstance(frame, Oversize)
    assert "deeper" in frame.problem
