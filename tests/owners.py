"""Other processes that own a session: real ones, which live, are silent, or have been killed.

One that serves an agent in a hub of its own is like an agent of the library. A second
`acphold wrap` is no other owner, because both go to the daemon.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from acphold.journal.rows import NewSession
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stores import open_journal
from tests.editor import DEADLINE, wrapped

LONE_HUB = str(Path(__file__).with_name("lone_hub.py"))


def lone_command(agent: Sequence[str], *options: str) -> list[str]:
    """Serves `agent` with these options of `acphold wrap`, in a hub of its own."""
    return [sys.executable, "-P", LONE_HUB, *options, "--", *agent]


program = partial(wrapped, through=lone_command)
"""An editor with these client capabilities, introduced to a scripted agent in such a hub."""


def die(journal: SqliteJournal) -> None:
    """Let go of all that this journal owns, as the kernel does for a process that it ends."""
    if (owner := journal._owner) is not None:
        os.close(owner._file._descriptor)
        journal._owner = None


OWNING = """
import asyncio, sys
from acphold.journal.stores import open_journal

async def own():
    journal = open_journal(sys.argv[1])
    await journal.renew(addresses=sys.argv[3:])
    await journal.acquire(sys.argv[2])
    print("owns", flush=True)
    input()

asyncio.run(own())
"""


@asynccontextmanager
async def owning(journal: Path, session: str, *addresses: str) -> AsyncIterator[Process]:
    """A process that owns this session for the block, and answers nobody; killed at its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", OWNING, str(journal), session, *addresses),
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), DEADLINE) == b"owns\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def killed(journal: Path, session: str) -> None:
    """Have a process own this session that is killed then."""
    async with owning(journal, session):
        pass


async def left_by_killed(journal: Path, new: NewSession, *raws: bytes) -> None:
    """A session that a process has made, with these updates, which was killed then."""
    made = open_journal(journal)
    try:
        lease = await made.create(new)
        for raw in raws:
            await made.append(lease, [("update", [raw])])
    finally:
        await made.aclose()
    await killed(journal, new.session_id)
