"""Man pages of acphold and of each command, made of docs/use.md and docs/reference.md.

A wheel has them. Nothing of acphold is imported: a build has markdown-it-py, and nothing else that
that needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

PAGES = [Path(__file__).with_name(f"{name}.md") for name in ("use", "reference")]

ABOUT = "durable, listable, shareable sessions for the Agent Client Protocol"

COMMANDS = "## Commands\n"
"""Above what is about commands, up to the next heading of this height."""


def man_pages(version: str) -> dict[str, str]:
    """The pages by the names of their files."""
    # Without the titles.
    text = "".join(page.read_text(encoding="utf-8").partition("\n")[2] for page in PAGES)
    before, _, rest = text.partition(COMMANDS)
    commands, _, behind = rest.partition("\n## ")
    introduction, *parts = re.split(r"^### ", commands, flags=re.MULTILINE)
    pages: dict[str, str] = {}
    for part in parts:
        heading, _, body = part.partition("\n")
        for usage in re.findall(r"`(acphold [^`]+)`", heading):
            name = re.sub(r" +[^a-z].*", "", usage).replace(" ", "-")
            first = re.split(r"(?<=\w)[.:;] |\.\n", _plain(body).strip(), maxsplit=1)[0]
            made = _page(name, version, first[:1].lower() + first[1:], usage, body)
            pages.setdefault(f"{name}.1", made)
    whole = f"{before}{COMMANDS}{introduction}\n## {behind}"
    usage = "acphold COMMAND [OPTIONS] ..."
    pages["acphold.1"] = _page("acphold", version, ABOUT, usage, whole, [*pages])
    return pages


def _page(
    name: str, version: str, about: str, usage: str, body: str, others: Sequence[str] = ()
) -> str:
    see = [other.removesuffix(".1") for other in others] or ["acphold"]
    related = ", ".join(f"\\fB{_escaped(other)}\\fR(1)" for other in see)
    return "\n".join(
        [
            f'.TH {_escaped(name.upper())} 1 "" "acphold {version}" "acphold"',
            ".SH NAME",
            f"{_escaped(name)} \\- {_escaped(' '.join(about.split()))}",
            ".SH SYNOPSIS",
            f"\\fB{_escaped(usage)}\\fR",
            ".SH DESCRIPTION",
            *_roff(body),
            ".SH SEE ALSO",
            f"{related}; \\fBacphold help\\fR shows all of the documents.",
            "",
        ]
    )


def _roff(markdown: str) -> Iterator[str]:
    """Lines of roff, in the macros of man(7)."""
    tokens = iter(MarkdownIt("commonmark").enable("table").parse(markdown))
    items: list[str] = []
    for token in tokens:
        match token.type:
            case "heading_open":
                yield f"{'.SH' if token.tag == 'h2' else '.SS'} {_inline(next(tokens))}"
            case "bullet_list_open" | "ordered_list_open":
                items.append("\\(bu" if token.type.startswith("bullet") else "\\-")
            case "bullet_list_close" | "ordered_list_close":
                items.pop()
                yield ".PP"
            case "list_item_open":
                next(tokens)  # the beginning of its paragraph
                yield from _item(_inline(next(tokens)), items[-1])
            case "paragraph_open" if not token.hidden and not items:
                yield ".PP"
            case "fence" | "code_block":
                lines = token.content.rstrip("\n").split("\n")
                yield from (".PP", ".RS 4", ".nf", *map(_line, map(_escaped, lines)), ".fi", ".RE")
            case "inline":
                yield from map(_line, _inline(token).split("\n"))
            case "table_open":
                yield from _table(tokens)


def _item(text: str, mark: str) -> Iterator[str]:
    """A point of a list; one that explains code stands below that."""
    named, colon, meaning = text.partition(": ")
    if colon and named.startswith("\\fB") and named.count("\n") == 0:
        yield from (".TP", _line(named), *map(_line, meaning.split("\n")))
    else:
        yield from (f".IP {mark} 3", *map(_line, text.split("\n")))


def _table(tokens: Iterator[Token]) -> Iterator[str]:
    """Each row as what it begins with, and below it what it says of that."""
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(_inline(token))
    (_, *headings), *lines = rows
    for first, *others in lines:
        yield from (".TP", f"\\fB{_line(first)}\\fR" if first else "\\ ")
        cells = {name: cell for name, cell in zip(headings, others, strict=True) if cell}
        default = f" [default: {cells.pop('default')}]" if "default" in cells else ""
        yield _line("; ".join(cells.values()) + default)
    yield ".PP"


_MARKS = {
    "strong_open": "\\fB",
    "em_open": "\\fI",
    "strong_close": "\\fR",
    "em_close": "\\fR",
    "softbreak": "\n",
    "hardbreak": "\n",
}


def _inline(token: Token) -> str:
    """The text of a paragraph, without where its links lead."""
    told = ""
    for child in token.children or ():
        if child.type == "code_inline":
            told += f"\\fB{_escaped(child.content)}\\fR"
        else:
            told += _MARKS.get(child.type, _escaped(child.content))
    return told


def _plain(markdown: str) -> str:
    """The text of the first paragraph."""
    tokens: Iterable[Token] = MarkdownIt("commonmark").enable("table").parse(markdown)
    first = next(token for token in tokens if token.type == "inline")
    return "".join(child.content or " " for child in first.children or ())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def _line(text: str) -> str:
    """A line that roff does not take for a request."""
    return f"\\&{text}" if text[:1] in (".", "'") else text
