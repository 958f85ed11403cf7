"""Markdown that is still being written, cut into finished blocks and the unfinished rest.

A block is printed when nothing that comes can change it any more. One that becomes longer than
PIECE_LETTERS is not waited for: it is printed piece by piece, each laid out as what the block is.
So what is read and laid out at once is bounded, whatever an agent writes.

| block | a piece ends | what the next one is laid out with |
|---|---|---|
| code in a fence | behind a line | the opening fence |
| table | behind a line | the head of the table |
| list | before an item | nothing |
| any other | behind a line, if it has one | nothing |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

PIECE_LETTERS = 8192
"""How long a block becomes before it is printed in pieces: more than a terminal shows. To lay out
so much takes a tenth of a second, of code in colours."""

CLEAR_LETTERS = 3
"""Letters at the beginning of a line after which it is certainly text: before them it may still
become the next item of a list (`12.`), or go on with one."""

LOOK_AGAIN = 8
"""A block is looked at again when it has grown by this part: reading all of it each time anew
would take longer and longer."""


class Piece(Struct, frozen=True):
    """Finished blocks, or a part of a long one, as they were written; and what has to stand before
    and behind that text so that it is laid out as what it is."""

    text: str
    opening: str = ""
    closing: str = ""
    goes_on: bool = False
    """Whether it is the same block as the piece before."""

    @property
    def markdown(self) -> str:
        """The text to be laid out."""
        return f"{self.opening}{self.text}{self.closing}"


@cache
def _parser() -> MarkdownIt:
    """Finds blocks, and not what is in them. One for all messages: making it costs more than most
    messages take to read."""
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("inline")


class Paragraphs:
    """What one message says; each block is handed out once, when it cannot change any more."""

    def __init__(self) -> None:
        self._text = ""
        self._fed: list[str] = []
        self._looked = 0
        self._opening = ""
        self._goes_on = False

    def feed(self, text: str) -> None:
        """The message goes on."""
        self._fed.append(text)

    @property
    def live(self) -> Piece:
        """The block, or blocks, that may still change."""
        if self._fed:
            self._text += "".join(self._fed)
            self._fed.clear()
        return Piece(self._text, self._opening, goes_on=self._goes_on)

    def finished(self) -> Piece | None:
        """The next blocks that are finished, in one piece; None while there are none."""
        text = self.live.text
        has_hardly_grown = len(text) - self._looked <= self._looked // LOOK_AGAIN
        if has_hardly_grown and len(text) <= PIECE_LETTERS:
            return None
        read = text[:PIECE_LETTERS]
        lines = read.splitlines(keepends=True)
        above = self._opening.count("\n")
        found = [
            (token.map[0] - above, token)
            for token in _parser().parse(self._opening + read)
            if token.level <= 1 and token.nesting >= 0 and token.map is not None
        ]
        sure = len(lines) if _is_clear(lines[-1]) else len(lines) - 1
        starts = [line for line, token in found if token.level == 0 and 0 < line < sure]
        is_all = len(read) == len(text)
        if starts:
            # What is left of a text that was read is one block, and not finished.
            return self._take(len("".join(lines[: starts[-1]])), looks_again=not is_all)
        if not is_all:
            return self._cut(lines, found)
        self._looked = len(text)
        return None

    def rest(self) -> Piece | None:
        """The next of what is left, when the message is over; None behind the last one."""
        text = self.live.text
        self._looked = 0
        is_more = len(text) > PIECE_LETTERS or self._goes_on
        if is_more and (found := self.finished()) is not None:
            return found
        return self._take(len(text)) if text else None

    def _cut(self, lines: Sequence[str], found: Sequence[tuple[int, Token]]) -> Piece:
        """The first of a block that fills all that was read; see the module."""
        whole = lines if lines[-1].endswith("\n") else lines[:-1]
        place = len("".join(whole)) or lines[0].rfind(" ") + 1 or len(lines[0])
        head = (self._opening.splitlines(keepends=True) or lines)[:2]
        match found:
            case [(_, Token(type="fence", markup=marks)), *_] if head[0].endswith("\n"):
                return self._take(place, closing=f"\n{marks}", opening=head[0], goes_on=True)
            case [(_, Token(type="table_open")), *_]:
                return self._take(place, opening="".join(head), goes_on=True)
            case [(_, Token(type="bullet_list_open" | "ordered_list_open")), *inside]:
                items = [line for line, token in inside if token.type == "list_item_open"]
                if items[-1] > 0:
                    place = len("".join(lines[: items[-1]]))
        return self._take(place, goes_on=True)

    def _take(
        self,
        place: int,
        *,
        closing: str = "",
        opening: str = "",
        goes_on: bool = False,
        looks_again: bool = True,
    ) -> Piece:
        """The text up to a place; what is left has `opening`, and is the same block or not."""
        text = self._text[:place].strip("\n")
        piece = Piece(text, self._opening, closing, self._goes_on)
        self._text = self._text[place:]
        self._looked = 0 if looks_again else len(self._text)
        self._opening, self._goes_on = opening, goes_on
        return piece


def _is_clear(line: str) -> bool:
    """Whether the line can be taken for what it looks like."""
    return line.endswith("\n") or (line[:CLEAR_LETTERS].isalpha() and len(line) > CLEAR_LETTERS)
