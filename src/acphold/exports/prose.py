"""An agent's Markdown as HTML without any active content.

Tags stay visible as text. A link may only lead to the web or to a mail address; a picture, which a
browser would fetch unasked, becomes a link. Code is coloured by Pygments, which escapes all of its
input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acphold.presentation.visible_text import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer

LAID_OUT_CHARACTERS = 200_000
"""Longest text that is laid out, in characters; a longer one stays as written, to save time."""

LAID_OUT_MARKS = 40_000
"""Most marks of a text that is laid out; a line counts as LINE of them. Each takes about 10 µs, so
a text of nothing else would take three seconds. Long answers as agents write them have fewer."""

MARKS = "[!*_~`|"
LINE = 3

COLOURED_CHARACTERS = 50_000
"""Longest coloured block of code, in characters: a megabyte would take five seconds."""

SCHEMES = frozenset({"http", "https", "mailto"})
"""Allowed schemes of links."""


def prose(text: str) -> str:
    """Return the HTML of a text."""
    text = visible(text)
    if len(text) > LAID_OUT_CHARACTERS or _marks(text) > LAID_OUT_MARKS:
        return f'<div class="text">{escape(text)}</div>'
    parser = _parser()
    tokens = parser.parse(text)
    _prepare(tokens)
    return f'<div class="prose">{parser.renderer.render(tokens, parser.options, {})}</div>'


def _marks(text: str) -> int:
    return sum(map(text.count, MARKS)) + LINE * text.count("\n")


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True, "highlight": _code})
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

    Characters that `&#27;` and its like stand for are shown.
    """
    opened: Token | None = None
    for token in tokens:
        token.content = visible(token.content)
        token.info = found[0] if (found := _LANGUAGE.match(token.info)) else ""
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
        elif token.type == "link_open":
            token.attrs = {"href": str(token.attrs["href"]), "rel": "noopener noreferrer nofollow"}
        elif token.type == "image":
            _make_link(token)
        elif "style" in token.attrs:  # of a column: the policy forbids inline styles
            token.attrs = {"class": str(token.attrs["style"]).rpartition(":")[2]}
        elif token.type == "table_open":
            token.attrs = {"tabindex": "0"}  # lets keys scroll a wide block
        if token.type == "inline" and opened is not None and _BOX.match(token.content):
            _make_box(opened, token)
        if token.type != "paragraph_open":  # it stands between an item and its first words
            opened = token if token.type == "list_item_open" else None
        _prepare(token.children or ())


def _make_link(token: Token) -> None:
    """Turn a picture into text with its name and its source."""
    token.type = "text"
    token.content = f"[picture: {token.content or 'no name'}, {token.attrs.get('src', '')}]"
    token.tag, token.attrs, token.children = "", {}, None


_BOX = re.compile(r"\[([ xX])\]\s")
"""The start of an item of a task list; GitHub Flavored Markdown, 5.3."""


def _make_box(item: Token, words: Token) -> None:
    """Turn an item's `[x]` into a checkbox."""
    first = (words.children or [words])[0]
    if first.type != "text" or not (found := _BOX.match(first.content)):
        return
    first.content = first.content[found.end() :]
    item.attrs = {"class": "done" if found[1] != " " else "open"}


_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


def _code(code: str, language: str, _: str) -> str:
    """Return the code of a fence in colours, if possible; "" to leave it as it is."""
    if len(code) > COLOURED_CHARACTERS or not language:
        return ""
    if language.lower() in ("diff", "patch"):
        head, hunk, rest = code.partition("@@") if "@@" in code else ("", "", code)
        named = "".join(f"<span>{escape(line)}</span>\n" for line in head.splitlines())
        lines = "".join(map(diff_line, f"{hunk}{rest}".splitlines()))
        return f'<pre class="diff" tabindex="0">\n{named}{lines}</pre>'
    if (lexer := _lexer(language.lower())) is None:
        return ""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter

    return (
        f'<pre tabindex="0"><code>{highlight(code, lexer, HtmlFormatter(nowrap=True))}</code></pre>'
    )


@cache
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


_TAGS = {"+": "ins", "-": "del"}


def diff_line(line: str) -> str:
    """Return a line of a diff, marked by its kind."""
    if line.startswith("@@"):
        return f"<span>{escape(line)}</span>\n"
    tag = _TAGS.get(line[:1])
    return f"<{tag}>{escape(line)}</{tag}>\n" if tag else f"{escape(line)}\n"
