"""An agent's Markdown as laid out in a conversation: no boxes, no margins, nothing hidden."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from acphold.presentation.visible_text import visible


def without_margins(lines: list[list[Segment]]) -> list[list[Segment]]:
    """Return rendered lines without the empty ones around code and tables."""
    told = [place for place, line in enumerate(lines) if "".join(it.text for it in line).strip()]
    return lines[told[0] : told[-1] + 1] if told else lines


class _PlainHeading(Heading):
    """A heading in bold: boxes and centring are too loud for a conversation."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("heading")
        yield self.text


COLOURED = 50_000
"""Longest coloured block of code, in characters; a megabyte takes five seconds."""


class _Code(CodeBlock):
    """Code without empty lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        language = self.lexer_name if len(code) <= COLOURED else "text"
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
