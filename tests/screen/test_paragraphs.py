"""Markdown that still grows: each block is handed out once, when it cannot change any more."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

from acphold.faces.screen import bounds
from acphold.faces.screen.markdown import ParagraphPiece, Paragraphs

BLOCKS = ["words and more", "# Heading", "- one\n- two", "1. one\n2. two", "```\ncode\n\nmore\n```"]


def fed(*pieces: str) -> tuple[list[str], str]:
    """The paragraphs finished after each piece, and the rest."""
    growing, finished = Paragraphs(), []
    for piece in pieces:
        growing.feed(piece)
        finished.append("\n\n".join(it.text for it in iter(growing.next_piece, None)))
    return finished, "\n\n".join(it.text for it in iter(growing.rest, None))


def laid_out(piece: ParagraphPiece) -> str:
    return f"{piece.opening}{piece.text}{piece.closing}"


def test_a_paragraph_is_finished_when_the_next_one_has_begun() -> None:
    assert fed("one", " two\n", "\n", "Next") == (["", "", "", "one two"], "Next")


def test_what_may_become_the_next_item_of_a_list_does_not_finish_the_list() -> None:
    assert fed("1. one\n\n", "2", ". two") == (["", "", ""], "1. one\n\n2. two")


def test_a_block_of_code_is_whole_with_its_empty_lines() -> None:
    code = "```python\na\n\nb\n"
    assert fed(code, "```\n", "\nText") == (["", "", f"{code}```"], "Text")


def test_a_long_block_is_not_looked_at_for_each_piece_of_it() -> None:
    long = "word " * 1000
    finished, rest = fed(f"One.\n\n{long}", "\n\nNext", "x" * 700)
    assert finished == ["One.", "", long]
    assert rest == "Next" + "x" * 700


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


LONG = {
    "text": "some *words*\n" * 2_000,
    "one line": "word " * 6_000,
    "one word": "word" * 6_000,
    "list": "- an item\n  - one of its own\n" * 800,
    "quote": "> words\n" * 3_000,
    "code": "```py\n" + "x = some(1)\n" * 2_000 + "```",
    "code on one line": "```\n" + "word " * 6_000,
    "table": "| a | b |\n|---|---|\n" + "| x | y |\n" * 2_000,
    "short ones": "Words.\n\n" * 3_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_what_is_laid_out_at_once_is_bounded_and_nothing_of_it_is_lost(text: str) -> None:
    growing = Paragraphs()
    pieces: list[ParagraphPiece] = []
    for at in range(0, len(text), 1000):
        growing.feed(text[at : at + 1000])
        pieces += iter(growing.next_piece, None)
        assert len(growing.live.text) <= bounds.PIECE_LETTERS
    pieces += iter(growing.rest, None)
    assert max(len(piece.text) for piece in pieces) <= bounds.PIECE_LETTERS
    assert "".join("".join(piece.text for piece in pieces).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("kind", "element"), [("list", "bullet_list_open"), ("code", "fence"), ("table", "table_open")]
)
def test_a_piece_of_a_long_block_is_laid_out_as_what_the_block_is(kind: str, element: str) -> None:
    growing = Paragraphs()
    growing.feed(LONG[kind])
    first, *others = iter(growing.rest, None)
    assert (first.goes_on, {piece.goes_on for piece in others}) == (False, {True})
    for piece in (first, *others):
        tokens = MarkdownIt("commonmark").enable("table").parse(laid_out(piece))
        assert {token.type for token in tokens if token.level == 0 and token.nesting >= 0} == {
            element
        }


def test_behind_a_long_block_the_next_one_is_one_of_its_own() -> None:
    growing = Paragraphs()
    growing.feed(f"{LONG['code']}\n\nNext.\n\nLast.")
    *_, before, last = iter(growing.rest, None)
    assert (laid_out(last), last.goes_on) == ("Last.", False)
    assert laid_out(before).endswith("x = some(1)\n```\n\nNext.")
