"""How a program that we talk to has ended, as an error that a person can use.

It names the exit status, and what the program said last on stderr.
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
"""Of the last words, behind a sentence."""


async def ended(name: str, process: ChildProcess | None) -> AgentExitedError:
    """How the program that is called `name` ended, once it has; it gets STATUS_TIMEOUT for it."""
    if process is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_TIMEOUT):
                await process.wait()
    return how_it_ended(name, process)


def how_it_ended(name: str, process: ChildProcess | None) -> AgentExitedError:
    """The error for it, as far as is known now; None is a program that we have ended ourselves."""
    if process is None:
        return AgentExitedError(f"{name} was ended", "ended by acphold", "")
    code = process.returncode
    status = "it closed its stdout" if code is None else describe(code)
    return AgentExitedError(
        f"{name} ended ({status}){last_line(process)}", status, process.stderr_tail()
    )


def last_line(process: ChildProcess | None) -> str:
    """The program's last words on stderr, to be put behind a sentence."""
    words = "" if process is None else process.last_words()
    return f": {words[:MOST_LETTERS]}" if words else ""


async def hang_up_behind(process: ChildProcess, peer: Peer, pump: asyncio.Task[None]) -> None:
    """The end of the program is the end of the connection, whoever still holds its stdout."""
    await process.wait()
    peer.hold_no_more()
    await asyncio.wait([pump], timeout=LAST_WORDS)
    await process.transport.aclose()
