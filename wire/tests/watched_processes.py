"""Real processes: alive or not, their children, their input; and waiting for what they do."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any

import psutil

from tests.plugin import pause_after
from tests.talker import DEADLINE


async def until(what: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait until `what()`, awaited if need be, is true, for conditions that no message announces;
    returns its value."""
    deadline = time.monotonic() + seconds
    began = time.monotonic()
    while not (found := await it if isawaitable(it := what()) else it):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(pause_after(time.monotonic() - began))
        began = time.monotonic()
    return found


def lives(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.NoSuchProcess:
        return False


def family(pid_file: Path, *, ignore_term: bool = False, setsid: bool = False) -> str:
    """Python code with a child; both write their pids to the file and stay, also at EOF."""
    return f"""
import os, signal, time
if {ignore_term}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0 and {setsid}:
    os.setsid()
with open({str(pid_file)!r}, "a") as file:
    file.write(f"{{os.getpid()}} ")
time.sleep(60)
"""


def pids(pid_file: Path) -> list[int]:
    return [int(word) for word in pid_file.read_text().split()]


async def gone(pids: set[int], seconds: float = DEADLINE) -> None:
    """Wait until none of these processes lives."""
    await until(lambda: not any(map(lives, pids)), seconds)


# psutil reads a file, or several, of every process of the machine to find those below one. A test
# that waits for them would leave no CPU time to what it waits for.


def children(pid: int) -> set[int]:
    """The processes that `pid` has started, and that are still its own; none if it has ended."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found.update(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def below(pid: int) -> set[int]:
    """The processes that `pid` has started, and those that they have."""
    found: set[int] = set()
    new = {pid}
    while new:
        new = {it for one in new for it in children(one)} - found
        found |= new
    return found


def command_lines() -> dict[int, list[str]]:
    """The words of every process that has a command, by its number; zombies have none."""
    found = {}
    for pid in process_ids():
        with suppress(OSError):
            if words := _read(f"/proc/{pid}/cmdline"):
                found[pid] = words.decode("utf-8", "replace").rstrip("\0").split("\0")
    return found


def started_with(variable: str, value: str) -> set[int]:
    """The processes that have this in the environment that they were started with."""
    wanted = f"\0{variable}={value}\0".encode()
    found = set()
    for pid in process_ids():
        with suppress(OSError):
            if wanted in b"\0" + _read(f"/proc/{pid}/environ"):
                found.add(pid)
    return found


def process_ids() -> list[int]:
    """All processes of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


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
