"""Killed at any instant, a process loses nothing that was acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import acphold
from acphold.journal.rows import NewSession
from tests.journal.conversations import open_file

WRITER = """
import asyncio, random, sys
from acphold.journal.sqlite.store import SqliteJournal

async def main(path, seed):
    random.seed(seed)
    journal = SqliteJournal(path)
    lease = await journal.acquire("s1")
    print("began", flush=True)
    settling = None
    while True:
        count = random.choice((1, 1, 3, 50))
        raws = [b'{"sessionUpdate":"n","seq":%d}' % (lease.next_seq + n) for n in range(count)]
        [segment] = await journal.append(lease, [("update", raws)])
        print(segment.last_seq, flush=True)
        if settling is None or settling.done():
            settling = asyncio.create_task(journal.settle(lease, segment.last_seq))
        await asyncio.sleep(0)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def acknowledged(path: Path, seed: int, appends: int) -> int:
    """Kill a writer after that many appends; the last number it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": str(Path(acphold.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"began\n"
        for _ in range(appends):
            last = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        # Lines written before the signal reached it count as well.
        for line in writer.stdout.read().splitlines(keepends=True):
            if line.endswith(b"\n"):
                last = int(line)
    assert writer.returncode == -signal.SIGKILL
    return last


@pytest.mark.parametrize("seed", range(3))
async def test_a_killed_process_loses_nothing_it_acknowledged(path: Path, seed: int) -> None:
    journal = open_file(path)
    await journal.create(NewSession("s1", "a", "/w"))
    await journal.aclose()
    for kill in range(3):
        last = acknowledged(path, seed * 3 + kill, appends=1 + 97 * seed + 31 * kill)
        journal = open_file(path)
        seqs: list[int] = []
        while segments := await journal.read("s1", seqs[-1] if seqs else 0):
            for entry in (entry for segment in segments for entry in segment.entries()):
                assert entry.raw == b'{"sessionUpdate":"n","seq":%d}' % entry.seq
                seqs.append(entry.seq)
        assert seqs == list(range(1, len(seqs) + 1))
        assert seqs[-1] >= last
        row = await journal.session("s1")
        await journal.acquire("s1")
        assert row.last_seq == seqs[-1]
        assert (await journal.session("s1")).updated_at >= row.updated_at
        await journal.aclose()
