"""JSON that msgspec refuses: halves of surrogate pairs."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from acp_wire.schema.salvage import repair

ESCAPES = st.sampled_from(
    ["\\ud83d", "\\uDE00", "\\uD83D\\ude00", "\\\\", '\\"', "\\n", "\\u00e4", "u", "d83d", "é", " "]
)


@given(st.lists(ESCAPES, max_size=12).map("".join))
@example("\\\\ud83d")
@example("\\\\\\ud83d\\\\\\ude00")
def test_only_halves_of_pairs_are_replaced(text: str) -> None:
    read = json.loads(f'"{text}"')
    whole = read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    sound = repair(f'"{text}"'.encode())
    assert json.loads(sound) == whole
    assert (sound == f'"{text}"'.encode()) == (read == whole)


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert repair(b'["\xff","\\ud83d"]') == '["\ufffd","\\ufffd"]'.encode()


@pytest.mark.parametrize("run", ["\\\\", '\\"', "\\n", "\\ud83d", "\\ud83d\\ude00", "\\u00e4", "u"])
def test_a_long_text_of_escapes_is_repaired_in_one_pass(run: str) -> None:
    text = ('"' + run * 300_000 + '\\ud83d"').encode()
    assert repair(text).endswith(b'\\ufffd"')
    assert repair(text[:-1]).endswith(b"\\ufffd")
