"""Codex's file changes: as requested in patches, and as applied."""

from __future__ import annotations

import os
import re
from typing import Final

from acphold.imports.content_blocks import diff
from acphold.imports.values import Object, text

_HEADER: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MOVED: Final = "*** Move to: "


def is_patch(script: str) -> bool:
    """Return True if a text contains a patch in Codex's own format."""
    return "*** Begin Patch" in script


def asked_changes(patch: str, cwd: str) -> list[Object]:
    """Return the diffs in a patch, as far as it has both sides."""
    changes: list[Object] = []
    path, kind, hunk = "", "", _Hunk()
    for line in patch.splitlines():
        header = _HEADER.fullmatch(line)
        if header or line.startswith(("@@", "*** End")):
            changes += hunk.ended(path, new_file=kind == "Add")
            hunk = _Hunk()
        if header:
            kind, path = header[1], os.path.join(cwd, header[2])
            if kind == "Delete":
                changes.append(diff(path, "", ""))
        elif line.startswith(_MOVED):
            path = os.path.join(cwd, line.removeprefix(_MOVED))
        elif path and not line.startswith(("@@", "***")):
            hunk.add(line)
    return changes


def done_changes(changes: Object) -> list[Object]:
    """Return the diffs in the `changes` of a `patch_apply_end` event, which are by path."""
    found: list[Object] = []
    for path, change in changes.items():
        kind = text(change, "type")
        if kind == "add":
            found.append(diff(path, None, text(change, "content")))
        elif kind == "delete":
            found.append(diff(path, text(change, "content"), ""))
        else:
            path = text(change, "move_path") or path
            hunk = _Hunk()
            for line in text(change, "unified_diff").splitlines():
                if line.startswith("@@"):
                    found += hunk.ended(path, new_file=False)
                    hunk = _Hunk()
                elif not line.startswith(("--- ", "+++ ")):
                    hunk.add(line)
            found += hunk.ended(path, new_file=False)
    return found


def edit_fields(changes: list[Object]) -> Object:
    """Return the fields of a tool call that makes these changes."""
    paths = list(dict.fromkeys(text(change, "path") for change in changes))
    return {
        "title": f"Edit {', '.join(paths)}" if paths else "Edit",
        "kind": "edit",
        "content": changes,
        "locations": [{"path": path} for path in paths],
    }


class _Hunk:
    """The lines of one place in a file, on both sides."""

    def __init__(self) -> None:
        self._old: list[str] = []
        self._new: list[str] = []

    def add(self, line: str) -> None:
        if not line.startswith(("+", "\\")):
            self._old.append(line[1:])
        if not line.startswith(("-", "\\")):
            self._new.append(line[1:])

    def ended(self, path: str, *, new_file: bool) -> list[Object]:
        """Return the diff of these lines, if there are any."""
        if not self._old and not self._new:
            return []
        old, new = ("".join(f"{line}\n" for line in side) for side in (self._old, self._new))
        return [diff(path, None if new_file else old, new)]
