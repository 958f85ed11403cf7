"""Two versions of a file, line by line, in time that grows with their length.

difflib alone takes many seconds for some files of 5,000 lines. So the files are first cut at lines
that occur once in each ("patience diff"), and only the pieces in between are compared closely, as
long as there are steps for it. The other pieces count as changed entirely.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Final

from acphold.safety.budget import Budget

CLOSE_STEPS: Final = 4_000_000
"""Steps of close comparisons of two versions, one for a pair of lines: a quarter of a second."""

CONTEXT: Final = 3
"""Unchanged lines around a change."""


def hunks(
    old: Sequence[str], new: Sequence[str], skipped: int = 0, budget: Budget | None = None
) -> Iterator[list[str]]:
    """Yield the hunks of a unified diff: the ranges, then the lines, each behind its sign.

    Both versions follow so many lines that are not compared.
    """
    matcher = _LineMatcher(old, new, budget or Budget(CLOSE_STEPS))
    for group in matcher.get_grouped_opcodes(CONTEXT):
        (_, before, _, after, _), (_, _, before_end, _, after_end) = group[0], group[-1]
        places = _range(before, before_end, skipped), _range(after, after_end, skipped)
        lines = ["@@ -{} +{} @@".format(*places)]
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[i:i_end]]
            else:
                lines += [f"-{line}" for line in old[i:i_end]]
                lines += [f"+{line}" for line in new[j:j_end]]
        yield lines


def _range(start: int, end: int, skipped: int) -> str:
    """Return lines `start` to before `end` as a range of a unified diff, which counts from 1; for
    none, the line before it."""
    length = end - start
    first = skipped + start + bool(length)
    return f"{first}" if length == 1 else f"{first},{length}"


class _LineMatcher(SequenceMatcher[str]):
    """difflib's matcher with a different search for equal lines: see the module."""

    def __init__(self, old: Sequence[str], new: Sequence[str], budget: Budget) -> None:
        super().__init__()
        self._budget = budget
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
        for i_next, j_next in [*_anchors(old[: last[0]], new[: last[1]], begin), last]:
            one, other = old[i:i_next], new[j:j_next]
            if one and other:
                # The most work difflib can have with them: it looks at all pairs of equal lines,
                # once for each block of lines that it finds.
                counts = Counter(other)
                work = min(len(one), len(other)) * sum(counts[line] for line in one)
                if self._budget.affords(work):
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
