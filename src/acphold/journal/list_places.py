"""Places in the list of sessions, as texts: beginnings of session ids, and cursors.

A cursor is sealed and holds the filter it was made for. One that was changed, or is used with
another list, is refused.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from acp_wire.surroundings import resolve_folder
from acphold.errors import AmbiguousIdError, CursorError, UnknownSessionError
from acphold.journal import bounds
from acphold.journal.rows import ListFilter, ListKey


def span(prefix: str) -> tuple[str, str]:
    """The first and the last id that may begin with `prefix`.

    A span, not LIKE: exact in case, blind to wildcards, and a walk along the index.
    """
    return prefix, f"{prefix}\U0010ffff" if prefix else ""


def only_one(prefix: str, find: Callable[[str], Sequence[str]]) -> str:
    """Return the id that `prefix` stands for; `find` returns the first ids in a span, in order, one
    more than `AMBIGUOUS_IDS` at most.

    Of sessions named after another one, as `ID~NAME`, ID stands for that other one, and a prefix of
    ID before the `~` for it. Raises UnknownSessionError and AmbiguousIdError.
    """
    whole, matches = prefix, find(prefix)
    base, mark, rest = prefix.partition("~")
    if not matches and base and mark and find(base):
        whole = f"{only_one(base, find)}~{rest}"
        matches = find(whole)
    if not matches:
        raise UnknownSessionError(prefix, f"no session id begins with {prefix!r}")
    first, *others = matches
    is_cut = len(matches) > bounds.AMBIGUOUS_IDS
    is_its = not is_cut and all(it.startswith(f"{first}~") for it in others)
    if first != whole and not is_its:  # an exact match sorts first
        raise AmbiguousIdError(prefix, tuple(matches[: bounds.AMBIGUOUS_IDS]), more=is_cut)
    return first


def shortest(session_id: str, neighbours: Iterable[str | None], least: int) -> str:
    """The shortest unambiguous prefix of an id, at least `least` characters long.

    The id with the longest common prefix is one of its two neighbours in sort order.
    """
    length, short = least, session_id[:least]
    for found in neighbours:
        # Most neighbours already differ within `least` characters.
        if found is not None and found.startswith(short):
            lengths = range(length, len(session_id) + 1)
            length += bisect(lengths, False, key=lambda n: not found.startswith(session_id[:n]))
    return session_id[:length]


_SEAL_BYTES: Final = 16
_TAG_BYTES: Final = 8


class _Position(Struct, frozen=True, array_like=True):
    updated_at: int
    session_id: str
    filter_tag: bytes


_decode_position = msgspec.json.Decoder(_Position).decode


def encode(key: ListKey, filter: ListFilter, secret: bytes) -> str:
    """Return the cursor (base64url) for the sessions after `key` in a list with this filter.

    The cursor is bound to the filter's `agents`, `cwd`, `archived` and `tenant`, but not to `held`
    and `beside`, which change while a client pages.
    """
    from base64 import urlsafe_b64encode

    position = msgspec.json.encode(_Position(key.updated_at, key.session_id, _tag(filter, secret)))
    return urlsafe_b64encode(_seal(position, secret) + position).rstrip(b"=").decode()


def decode(text: str, filter: ListFilter, secret: bytes) -> ListKey:
    """Return the position of a cursor.

    Raises CursorError if it was altered or comes from another journal, or from a list with another
    agent, cwd, archive or tenant.
    """
    from base64 import urlsafe_b64decode, urlsafe_b64encode
    from hmac import compare_digest

    try:
        sealed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        sealed = b""
    # The decoder ignores characters that are not base64, and bits past the end.
    if urlsafe_b64encode(sealed).rstrip(b"=").decode() != text:
        sealed = b""
    seal, position = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
    if not compare_digest(seal, _seal(position, secret)):
        raise CursorError("unknown cursor; list again without one")
    found = _decode_position(position)
    if found.filter_tag != _tag(filter, secret):
        raise CursorError("the cursor belongs to a list with another filter; list again without it")
    return ListKey(found.updated_at, found.session_id)


def _seal(position: bytes, secret: bytes) -> bytes:
    from hmac import digest

    return digest(secret, b"place" + position, "sha256")[:_SEAL_BYTES]


def _tag(filter: ListFilter, secret: bytes) -> bytes:
    from hmac import digest

    folder = None if filter.cwd is None else resolve_folder(filter.cwd)
    fingerprint = msgspec.json.encode((filter.agents, folder, filter.archived, filter.tenant))
    return digest(secret, b"filter" + fingerprint, "sha256")[:_TAG_BYTES]
