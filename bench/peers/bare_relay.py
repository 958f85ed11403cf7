"""What no wrap can be quicker than: bytes handed on unread, one bare commit for each read.

`python bare_relay.py DATABASE CMD ARGS...`. It has asyncio, pipes and SQLite as acphold has them,
and nothing of acphold: it does not know one message from another, keeps no lease, and tells nobody
of an error. What comes from the agent is committed before it is handed on; a prompt, behind it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys

READ_SIZE = 64 * 1024


def main() -> None:
    """Start the agent; hand on until it ends."""
    database = sqlite3.connect(sys.argv[1], isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
        database.execute(f"PRAGMA {setting}")
    database.execute("CREATE TABLE read (number INTEGER PRIMARY KEY, raw BLOB)")
    agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin
    assert agent.stdout
    # A copy: it is closed when the client has left, and `agent` would close its own again.
    to_agent = os.dup(agent.stdin.fileno())
    agent.stdin.close()
    asyncio.run(relay(database, to_agent, agent.stdout.fileno()))


async def relay(database: sqlite3.Connection, to_agent: int, from_agent: int) -> None:
    """Hand on until the agent ends."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def commit(data: bytes) -> None:
        database.execute("INSERT INTO read (raw) VALUES (?)", (data,))

    def from_client() -> None:
        data = os.read(0, READ_SIZE)
        if data:
            os.write(to_agent, data)
            commit(data)
        else:
            loop.remove_reader(0)
            os.close(to_agent)

    def to_client() -> None:
        data = os.read(from_agent, READ_SIZE)
        if data:
            commit(data)
            os.write(1, data)
        else:
            loop.remove_reader(from_agent)
            over.set()

    loop.add_reader(0, from_client)
    loop.add_reader(from_agent, to_client)
    await over.wait()


main()
