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

    For a journal in a file it is the identity of the file, as a copy is another journal. Otherwise
    it is derived from the journal's random secret, without revealing it.
    """
    if journal.file is None:
        from hashlib import blake2b  # late, for a quick start: most journals are in files

        try:
            secret = await journal.cursor_secret()
        except JournalError as exc:
            log.info("which journal this is cannot be told: %s", exc)
            return None
        return blake2b(secret, digest_size=8, person=b"identity").hexdigest()
    try:
        found = os.stat(journal.file.path)
    except OSError:
        return None
    told = f"{socket.gethostname()} {found.st_dev} {found.st_ino}".encode()
    return f"{crc32(told):08x}{adler32(told):08x}"
