"""Markdown on a terminal, with nothing of the text lost."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown


class _PlainHeading(Heading):
    """Bold where it stands: boxes and centring are too loud for a conversation."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("heading")
        yield self.text


class Prose(Markdown):
    """What an agent said. Tags stay to be read, a line that ends stays ended."""

    elements = {**Markdown.elements, "heading_open": _PlainHeading}  # noqa: RUF012 (rich's own)

    def __init__(self, text: str) -> None:
        super().__init__(
            "", code_theme="ansi_dark", inline_code_theme="ansi_dark", hyperlinks=False
        )
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.markup = text
        self.parsed = parser.parse(text)
        _keep_lines(self.parsed)


def _keep_lines(tokens: Iterable[Token]) -> None:
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        _keep_lines(token.children or ())
