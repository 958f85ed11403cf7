"""How a program fares while it is measured: its CPU, its memory, how long its loop stood still.

An agent that is asked for a `report` answers with this, about the time since the last one. How long
the loop stood still is told twice: by the clock, and without what it only waited for a core that
another program had, which says more of the machine than of the program.
"""

from __future__ import annotations

import asyncio
import json
import resource
from time import perf_counter, process_time
from typing import IO

BEAT = 0.005
"""Seconds between two looks at the clock."""


class Pulse:
    """Measures from its first report on."""

    def __init__(self) -> None:
        self._longest = self._own = 0.0
        self._cpu = 0.0
        self._beating: asyncio.Task[None] | None = None

    def report(self) -> str:
        """What was since the last report, as JSON; to be called in the event loop."""
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        cpu = process_time()
        told = {
            "cpu": cpu - self._cpu,
            "stall": self._longest,
            "own_stall": self._own,
            "rss": _resident(),
        }
        self._cpu, self._longest, self._own = cpu, 0.0, 0.0
        return json.dumps(told)

    async def _beat(self) -> None:
        # That of the loop, which this runs in; open for as long as it does.
        scheduled = open("/proc/thread-self/schedstat")  # noqa: SIM115, ASYNC230
        waited = _waited(scheduled)
        while True:
            began = perf_counter()
            await asyncio.sleep(BEAT)
            stall = perf_counter() - began - BEAT
            before, waited = waited, _waited(scheduled)
            self._longest = max(self._longest, stall)
            self._own = max(self._own, stall - (waited - before))


def _waited(scheduled: IO[str]) -> float:
    """Seconds for which a thread that could run had no core (kernel documentation, schedstats)."""
    scheduled.seek(0)
    return int(scheduled.read().split()[1]) / 1e9


def _resident() -> int:
    """Bytes that it keeps in memory now."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize()
