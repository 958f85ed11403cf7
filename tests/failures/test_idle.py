"""A process that nobody needs at the moment lets the machine sleep."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from acphold.journal_location import VARIABLE
from tests.editor import introduced, scripted_agent, wrap_command
from tests.owners import lone_command

WATCHED_SECONDS = 30.0


def wakes(pid: int) -> int:
    """The number of times that any thread of the process has waited for something."""
    waits = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                waits += int(line.split()[1])
    return waits


@pytest.mark.parametrize("kind", ["alone", "daemon"])
async def test_an_idle_process_with_a_session_wakes_at_most_six_times_a_minute(
    journal: Path, kind: str
) -> None:
    command = (wrap_command if kind == "daemon" else lone_command)(scripted_agent())
    before = {process.pid for process in psutil.process_iter()}
    async with introduced(command, journal=journal) as client:
        await client.prompt(await client.new(), {"say": "kept"})
        pid = client.process.pid
        if kind == "daemon":
            [pid] = [
                process.pid
                for process in psutil.process_iter(["cmdline"])
                if process.pid not in before
                and "daemon" in (process.info["cmdline"] or [])
                and process.environ().get(VARIABLE) == str(journal)
            ]
        try:
            # What follows a turn: a summary, the index, a copy of the log.
            seen = -1
            async with asyncio.timeout(2 * WATCHED_SECONDS):
                while (now := wakes(pid)) != seen:
                    seen = now
                    await asyncio.sleep(3)
            await asyncio.sleep(WATCHED_SECONDS)
            assert wakes(pid) - seen <= 6 * WATCHED_SECONDS / 60 + 1
        finally:
            if kind == "daemon":
                psutil.Process(pid).terminate()
