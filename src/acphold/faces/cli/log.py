"""The log of `serve`, of the daemon and of its fronts: to stderr or a file.

Writing it never waits: an editor may not read our stderr. The person sees only an incident's id;
it leads to the failure in the log of the daemon.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from acp_wire.transports.child import StderrRelay
from acphold.faces.cli.terminal_text import VisibleLines, visible
from acphold.journal_location import belongings, default_location
from acphold.logs import NONE, ListenerLog, LogContext

LOGS: Final = (".log", ".log.old")


def start_log(level: str, file: str | None) -> str | None:
    """Log to `file`, otherwise to stderr; return the file's path.

    If the file cannot be written, a message on stderr reports that, and the log goes there.
    """
    logging.raiseExceptions = False  # a full disk under the log is no reason to print
    path = None if file is None else os.path.expanduser(file)
    logging.basicConfig(level=level, handlers=[_handler(path, 2)], force=True)
    return path


def start_daemon_log() -> None:
    """Log warnings to stderr, and the rest to the fronts that want it: see `front_log`."""
    start_log("WARNING", None)
    root = logging.getLogger()
    root.handlers[0].setLevel(logging.WARNING)
    root.addHandler(ListenerLog())


@contextmanager
def front_log(level: str, file: str | None, stderr: int) -> Iterator[logging.Handler]:
    """Yield a handler for the log of a front, at this level: to `file`, an absolute path, otherwise
    to its `stderr`."""
    handler = _handler(file, stderr)
    handler.setLevel(level)
    _front_levels.append(handler.level)
    _wake_loggers()
    try:
        yield handler
    finally:
        _front_levels.remove(handler.level)
        _wake_loggers()
        handler.close()


_front_levels: list[int] = []


def _wake_loggers() -> None:
    """Have records made at the levels that any front wants."""
    logging.getLogger().setLevel(min([logging.WARNING, *_front_levels]))


def _handler(path: str | None, stderr: int) -> logging.Handler:
    """Return a handler that writes to a file; to `stderr` without one, or if that fails."""
    handler: logging.Handler = _StderrLog(stderr)
    if path is not None:
        # Created here, because FileHandler would let others read it.
        # O_NONBLOCK: a pipe without a reader fails instead of blocking.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
        try:
            os.close(os.open(path, flags, 0o600))
            handler = logging.FileHandler(path, encoding="utf-8", errors="replace")
        except OSError as exc:
            words = visible(f"acphold: cannot write the log {path}: {exc.strerror}")
            StderrRelay(stderr).pass_on(f"{words}\n".encode())
    handler.addFilter(LogContext())
    handler.setFormatter(_LogLines("%(asctime)s %(name)s %(levelname)s %(message)s"))
    return handler


def with_log(words: str, *, patiently: bool = False) -> str:
    """Return the words; if they name an incident that a log here has, add where its traceback is.

    An agent's log takes another way than its answer and may arrive after it: `patiently` it is
    waited for, at most half a second.
    """
    if (incident := re.search(r"\bincident [0-9a-f]{8}\b", words)) is None:
        return words
    for seconds in (0.0, 0.1, 0.4) if patiently else (0.0,):
        time.sleep(seconds)
        try:
            folder = belongings(default_location())
            logs = [it for it in os.scandir(folder) if it.name.endswith(LOGS)]
        except FileNotFoundError:  # no daemon was ever started
            return words
        for log in logs:
            with (
                suppress(OSError),  # it is replaced at this moment
                open(log.path, encoding="utf-8", errors="replace") as text,
            ):
                if incident[0] in text.read():
                    return f"{words}; its traceback is in {log.path}"
    return words


class _LogLines(VisibleLines):
    """Formats lines so that they name their session and turn, in any module's records."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        session, turn = vars(record)["session"], vars(record)["turn"]
        if session == NONE or str(record.msg).startswith("session %s"):
            return line
        where = f"session {session}" if turn == NONE else f"session {session}, turn {turn}"
        return f"{line} ({where})"


class _StderrLog(logging.Handler):
    """Logs to stderr, which editors keep with the agent's own; if nobody reads, lines are lost."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._relay = StderrRelay(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._relay.pass_on(f"{self.format(record)}\n".encode(errors="replace"))
        except Exception:  # as in every handler: logging must not fail
            self.handleError(record)
