"""The changes of files as agents show them, as lines for people.

Some agents give a unified diff beside the two texts, among the arguments of a call: `is_shown`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from acp_wire.schema import Diff
from acphold.conversation.presentation.visible_text import quantity, visible
from acphold.conversation.reports.line_changes import hunks
from acphold.safety.budget import Budget

DIFF_LINES: Final = 5000
"""Longest file that is compared, in lines; of a longer one only the two lengths are shown."""


def diff_lines(diff: Diff, *, whole: bool = False, budget: Budget | None = None) -> list[str]:
    """Return the lines of a unified diff, without the two that name the file; visible text.

    One line says that nothing changes. A very long file is only reported as changed, unless the
    `whole` diff is wanted. Where the steps to compare them end, lines count as changed.
    """
    if not (diff.old_text or diff.new_text):
        return ["@@ empty @@"]
    if diff.old_text == diff.new_text:
        return ["@@ no change @@"]
    before, now = _count(diff.old_text or ""), _count(diff.new_text)
    if max(before, now) > DIFF_LINES and not whole:  # nothing of it is looked at
        return [f"@@ {quantity(before, 'line')} became {quantity(now, 'line')} @@"]
    old, new = visible_lines(diff.old_text or ""), visible_lines(diff.new_text)
    lines = [line for hunk in hunks(old, new, 0, budget) for line in hunk]
    return lines or ["@@ only line ends change @@"]


def _count(text: str) -> int:
    """Return the number of lines of a file."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def visible_lines(text: str) -> list[str]:
    """Return the lines of a file; a carriage return that ends none is marked."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\\x0d")
    return visible(text).splitlines()


# -- unified diffs of agents ------------------------------------------------------------------

_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")

PATCH_CHARACTERS: Final = 50_000
"""Most characters of a unified diff that is looked at."""

_END: Final = "\\ No newline at end of file"


class _Piece(Struct, frozen=True):
    """Lines of the old version and those in their place, with where they begin, from 0."""

    old_at: int
    old: list[str]
    new_at: int
    new: list[str]


def is_shown(patch: str, diffs: Sequence[Diff]) -> bool:
    """Return True if a unified diff says only what these diffs show.

    Each of its files has to be that of a diff, and its hunks, one behind the other, all that the
    diff changes there. A long one is not looked at: of a long diff only a part is in sight.
    """
    is_patch = patch.startswith(("Index: ", "--- ")) and len(patch) <= PATCH_CHARACTERS
    found = _files(patch) if is_patch else []
    paths = {names[0] for names, _ in found}
    return len(found) == len(paths) > 0 and all(
        any(set(names) == {diff.path} and _is_all(pieces, diff) for diff in diffs)
        for names, pieces in found
    )


def _is_all(pieces: Sequence[_Piece], diff: Diff) -> bool:
    """Return True if these pieces turn the old version into the new one."""
    old, new, at = _lines(diff.old_text or ""), list[str](), 0
    for it in pieces:
        new += old[at : it.old_at]
        end = it.old_at + len(it.old)
        is_in_place = at <= it.old_at <= len(old) and it.new_at == len(new)
        if not is_in_place or old[it.old_at : end] != it.old:
            return False
        new += it.new
        at = end
    return new + old[at:] == _lines(diff.new_text)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _files(patch: str) -> list[tuple[list[str], list[_Piece]]]:
    """Return the names of each file and its hunks; nothing if a line has no place in a patch."""
    found: list[tuple[list[str], list[_Piece]]] = []
    lines = _lines(patch)
    at = 0
    while at < len(lines):
        names: list[str] = []
        for begin in ("Index: ", "===", "--- ", "+++ "):
            if at < len(lines) and lines[at].startswith(begin):
                if begin != "===":
                    names.append(lines[at][len(begin) :].rstrip("\t"))
                elif lines[at].strip("="):
                    return []
                at += 1
        if len(names) < 2:
            return []
        pieces: list[_Piece] = []
        while at < len(lines) and (hunk := _HUNK.fullmatch(lines[at])):
            at += 1
            numbers = (1 if number is None else int(number) for number in hunk.groups())
            old_at, old_count, new_at, new_count = numbers
            old: list[str] = []
            new: list[str] = []
            while at < len(lines) and (len(old) < old_count or len(new) < new_count):
                sign, text = lines[at][:1], lines[at][1:]
                if sign not in ("-", "+", " ") and lines[at] != _END:
                    return []
                old += [text] * (sign in ("-", " "))
                new += [text] * (sign in ("+", " "))
                at += 1
            at += at < len(lines) and lines[at] == _END
            piece = _Piece(old_at - bool(old_count), old, new_at - bool(new_count), new)
            pieces.append(piece)
        found.append((names, pieces))
    return found
