"""Beginnings of session ids: finding the session that one stands for, and the shortest for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os.path import commonprefix
from typing import Final

from acphold.errors import AmbiguousIdError, UnknownSessionError

MATCHES: Final = 100
"""Sessions that are counted if a prefix fits several; a list looks up many short prefixes."""


def span(prefix: str) -> tuple[str, str]:
    """The first and the last id that may begin with `prefix`.

    A span, not LIKE: exact in case, blind to wildcards, and a walk along the index.
    """
    return prefix, f"{prefix}\U0010ffff" if prefix else ""


def only_one(prefix: str, matches: Sequence[str]) -> str:
    """Return the id that `prefix` stands for, of the first MATCHES + 1 ids in its span, in order.

    Raises UnknownSessionError and AmbiguousIdError.
    """
    if not matches:
        raise UnknownSessionError(prefix, f"no session id begins with {prefix!r}")
    if len(matches) > 1 and matches[0] != prefix:  # an exact match sorts first
        raise AmbiguousIdError(prefix, tuple(matches[:MATCHES]), more=len(matches) > MATCHES)
    return matches[0]


def shortest(session_id: str, neighbours: Iterable[str | None], least: int) -> str:
    """The shortest unambiguous prefix of an id, at least `least` characters long.

    The id with the longest common prefix is one of its two neighbours in sort order.
    """
    length, short = least, session_id[:least]
    for found in neighbours:
        # Most neighbours already differ within `least` characters.
        if found is not None and found.startswith(short):
            shared = commonprefix((session_id, found))  # noqa: RUF071  by characters
            length = max(length, len(shared) + 1)
    return session_id[:length]
