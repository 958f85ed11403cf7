"""Unified diffs among the arguments of a call: some agents give one beside its two texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from acp_wire.schema import Diff

_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")

MOST: Final = 50_000
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
    is_patch = patch.startswith(("Index: ", "--- ")) and len(patch) <= MOST
    found = _files(patch) if is_patch else []
    paths = {names[0] for names, _ in found}
    return len(found) == len(paths) > 0 and all(
        any(set(names) == {diff.path} and _is_all(pieces, diff) for diff in diffs)
        for names, pieces in found
    )


def _is_all(pieces: Sequence[_Piece], diff: Diff) -> bool:
    """Return True if these pieces turn the old version into the new one."""
    old, new = _lines(diff.old_text or ""), _lines(diff.new_text)
    ends = [_Piece(0, [], 0, []), *pieces, _Piece(len(old), [], len(new), [])]
    return all(
        last.old_at + len(last.old) <= it.old_at
        and last.new_at + len(last.new) <= it.new_at
        and old[it.old_at : it.old_at + len(it.old)] == it.old
        and new[it.new_at : it.new_at + len(it.new)] == it.new
        and old[last.old_at + len(last.old) : it.old_at]
        == new[last.new_at + len(last.new) : it.new_at]
        for last, it in pairwise(ends)
    )


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
