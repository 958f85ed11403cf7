"""`acphold packed`: a command line as it travels to another machine, in hexadecimal digits.

ssh hands what it is to run to the login shell there, as one string, and each shell has quotes of
its own: what is one word for `sh` ends within it for fish, and runs. Digits are digits to all.
Nothing is imported here: the editor at the other end waits for what this begins.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from collections.abc import Sequence

TYPED_HOST = "ACPHOLD_HOST"
"""The variable that tells the command there how the person calls that machine here."""

LONGEST_WORD = 900
"""Digits in a row: the csh of BSD takes no word of more than 1,024 characters."""


def packed(host: str, words: Sequence[str]) -> str:
    """Command line `words`, and the host for `TYPED_HOST` or "", for any shell."""
    digits = b"".join(os.fsencode(word) + b"\0" for word in (host, *words)).hex()
    pieces = range(0, len(digits), LONGEST_WORD)
    return " ".join(digits[start : start + LONGEST_WORD] for start in pieces)


def unpacked(pieces: Sequence[str]) -> list[str]:
    """The words again; the host is in our environment then. SystemExit for anything else."""
    try:
        host, *words = bytes.fromhex("".join(pieces)).split(b"\0")[:-1]
    except ValueError:
        raise SystemExit("acphold packed: no words that `acphold --host` sends") from None
    if host:
        os.environ[TYPED_HOST] = os.fsdecode(host)
    return [os.fsdecode(word) for word in words]
