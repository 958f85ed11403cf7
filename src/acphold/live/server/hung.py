"""Answers of a daemon whose loop hangs, as on a disk that does not answer.

An append is written on the loop, so while that waits nobody there reads a request. A thread listens
at a second socket: asleep in the kernel until somebody whom the daemon did not answer asks there
(`reading.hung_daemon`). It answers only if the loop makes no step, and from memory alone: what
runs, and `stop`, which ends the agents by their guardians and then this process. Nothing that was
shown is lost, as by any kill. A cancel is read by nobody meanwhile: it acts once the loop goes on.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Event, Thread, main_thread

from acp_wire.processes.guardian import end_programs
from acphold.live.hub.hub import Hub
from acphold.live.reading.hung_daemon import STATUS, STOP_NOW, hung_socket
from acphold.live.server import bounds
from acphold.live.server.principals import LOCAL_PROCESS
from acphold.live.server.process_requests import presence
from acphold.machine.unix import is_ours

log = logging.getLogger(__name__)


@asynccontextmanager
async def answering_while_hung(path: str, hub: Hub, journal: str) -> AsyncIterator[None]:
    """Answer for the block beside the daemon's socket at `path`, for the journal of this name.

    Raises OSError.
    """
    listener = _Listener(hung_socket(path), hub, journal)
    listener.thread.start()
    try:
        yield
    finally:
        await asyncio.to_thread(listener.close)


class _Listener:
    def __init__(self, path: str, hub: Hub, journal: str) -> None:
        self.thread = Thread(target=self._serve, name="while the loop hangs", daemon=True)
        self._path = path
        self._hub = hub
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        with suppress(FileNotFoundError):
            os.unlink(path)  # of one that was killed
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(path)
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Answer no more."""
        self._is_over = True
        with suppress(OSError), socket.socket(socket.AF_UNIX) as waking:
            waking.connect(self._path)
            self.thread.join(bounds.HUNG_ASK_SECONDS)
        self._socket.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as exc:
                if not self._is_over:
                    log.warning("nobody can ask while the loop hangs: %s", exc)
                return
            with connection:
                if self._is_over:
                    return
                with suppress(OSError):  # whoever asked has left
                    self._attend(connection)

    def _attend(self, connection: socket.socket) -> None:
        """Answer one of our user's processes in this place, once the loop makes no step."""
        connection.settimeout(bounds.HUNG_ASK_SECONDS)
        asked = connection.recv(64) if is_ours(connection) else b""
        if asked not in (STATUS, STOP_NOW) or self._goes_on():
            return
        if asked == STATUS:
            with suppress(RuntimeError):  # the loop goes on under us: it answers itself
                connection.sendall(self._presence())
            return
        log.warning("asked to stop while the loop hangs: the agents are ended, then this process")
        end_programs()
        connection.sendall(b"{}")
        os.kill(os.getpid(), signal.SIGKILL)

    def _goes_on(self) -> bool:
        stepped = Event()
        try:
            self._loop.call_soon_threadsafe(stepped.set)
        except RuntimeError:  # it is closed
            return True
        return stepped.wait(bounds.STEP_SECONDS)

    def _presence(self) -> bytes:
        return presence(self._hub, LOCAL_PROCESS, hangs=self._hangs(), is_ours=True)

    def _hangs(self) -> str:
        if is_in_journal():
            waits = f"waits for the disk of {self._journal}, or for a program that locks it"
            return f"{waits} (a cancel acts once it answers)"
        return "is busy"


def is_in_journal() -> bool:
    """Return True while the main thread, with the loop, reads or writes the journal."""
    frame = sys._current_frames().get(main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("acphold.journal."):
            return True
        frame = frame.f_back
    return False
