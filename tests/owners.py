"""Other processes that own a session: real ones, which live, are silent, or have been killed.

One that serves an agent in a hub of its own is like an agent of the library. A second
`acphold wrap` is no other owner, because both go to the daemon.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path

import psycopg

from acphold.journal.rows import NewSession
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stores import open_journal
from tests.editor import DEADLINE, Editor, wrapped

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


@contextmanager
def silent(journal: Path | str, owner: Editor, seconds: float = 60) -> Iterator[None]:
    """Stop a process, and let it have reported so long ago, by default so that its sessions are
    free."""
    os.kill(owner.process.pid, signal.SIGSTOP)
    try:
        while True:
            try:
                make_silent(journal, owner.process.pid, seconds, patience=1.0)
                break
            except sqlite3.OperationalError:  # it was stopped in a transaction
                os.kill(owner.process.pid, signal.SIGCONT)
                time.sleep(0.01)
                os.kill(owner.process.pid, signal.SIGSTOP)
        yield
    finally:
        os.kill(owner.process.pid, signal.SIGCONT)


def make_silent(
    journal: Path | str, owner: int | str, seconds: float = 60, patience: float = DEADLINE
) -> None:
    """Let the owner in a process of this number, or with this id, have reported so long ago."""
    column = "pid" if isinstance(owner, int) else "id"
    if "://" in str(journal):
        with psycopg.connect(str(journal), autocommit=True) as database:
            database.execute(
                "UPDATE acphold.owners SET renewed_at = now() - make_interval(secs => %s)"
                f" WHERE {column} = %s",
                (seconds, owner),
            )
        return
    with closing(sqlite3.connect(journal, timeout=patience)) as file, file:
        since = time.monotonic_ns() // 1_000_000 - round(seconds * 1000)
        file.execute(f"UPDATE owners SET renewed_at = ? WHERE {column} = ?", (since, owner))


def yield_up(journal: Path | str, session: str) -> None:
    """Let anybody take a session from its owner, also if that reports meanwhile."""
    if "://" in str(journal):
        with psycopg.connect(str(journal), autocommit=True) as database:
            database.execute(
                "UPDATE acphold.leases SET yields = true WHERE session_id = %s", (session,)
            )
        return
    with closing(sqlite3.connect(journal, timeout=DEADLINE)) as file, file:
        file.execute(
            "UPDATE leases SET yields = 1"
            " WHERE session = (SELECT number FROM sessions WHERE session_id = ?)",
            (session,),
        )


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
