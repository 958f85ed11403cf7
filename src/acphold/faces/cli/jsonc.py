"""JSON with comments, edited in place: every other character of the text stays.

Editors keep such files: with `//` and `/* */`, commas after the last member, and people's own
order. So nothing is decoded and written again: the text is scanned for places, and pieces of it
are replaced. If a key occurs twice, the last one counts, as in editors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_DEPTH: Final = 100
"""Deepest nesting of values; people's files have five levels."""

_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*[^\r\n]*?\*/)*")
_STRING = re.compile(r'"(?:[^"\\\r\n]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_INDENT = re.compile(r"[ \t]*")


class JsoncError(ValueError):
    """The text is not JSON with comments, or lacks an object where one is needed."""


class Node(NamedTuple):
    """A value and its place; only an object has `members`."""

    start: int
    end: int
    value: object
    members: tuple[Member, ...] | None = None

    def find(self, key: str) -> Member | None:
        """Return the member that counts for `key`."""
        found = [member for member in self.members or () if member.key == key]
        return found[-1] if found else None


class Member(NamedTuple):
    """A member of an object; `start` is the beginning of its key."""

    key: str
    start: int
    node: Node


# -- reading --------------------------------------------------------------------------------


def scan(text: str) -> Node | None:
    """Return the value of a text; None if it has only blanks and comments. JsoncError."""
    scanner = _Scanner(text)
    start = scanner.blank(0)
    if start == len(text):
        return None
    root = scanner.value(start, 0)
    end = scanner.blank(root.end)
    if end != len(text):
        raise scanner.error(end, "unexpected text after the end")
    return root


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text

    def error(self, at: int, what: str) -> JsoncError:
        return JsoncError(f"line {self._text.count(chr(10), 0, at) + 1}: {what}")

    def blank(self, at: int) -> int:
        """Return the end of the blanks and comments that begin here."""
        return _end_of_match(_BLANK, self._text, at)

    def value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(at, "nested too deeply")
        match self._text[at : at + 1]:
            case "{":
                members: list[Member] = []
                place = self.blank(at + 1)
                while self._text[place : place + 1] != "}":
                    key = self._string(place)
                    colon = self.blank(key.end)
                    if self._text[colon : colon + 1] != ":":
                        raise self.error(colon, "a colon is missing")
                    node = self.value(self.blank(colon + 1), depth + 1)
                    members.append(Member(str(key.value), key.start, node))
                    place = self._next(node.end, "}")
                value = {member.key: member.node.value for member in members}
                return Node(at, place + 1, value, tuple(members))
            case "[":
                items: list[object] = []
                place = self.blank(at + 1)
                while self._text[place : place + 1] != "]":
                    node = self.value(place, depth + 1)
                    items.append(node.value)
                    place = self._next(node.end, "]")
                return Node(at, place + 1, items)
            case '"':
                return self._string(at)
        found = _SCALAR.match(self._text, at)
        if found is None:
            raise self.error(at, "a value is missing")
        return Node(at, found.end(), json.loads(found[0]))

    def _string(self, at: int) -> Node:
        found = _STRING.match(self._text, at)
        if found is None:
            raise self.error(at, "a string in double quotes is missing, or not closed")
        try:
            return Node(at, found.end(), json.loads(found[0], strict=False))
        except ValueError:
            raise self.error(at, "invalid escape sequence in this string") from None

    def _next(self, end: int, closing: str) -> int:
        """Return the place of the next item, or of the closing bracket."""
        at = self.blank(end)
        match self._text[at : at + 1]:
            case ",":
                return self.blank(at + 1)
            case found if found == closing:
                return at
        raise self.error(at, f"a comma or {closing} is missing")


# -- writing --------------------------------------------------------------------------------


def put(text: str, path: Sequence[str], value: object, unit: str = "  ") -> str:
    """Return the text with `value` at `path`; missing objects on the way are created.

    `unit` is one step of indentation, used if the text does not show its own. The text is unchanged
    if the value is there already. Raises JsoncError.
    """
    layout = _Layout(text, unit)
    node = scan(text)
    if node is None:
        return layout.begin(_nest(path, value))
    for depth, key in enumerate(path):
        if node.members is None:
            if node.value is None and depth:
                return layout.replace(node, _nest(path[depth:], value))
            raise JsoncError(f"{'.'.join(path[:depth]) or 'the whole file'} is not a JSON object")
        member = node.find(key)
        if member is None:
            return layout.add(node, key, _nest(path[depth + 1 :], value))
        node = member.node
    before, after = (json.dumps(each, sort_keys=True) for each in (node.value, value))
    return text if before == after else layout.replace(node, value)


def remove(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at `path`; unchanged if there is none. JsoncError.

    An object in another one that is empty then, without a comment, is removed as well.
    """
    *place, key = path
    parent = _node_at(text, place)
    member = parent.find(key) if parent is not None else None
    if parent is None or member is None:
        return text
    text = remove(_Layout(text, "").remove(parent, member), path)  # the key may occur twice
    left = _node_at(text, place)
    if place and left is not None and not text[left.start + 1 : left.end - 1].strip():
        text = remove(text, place)
    return text


def value_at(text: str, path: Sequence[str]) -> object:
    """Return the value at `path`; None when there is none."""
    node = _node_at(text, path)
    return None if node is None else node.value


def _node_at(text: str, path: Sequence[str]) -> Node | None:
    node = scan(text)
    for key in path:
        member = node.find(key) if node is not None else None
        node = member.node if member is not None else None
    return node


def _nest(path: Sequence[str], value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


class _Layout:
    """The layout of a text; its methods return the text with a piece of it changed."""

    def __init__(self, text: str, unit: str) -> None:
        self._text = text
        self._eol = "\r\n" if "\r\n" in text else "\n"
        own = re.search(r"[{,][ \t]*\r?\n(?:[ \t]*//[^\n]*\n)*([ \t]+)\"", text)
        self._unit = own[1] if own else unit

    def begin(self, value: object) -> str:
        """Return the text, which has comments at most, with its first value after them."""
        before = self._text
        if before and before != "\ufeff" and not before.endswith("\n"):
            before += self._eol
        return f"{before}{self._render(value, '')}{self._eol}"

    def replace(self, node: Node, value: object) -> str:
        """Replace one value with another."""
        text, indent = self._text, self._indent_at(node.start)
        return f"{text[: node.start]}{self._render(value, indent)}{text[node.end :]}"

    def add(self, node: Node, key: str, value: object) -> str:
        """Add a member at the end of an object."""
        text, base = self._text, self._indent_at(node.start)
        if not node.members:  # but it may hold comments
            inside = text[: node.end - 1].rstrip(" \t\r\n")
            member = self._member(key, value, base + self._unit)
            return f"{inside}{self._eol}{member}{self._eol}{base}{text[node.end - 1 :]}"
        last = node.members[-1]
        if "\n" not in text[node.start : node.end]:
            end = last.node.end
            return f"{text[:end]}, {_inline({key: value})[1:-1]}{text[end:]}"
        comma = self._comma_after(last.node.end)
        # The last member shows the indentation, unless it is on the line of the brace.
        is_below = "\n" in text[node.start : last.start]
        indent = self._indent_at(last.start) if is_below else base + self._unit
        begin = last.node.end if comma is None else comma + 1
        line_end = _end_of_match(_REST_OF_LINE, text, begin)
        member = self._member(key, value, indent) + ("" if comma is None else ",")
        before = text[: last.node.end] + ("," if comma is None else "")
        before += text[last.node.end : line_end].rstrip(" \t")
        if text[line_end : line_end + 1] in ("\r", "\n"):
            spaces = text[len(text[:line_end].rstrip(" \t")) : line_end]
            return f"{before}{spaces}{self._eol}{member}{text[line_end:]}"
        return f"{before}{self._eol}{member}{self._eol}{base}{text[line_end:]}"

    def remove(self, node: Node, member: Member) -> str:
        """Remove a member, its comma, and the line if that is then empty."""
        text, begin, end = self._text, member.start, member.node.end
        comma = self._comma_after(end)
        if comma is not None and not text[end:comma].strip():
            end = comma + 1
        elif comma is not None:
            text = f"{text[:comma]} {text[comma + 1 :]}"  # a comment stands before it
        line = text.rfind("\n", 0, begin) + 1
        rest = _end_of_match(re.compile(r"[ \t]*(\r?\n)?"), text, end)
        if not text[line:begin].strip() and text[end:rest].endswith("\n"):
            begin, end = line, rest
        else:
            end = _end_of_match(_INDENT, text, end)
        text = text[:begin] + text[end:]
        before = [other.node.end for other in node.members or () if other.start < member.start]
        if comma is None and before and (gone := self._comma_after(before[-1])) is not None:
            text = text[:gone] + text[gone + 1 :]
        return text

    def _comma_after(self, end: int) -> int | None:
        """Return the place of the comma after a value; None if there is none."""
        at = _end_of_match(_BLANK, self._text, end)
        return at if self._text[at : at + 1] == "," else None

    def _indent_at(self, at: int) -> str:
        """Return the blanks at the beginning of the line of a place."""
        line = self._text.rfind("\n", 0, at) + 1
        return self._text[line : _end_of_match(_INDENT, self._text, line)]

    def _member(self, key: str, value: object, indent: str) -> str:
        return f"{indent}{_inline(key)}: {self._render(value, indent)}"

    def _render(self, value: object, indent: str) -> str:
        """Render a value, with all but its first line indented; lists stay on one line."""
        if not isinstance(value, dict) or not value:
            return _inline(value)
        inner = indent + self._unit
        members = (self._member(key, item, inner) for key, item in value.items())
        return f"{{{self._eol}{f',{self._eol}'.join(members)}{self._eol}{indent}}}"


def _inline(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _end_of_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
