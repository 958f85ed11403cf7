"""Markdown that still grows: each block is handed out once, when it cannot change any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acphold.screen.paragraphs import Paragraphs

BLOCKS = ["words and more", "# Heading", "- one\n- two", "1. one\n2. two", "```\ncode\n\nmore\n```"]


def fed(*pieces: str) -> tuple[list[str], str]:
    """What is finished after each piece, and what is left."""
    growing, finished = Paragraphs(), []
    for piece in pieces:
        growing.feed(piece)
        finished.append(growing.finished())
    return finished, growing.rest()


def test_a_paragraph_is_finished_when_the_next_one_has_begun() -> None:
    assert fed("one", " two\n", "\n", "Next") == (["", "", "", "one two"], "Next")


def test_what_may_become_the_next_item_of_a_list_does_not_finish_the_list() -> None:
    assert fed("1. one\n\n", "2", ". two") == (["", "", ""], "1. one\n\n2. two")


def test_a_block_of_code_is_whole_with_its_empty_lines() -> None:
    code = "```python\na\n\nb\n"
    assert fed(code, "```\n", "\nText") == (["", "", f"{code}```"], "Text")


def test_a_long_block_is_not_looked_at_for_each_piece_of_it() -> None:
    long = "word " * 1000
    finished, rest = fed(f"One.\n\n{long}", "\n\nNext", "x" * 500)
    assert finished == ["One.", "", long]
    assert rest == "Next" + "x" * 500


def test_nothing_is_finished_of_a_message_that_has_nothing() -> None:
    assert fed() == ([], "")


@pytest.mark.parametrize("block", BLOCKS)
def test_the_last_block_is_left_for_the_end(block: str) -> None:
    assert fed("Before.\n\n", block)[1].endswith(block)


@given(st.lists(st.sampled_from(BLOCKS), min_size=1), st.integers(1, 7))
def test_nothing_is_lost_or_said_twice_wherever_the_pieces_fall(
    blocks: list[str], size: int
) -> None:
    text = "\n\n".join(blocks)
    finished, rest = fed(*(text[at : at + size] for at in range(0, len(text), size)))
    assert "".join("".join([*finished, rest]).split()) == "".join(text.split())
