"""The words of long entries are those of all of it, whatever is looked at."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from acphold.conversation.history import words
from acphold.conversation.history.entries import UPDATE, Entry
from acphold.conversation.history.words import document

UNITS = [
    "word ",
    "\n",
    "\x1b[31m",
    "\x1b[",
    "\x1b",
    "0;1",
    "m",
    "\x1b]0;",
    "\x07",
    "\x1b\\",
    "y" * 30,
]


def call(*texts: str, raw: str | list[str] = "") -> Entry:
    content = [{"type": "content", "content": {"type": "text", "text": text}} for text in texts]
    update = {"sessionUpdate": "tool_call_update", "content": content, "rawOutput": raw}
    return Entry(1, UPDATE, 1, json.dumps(update).encode())


@given(
    st.lists(st.lists(st.sampled_from(UNITS), max_size=40), min_size=1, max_size=3),
    st.integers(1, 4),
)
@example([["word ", *["\x1b[31m"] * 39], ["y" * 30] * 3], 4)
@example([["y" * 30, *["word "] * 5, "0;1", *["\x1b[31m"] * 37, "y" * 30]], 4)
@example([["y" * 30, *["word "] * 9, "\x1b]0;", "m"], ["\x07", "y" * 30]], 1)
def test_a_beginning_of_long_output_gives_the_words_that_all_of_it_does(
    parts: list[list[str]], looked_at: int
) -> None:
    texts = ["".join(part) for part in parts]
    entry = call(*texts, raw=texts[0] * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "TEXT_CHARACTERS", 60)
        patch.setattr(words, "_LOOKED_AT", 1_000_000)
        whole = document(entry)
        patch.setattr(words, "_LOOKED_AT", 60 * looked_at)
        assert document(entry) == whole


@pytest.fixture
def sought(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that escapes are sought in."""
    lengths: list[int] = []
    control = words._CONTROL

    class Counting:
        def sub(self, by: str, text: str) -> str:
            lengths.append(len(text))
            return control.sub(by, text)

    monkeypatch.setattr(words, "_CONTROL", Counting())
    return lengths


def test_escapes_are_sought_in_a_beginning_of_long_output(sought: list[int]) -> None:
    line = "\x1b[32mok\x1b[0m and more of it\n"
    assert document(call(line * 200_000)).tools == ("ok and more of it\n" * 200_000)[: 64 << 10]
    assert sum(sought) < 1 << 20


def test_they_are_sought_no_more_often_in_many_lines(sought: list[int]) -> None:
    picture = ["\x1b[38;2;200;100;100m\x1b[48;2;200;100;100m#"] * 20_000
    entry = call(raw=picture)
    assert document(entry).tools == "\n".join("#" * 20_000)
    assert sum(sought) < 2 * len(entry.raw)
