"""An agent's Markdown, laid out for a conversation; while it is written, in finished blocks.

A block is printed when no further text can change it. A block longer than `bounds.PIECE_LETTERS` is
not waited for: it is printed piece by piece, each laid out as the kind of block it is. So the work
at once is bounded, whatever an agent writes.

| block | a piece ends | prefix of the next one |
|---|---|---|
| code in a fence | after a line | the opening fence |
| table | after a line | the head of the table |
| list | before an item | nothing |
| any other | after a line, if it has one | nothing |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from acphold.conversation.presentation.visible_text import visible
from acphold.faces.screen import bounds


def without_margins(lines: list[list[Segment]]) -> list[list[Segment]]:
    """Return rendered lines without the empty ones around code and tables."""
    filled = [place for place, line in enumerate(lines) if "".join(it.text for it in line).strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else lines


class _PlainHeading(Heading):
    """A heading in bold: boxes and centring are too loud for a conversation."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("heading")
        yield self.text


class _Code(CodeBlock):
    """Code without empty lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        language = self.lexer_name if len(code) <= bounds.COLOURED_LETTERS else "text"
        # A console that knows its background says so; see `cli.terminal_text.console`.
        theme = "ansi_light" if getattr(console, "is_light", False) else self.theme
        yield Syntax(code, language, theme=theme, word_wrap=True, padding=(0, 1))


class _TightTable(TableElement):
    """A table without the empty lines above and below."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        [table] = super().__rich_console__(console, options)
        assert isinstance(table, Table)
        for line in without_margins(console.render_lines(table, options, pad=False)):
            yield from line
            yield Segment.line()


class _Rule(HorizontalRule):
    """A line across, without an empty line before it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * options.max_width, "faint")
        yield Text()


class Prose(Markdown):
    """An agent's message. Tags stay visible, and line breaks are kept unless `reflowed`."""

    elements = {  # noqa: RUF012 (rich's own)
        **Markdown.elements,
        "heading_open": _PlainHeading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _TightTable,
        "hr": _Rule,
    }

    def __init__(self, text: str, *, reflowed: bool = False) -> None:
        super().__init__(
            "", code_theme="ansi_dark", inline_code_theme="ansi_dark", hyperlinks=False
        )
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.markup = text
        self.parsed = parser.parse(text)
        _prepare(self.parsed, reflowed=reflowed)


def _prepare(tokens: Iterable[Token], *, reflowed: bool) -> None:
    """Keep line breaks of the text, and show the characters that `&#27;` and its like stand for."""
    for token in tokens:
        if token.type == "softbreak" and not reflowed:
            token.type = "hardbreak"
        token.content = visible(token.content)
        token.info = visible(token.info)
        token.attrs = {
            name: visible(value) if isinstance(value, str) else value
            for name, value in token.attrs.items()
        }
        _prepare(token.children or (), reflowed=reflowed)


CLEAR_LETTERS = 3
"""Letters at the start of a line after which it is certainly text.

Before that it may still become a list item (`12.`), or continue one.
"""

LOOK_AGAIN = 8
"""A block is parsed again when it has grown by this fraction.

Parsing all of it for each chunk would take longer and longer.
"""


class ParagraphPiece(Struct, frozen=True):
    """Finished blocks, or a part of a long one, as written.

    Also the text to put before and after it so that it is laid out correctly.
    """

    text: str
    opening: str = ""
    closing: str = ""
    goes_on: bool = False
    """True if it continues the block of the piece before."""


_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table").disable("inline")
"""A parser of block structure only, without inline text.

It is shared by all messages: making it costs more than parsing most of them.
"""


class Paragraphs:
    """The text of one message; each block is returned once, when it cannot change any more."""

    def __init__(self) -> None:
        self._text = ""
        self._fed: list[str] = []
        self._looked = 0
        self._opening = ""
        self._goes_on = False

    def feed(self, text: str) -> None:
        """Add text to the message."""
        self._fed.append(text)

    @property
    def live(self) -> ParagraphPiece:
        """The block, or blocks, that may still change."""
        if self._fed:
            self._text += "".join(self._fed)
            self._fed.clear()
        return ParagraphPiece(self._text, self._opening, goes_on=self._goes_on)

    def next_piece(self) -> ParagraphPiece | None:
        """Return the next finished blocks in one piece; None while there are none."""
        text = self.live.text
        has_hardly_grown = len(text) - self._looked <= self._looked // LOOK_AGAIN
        if has_hardly_grown and len(text) <= bounds.PIECE_LETTERS:
            return None
        read = text[: bounds.PIECE_LETTERS]
        lines = read.splitlines(keepends=True)
        above = self._opening.count("\n")
        found = [
            (token.map[0] - above, token)
            for token in _PARSER.parse(self._opening + read)
            if token.level <= 1 and token.nesting >= 0 and token.map is not None
        ]
        # More text cannot change the kind of a line that is clear.
        last = lines[-1]
        is_text = last[:CLEAR_LETTERS].isalpha() and len(last) > CLEAR_LETTERS
        sure = len(lines) if last.endswith("\n") or is_text else len(lines) - 1
        starts = [line for line, token in found if token.level == 0 and 0 < line < sure]
        is_all = len(read) == len(text)
        if starts:
            # The rest of a parsed text is one unfinished block.
            return self._take(len("".join(lines[: starts[-1]])), looks_again=not is_all)
        if not is_all:
            # One block fills all the text: its first piece is cut off.
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
        self._looked = len(text)
        return None

    def rest(self) -> ParagraphPiece | None:
        """Return the next piece of the rest, when the message is over; None after the last one."""
        text = self.live.text
        self._looked = 0
        is_more = len(text) > bounds.PIECE_LETTERS or self._goes_on
        if is_more and (found := self.next_piece()) is not None:
            return found
        return self._take(len(text)) if text else None

    def _take(
        self,
        place: int,
        *,
        closing: str = "",
        opening: str = "",
        goes_on: bool = False,
        looks_again: bool = True,
    ) -> ParagraphPiece:
        """Return the text up to a place; the rest begins with `opening`, in the same block or
        not.
        """
        text = self._text[:place].strip("\n")
        piece = ParagraphPiece(text, self._opening, closing, self._goes_on)
        self._text = self._text[place:]
        self._looked = 0 if looks_again else len(self._text)
        self._opening, self._goes_on = opening, goes_on
        return piece


def pieces_of(text: str) -> Iterator[ParagraphPiece]:
    """Yield a finished message in pieces."""
    paragraphs = Paragraphs()
    for start in range(0, len(text), bounds.FRAME_LETTERS):
        paragraphs.feed(text[start : start + bounds.FRAME_LETTERS])
        yield from iter(paragraphs.next_piece, None)
    yield from iter(paragraphs.rest, None)
