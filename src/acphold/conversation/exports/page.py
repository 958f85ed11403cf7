"""A session as one page of HTML: folds, coloured diffs, a search; nothing loaded, nothing active.

All foreign text is escaped, so its tags stay visible as text. A link may only lead to the web or to
a mail address; a picture, which a browser would fetch unasked, becomes its name and its source.
Code is coloured by Pygments, which escapes all of its input. The page's own policy lets it run its
one script, and load nothing: even a hole in the escaping would lead nowhere. It can be read and
folded without the script.
"""

# See docs/decisions.md, 31.

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acp_wire import schema
from acphold.conversation.exports.forms import Head
from acphold.conversation.history.entries import Entry, iso
from acphold.conversation.history.timeline import ContextCompaction, Message, SubAgent, ToolCall
from acphold.conversation.presentation import scenes
from acphold.conversation.presentation.diffs import diff_lines
from acphold.conversation.presentation.visible_text import local, on_one_line, quantity, visible
from acphold.conversation.reports.transcript import Planned, Scene, turns

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer


PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SOUNDS = frozenset({"audio/wav", "audio/mpeg", "audio/ogg", "audio/webm", "audio/mp4"})
"""Media types that are embedded: none in which a browser would run anything (like SVG)."""

OPEN_LINES = 12
"""Longest tool output whose fold is open from the start, in lines."""

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


async def page(head: Head, entries: AsyncIterable[Entry]) -> AsyncIterator[str]:
    """The text of the page, an entry at a time."""
    facts = [f"<dt>{_text(name)}</dt><dd>{_text(value)}" for name, value in head.facts()]
    yield opening(head.name, facts)
    empty = True
    async for turn in turns(entries):
        place = f"e{turn.seq}"
        when = f'<time datetime="{iso(turn.at)}">{local(turn.at)}</time>'
        link = f'<a href="#{place}">{when}</a>'
        yield f'<section class="turn" id="{place}">\n<p class="when">{link}</p>\n'
        known = {turn.seq}
        for seq, scene in zip(turn.places, turn.scenes, strict=True):
            inside = _tool(scene) if isinstance(scene, ToolCall) else iter([_scene(scene)])
            if begins := next(inside):
                # Several may begin with one entry: a link leads to the first of them.
                named = "" if seq in known else f' id="e{seq}"'
                known.add(seq)
                link = f'<a class="place" href="#e{seq}" title="Link to this place">@{seq}</a>'
                yield f'<div class="entry"{named}>{link}\n{begins}'
                for piece in inside:
                    yield piece
                yield "</div>\n"
        yield "</section>\n"
        empty = False
    if empty:
        yield '<p class="beside">This session has no messages.</p>\n'
    yield closing()


def index(heads: Iterable[Head], suffix: str) -> str:
    """Return an index page of several sessions, in the same folder."""
    rows = []
    for head in heads:
        about = (
            local(head.updated_at),
            head.agent_name or head.agent,
            head.cwd,
            quantity(head.message_count, "message"),
        )
        rows.append(
            f'<li class="block"><a href="{_text(head.file_name + suffix)}">{_text(head.name)}</a>'
            f"<p>{_text(on_one_line(' · '.join(about)))}</p></li>\n"
        )
    title = quantity(len(rows), "session")
    begin = opening(title, (), holds="list of sessions")
    return f'{begin}<ul class="sessions">\n{"".join(rows)}</ul>\n{closing()}'


# -- the page around it -------------------------------------------------------------------------


@cache
def _beside(name: str) -> str:
    """Return the text of a file in this module's folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return a text's digest for a page's policy; W3C, Content Security Policy Level 3, 2.3.1."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def opening(title: str, facts: Iterable[str], *, holds: str = "conversation") -> str:
    """Return everything before the conversation, or before other content that the page `holds`."""
    style, script = _beside("page.css"), _beside("page.js")
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    about = "".join(f"<div>{fact}</div>" for fact in facts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="acphold">
<title>{_text(title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#conversation">Skip to the {holds}</a>
<header>
<h1>{_text(title)}</h1>
<dl>{about}</dl>
</header>
<search class="bar" hidden>
<input type="search" id="words" placeholder="Search this {holds}"
  aria-label="Search this {holds}" autocomplete="off">
<output id="count" for="words" aria-live="polite"></output>
<button type="button" id="before" title="Previous hit (Shift+Enter)">↑</button>
<button type="button" id="next" title="Next hit (Enter)">↓</button>
<button type="button" id="folds" aria-pressed="false">Open all</button>
</search>
<main id="conversation">
"""


def closing() -> str:
    """Return everything after it."""
    return f"</main>\n<script>{_beside('page.js')}</script>\n</body>\n</html>\n"


def _text(text: str) -> str:
    return escape(visible(text))


# -- scenes -------------------------------------------------------------------------------------


def _scene(scene: Scene) -> str:
    """Return a scene as a block of the page; "" for one that is not shown."""
    match scene:
        case Message(role="thought"):
            return _fold("Thought", on_one_line(scene.text)[:120], _content(scene, markdown=False))
        case Message():
            whose = "told" if scenes.is_told(scene) else scene.role
            inside = _content(scene, markdown=scene.role == "agent")
            return _article(whose, _text(scenes.speaker(scene)), inside)
        case ToolCall():
            return "".join(_tool(scene))
        case ContextCompaction(summary=summary) if summary:
            inside = _content(Message("agent", None, summary), markdown=True)
            return _fold("context", scenes.compaction_text(scene), inside)
        case SubAgent():
            words, status = scenes.sub_agent_stands(scene)
            about = " · ".join(filter(None, ("sub-agent", words)))
            inside = "".join(
                _article(
                    "told" if item.role == "user" else item.role,
                    scenes.speaker_in_child(item),
                    _content(item, markdown=item.role == "agent"),
                )
                if isinstance(item, Message)
                else _scene(item)
                for item in scene.timeline
            )
            return _step(status, scene.name, f"<span>{about}</span>", inside)
        case Planned():
            steps = "".join(
                f'<li class="{_status(step.status)}">{scenes.plan_mark(step.status)} '
                f"{_text(step.text)}"
                for step in scene.steps
            )
            return f'<div class="block plan"><h2>Plan</h2><ul>{steps}</ul></div>\n'
        case _:
            if (found := scenes.aside(scene)) is None:
                return ""
            kind, what, words = found
            return f'<p class="block beside {kind}"><b>{what}</b> {_text(words)}</p>\n'


def _article(whose: str, who: str, inside: str) -> str:
    return f'<article class="block message {whose}"><h2>{who}</h2>{inside}</article>\n'


def _fold(what: str, words: str, inside: str) -> str:
    """Return a fold with optional content, after its first words."""
    return (
        f'<details class="block thought"><summary><b>{what}</b> '
        f"<span>{_text(on_one_line(words))}</span></summary>{inside}</details>\n"
    )


def _content(message: Message, *, markdown: bool) -> str:
    return "".join(_block(block, markdown=markdown) for block in scenes.blocks_of(message.content))


def _status(status: str) -> str:
    """Return a status's CSS class: an agent chooses among ours, and adds none."""
    return status if status in scenes.STATUS_MARKS else "unknown"


# -- content ------------------------------------------------------------------------------------


def _block(block: schema.ContentBlock, *, markdown: bool) -> str:
    match block:
        case schema.TextContent(text=text):
            return prose(text) if markdown else f'<div class="text">{_text(text)}</div>'
        case schema.ImageContent(mime_type=kind, data=data) if kind in PICTURES and _is_base64(
            data
        ):
            return (
                f'<img alt="{_text(scenes.describe_block(block))}" src="data:{kind};base64,{data}">'
            )
        case schema.AudioContent(mime_type=kind, data=data) if kind in SOUNDS and _is_base64(data):
            return f'<audio controls src="data:{kind};base64,{data}"></audio>'
    inside = scenes.resource_text(block)
    about = f'<p class="attached">{_text(on_one_line(scenes.describe_block(block)))}</p>'
    return about if inside is None else "".join([about, *_output(inside)])


def _is_base64(data: str) -> bool:
    return data.isascii() and _BASE64.issuperset(data.encode())


def _tool(call: ToolCall) -> Iterator[str]:
    """Yield a tool call in pieces: its output may be long, and is not copied."""
    found: list[str] = []
    for item in call.produced:
        match item:
            case schema.Content(content=schema.TextContent(text=text)):
                found += _output(scenes.without_fence(text))
            case schema.Content(content=block):
                found.append(_block(block, markdown=False))
            case schema.Diff():
                lines = "".join(map(diff_line, diff_lines(item)))
                path = f'<p class="path">{_text(on_one_line(item.path))}</p>'
                found.append(f'{path}<pre class="diff" tabindex="0">\n{lines}</pre>')
            case _:
                found.append('<p class="attached">shown in a terminal</p>')

    def count(sign: str) -> int:
        return sum(part.count(sign) for part in found)

    is_open = bool(found) and count("\n") <= OPEN_LINES
    # The lines it added and removed: foreign tags are escaped by now.
    added, removed = count("<ins>"), count("<del>")
    change = f' <ins class="sum">+{added}</ins> <del class="sum">&minus;{removed}</del>'
    about = _text(f"{call.kind} · {call.status.replace('_', ' ')}")
    about = f"<span>{about}</span>{change if added or removed else ''}"
    title = call.title or call.tool_call_id
    begin, end = _step(call.status, title, about, "\0", is_open=is_open).split("\0")
    yield begin
    yield from _raw("Input", call.raw_input)
    yield from found or _raw("Output", call.raw_output, is_open=True)
    yield end


def _step(status: str, title: str, about: str, inside: str, *, is_open: bool = False) -> str:
    """Return a fold with a mark for its status; `about` is HTML."""
    return (
        f'<details class="block tool {_status(status)}"{" open" if is_open else ""}><summary>'
        f'<b class="mark">{scenes.step_mark(status)}</b> {_text(on_one_line(title))} '
        f"{about}</summary>{inside}</details>\n"
    )


def _raw(name: str, raw: bytes | None, *, is_open: bool = False) -> list[str]:
    if raw in (None, b"null", b"{}", b'""'):
        return []
    text = scenes.pretty_json(raw or b"")
    opened = " open" if is_open else ""
    return [f"<details{opened}><summary>{name}</summary>", *_output(text), "</details>"]


def _output(text: str) -> list[str]:
    # A browser drops a newline right after the tag, so it gets an extra one.
    return ['<pre tabindex="0">\n', _text(text), "</pre>"] if text else []


# -- prose, code and diffs -------------------------------------------------------------------

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
    marks = sum(map(text.count, MARKS)) + LINE * text.count("\n")
    if len(text) > LAID_OUT_CHARACTERS or marks > LAID_OUT_MARKS:
        return f'<div class="text">{escape(text)}</div>'
    parser = _parser()
    tokens = parser.parse(text)
    _prepare(tokens)
    return f'<div class="prose">{parser.renderer.render(tokens, parser.options, {})}</div>'


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
    item: Token | None = None  # the list item that has just begun
    for token in tokens:
        token.content = visible(token.content)
        token.info = found[0] if (found := _LANGUAGE.match(token.info)) else ""
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
            case "bullet_list_open" | "ordered_list_open" | "blockquote_open":
                token.attrs["dir"] = "auto"  # as its words run: the style says so of the others
            case "link_open":
                url = str(token.attrs["href"])
                token.attrs = {"href": url, "rel": "noopener noreferrer nofollow"}
            case "image":
                name, source = token.content or "no name", token.attrs.get("src", "")
                token.type, token.content = "text", f"[picture: {name}, {source}]"
                token.tag, token.attrs, token.children = "", {}, None
            case "table_open":
                token.attrs = {"tabindex": "0"}  # lets keys scroll a wide block
            case "inline" if item is not None and _BOX.match(token.content):
                first = (token.children or [token])[0]
                if first.type == "text" and (box := _BOX.match(first.content)):  # of a task list
                    first.content = first.content[box.end() :]
                    item.attrs = {"class": "done" if box[1] != " " else "open"}
            case _ if "style" in token.attrs:  # of a column: the policy forbids inline styles
                token.attrs = {"class": str(token.attrs["style"]).rpartition(":")[2]}
        if token.type != "paragraph_open":  # it stands between an item and its first words
            item = token if token.type == "list_item_open" else None
        _prepare(token.children or ())


_BOX = re.compile(r"\[([ xX])\]\s")
"""The start of an item of a task list; GitHub Flavored Markdown, 5.3."""


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
