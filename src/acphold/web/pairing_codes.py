"""Pairing codes: shown once, and exchanged for one token while fresh.

A code is read off a screen or a picture, so it is short. It is safe because it expires after
minutes and with its first use. Guesses are not counted: a limit would keep the right code out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from msgspec import Struct

from acphold.journal.access import Scope

SECONDS: Final = 600.0
"""Seconds until a code expires."""

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's Base32, which has no letter that looks like a digit."""

LENGTH: Final = 10
"""Characters of a code: 50 bits.

Ten thousand guesses a second over a code's lifetime succeed once in a hundred million.
"""


CODES: Final = 16
"""Codes of one asker at a time; one more ends their oldest."""


class Worth(Struct, frozen=True):
    """The rights of a code's token: its scopes and tenant, None for everybody's sessions.

    `asker` is the id of the token that asked for the code; None if the server itself did.
    """

    scopes: tuple[Scope, ...]
    asker: str | None = None
    tenant: str | None = None


class Pairing:
    """The codes of one process; `now` is a clock in seconds.

    `paired` is called with the name of each device that was given what its code was worth.
    """

    def __init__(
        self, now: Callable[[], float], paired: Callable[[str], None] | None = None
    ) -> None:
        self._now = now
        self.paired: Callable[[str], None] = paired or (lambda name: None)
        self._codes: dict[str, tuple[float, Worth]] = {}

    def new_code(self, worth: Worth) -> str:
        """Return a new code with these rights."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        theirs = [each for each, (_, it) in self._codes.items() if it.asker == worth.asker]
        for each in theirs[: max(0, len(theirs) + 1 - CODES)]:
            del self._codes[each]
        self._codes[code] = (self._now() + SECONDS, worth)
        return code

    def redeem(self, code: str) -> Worth | None:
        """Return the rights of the code and delete it; None for a wrong one."""
        now = self._now()
        self._codes = {each: it for each, it in self._codes.items() if now < it[0]}
        given = code.strip().upper().replace("-", "").encode()
        # Compare each in constant time, so that timing does not tell how much of it was right.
        found = [each for each in self._codes if compare_digest(each.encode(), given)]
        return self._codes.pop(found[0])[1] if found else None
