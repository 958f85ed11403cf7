"""Files as they are on this machine, for who is asked about a change of them.

An agent may ask about any file, so that somebody sees what is in it. Only a text inside the
session's folders is read, through no link, and never under a name that usually holds secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from acp_wire.transports.addresses import is_node
from acp_wire.workspace.files import text_of
from acp_wire.workspace.roots import Roots
from acphold.errors import InvalidParamsError
from acphold.record.journal import SessionRow
from acphold.record.snapshots.secret_names import may_hold_secret

MOST_BYTES: Final = 256 * 1024
"""Longest file that a change is compared with."""


def present_files(row: SessionRow) -> Callable[[str], str | None]:
    """Return a reader of the session's files by their paths: "" for a file that is not there, None
    for one that is not to be shown. It blocks as long as the disk takes.

    Where several machines share the journal, the session's folder may be on another one.
    """
    try:
        roots = Roots(row.cwd, row.additional_directories)
    except InvalidParamsError:  # from another system, with other paths
        return lambda _: None

    def read(path: str) -> str | None:
        whole = os.path.normpath(os.path.join(row.cwd, path))
        if is_node() or may_hold_secret(whole) or ".git" in whole.casefold().split("/"):
            return None
        return text_of(roots, path, MOST_BYTES)

    return read
