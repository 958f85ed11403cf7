"""`acphold packed`: a command line in hexadecimal digits, for the way to another machine.

ssh hands the command as one string to the login shell there, and each shell has quotes of
its own: one word for `sh` may end early for fish and be run. Digits are digits to all shells.
Nothing is imported here: the editor at the other end waits for this command.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from collections.abc import Sequence

typed_host = ""
"""The name that the person uses for this machine, if they typed the command on another one."""

typed_variables: dict[str, str] = {}
"""Variables that this command line has as options: an agent's own ones do not replace them."""

LONGEST_WORD = 900
"""Digits in a row: the csh of BSD takes no word of more than 1,024 characters."""


def pack(host: str, words: Sequence[str]) -> str:
    """Pack the words of a command, and the host for `typed_host` or "", for any shell."""
    digits = b"".join(os.fsencode(word) + b"\0" for word in (host, *words)).hex()
    pieces = range(0, len(digits), LONGEST_WORD)
    return " ".join(digits[start : start + LONGEST_WORD] for start in pieces)


def unpack(pieces: Sequence[str]) -> list[str]:
    """Unpack the words; the host is `typed_host` from now on. SystemExit for anything else."""
    global typed_host
    try:
        host, *words = bytes.fromhex("".join(pieces)).split(b"\0")[:-1]
    except ValueError:
        raise SystemExit(
            "acphold packed: invalid arguments; only acphold itself runs this command, over ssh"
        ) from None
    typed_host = os.fsdecode(host)
    return [os.fsdecode(word) for word in words]
