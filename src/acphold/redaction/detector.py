"""Detection of secrets in text: by their form, by their name, by their place.

Nothing is sent anywhere to check a secret.
"""

# See docs/decisions.md, 30.

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from acphold.redaction.forms import by_form
from acphold.redaction.named import by_name
from acphold.redaction.names import HIDDEN, LONGEST, SURE, Strength, look, strength
from acphold.redaction.rules import PASSWORD, SECRET, Found
from acphold.redaction.written import by_place

ROUNDS: Final = 4
"""Passes over a text, as long as the rest still has findings."""

_NOTE: Final = re.compile(r"\[removed: [A-Za-z ]{1,40}\]")
"""The note that replaces a removed text; it is not searched."""


class FoundSecret(NamedTuple):
    """A secret in a text, from `start` to `end`.

    A `certain` one is searched for everywhere else, too; another may be a common word that is
    secret only in this place.
    """

    kind: str
    start: int
    end: int
    certain: bool


def secrets(text: str) -> list[FoundSecret]:
    """Return the secrets in a text, in order, without overlaps.

    The rest is searched again without them, in up to ROUNDS passes.
    """
    rest = _NOTE.sub(lambda note: HIDDEN * len(note[0]), text)
    spans: list[Found] = []
    for _ in range(ROUNDS):
        found = _apart([*by_form(rest), *by_place(rest), *by_name(rest)])
        if not found:
            break
        spans += found
        kept, place = [], 0
        for _, start, end in found:
            kept += [rest[place:start], HIDDEN * (end - start)]
            place = end
        rest = "".join([*kept, rest[place:]])
    return [
        FoundSecret(kind, start, end, is_certain(text[start:end]))
        for kind, start, end in _apart(spans)
    ]


def assigned(name: str, value: str) -> FoundSecret | None:
    """Return a finding for the whole value if its name makes it secret: `{"password": "…"}`."""
    how_strong = strength(name)
    if how_strong is Strength.NOTHING or "\n" in value or len(value) > LONGEST:
        return None
    if look(value) < SURE[how_strong]:
        return None
    kind = PASSWORD if how_strong is Strength.PASSWORD else SECRET
    return FoundSecret(kind, 0, len(value), is_certain(value))


def is_certain(value: str) -> bool:
    """Return True if a value is so unlike a word that it can be searched for elsewhere."""
    kinds = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    mixed = sum(any(map(kind, value)) for kind in kinds)
    return (len(value) >= 8 and mixed >= 3) or (len(value) >= 16 and mixed >= 2)


def _apart(spans: Iterable[Found]) -> list[Found]:
    """Return spans in order, with overlapping ones merged."""
    done: list[Found] = []
    for kind, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        if done and start < done[-1][2]:
            first, begins, ends = done[-1]
            done[-1] = first, begins, max(ends, end)
        elif start < end:
            done.append((kind, start, end))
    return done
