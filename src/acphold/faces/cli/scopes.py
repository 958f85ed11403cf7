"""Scopes of systemd: the daemon, and each of its agents, in a unit of its own.

A process belongs to the unit of whoever has started it: an editor's, or a service's. When that is
stopped, or runs out of memory, systemd ends all of it. So the daemon is a service of its own
(`processes.transient_service`), and an agent that takes all memory takes no other one along.
Sources: systemd.scope(5), org.freedesktop.systemd1(5), systemd.kill(5).

The units are the user manager's, which ends with the last logout unless the user lingers. So a
process that began outside of it, as in a login over ssh, is left where it is without that.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from acp_wire.processes import process_tree
from acp_wire.processes.program import Program, on_path
from acphold.faces.cli import bounds
from acphold.live.agents.wrapped import ProcessAgent
from acphold.machine.own_program import run_beside
from acphold.machine.transient_service import is_lingering, is_service

log = logging.getLogger(__name__)

MANAGER = (
    *("--user", "call"),
    *("org.freedesktop.systemd1", "/org/freedesktop/systemd1"),
    "org.freedesktop.systemd1.Manager",
)


class ScopeError(Exception):
    """Systemd has refused, or does not answer; that is logged."""


async def keep_scopes(*, is_in_background: bool) -> None:
    """Move this process into a scope, and then each agent that it starts, until cancelled.

    Nothing waits for that: each gets a moment first. Where it cannot be done, all stay together. A
    process in the foreground is left where its service, or a person, has put it.
    """
    if not is_in_background or (busctl := find_busctl()) is None:
        return
    started: asyncio.Queue[Program] = asyncio.Queue()
    ProcessAgent.on_start = started.put_nowait
    try:
        await asyncio.sleep(bounds.SCOPE_SECONDS)
        if not is_lingering():
            await _ask(busctl, *MANAGER, "GetUnitByPID", "u", str(os.getpid()))
        if not is_service():  # started by hand, or by a manager that was silent
            own = partial(process_tree.family, os.getpid())
            await _move(busctl, f"acphold-{os.getpid()}", own)
        while True:
            program = await started.get()
            await asyncio.sleep(bounds.SCOPE_SECONDS)
            with suppress(ScopeError):  # it may have ended
                await _move(busctl, f"acphold-agent-{program.pid}", partial(_tree_of, program))
    except ScopeError:
        return
    finally:
        ProcessAgent.on_start = ProcessAgent.start_quietly


def find_busctl() -> str | None:
    """Return the program that talks to this user's manager; None if there is no manager."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return on_path("busctl") if os.path.exists(f"{folder}/systemd/private") else None


def _tree_of(program: Program) -> set[int]:
    """Return its processes and its guardian, which has to outlive us."""
    if program.gone or not (found := process_tree.living(program.pid, program.guard.mark)):
        return set()
    return found | ({program.guard.pid} if program.guard.pid else set())


async def _move(busctl: str, name: str, find: Callable[[], Collection[int]]) -> None:
    """Move the processes that are found into a scope; raises ScopeError."""
    for left in reversed(range(bounds.SCOPE_TRIES)):
        if not (pids := sorted(map(str, await asyncio.to_thread(find)))):
            return
        members = (
            *("Description", "s", name),
            *("PIDs", "au", str(len(pids)), *pids),
            *("CollectMode", "s", "inactive-or-failed"),
        )
        arguments = (f"{name}.scope", "fail", "3", *members, "0")
        try:
            await _ask(busctl, *MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", *arguments)
            return
        except ScopeError:  # mostly because one of them has ended meanwhile
            if not left:
                raise


async def _ask(busctl: str, *words: str) -> bytes:
    """Return the answer of systemd; raises ScopeError."""
    try:
        code, answer, said = await run_beside((busctl, *words), bounds.SCOPE_ANSWER_SECONDS)
    except TimeoutError:
        code, answer, said = 1, b"", b"no answer"
    except OSError as error:
        raise ScopeError from error
    if code:
        log.info("systemd, %s: %s", " ".join(words), said.decode(errors="replace").strip())
        raise ScopeError
    return answer


CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
"""Docker, Podman and systemd leave one of these in a container."""


async def what_ends_us() -> list[str]:
    """Return what ends a daemon on this machine by itself, a sentence each."""
    found = []
    if any(map(os.path.exists, CONTAINER_FILES)):
        found.append("the daemon and running turns end with this container")
    if "microsoft" in os.uname().release.lower():  # https://learn.microsoft.com/windows/wsl/
        found.append("WSL ends once no window uses it, and the daemon and running turns with it")
    if not is_lingering() and (busctl := on_path("busctl")) is not None:
        manager = "org.freedesktop.login1.Manager"  # its settings: logind.conf(5)
        place = ("org.freedesktop.login1", "/org/freedesktop/login1", manager)
        with suppress(ScopeError):
            told = await _ask(busctl, "get-property", *place, "KillUserProcesses")
            if told.split() == [b"b", b"true"]:
                found.append(
                    "your last logout ends the daemon and running turns "
                    "(KillUserProcesses=yes); `loginctl enable-linger` keeps them"
                )
    return found
