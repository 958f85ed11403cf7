"""Terminals that run nothing: `echo WORDS` prints, `sleep SECONDS; touch FILE` takes its time."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from acp_check.record import Json


class PlayedShell:
    """See `acp_check.dialogue.Shell`."""

    def __init__(self) -> None:
        self._printed: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def call(self, method: str, params: Json) -> Json:
        if method == "terminal/create":
            terminal_id = f"terminal-{len(self._printed) + 1}"
            line = str((params.get("args") or [params.get("command")])[-1])
            self._printed[terminal_id] = line.removeprefix("echo ") + "\n"
            if slow := re.fullmatch(r"sleep (\d+); touch (.*)", line):
                later = _touched(int(slow[1]), Path(slow[2]))
                self._running[terminal_id] = asyncio.create_task(later)
            return {"terminalId": terminal_id}
        running = self._running.get(params["terminalId"])
        if running is not None and method in ("terminal/kill", "terminal/release"):
            running.cancel()
        elif running is not None and method == "terminal/wait_for_exit":
            await asyncio.wait([running])
        printed = self._printed.get(params["terminalId"], "")
        status: Json = {"exitCode": 0}
        output: Json = {"output": printed, "truncated": False, "exitStatus": status}
        return {"terminal/output": output, "terminal/wait_for_exit": status}.get(method, {})

    async def aclose(self) -> None:
        for running in self._running.values():
            running.cancel()


async def _touched(seconds: int, path: Path) -> None:
    await asyncio.sleep(seconds)
    path.touch()  # noqa: ASYNC240
