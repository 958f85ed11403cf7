"""The identity of a journal: the same under every name by which it is opened."""

from __future__ import annotations

import logging
import os
import socket
from zlib import adler32, crc32

from acphold.errors import JournalError
from acphold.journal.journal import Journal

log = logging.getLogger(__name__)


async def identity(journal: Journal) -> str | None:
    """The identity of a journal, in a few letters; None if it cannot be determined.

    A copy is another journal: in a file it is the identity of the file, otherwise it is derived
    from the `family` and the place of the journal.
    """
    if journal.file is None:
        try:
            return _digest(await journal.cursor_secret(), (await journal.place()).encode())
        except JournalError as exc:
            log.info("the identity of the journal is unknown: %s", exc)
            return None
    try:
        found = os.stat(journal.file.path)
    except OSError:
        return None
    told = f"{socket.gethostname()} {found.st_dev} {found.st_ino}".encode()
    return f"{crc32(told):08x}{adler32(told):08x}"


async def family(journal: Journal) -> str:
    """Return an id that a journal shares with its copies, in a few letters: derived from its random
    secret, without revealing it. Raises JournalError."""
    return _digest(await journal.cursor_secret())


def _digest(secret: bytes, place: bytes = b"") -> str:
    from hashlib import blake2b  # late, for a quick start: most journals are in files

    return blake2b(secret + place, digest_size=8, person=b"identity").hexdigest()
