"""Patches for `git apply`: the change of one text file, in git's extended form.

Source: git-diff(1), "Generating patch text with -p"; git's apply.c for its use of line numbers: a
hunk that begins with line 1, or has no line after its change, must be at the beginning, or the end,
of the file; any other is searched for by its lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from acphold.reports.file_edits import Absent, FileText

CONTEXT: Final = 3
"""Lines around a change."""

COMPARED_LINES: Final = 10_000
"""Most lines compared one by one; a longer run of differing lines counts as changed entirely.

The time for comparing grows with the square of their number.
"""

COMPARED_PAIRS: Final = 500_000
"""Most pairs of equal lines in what is compared: with the same line thousands of times on both
sides, comparing would take hours."""

NO_NEWLINE: Final = "\\ No newline at end of file\n"

_MODE: Final = "100644"
_EMPTY: Final = "e69de29"
"""The hash of the empty file: a patch that creates or removes one has no lines to show."""

Opcode = tuple[str, int, int, int, int]


def whole_patch(path: str, before: FileText, after: FileText) -> str:
    """Return the patch of a file, `path` relative to where it is applied; "" if nothing changed."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    head = [f"diff --git {_name('a/', path)} {_name('b/', path)}\n"]
    if isinstance(before, Absent):
        head.append(f"new file mode {_MODE}\n")
    if isinstance(after, Absent):
        head.append(f"deleted file mode {_MODE}\n")
    if not old and not new:
        names = ("0000000", _EMPTY) if isinstance(before, Absent) else (_EMPTY, "0000000")
        return "".join((*head, f"index {names[0]}..{names[1]}\n"))
    from_, to = _mark("a/", path, before), _mark("b/", path, after)
    return "".join((*head, f"--- {from_}\n+++ {to}\n", *_hunks(old, new, 1)))


def part_patch(path: str, before: str, after: str, line: int | None) -> str | None:
    """Return the patch of a run of whole lines of a file, which begin with `line`, if known.

    None if it is unclear whether the last of them ends the file: agents that show lines around a
    change cut off the last newline.
    """
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    if old and new and not before.endswith("\n") and not after.endswith("\n"):
        if len(old) > 2 and old[-2:] == new[-2:]:
            old, new = old[:-1], new[:-1]  # not needed
        elif line is None:
            return None
        else:  # agents that number lines show those around a change
            old[-1], new[-1] = f"{old[-1]}\n", f"{new[-1]}\n"
    first = line or 1
    if line is None and old[:1] == new[:1]:
        first = 2  # searched for, from the second line on, in both directions
    name = f"diff --git {_name('a/', path)} {_name('b/', path)}\n"
    from_, to = _mark("a/", path, before), _mark("b/", path, after)
    return "".join((name, f"--- {from_}\n+++ {to}\n", *_hunks(old, new, first)))


def _lines(text: FileText) -> list[str]:
    """Return the lines with their ends; only a newline ends one."""
    if isinstance(text, Absent) or not text:
        return []
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _hunks(old: Sequence[str], new: Sequence[str], first: int) -> Iterator[str]:
    for group in _groups(_opcodes(old, new)):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{_range(i1, i2, first)} +{_range(j1, j2, first)} @@\n"
        for tag, o1, o2, n1, n2 in group:
            if tag == "equal":
                yield from (_line(" ", line) for line in old[o1:o2])
            else:
                yield from (_line("-", line) for line in old[o1:o2])
                yield from (_line("+", line) for line in new[n1:n2])


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n{NO_NEWLINE}"


def _range(start: int, end: int, first: int) -> str:
    """Return the line range of a hunk; for none, the line before it."""
    return f"{start + first if end > start else start + first - 1},{end - start}"


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Return the operations from old to new lines; common ends are not compared."""
    least = min(len(old), len(new))
    head = next((n for n in range(least) if old[n] != new[n]), least)
    least -= head
    tail = next((n for n in range(least) if old[-1 - n] != new[-1 - n]), least)
    i, j = len(old) - tail, len(new) - tail
    if max(i, j) - head > COMPARED_LINES or _pairs(old[head:i], new[head:j]) > COMPARED_PAIRS:
        middle: list[Opcode] = [("replace", head, i, head, j)]
    else:
        matcher = SequenceMatcher(None, old[head:i], new[head:j], autojunk=False)
        middle = [
            (tag, i1 + head, i2 + head, j1 + head, j2 + head)
            for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        ]
    return [("equal", 0, head, 0, head), *middle, ("equal", i, len(old), j, len(new))]


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of pairs of equal lines, one of each side."""
    counts = Counter(new)
    return sum(count * counts[line] for line, count in Counter(old).items())


def _groups(opcodes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Yield the changes with CONTEXT lines around them, nearby ones together."""
    group: list[Opcode] = []
    for place, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        has_more = any(later[0] != "equal" for later in opcodes[place + 1 :])
        if group and (i2 - i1 > 2 * CONTEXT or not has_more):
            ends = min(CONTEXT, i2 - i1)
            yield [*group, (tag, i1, i1 + ends, j1, j1 + ends)]
            group = []
        if has_more:
            begins = i1 if group else max(i1, i2 - CONTEXT)
            group.append((tag, begins, i2, j2 - (i2 - begins), j2))


def _mark(side: str, path: str, state: FileText) -> str:
    """Return a name for `---` or `+++`: one with a space is followed by a tab."""
    if isinstance(state, Absent):
        return "/dev/null"
    name = _name(side, path)
    return f"{name}\t" if " " in name and not name.startswith('"') else name


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _name(side: str, path: str) -> str:
    """Return a path as git writes it: quoted if it has special characters."""
    if not any(sign in _ESCAPES or ord(sign) < 0x20 or ord(sign) == 0x7F for sign in path):
        return f"{side}{path}"
    quoted = "".join(
        _ESCAPES.get(sign)
        or (f"\\{ord(sign):03o}" if ord(sign) < 0x20 or ord(sign) == 0x7F else sign)
        for sign in path
    )
    return f'"{side}{quoted}"'
