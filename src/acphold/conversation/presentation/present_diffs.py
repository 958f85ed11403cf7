"""The changes that a tool call asks for, against the files as they are.

An agent says what it writes, and often nothing of what is there: a file that exists then looks like
a new one. Of a part that is replaced it says the part alone, and it may be wrong about that.

An agent may ask about any file, so that somebody sees what is in it. Only a text inside the
session's folders is read, through no link, and never under a name that usually holds secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from acp_wire.errors import InvalidParamsError
from acp_wire.workspace.files import text_of
from acp_wire.workspace.roots import Roots
from acphold.conversation.history.raw_update import items, members, string
from acphold.machine.addresses import is_node
from acphold.safety.snapshots.secret_names import may_hold_secret


class PresentDiff(Struct, frozen=True, rename="camel"):
    """Two whole texts; with `differs` those of the agent, which are not those of the file."""

    old_text: str
    new_text: str
    differs: bool = False


def present_diffs(
    fields: Mapping[str, bytes], read: Callable[[str], str | None]
) -> dict[int, PresentDiff]:
    """Return the diffs of a call with these raw fields, by their places in its content.

    `read` returns the text of a file, "" if there is none. Those for which it returns None are left
    out.
    """
    found = {}
    for place, item in enumerate(items(fields.get("content", b""))):
        parts = members(item)
        path, new = string(parts.get("path")), string(parts.get("newText"))
        if parts.get("type") != b'"diff"' or path is None or new is None:
            continue
        if (text := read(path)) is None:
            continue
        if not (old := string(parts.get("oldText")) or ""):
            found[place] = PresentDiff(text, new)
        elif text.count(old) == 1:
            found[place] = PresentDiff(text, text.replace(old, new))
        elif old not in text:
            found[place] = PresentDiff(old, new, differs=True)
    return found


MOST_BYTES: Final = 256 * 1024
"""Longest file that a change is compared with."""


def present_files(cwd: str, additional: Sequence[str]) -> Callable[[str], str | None]:
    """Return a reader of the files in a session's folders by their paths: "" for a file that is not
    there, None for one that is not to be shown. It blocks as long as the disk takes.

    Where several machines share the journal, the session's folder may be on another one.
    """
    try:
        roots = Roots(cwd, additional)
    except InvalidParamsError:  # from another system, with other paths
        return lambda _: None

    def read(path: str) -> str | None:
        whole = os.path.normpath(os.path.join(cwd, path))
        if is_node() or may_hold_secret(whole) or ".git" in whole.casefold().split("/"):
            return None
        return text_of(roots, path, MOST_BYTES)

    return read
