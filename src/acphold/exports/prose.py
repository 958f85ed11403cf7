"""What an agent wrote in Markdown, as HTML that can do nothing.

Tags stay to be read. A link may lead to the web or to an address, nowhere else; a picture, which
a browser would fetch unasked, becomes a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acphold.presentation.visible_text import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LAID_OUT_CHARACTERS = 200_000
"""The longest text that is laid out; a longer one stays as it was written: that takes too long."""

SCHEMES = frozenset({"http", "https", "mailto"})
"""Where links may lead."""


def prose(text: str) -> str:
    """The HTML of a text."""
    if len(text) > LAID_OUT_CHARACTERS:
        return f'<div class="text">{escape(visible(text))}</div>'
    parser = _parser()
    tokens = parser.parse(visible(text))
    _prepare(tokens)
    return f'<div class="prose">{parser.renderer.render(tokens, parser.options, {})}</div>'


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True})
    made.enable(["strikethrough", "table"])
    made.validateLink = _may_lead  # type: ignore[method-assign]
    return made


def _may_lead(url: str) -> bool:
    try:
        return urlsplit(url.strip()).scheme.lower() in SCHEMES
    except ValueError:
        return False


def _prepare(tokens: Iterable[Token]) -> None:
    """Make links and pictures harmless, and put headings below those of the page.

    What `&#27;` and its like decode to is shown.
    """
    for token in tokens:
        token.content = visible(token.content)
        token.info = ""
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
        elif token.type == "link_open":
            token.attrs = {"href": str(token.attrs["href"]), "rel": "noopener noreferrer nofollow"}
        elif token.type == "image":
            _make_link(token)
        elif "style" in token.attrs:  # of a column: the page's policy knows no style in a tag
            token.attrs = {"class": str(token.attrs["style"]).rpartition(":")[2]}
        _prepare(token.children or ())


def _make_link(token: Token) -> None:
    """Turn a picture into text that names it, and where it would have come from."""
    token.type = "text"
    token.content = f"[picture: {token.content or 'no name'}, {token.attrs.get('src', '')}]"
    token.tag, token.attrs, token.children = "", {}, None
