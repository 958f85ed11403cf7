"""The log of `wrap`, `run` and the process in the background: to stderr or a file.

Writing it never waits: an editor may not read our stderr.
"""

from __future__ import annotations

import logging
import os
import sys

from acphold.cli.terminal_text import VisibleLines, visible
from acphold.transports.stderr import Relay


def start_log(level: str, file: str | None) -> str | None:
    """Log to `file`, else to stderr; the file's path.

    A file that cannot be written is told on stderr, which is logged to instead.
    """
    logging.raiseExceptions = False  # a full disk under the log is no reason to print
    path = None if file is None else os.path.expanduser(file)
    handler: logging.Handler = _Stderr()
    if path is not None:
        try:
            # Made here, because FileHandler would let others read it.
            # O_NONBLOCK: a pipe that nobody reads is refused, not waited for.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
            os.close(os.open(path, flags, 0o600))
            handler = logging.FileHandler(path, encoding="utf-8", errors="replace")
        except OSError as exc:
            print(visible(f"acphold: no log in {path}: {exc.strerror}"), file=sys.stderr)
    handler.setFormatter(VisibleLines("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    return path


class _Stderr(logging.Handler):
    """Logs to stderr, which editors keep with the agent's own; one that does not loses lines."""

    def __init__(self) -> None:
        super().__init__()
        self._relay = Relay(2)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._relay.pass_on(f"{self.format(record)}\n".encode(errors="replace"))
        except Exception:  # as every handler has it: what is logged must not fail
            self.handleError(record)
