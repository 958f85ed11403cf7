"""Text of others that plays no tricks on its reader.

Prose keeps what belongs to emoji and letters. A command, a path or an argument is `exact`: every
character that somebody could overlook is marked. The page has these tables, too: `make docs`.
"""

from __future__ import annotations

import re

_OBEYED = "\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters with an effect on a terminal.

They are the control characters of ASCII and Latin-1 (C0, DEL, C1), and the marks that change the
direction of text (Unicode, UAX 9).
"""

_UNDRAWN = (
    "\xad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028\u2029\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
"""Characters that nobody sees and a model reads.

They are characters without width, fillers, variation selectors, tags (Unicode,
`Default_Ignorable_Code_Point`), line and paragraph separators, the blank Braille pattern, and all
other format characters (`Cf`).
"""

_BLANK = "\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
"""Spaces that a shell takes for letters (Unicode, `Zs`)."""

INVISIBLE = f"{_OBEYED}{_UNDRAWN}"
"""All of them, between the brackets of a pattern: for cards, for rules, for redaction."""

_HIDDEN = f"[{INVISIBLE}]+"

_EMOJI = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff]"
)
_CURSIVE = (
    "[\u0620-\u109f\u1780-\u17b3\u17b6-\u180a\u1810-\u18af\ua840-\uabff\ufb50-\ufdff\ufe70-\ufefc]"
)
_IDEOGRAPH = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"

_IN_PLACE = (
    f"(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})"
    f"|(?<={_EMOJI})[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<={_CURSIVE})[\u200c\u200d](?![{_UNDRAWN}])"
    "|[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2](?=[\u0660-\u0669\u06f0-\u06f9\u0710-\u072f])"
    f"|(?<={_IDEOGRAPH})[\ufe00-\ufe02\U000e0100-\U000e01ef]"
    "|(?<=[\u1820-\u18aa])[\u180b-\u180f]"
    "|(?<=\U0001f3f4)\U000e0067\U000e0062"
    "(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)"
    "\U000e007f"
)
"""Legitimate uses of such characters, which hide nothing.

They are one between two emoji, or after a letter or an emoji whose look it changes, a sign over the
number behind it, and the flags of England, Scotland and Wales.
"""


def visible(text: str) -> str:
    """Return `text` without terminal control and hidden characters; lone surrogates become U+FFFD.

    All foreign text that is shown to a person goes through here.
    """
    if text.isascii() and text.isprintable():
        return text
    # Nor has plain output anything to hide, which may be megabytes.
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    # Uncompiled patterns: most commands need none of them, and compiling takes milliseconds.
    return re.sub(_HIDDEN, _escape, _whole(text))


def exact(text: str) -> str:
    """Return a command, a path or an argument with each control or hidden character marked.

    So are carriage returns, and spaces other than the usual one. Line ends and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return re.sub(f"[{INVISIBLE}{_BLANK}]", lambda it: _mark(it[0]), _whole(text))


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _mark(character: str) -> str:
    code = ord(character)
    escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return escape if code < 0x10000 else f"\\U{code:08x}"


def _escape(found: re.Match[str]) -> str:
    """Return a run of hidden characters as visible escapes; those with a legitimate use stay."""
    # Joined at the end: one text that grows is copied again and again, for seconds.
    shown, place = list[str](), found.start()
    while place < found.end():
        if kept := re.compile(_IN_PLACE).match(found.string, place):
            shown.append(kept[0])
            place = kept.end()
            continue
        character = found.string[place]
        shown.append("" if character == "\r" else _mark(character))
        place += 1
    return "".join(shown)


def visible_json(text: str) -> str:
    """Return equivalent JSON without terminal control and hidden characters."""
    if text.isascii() and text.isprintable():  # as most of it: a thirtieth of the time
        return text
    return re.sub(_HIDDEN, _escape_json, text)


def _escape_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    escapes = [f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4)]
    return "".join("\r" if escape == "\\u000d" else escape for escape in escapes)


def on_one_line(text: str) -> str:
    """Return `text` for a cell of a table: visible, with white space collapsed to one space."""
    return visible(" ".join(text.split()))


def quantity(count: int, noun: str) -> str:
    """Return a number with its noun: `1 session`, `2,000 sessions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


TABLES = {"HIDDEN": _HIDDEN, "IN_PLACE": _IN_PLACE, "INEXACT": f"[{INVISIBLE}{_BLANK}]"}
"""The patterns by the names that the page has for them."""
