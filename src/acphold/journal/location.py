"""Where the journal is: a URL or a path that names it. And folders, compared as paths."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from acphold.errors import JournalUnavailableError

VARIABLE: Final = "ACPHOLD_JOURNAL"
"""The environment variable that names the journal."""

NAMED_BY: Final = f"--journal, {VARIABLE}; in Python journal="
"""How whoever reads an error names another one: errors reach users of commands, and authors."""


_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*")
"""Source: RFC 3986, 3.1."""


def default_location() -> str:
    """What `ACPHOLD_JOURNAL` says, or else `journal.db` in the user's folder for data."""
    if named := os.environ.get(VARIABLE):
        return named
    folder = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(folder):  # the XDG base directory specification: such a one is ignored
        is_mac = sys.platform == "darwin"
        folder = os.path.expanduser("~/Library/Application Support" if is_mac else "~/.local/share")
    return os.path.join(folder, "acphold", "journal.db")


def scheme_of(location: str) -> str | None:
    """The scheme of a URL, in small letters; None for a path."""
    scheme, separator, _ = location.partition("://")
    return scheme.lower() if separator and _SCHEME.fullmatch(scheme) else None


def journal_path(location: str | os.PathLike[str]) -> str:
    """The absolute path of the journal file at `location`.

    That is `sqlite:////absolute/path`, `sqlite:///relative/path` or a plain path; `~` is the
    home folder, and no character is escaped. Raises JournalUnavailableError for other URLs.
    """
    text = os.fspath(location)
    if (scheme := scheme_of(text)) is not None:
        rest = text.partition("://")[2]
        if scheme != "sqlite":  # which may have a password in it
            raise JournalUnavailableError(
                f"no store for {scheme}:// journals is installed; give a path, or "
                "sqlite:////absolute/path.db"
            )
        if not rest.startswith("/"):
            raise JournalUnavailableError(
                f"{text!r} names no journal; give a path, or sqlite:////absolute/path.db"
            )
        text = rest[1:]
    if not text:
        raise JournalUnavailableError(f"the journal has no path; name one ({NAMED_BY})")
    return os.path.abspath(os.path.expanduser(text))


def resolved_folder(cwd: str) -> str:
    """The one name for a folder that `/project`, `/project/.` and links to it all lead to."""
    try:
        return os.path.realpath(cwd)
    except ValueError:  # no folder is named with a NUL
        return cwd


def is_same_folder(one: str, other: str) -> bool:
    """Whether two paths name one folder."""
    return one == other or resolved_folder(one) == resolved_folder(other)
