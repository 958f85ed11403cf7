"""What programs keep in memory, after a session and a turn that has come to rest."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psutil

from acphold.faces.cli.front import daemon_lock, journal_of
from acphold.machine.locked_file import holder
from bench.wire import Wire

MIB = 1 << 20
SETTLE_SECONDS = 15.0


def idle_memory(wire: Wire) -> float:
    """MiB that the program at the other end keeps, with the daemon behind a `wrap`."""
    return sum(map(resident, {wire.process.pid, server_of(wire)}))


def server_of(wire: Wire) -> int:
    """The process that serves: the daemon behind a `wrap` if it has one, otherwise the program."""
    words = wire.process.args
    assert isinstance(words, list)
    if "wrap" not in words:
        return wire.process.pid
    journal = journal_of(words[words.index("wrap") :])
    return holder(daemon_lock(journal)) or wire.process.pid


def resident(pid: int) -> float:
    """MiB that a process keeps."""
    return float(psutil.Process(pid).memory_info().rss / MIB)


def wait_until_settled(path: Path, wire: Wire) -> None:
    """Until the turn is compacted, a second after its end: that needs memory too."""
    deadline = time.monotonic() + SETTLE_SECONDS
    # Read as it is: to open the journal would bring that of an earlier release up to date.
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
        query = "SELECT message_count FROM sessions WHERE session_id = ?"
        while not journal.execute(query, [wire.session_id]).fetchone()[0]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the turn was not settled within {SETTLE_SECONDS:g} s")
            time.sleep(0.05)
