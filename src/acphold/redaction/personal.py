"""Personal data in a text: home folders, mail and network addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, NamedTuple

HOME: Final = "home path"
MAIL: Final = "mail address"
NETWORK: Final = "network address"

_NAME: Final = r"[^\\/\s\"'<>|:*?`,;()\[\]{}&%#$!]+"
_FOLDERS: Final = r"(?:home|Users)"

_PATHS: Final = (
    # macOS and Linux, WSL, and the Linux systems with home folders below /var.
    (rf"(?<![\w.-])/(?:var/|mnt/[a-z]/|private/)?{_FOLDERS}/{_NAME}", "~"),
    # Windows, where a name may have spaces, and a path its backslashes doubled.
    (rf"(?<!\w)[A-Za-z]:(?:\\+|/){_FOLDERS}(?:\\+|/){_NAME}(?: {_NAME})*(?=[\\/])", "~"),
    (rf"(?<!\w)[A-Za-z]:(?:\\+|/){_FOLDERS}(?:\\+|/){_NAME}", "~"),
    # In a URL, and in agents' names for project folders.
    (rf"(?i)%2F{_FOLDERS}%2F[^%/\s\"'&]+", "~"),
    (rf"(?<![A-Za-z0-9])-{_FOLDERS}-[A-Za-z0-9_]+", "-~"),
)

_MAIL: Final = re.compile(
    r"[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,}"
)
_V4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_V6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_HARDWARE: Final = re.compile(
    r"(?<![\w:-])[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])"
)


class PersonalRule(NamedTuple):
    """A pattern to search for, and its replacement; None leaves it."""

    kind: str
    pattern: re.Pattern[str]
    replacement: Callable[[str], str | None]


def rules() -> list[PersonalRule]:
    """Return all rules, in the order in which they are applied."""
    found = [PersonalRule(HOME, re.compile(pattern), _as(text)) for pattern, text in _PATHS]
    own = os.path.expanduser("~").rstrip("/")
    if os.path.isabs(own):  # this user's home folder, unless that is `/`
        pattern = re.compile(rf"(?<![\w.-]){re.escape(own)}(?![\w.-])")
        found.insert(0, PersonalRule(HOME, pattern, _as("~")))
    return [
        *found,
        PersonalRule(MAIL, _MAIL, _as(f"[removed: {MAIL}]")),
        PersonalRule(NETWORK, _HARDWARE, _as(f"[removed: {NETWORK}]")),
        PersonalRule(NETWORK, _V4, _address),
        PersonalRule(NETWORK, _V6, _address),
    ]


def _as(text: str) -> Callable[[str], str | None]:
    return lambda _: text


def _address(text: str) -> str | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if address.is_loopback or address.is_unspecified:
        return None
    return f"[removed: {NETWORK}]"
