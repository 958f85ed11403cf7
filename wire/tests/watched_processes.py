"""Real processes: alive or not, their children, their input; and waiting for what they do."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.editor import DEADLINE, Editor


async def until(what: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait until `what()` is true, for conditions that no message announces; returns its value."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)
    return found


def lives(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.NoSuchProcess:
        return False


async def gone(pids: set[int], seconds: float = DEADLINE) -> None:
    """Wait until none of these processes lives."""
    await until(lambda: not any(map(lives, pids)), seconds)


def below(pid: int) -> set[int]:
    """The processes that `pid` has started, and those that they have."""
    with suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def agent_pid(editor: Editor) -> int:
    """The scripted agent behind an `acphold wrap`."""
    for pid in below(editor.process.pid):
        with suppress(psutil.NoSuchProcess):
            if any("scripted_agent" in word for word in psutil.Process(pid).cmdline()):
                return pid
    raise AssertionError("no agent runs")


async def written_pid(path: Path) -> int:
    """The pid that a process writes into this file."""
    return int(await until(lambda: path.exists() and path.read_text().strip()))


def heard(log: Path) -> list[dict[str, Any]]:
    """The messages that the agent with this log received."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def methods(log: Path) -> list[str]:
    """The methods among it."""
    return [message["method"] for message in heard(log) if "method" in message]


def resident(pid: int) -> int:
    """Resident memory of a process in bytes, without memory shared with other processes."""
    return int(psutil.Process(pid).memory_info().rss)


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        name: (folder / name).read_bytes()
        for name in os.listdir(folder)
        if (folder / name).is_file()
    }
