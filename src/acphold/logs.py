"""The subject of a log record: a session, a turn of it, an incident.

It comes from two places. An author's code runs in a turn, and so do the libraries it calls:
all they log is about that turn. And a record of ours that is about one session begins with
`session %s`, or `session %s, turn %s`; that counts more, because a hub hears hundreds of sessions
in one task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

NONE: Final = "-"
"""Stands for no session, no turn or no incident."""

_here: ContextVar[tuple[str, str]] = ContextVar("acphold_log", default=(NONE, NONE))


_listener: ContextVar[logging.Handler | None] = ContextVar("acphold_listener", default=None)


class ListenerLog(logging.Handler):
    """Hands each record on to the handler that listens where it was logged, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        listener = _listener.get()
        if listener is not None and record.levelno >= listener.level:
            listener.handle(record)


def listener() -> logging.Handler | None:
    """Return the handler that listens here, if any."""
    return _listener.get()


_AS_IT_IS: Final = nullcontext()


def heard_by(listener: logging.Handler | None) -> AbstractContextManager[None]:
    """Have this handler listen to what is logged in the block, and in tasks that begin in it."""
    # Tasks of another context cost more.
    return _AS_IT_IS if listener is _listener.get() else _hear_with(listener)


@contextmanager
def _hear_with(listener: logging.Handler | None) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class LogContext(logging.Filter):
    """Gives each record `session`, `turn` and `incident`, "-" for none: a filter for a handler.

        handler.addFilter(acphold.LogContext())
        handler.setFormatter(logging.Formatter("%(session)s %(turn)s %(message)s"))

    Turns are numbered from 1 in each process. The other side gets the incident instead
    of an exception; the log record with the same incident has the traceback.
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
    """Mark all that is logged in the block, by any code, as about this session and turn."""
    token = _here.set((session, turn))
    try:
        yield
    finally:
        _here.reset(token)
