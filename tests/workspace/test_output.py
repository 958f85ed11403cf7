"""The end of an output is kept: bounded in bytes, whole characters, and marked when cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acphold.workspace.terminals import OutputTail

STREAMS = st.text("a\u00e9\u20ac\U0001f600\n", max_size=40).map(str.encode) | st.binary(max_size=60)


@given(STREAMS, st.integers(0, 50), st.integers(1, 7))
def test_the_tail_is_the_longest_end_of_the_text_that_fits(
    stream: bytes, limit: int, size: int
) -> None:
    tail = OutputTail(limit)
    for start in range(0, len(stream), size):
        tail.feed(stream[start : start + size])
        assert len(tail.text.encode()) <= limit
    tail.feed(b"", final=True)
    whole = stream.decode(errors="replace")
    assert whole.endswith(tail.text)
    longer = whole[len(whole) - len(tail.text) - 1 :]
    assert tail.truncated == (len(tail.text) < len(whole))
    if tail.truncated:
        assert len(longer.encode()) > limit


def test_half_a_character_waits_for_its_other_half() -> None:
    tail = OutputTail(10)
    tail.feed("\u20ac".encode()[:2])
    assert tail.text == ""
    tail.feed("\u20ac".encode()[2:])
    assert tail.text == "\u20ac"


def test_a_flood_is_not_kept() -> None:
    tail = OutputTail(100)
    for _ in range(100):
        tail.feed(b"x" * 65536)
    tail.feed(b"end")
    assert tail.text == "x" * 97 + "end"
    assert tail.truncated
