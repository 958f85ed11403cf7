"""Two versions of a file, line by line, in time that grows with their length.

difflib alone takes many seconds for some files of 5,000 lines. So the files are first cut at lines
that occur once in each ("patience diff"), and only the pieces in between are compared closely, as
long as there is time for it. The other pieces count as changed entirely.

Some agents give a unified diff beside the two texts, among the arguments of a call: `is_shown`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from difflib import Match, SequenceMatcher
from typing import Final

from msgspec import Struct

from acp_wire.schema import Diff
from acphold.conversation.presentation.visible_text import quantity, visible

DIFF_LINES: Final = 5000
"""Longest file that is compared, in lines; of a longer one only the two lengths are shown."""

CLOSE_WORK: Final = 4_000_000
"""Limit of close comparisons in one diff, as counted by `_work`: a quarter of a second."""

CONTEXT: Final = 3
"""Unchanged lines around a change."""


def diff_lines(diff: Diff, *, whole: bool = False) -> list[str]:
    """Return the lines of a unified diff, without the two that name the file; visible text.

    One line says that nothing changes. A very long file is only reported as changed, unless the
    `whole` diff is wanted.
    """
    if not (diff.old_text or diff.new_text):
        return ["@@ empty @@"]
    if diff.old_text == diff.new_text:
        return ["@@ no change @@"]
    before, now = _count(diff.old_text or ""), _count(diff.new_text)
    if max(before, now) > DIFF_LINES and not whole:  # nothing of it is looked at
        return [f"@@ {quantity(before, 'line')} became {quantity(now, 'line')} @@"]
    old, new = visible_lines(diff.old_text or ""), visible_lines(diff.new_text)
    lines: list[str] = []
    for group in _Comparison(old, new).get_grouped_opcodes(CONTEXT):
        (_, before, _, after, _), (_, _, before_end, _, after_end) = group[0], group[-1]
        lines.append(f"@@ -{_range(before, before_end)} +{_range(after, after_end)} @@")
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[i:i_end]]
            else:
                lines += [f"-{line}" for line in old[i:i_end]]
                lines += [f"+{line}" for line in new[j:j_end]]
    return lines or ["@@ only line ends change @@"]


def _count(text: str) -> int:
    """Return the number of lines of a file."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def visible_lines(text: str) -> list[str]:
    """Return the lines of a file; a carriage return that ends none is marked."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\\x0d")
    return visible(text).splitlines()


def _range(start: int, end: int) -> str:
    """Return lines `start` to before `end` as a range of a unified diff, which counts from 1."""
    length = end - start
    return f"{start + bool(length)},{length}" if length != 1 else f"{start + 1}"


class _Comparison(SequenceMatcher[str]):
    """difflib's matcher with a different search for equal lines: see the module."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._old = old
        self._new = new

    def get_matching_blocks(self) -> list[Match]:
        old, new = self._old, self._new
        shorter = min(len(old), len(new))
        begin = next((i for i in range(shorter) if old[i] != new[i]), shorter)
        left = shorter - begin
        end = next((i for i in range(left) if old[-1 - i] != new[-1 - i]), left)
        # Blocks of places at which the files have the same lines, in order, next to each other.
        found = [Match(0, 0, begin)]
        i, j = begin, begin
        last = (len(old) - end, len(new) - end)
        room = CLOSE_WORK
        for i_next, j_next in [*_anchors(old[: last[0]], new[: last[1]], begin), last]:
            one, other = old[i:i_next], new[j:j_next]
            if one and other:
                # The most work difflib can have with them: it looks at all pairs of equal lines,
                # once for each block of lines that it finds.
                counts = Counter(other)
                work = min(len(one), len(other)) * sum(counts[line] for line in one)
                if work <= room:
                    room -= work
                    matches = SequenceMatcher(None, one, other).get_matching_blocks()
                    found += [Match(i + it.a, j + it.b, it.size) for it in matches]
            if (i_next, j_next) != last:
                found.append(Match(i_next, j_next, 1))
            i, j = i_next + 1, j_next + 1
        found.append(Match(*last, end))

        blocks = found[:1]
        for it in found[1:]:
            before = blocks[-1]
            if (it.a, it.b) == (before.a + before.size, before.b + before.size):
                blocks[-1] = before._replace(size=before.size + it.size)
            else:
                blocks.append(it)
        return [*(block for block in blocks if block.size), Match(len(old), len(new), 0)]


def _anchors(old: Sequence[str], new: Sequence[str], begin: int) -> list[tuple[int, int]]:
    """Return the longest sequence of unique lines common to both, in order, from `begin` on."""
    in_old, in_new = Counter(old[begin:]), Counter(new[begin:])
    places = {line: j for j, line in enumerate(new[begin:], begin) if in_new[line] == 1}
    ends: list[int] = []  # for each length, the last place in `new` of the best sequence
    rows: list[tuple[int, int, int]] = []  # place in both, and which of `rows` precedes it
    tops: list[int] = []
    for i, line in enumerate(old[begin:], begin):
        if in_old[line] == 1 and (j := places.get(line)) is not None:
            length = bisect_left(ends, j)
            rows.append((i, j, tops[length - 1] if length else -1))
            ends[length : length + 1] = [j]
            tops[length : length + 1] = [len(rows) - 1]
    found: list[tuple[int, int]] = []
    top = tops[-1] if tops else -1
    while top >= 0:
        i, j, top = rows[top]
        found.append((i, j))
    return found[::-1]


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
