"""A connection that shows others that this process lives: it holds a lock until it ends."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from typing import Final

import psycopg

from acphold.journal.postgresql.database import Database
from acphold.journal.postgresql.migrations import Line


class Presence:
    """The connection of one owner; `kept` opens it again after a loss."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: Final = secrets.randbits(62)
        self._line: Line | None = None
        self._changing = threading.Lock()

    def kept(self) -> int | None:
        """Make sure that the connection exists; return the key of its lock, None if it cannot have
        one.

        Call it in a thread. Behind a pooler the lock would belong to whoever gets the connection
        next.
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
        """Release the lock: this owner has ended."""
        with self._changing:
            if self._line is not None:
                self._line.close()
                self._line = None
