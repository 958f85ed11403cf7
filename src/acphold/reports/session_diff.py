"""File changes of a session, or of one turn: a patch for each file, or the reason for none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Final

from msgspec import Struct

from acphold.history.turn_spans import TurnSpan
from acphold.journal.journal import Readable, SessionRow, history
from acphold.journal.location import resolved_folder
from acphold.reports.file_edits import ABSENT, Edit, FileText, around, behind, edits
from acphold.reports.git_patch import part_patch, whole_patch
from acphold.workspace.regular_files import contents
from acphold.workspace.threads import Checkpoint, Threads

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
    journal: Readable,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    turn: int | None,
    on_disk: Callable[[str], FileText | None],
    threads: Threads | None = None,
) -> list[FileDiff]:
    """Return the files changed by turn number `turn`, None for all turns, in order of their edits.

    `on_disk` returns the present state of a path, None if that is of no use. Comparing long texts
    takes a while, and a disk may hang: that is done in one of `threads`.
    """
    reported = await edits(history(journal, row.session_id), spans)

    def compared(checkpoint: Checkpoint) -> list[FileDiff]:
        by_file: dict[str, list[Edit]] = {}
        for edit in reported:
            checkpoint()
            by_file.setdefault(relative(edit.path, row.cwd), []).append(edit)
        found: list[FileDiff] = []
        for path, every in by_file.items():
            checkpoint()
            found += _diffs(path, every, turn, on_disk)
        return found

    return await (threads or Threads(1)).run(compared)


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
        if known := around(done, first, last, partial(on_disk, path)):
            yield file(patch=whole_patch(path, *known))
        else:
            patch, gap = _lines_patch(path, done[first : last + 1])
            yield file(patch=patch, gap=gap)


def on_disk(path: str, folder: str, most: int = FILE_BYTES) -> FileText | None:
    """Read the file at `path` in the session's folder; None if it is outside, git's own, not
    text, or longer than `most` bytes."""
    whole = resolved_folder(os.path.join(folder, path))
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
    for place, base in ((whole, folder), (resolved_folder(whole), resolved_folder(folder))):
        found = os.path.relpath(place, os.path.normpath(base))
        if found != ".." and not found.startswith("../"):
            return found
    return path


def _lines_patch(path: str, wanted: Sequence[Edit]) -> tuple[str, Gap | None]:
    """Return a patch of the lines in the first edit, if the others are all within these."""
    edit = wanted[0]
    if not edit.old or edit.is_piece or edit.deletes:
        return "", Gap.UNKNOWN
    after = behind(wanted[1:], edit.new)
    if not isinstance(after, str):
        return "", Gap.UNKNOWN
    patch = part_patch(path, edit.old, after, edit.line)
    if patch is None:
        return "", Gap.UNKNOWN
    return patch, Gap.PLACE if edit.line is None else None
