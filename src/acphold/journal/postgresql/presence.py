"""A connection by which others see that this process lives: it holds a lock until it ends."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from typing import Final

import psycopg

from acphold.journal.postgresql.database import Database
from acphold.journal.postgresql.migrations import Line


class Presence:
    """The connection of one owner; made anew by `kept` when it was lost."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: Final = secrets.randbits(62)
        self._line: Line | None = None
        self._changing = threading.Lock()

    def kept(self) -> int | None:
        """See that it is there, in a thread; the key of the lock, None where none can be held.

        Behind a pooler it would be that of whoever gets the connection next.
        """
        with self._changing:
            if self._line is not None:
                with suppress(psycopg.Error):
                    self._line.execute("SELECT 1")
                    return self._key
                self._line.close()
                self._line = None
            line = self._database.connect()
            if line.prepare_threshold is None:
                line.close()
                return None
            line.execute("SELECT pg_advisory_lock(%s)", (self._key,))
            self._line = line
            return self._key

    def close(self) -> None:
        """Let go: this owner is no more."""
        with self._changing:
            if self._line is not None:
                self._line.close()
                self._line = None
