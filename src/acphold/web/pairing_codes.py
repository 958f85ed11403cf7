"""Pairing: a code that is told once, and is worth one token while it is fresh.

It is read off a screen or a picture, so it is short; what makes it safe is that it ends after
minutes, with its first use, and that only so many wrong ones are listened to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from msgspec import Struct

from acphold.journal.access import Scope
from acphold.web.attempts import Attempts

SECONDS: Final = 600.0
"""How long a code is good."""

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's Base32, which has no letter that is taken for a digit."""

LENGTH: Final = 10
"""50 bits: with `attempts.OF_ALL` a minute, one in a hundred billion is found in its time."""


CODES: Final = 16
"""Codes at a time; one more ends the oldest."""


class Worth(Struct, frozen=True):
    """What a code is worth: a token with these scopes, of this tenant, None for everybody's.

    `asker` is the id of the token that has asked for the code; None where the server itself has.
    """

    scopes: tuple[Scope, ...]
    asker: str | None = None
    tenant: str | None = None


class Pairing:
    """The codes of one process; `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._codes: dict[str, tuple[float, Worth]] = {}
        self._wrong = Attempts(now)

    def new_code(self, worth: Worth) -> str:
        """A code that is worth this."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        while len(self._codes) >= CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[code] = (self._now() + SECONDS, worth)
        return code

    def redeem(self, code: str, peer: str = "") -> Worth | None:
        """What the code is worth, once, and to who has not guessed; None for nothing."""
        now = self._now()
        self._codes = {each: it for each, it in self._codes.items() if now < it[0]}
        if self._wrong.are_too_many(peer):
            return None
        given = code.strip().upper().replace("-", "").encode()
        # Each is compared, in the same time, so that none tells how much of it was right.
        found = [each for each in self._codes if compare_digest(each.encode(), given)]
        if not found:
            self._wrong.add(peer)
            return None
        return self._codes.pop(found[0])[1]
