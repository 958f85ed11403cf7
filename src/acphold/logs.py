"""What a log record is about: a session, a turn of it, an incident.

Two things say it. Code of an author runs in a turn, whatever it logs, and whatever libraries it
calls log. And a record of ours begins with `session %s`, or `session %s, turn %s`, where it is
about one, whatever runs then: a hub hears hundreds of sessions in one task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

NONE: Final = "-"
"""What stands for no session, no turn, no incident."""

_here: ContextVar[tuple[str, str]] = ContextVar("acphold_log", default=(NONE, NONE))


class LogContext(logging.Filter):
    """Gives each record `session`, `turn` and `incident`, "-" for none: a filter for a handler.

        handler.addFilter(acphold.LogContext())
        handler.setFormatter(logging.Formatter("%(session)s %(turn)s %(message)s"))

    Turns are numbered from 1 in each process. An incident is what the other side is told in place
    of an exception; the record that has it has the traceback.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        session, turn = _here.get()
        words, args = record.msg, record.args
        if isinstance(args, tuple) and isinstance(words, str) and words.startswith("session %s"):
            told = str(args[0])
            session, turn = told, turn if told == session else NONE
            if words.startswith("session %s, turn %s"):
                turn = str(args[1])
        record.session, record.turn = session, turn
        record.incident = getattr(record, "incident", NONE)
        return True


@contextmanager
def about(session: str, turn: str = NONE) -> Iterator[None]:
    """What is logged in the block, by whomever, is about this."""
    token = _here.set((session, turn))
    try:
        yield
    finally:
        _here.reset(token)
