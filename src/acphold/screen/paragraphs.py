"""Markdown that is still being written, cut into finished blocks and the unfinished rest.

A block is printed when nothing that comes can change it any more.
"""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt

CLEAR_LETTERS = 3
"""Letters at the beginning of a line after which it is certainly text: before them it may still
become the next item of a list (`12.`), or go on with one."""


LOOK_AGAIN = 32
"""A block is looked at again when it has grown by this part: reading all of it each time anew
would take longer and longer."""


@cache
def _parser() -> MarkdownIt:
    """One for all messages: making it costs more than most messages take to read."""
    return MarkdownIt("commonmark", {"html": False}).enable("table")


class Paragraphs:
    """What one message says; each block is handed out once, when it cannot change any more."""

    def __init__(self) -> None:
        self._text = ""
        self._looked = 0

    @property
    def live(self) -> str:
        """The text of the block, or blocks, that may still change."""
        return self._text

    def feed(self, text: str) -> None:
        """The message goes on."""
        self._text += text

    def finished(self) -> str:
        """The blocks that are finished since the last call, as one text; "" for none."""
        if len(self._text) - self._looked <= self._looked // LOOK_AGAIN:
            return ""
        self._looked = len(self._text)
        return self._take(self._end_of_finished())

    def rest(self) -> str:
        """All that is left: the message is over."""
        return self._take(len(self._text))

    def _take(self, place: int) -> str:
        taken, self._text = self._text[:place], self._text[place:]
        self._looked = len(self._text)
        return taken.strip("\n")

    def _end_of_finished(self) -> int:
        """Where the last block begins; 0 while it is the only one."""
        lines = self._text.splitlines(keepends=True)
        sure = len(lines) if _is_clear(lines[-1]) else len(lines) - 1
        starts = [
            token.map[0]
            for token in _parser().parse(self._text)
            if token.level == 0 and token.nesting >= 0 and token.map is not None
        ]
        first = max((start for start in starts if start < sure), default=0)
        return len("".join(lines[:first]))


def _is_clear(line: str) -> bool:
    """Whether the line can be taken for what it looks like."""
    return line.endswith("\n") or (line[:CLEAR_LETTERS].isalpha() and len(line) > CLEAR_LETTERS)
