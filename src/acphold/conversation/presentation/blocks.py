"""Parts of a question, finished: every face draws the same ones, and adds nothing to them.

Their texts are visible, in commands, paths and arguments `exact`. A command is whole. Anything else
that is long is cut: `text` is its beginning and `last` its end; `rest`, between them, is shown once
somebody asks for it, and until then a face offers no yes. A terminal scrolls, and shows all of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from acp_wire.schema import Diff
from acphold.conversation.presentation.diffs import diff_lines
from acphold.conversation.presentation.visible_text import exact, quantity, size, visible
from acphold.safety.budget import Budget

LINES: Final = 40
"""Most lines of a text, or of a diff, that stands uncut."""

HEAD_LINES: Final = 10
TAIL_LINES: Final = 5
"""Lines at the beginning and at the end of one that is cut: a phone shows both."""

CHARACTERS: Final = 2400
"""Most characters of a text that stands uncut."""

HEAD_CHARACTERS: Final = 600
TAIL_CHARACTERS: Final = 300
"""Most characters of the beginning and of the end of one that is cut."""

PROSE_CHARACTERS: Final = 20_000
"""Most characters of a text that is drawn as Markdown, which is never cut."""

NAME_CHARACTERS: Final = 60
"""Longest name that stands beside its argument; a longer one is the beginning of its text."""


class Line(Struct, frozen=True, array_like=True):
    """A line of a diff; `sign` is "+", "-", " ", or "@" for a place where lines are left out.

    `before` and `after` are its numbers in both versions, from 1; 0 where it has none.
    """

    sign: str
    text: str
    before: int = 0
    after: int = 0


class Block(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A part of a question; see the module.

    `name` is that of an argument, or the file of a diff. A diff has `lines` instead of texts; its
    `text` says how it compares with the file. If it is cut, its rest are the lines in `folded`.
    A text `is_prose` if it can be drawn as Markdown with no word of it hidden.
    """

    kind: Literal["text", "command", "path", "argument", "diff"]
    text: str
    name: str = ""
    rest: str = ""
    last: str = ""
    cut: str = ""
    lines: tuple[Line, ...] = ()
    folded: tuple[int, int] | None = None
    added: int = 0
    removed: int = 0
    is_prose: bool = False

    @property
    def whole(self) -> str:
        """All of its text."""
        return self.text + self.rest + self.last


def title_block(title: str) -> Block:
    """Return the agent's words for a call."""
    return _cut(Block("text", visible(title)))


def text_block(text: str) -> Block:
    """Return a text of an agent; one that is no prose stands as it is, like an argument."""
    shown = visible(text)
    return Block("text", shown, is_prose=True) if _is_prose(shown) else argument_block("", text)


def command_block(text: str, name: str = "") -> Block:
    """Return what would run."""
    return Block("command", exact(text), _on_one_line(name))


def argument_block(name: str, text: str) -> Block:
    """Return an argument with its name, which is "" for one without a name."""
    shown = _on_one_line(name)
    if len(shown) > NAME_CHARACTERS:
        return _cut(Block("argument", f"{shown}: {exact(text)}"))
    return _cut(Block("argument", exact(text), shown))


def path_blocks(path: str, name: str = "") -> list[Block]:
    """Return a path, normalised; behind it the path as it is given, if that is another one."""
    short = normalise(path)
    blocks = [Block("path", _on_one_line(short), _on_one_line(name))]
    return blocks if short == path else [*blocks, argument_block("given as", path)]


def normalise(path: str) -> str:
    """Return a path without detours. An address stays, and one whose only detour is at an end."""
    if "://" in path or not path:
        return path
    short = posixpath.normpath(path)
    return path if path.removeprefix("./").rstrip("/") == short else short


def diff_block(
    diff: Diff, words: str = "", *, whole: bool = True, budget: Budget | None = None
) -> Block:
    """Return a change, with words on how it compares with the file; of a very long one only the
    lengths, unless the `whole` change is wanted."""
    lines = tuple(_lines_of(diff, whole, budget))
    count, path = len(lines), _on_one_line(normalise(diff.path))
    signs = [line.sign for line in lines]
    added, removed = signs.count("+"), signs.count("-")
    if count <= LINES:
        return Block("diff", words, path, lines=lines, added=added, removed=removed)
    folded = HEAD_LINES, count - TAIL_LINES
    cut = f"… {quantity(count - HEAD_LINES - TAIL_LINES, 'more line')}"
    return Block("diff", words, path, "", "", cut, lines, folded, added, removed)


def long_diff_block(path: str, whole: int) -> Block:
    """Return a change of which only the beginning was read, in an update of so many bytes."""
    line = Line("@", f"@@ a long change, in {size(whole)} @@")
    return Block("diff", "", _on_one_line(normalise(path)), lines=(line,))


def _on_one_line(text: str) -> str:
    return exact(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def _cut(block: Block) -> Block:
    """Return a text block cut, if it is long."""
    text = block.text
    lines = text.count("\n") + 1
    if lines <= LINES and len(text) <= CHARACTERS:
        return block
    head = "".join(text[:HEAD_CHARACTERS].splitlines(keepends=True)[:HEAD_LINES])
    tail = "".join(text[-TAIL_CHARACTERS:].splitlines(keepends=True)[-TAIL_LINES:])
    if len(head) + len(tail) >= len(text):
        return block
    rest = text[len(head) : len(text) - len(tail)]
    many = rest.count("\n")
    words = quantity(many, "more line") if many > 1 else quantity(len(rest), "more character")
    return Block(block.kind, head, block.name, rest, tail, f"… {words}")


_MARKS = re.compile(r"`[^`\n]+`|\*\*(?=\S)([^*`\n]+)(?<=\S)\*\*|^ *[*+-] ", re.MULTILINE)
"""Markdown that is drawn as what it is: code, strong words, points of a list."""

_HIDES = re.compile(r"[<&\[\]|\\~*`]|(?<!\w)_|_(?!\w)")
"""What may hide words: HTML, links, references, tables, names of languages, stars of a pattern."""


def _is_prose(text: str) -> bool:
    if len(text) > PROSE_CHARACTERS:
        return False
    return _HIDES.search(_MARKS.sub(lambda it: it[1] or "", text)) is None


# -- diffs -------------------------------------------------------------------------------------

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def _lines_of(diff: Diff, whole: bool, budget: Budget | None) -> Sequence[Line]:
    found: list[Line] = []
    before = after = 0
    for line in diff_lines(diff, whole=whole, budget=budget):
        sign, text = line[0], line[1:]
        if sign == "@":
            if (hunk := _HUNK.match(line)) is None:
                found.append(Line("@", line.strip("@ ")))
                continue
            before, after = int(hunk[1]), int(hunk[2])
            if after > 1:
                found.append(Line("@", f"line {after}"))
            continue
        in_old, in_new = sign != "+", sign != "-"
        found.append(Line(sign, text, before * in_old, after * in_new))
        before, after = before + in_old, after + in_new
    return found
