"""File changes of a session or a turn: a patch for `git apply`, or the reason for none.

Source: git-diff(1), "Generating patch text with -p"; git's apply.c for its use of line numbers: a
hunk that begins with line 1, or has no line after its change, must be at the beginning, or the end,
of the file; any other is searched for by its lines.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Final

from msgspec import Struct

from acp_wire.surroundings import resolve_folder
from acp_wire.workspace.regular_files import contents
from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import Segment, TurnSpan
from acphold.conversation.reports.file_edits import (
    ABSENT,
    Absent,
    Edit,
    FileText,
    around,
    edits,
    state_after,
)
from acphold.conversation.reports.line_changes import CONTEXT, hunks

FILE_BYTES: Final = 16 << 20
"""Longer files on disk are not read: no edit of an agent is in one."""


class Gap(Enum):
    """The reason why a patch is incomplete, in words that follow the name of a file."""

    UNKNOWN = "the journal has only parts of it, and the file as it is now does not show the rest"
    OUTSIDE = "it is outside of the session's folder"
    GIT = "it belongs to git itself, which patches nothing there"
    UNFINISHED = "a change was begun and never reported as done; it is left out"
    BINARY = "it is no text"
    PLACE = "the journal has only these lines of it, and does not say where they stand"


class FileDiff(Struct, frozen=True):
    """A changed file: `path` is relative to the session's folder, if it is inside.

    `patch` is empty if there is none, and if the file is unchanged. With Gap.PLACE there is a patch
    all the same: git searches for the lines. `turns` are the numbers of the turns that changed it.
    """

    path: str
    patch: str = ""
    gap: Gap | None = None
    turns: tuple[int, ...] = ()

    @property
    def is_missing(self) -> bool:
        """True if the patch lacks some of the changes."""
        return self.gap not in (None, Gap.PLACE)


async def session_diff(
    segments: AsyncIterable[Segment],
    folder: str,
    spans: Sequence[TurnSpan],
    turn: int | None,
    on_disk: Callable[[str], FileText | None],
    threads: Threads | None = None,
    *,
    by_turn: bool = False,
) -> list[FileDiff]:
    """Return the files changed by turn number `turn`, None for all turns, in order of their edits;
    with `by_turn` each file for each turn, turn by turn.

    `on_disk` returns the present state of a path, None if that is of no use. Comparing long texts
    takes a while, and a disk may hang: that is done in one of `threads`.
    """
    reported = await edits(segments, spans)

    def compare(checkpoint: Checkpoint) -> list[FileDiff]:
        by_file: dict[str, list[Edit]] = {}
        for edit in reported:
            checkpoint()
            by_file.setdefault(relative(edit.path, folder), []).append(edit)
        found: list[FileDiff] = []
        every_turn = sorted({edit.turn for edit in reported if turn in (None, edit.turn)})
        for wanted in every_turn if by_turn else [turn]:
            for path, every in by_file.items():
                checkpoint()
                found += _diffs(path, every, wanted, on_disk)
        return found

    return await (threads or Threads(1)).run_in_steps(compare)


def _diffs(
    path: str,
    every: Sequence[Edit],
    turn: int | None,
    on_disk: Callable[[str], FileText | None],
) -> Iterator[FileDiff]:
    """Yield what one turn, or all, changed in the file of these edits."""
    wanted = [edit for edit in every if turn in (None, edit.turn)]
    if not wanted:
        return
    file = partial(FileDiff, path, turns=tuple(dict.fromkeys(edit.turn for edit in wanted)))
    if path.startswith(("/", "../")) or path in (".", ".."):
        yield file(gap=Gap.OUTSIDE)
        return
    if _is_in_git(path):
        yield file(gap=Gap.GIT)
        return
    if not all(edit.is_over for edit in wanted):
        yield file(gap=Gap.UNFINISHED)
    done = [edit for edit in every if edit.is_over]
    if places := [place for place, edit in enumerate(done) if turn in (None, edit.turn)]:
        first, last = places[0], places[-1]
        if all(edit.old == edit.new != "" for edit in done[first : last + 1]):
            yield file()  # wherever the text stands, it stays
        elif known := around(done, first, last, partial(on_disk, path)):
            yield file(patch=whole_patch(path, *known))
        else:
            # The lines in the first edit, if the others are all within these.
            edit = done[first]
            patch = None
            if edit.old and not edit.is_piece and not edit.deletes:
                new = state_after(done[first + 1 : last + 1], edit.new)
                if isinstance(new, str):
                    patch = part_patch(path, edit.old, new, edit.line)
            if patch is None:
                yield file(gap=Gap.UNKNOWN)
            else:
                yield file(patch=patch, gap=Gap.PLACE if edit.line is None else None)


def on_disk(path: str, folder: str, most: int = FILE_BYTES) -> FileText | None:
    """Read the file at `path` in the session's folder; None if it is outside, git's own, not
    text, or longer than `most` bytes."""
    whole = resolve_folder(os.path.join(folder, path))
    inside = relative(whole, folder)
    if inside.startswith(("/", "../")) or _is_in_git(inside):
        return None  # a link leads there
    try:
        raw = contents(whole, most)
        return None if b"\0" in raw else raw.decode()
    except FileNotFoundError:
        return ABSENT
    except (OSError, ValueError):
        return None


def _is_in_git(path: str) -> bool:
    """Return True if this is a part of a repository's own folder, on any file system."""
    return ".git" in path.casefold().split("/")


def relative(path: str, folder: str) -> str:
    """Return `path` relative to `folder`, resolving links, if it is inside; else unchanged."""
    whole = os.path.normpath(os.path.join(folder, path))
    for place, base in ((whole, folder), (resolve_folder(whole), resolve_folder(folder))):
        found = os.path.relpath(place, os.path.normpath(base))
        if found != ".." and not found.startswith("../"):
            return found
    return path


# -- patches ---------------------------------------------------------------------------------

NO_NEWLINE: Final = "\\ No newline at end of file\n"

_MODE: Final = "100644"
_EMPTY: Final = "e69de29"
"""The hash of the empty file: a patch that creates or removes one has no lines to show."""


def whole_patch(path: str, before: FileText, after: FileText) -> str:
    """Return the patch of a file, `path` relative to where it is applied; "" if nothing changed."""
    if before == after:
        return ""
    head = [f"diff --git {_name('a/', path)} {_name('b/', path)}\n"]
    if isinstance(before, Absent):
        head.append(f"new file mode {_MODE}\n")
    if isinstance(after, Absent):
        head.append(f"deleted file mode {_MODE}\n")
    old, new = (text if isinstance(text, str) else "" for text in (before, after))
    if not old and not new:
        names = ("0000000", _EMPTY) if isinstance(before, Absent) else (_EMPTY, "0000000")
        return "".join((*head, f"index {names[0]}..{names[1]}\n"))
    from_, to = _mark("a/", path, before), _mark("b/", path, after)
    changed = _around_changes(old, new)
    return "".join((*head, f"--- {from_}\n+++ {to}\n", *_hunks(changed, 1)))


def part_patch(path: str, before: str, after: str, line: int | None) -> str | None:
    """Return the patch of a run of whole lines of a file, which begin with `line`, if known.

    None if it is unclear whether the last of them ends the file: agents that show lines around a
    change cut off the last newline.
    """
    if before == after:
        return ""
    changed = _around_changes(before, after)
    if before and after and not before.endswith("\n") and not after.endswith("\n"):
        if before.count("\n") > 1 and _last_two(before) == _last_two(after):
            for lines in (changed.old, changed.new) if changed.has_end else ():
                lines.pop()  # not needed
        elif line is None:
            return None
        else:  # agents that number lines show those around a change
            for lines in (changed.old, changed.new) if changed.has_end else ():
                lines[-1] += "\n"
    first = line or 1
    if line is None and _first(before) == _first(after):
        first = 2  # searched for, from the second line on, in both directions
    name = f"diff --git {_name('a/', path)} {_name('b/', path)}\n"
    from_, to = _mark("a/", path, before), _mark("b/", path, after)
    return "".join((name, f"--- {from_}\n+++ {to}\n", *_hunks(changed, first)))


def _first(text: str) -> str:
    """Return the first line, with its end."""
    return text[: text.find("\n") + 1] or text


def _last_two(text: str) -> str:
    """Return the last two lines, "" if there is one."""
    return text[text.rfind("\n", 0, text.rfind("\n")) + 1 :] if "\n" in text else ""


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; only a newline ends one."""
    lines = text.split("\n")
    last = lines.pop()
    for place, line in enumerate(lines):  # in place: there may be a million
        lines[place] = f"{line}\n"
    return [*lines, last] if last else lines


def _hunks(changed: _Changed, first: int) -> Iterator[str]:
    """Yield the hunks of lines that have their ends; the first of all is number `first`."""
    for places, *lines in hunks(changed.old, changed.new, changed.skipped + first - 1):
        yield f"{places}\n"
        for line in lines:
            yield line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}"


class _Changed(Struct, frozen=True):
    """The lines of two texts around all that differs, after the number of lines `skipped` at the
    beginning; with `has_end` up to the end."""

    skipped: int
    old: list[str]
    new: list[str]
    has_end: bool


def _around_changes(old: str, new: str) -> _Changed:
    """Return the lines from a little before the first difference to a little behind the last: of
    long texts with a small change only those are made."""
    left, right = len(old), len(new)
    least = min(left, right)
    same = _same(least, lambda at, end: old[at:end] == new[at:end])
    begin = same
    for _ in range(CONTEXT + 1):
        begin = old.rfind("\n", 0, max(begin, 0))
    begin += 1
    same = _same(
        least - same,
        lambda at, end: old[left - end : left - at] == new[right - end : right - at],
    )
    behind = left - same
    for _ in range(CONTEXT + 1):
        behind = old.find("\n", behind) + 1 or left
    skipped = old.count("\n", 0, begin)
    changed = _lines(old[begin:behind]), _lines(new[begin : right - (left - behind)])
    return _Changed(skipped, *changed, has_end=behind == left)


COMPARED_CHARACTERS: Final = 1 << 16
"""Characters of two texts that are compared at once."""


def _same(most: int, is_same: Callable[[int, int], bool]) -> int:
    """Return how many characters two texts have in common from one end, up to `most`."""
    step, at = COMPARED_CHARACTERS, 0
    while step and at < most:
        if is_same(at, min(at + step, most)):
            at = min(at + step, most)
        else:
            step //= 2
    return at


def _mark(side: str, path: str, state: FileText) -> str:
    """Return a name for `---` or `+++`: one with a space is followed by a tab."""
    if isinstance(state, Absent):
        return "/dev/null"
    name = _name(side, path)
    return f"{name}\t" if " " in name and not name.startswith('"') else name


_ESCAPES: Final = {code: f"\\{code:03o}" for code in (*range(0x20), 0x7F)} | str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
)


def _name(side: str, path: str) -> str:
    """Return a path as git writes it: quoted if it has special characters."""
    quoted = path.translate(_ESCAPES)
    return f"{side}{path}" if quoted == path else f'"{side}{quoted}"'
