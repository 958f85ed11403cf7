"""File changes of a session, or of one turn: a patch for each file, or the reason for none."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from msgspec import Struct

from acphold.history.turn_spans import TurnSpan
from acphold.journal.journal import Readable, SessionRow, history
from acphold.journal.location import resolved_folder
from acphold.reports.file_edits import Edit, FileText, around, behind, edits
from acphold.reports.git_patch import part_patch, whole_patch


class Gap(Enum):
    """The reason why a patch is incomplete, in words that follow the name of a file."""

    UNKNOWN = "the journal has only parts of it, and the file as it is now does not show the rest"
    OUTSIDE = "it is outside of the session's folder"
    GIT = "it belongs to git itself, which patches nothing there"
    UNFINISHED = "a change was begun and never reported as done; it is left out"
    PLACE = "the journal has only these lines of it, and does not say where they stand"


class FileDiff(Struct, frozen=True):
    """A changed file: `path` is relative to the session's folder, if it is inside.

    `patch` is empty if there is none, and if the file is unchanged. With Gap.PLACE there is a patch
    all the same: git searches for the lines.
    """

    path: str
    patch: str = ""
    gap: Gap | None = None

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
) -> list[FileDiff]:
    """Return the files changed by turn number `turn`, None for all turns, in order of their edits.

    `on_disk` returns the present state of a path, None if that is of no use.
    """
    by_file: dict[str, list[Edit]] = {}
    for edit in await edits(history(journal, row.session_id), spans):
        by_file.setdefault(relative(edit.path, row.cwd), []).append(edit)
    found: list[FileDiff] = []
    for path, every in by_file.items():
        wanted = [edit for edit in every if turn in (None, edit.turn)]
        if not wanted:
            continue
        if path.startswith(("/", "../")) or path in (".", ".."):
            found.append(FileDiff(path, gap=Gap.OUTSIDE))
            continue
        if ".git" in path.split("/"):
            found.append(FileDiff(path, gap=Gap.GIT))
            continue
        if not all(edit.is_over for edit in wanted):
            found.append(FileDiff(path, gap=Gap.UNFINISHED))
        done = [edit for edit in every if edit.is_over]
        if places := [place for place, edit in enumerate(done) if turn in (None, edit.turn)]:
            first, last = places[0], places[-1]
            if known := around(done, first, last, partial(on_disk, path)):
                found.append(FileDiff(path, whole_patch(path, *known)))
            else:
                found.append(_lines_diff(path, done[first : last + 1]))
    return found


def relative(path: str, folder: str) -> str:
    """Return `path` relative to `folder`, resolving links, if it is inside; else unchanged."""
    whole = os.path.normpath(os.path.join(folder, path))
    for place, base in ((whole, folder), (resolved_folder(whole), resolved_folder(folder))):
        found = os.path.relpath(place, os.path.normpath(base))
        if found != ".." and not found.startswith("../"):
            return found
    return path


def _lines_diff(path: str, wanted: Sequence[Edit]) -> FileDiff:
    """Return a patch of the lines in the first edit, if the others are all within these."""
    edit = wanted[0]
    if not edit.old or edit.is_piece or edit.deletes:
        return FileDiff(path, gap=Gap.UNKNOWN)
    after = behind(wanted[1:], edit.new)
    if not isinstance(after, str):
        return FileDiff(path, gap=Gap.UNKNOWN)
    patch = part_patch(path, edit.old, after, edit.line)
    if patch is None:
        return FileDiff(path, gap=Gap.UNKNOWN)
    return FileDiff(path, patch, Gap.PLACE if edit.line is None else None)
