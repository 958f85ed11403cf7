"""How a program fares while it is measured: its CPU, its memory, how long its loop stood still.

An agent that is asked for a `report` answers with this, about the time since the last one.
"""

from __future__ import annotations

import asyncio
import json
import resource
from time import perf_counter, process_time

BEAT = 0.005
"""Seconds between two looks at the clock."""


class Pulse:
    """Measures from its first report on."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._cpu = 0.0
        self._beating: asyncio.Task[None] | None = None

    def report(self) -> str:
        """What was since the last report, as JSON; to be called in the event loop."""
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        cpu = process_time()
        told = {"cpu": cpu - self._cpu, "stall": self._longest, "rss": _resident()}
        self._cpu, self._longest = cpu, 0.0
        return json.dumps(told)

    async def _beat(self) -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(BEAT)
            self._longest = max(self._longest, perf_counter() - began - BEAT)


def _resident() -> int:
    """Bytes that it keeps in memory now."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize()
