"""`_acphold/fork`: a client copies a session, and on request the files of that moment.

An extension of acphold's own. The copy is not opened.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

FORK_METHOD: Final = "_acphold/fork"
"""See docs/protocol.md."""


class CopyRequest(Struct, frozen=True, rename="camel"):
    """The params: copy the turns up to the one with entry `at`, or those `before` it, or all.

    `files` also copies the files of that moment, into the folder that it names, or for true into
    one beside the project. `include` adds the ignored files that the project names.
    """

    session_id: str
    at: int | None = None
    before: bool = False
    files: bool | str = False
    include: bool = False

    @property
    def folder(self) -> str | None:
        """The named folder for the files."""
        return self.files if isinstance(self.files, str) else None


class CopiedFiles(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Files that were laid out for a copy, in `folder`.

    `why_plain` says why that is no work tree of the repository, "" if it is one; `state` is how the
    snapshot was taken: `whole`, `late` (the next turn may have begun) or `later` (by the next
    turn). `left_out` counts the files that the snapshot left out, `included` the ignored files that
    were copied.
    """

    folder: str
    why_plain: str = ""
    state: str = "whole"
    left_out: int = 0
    included: int = 0


class SessionCopy(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A new session with `turns` of another one, in the folder `cwd`; `files` are None if they were
    not asked for."""

    session_id: str
    cwd: str
    turns: int
    files: CopiedFiles | None = None
