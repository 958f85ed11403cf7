"""The place of the journal, as a URL or a path, and of what belongs to it; a journal of another
release is refused."""

from __future__ import annotations

import os
import sys
from zlib import adler32, crc32

from acphold.errors import JournalUnavailableError, NewerJournalError
from acphold.machine.runtime_folder import account_folder

TYPE_CHECKING = False  # see quick_start
if TYPE_CHECKING:
    from typing import Final

VARIABLE: Final = "ACPHOLD_JOURNAL"
"""The environment variable that names the journal."""

NAMED_BY: Final = f"--journal, {VARIABLE}, or journal= in Python"
"""The ways to name another journal, for error messages: commands and Python authors read them."""


_IN_SCHEME: Final = "abcdefghijklmnopqrstuvwxyz0123456789+.-"
"""The characters of a scheme; the first is a letter. Source: RFC 3986, 3.1."""


def default_location() -> str:
    """Return the value of `ACPHOLD_JOURNAL`, or else `journal.db` in the user's data folder."""
    if named := os.environ.get(VARIABLE):
        return named
    folder = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(folder):  # a relative path is ignored: XDG base directory specification
        is_mac = sys.platform == "darwin"
        folder = os.path.expanduser("~/Library/Application Support" if is_mac else "~/.local/share")
    return os.path.join(folder, "acphold", "journal.db")


def scheme_of(location: str) -> str | None:
    """The scheme of a URL, in lower case; None for a path."""
    scheme, separator, _ = location.partition("://")
    scheme = scheme.lower()
    is_one = scheme[:1].isalpha() and not scheme.strip(_IN_SCHEME)
    return scheme if separator and is_one else None


def journal_path(location: str | os.PathLike[str]) -> str:
    """The absolute path of the journal file at `location`.

    `location` is `sqlite:////absolute/path`, `sqlite:///relative/path` or a plain path; `~` is the
    home folder, and nothing is unescaped. Raises JournalUnavailableError for other URLs.
    """
    text = os.fspath(location)
    if (scheme := scheme_of(text)) is not None:
        rest = text.partition("://")[2]
        if scheme != "sqlite":  # the URL may have a password in it, so only the scheme is shown
            raise JournalUnavailableError(
                f"no store for {scheme}:// journals is installed; give a path, or "
                "sqlite:////absolute/path.db"
            )
        if not rest.startswith("/"):
            raise JournalUnavailableError(
                f"{text!r} is not a valid journal URL; give a path, or sqlite:////absolute/path.db"
            )
        text = rest[1:]
    if not text:
        raise JournalUnavailableError(f"the journal has no path; name one ({NAMED_BY})")
    return os.path.abspath(os.path.expanduser(text))


def real_location(location: str) -> str:
    """Return a journal's location as it is the same for all: a real path, or a URL. Raises
    JournalUnavailableError."""
    if scheme_of(location) not in (None, "sqlite"):
        return location
    return os.path.realpath(journal_path(location))


def short_mark(text: str) -> str:
    """Return a short mark for a text."""
    raw = text.encode(errors="surrogateescape")
    return f"{crc32(raw):08x}{adler32(raw):08x}"


def without_password(url: str) -> str:
    """Return the URL of a database without the password of its user."""
    scheme, _, rest = url.partition("://")
    netloc, slash, name = rest.partition("/")
    user, _, host = netloc.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}@{host}{slash}{name}"


def belongings(location: str) -> str:
    """Return the folder for what belongs to a journal beside its conversations: how its agents were
    started, logs, keys. It is beside the journal's real file; for a database it follows from the
    user's number. Raises JournalUnavailableError."""
    real = real_location(location)
    if scheme_of(real) is None:
        return f"{real}-state"
    return os.path.join(account_folder(), f"journal-{short_mark(without_password(real))}")


def is_gone(location: str) -> bool:
    """Return True if the folder of a journal's real file is not there: it was moved, say, and could
    not be moved back if anything made it again. Raises JournalUnavailableError."""
    real = real_location(location)
    return scheme_of(real) is None and not os.path.isdir(os.path.dirname(real))


def refuse_newer(found: int, known: int, where: str) -> None:
    """Raise NewerJournalError if the version `found` of a journal is newer than `known`."""
    if found > known:
        raise NewerJournalError(
            f"the journal {where} has version {found}, but this release of acphold supports only "
            f"versions up to {known}; update acphold, or name another journal ({NAMED_BY}). After "
            "an update restart the agent in your editor, and stop daemons with "
            "`acphold agent stop --all`"
        )


def refuse_newer_by_now(found: int, known: int, where: str) -> None:
    """Raise NewerJournalError if a newer release has upgraded a journal that we have open."""
    if found > known:
        raise NewerJournalError(
            f"a newer acphold upgraded the journal {where} to version {found} while this process "
            f"was running, which supports only versions up to {known}; restart the agent in your "
            "editor, and stop daemons with `acphold agent stop --all`"
        )


def refuse_older(found: int, first: int, where: str) -> None:
    """Raise JournalUnavailableError if the version `found` of a journal is lower than `first`."""
    if found < first:
        raise JournalUnavailableError(
            f"the journal {where} has version {found}, from before the first release of acphold: "
            f"this release reads version {first} and later; with the checkout that made it run "
            "`acphold export --all --format jsonl --output FOLDER/`, with this release `acphold "
            f"import --from FOLDER`, or name another journal ({NAMED_BY})"
        )
