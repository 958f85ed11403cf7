"""The end of a program that we talk to, as an error for people.

It names the exit status, and the program's last words on stderr.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from acphold.errors import AgentExitedError
from acphold.processes.exit_status import describe
from acphold.rpc import Peer
from acphold.transports.child import ChildProcess

STATUS_TIMEOUT = 2.0
"""Seconds for a program to end once its stdout has; one that stays is ended."""

LAST_WORDS = 1.0
"""Seconds for its stdout to end once the program has; a child of its own may hold it open."""

MOST_LETTERS = 300
"""Most characters of the last words, behind a sentence."""


async def ended(name: str, process: ChildProcess | None) -> AgentExitedError:
    """Return the error for the program `name` once it has ended, within STATUS_TIMEOUT."""
    if process is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_TIMEOUT):
                await process.wait()
    return how_it_ended(name, process)


def how_it_ended(name: str, process: ChildProcess | None) -> AgentExitedError:
    """Return the error for it, as far as is known now; None is a program that we have ended."""
    if process is None:
        return AgentExitedError(f"{name} was ended", "ended by acphold", "")
    code = process.returncode
    status = "it closed its stdout" if code is None else describe(code)
    return AgentExitedError(
        f"{name} ended ({status}){last_line(process)}", status, process.stderr_tail()
    )


def last_line(process: ChildProcess | None) -> str:
    """Return the program's last words on stderr, to put behind a sentence."""
    words = "" if process is None else process.last_words()
    return f": {words[:MOST_LETTERS]}" if words else ""


async def hang_up_behind(process: ChildProcess, peer: Peer, pump: asyncio.Task[None]) -> None:
    """End the connection when the program ends, even if another process holds its stdout open."""
    await process.wait()
    peer.hold_no_more()
    await asyncio.wait([pump], timeout=LAST_WORDS)
    await process.transport.aclose()
