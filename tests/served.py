"""A client for tests in front of a hub in this process: only the agent is a program of its own.

Like `tests.editor.wrapped` with `acphold wrap`, in a third of the time. Tests that kill acphold, or
read its output, cannot use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp_wire.rpc import MAX_MESSAGE
from acp_wire.surroundings import Surroundings
from acp_wire.transports.streams import memory_pair
from acphold.live.agents.wrapped import START_TIMEOUT, ProcessAgent, ProcessOptions
from acphold.live.server.service import Service, serve
from acphold.serve_options import ServeOptions
from tests.caller import Caller as Caller, Guest as Guest
from tests.editor import scripted_agent


@asynccontextmanager
async def wrapped(
    journal: str | Path,
    *,
    client: Mapping[str, Any] | None = None,
    cancel_grace: float = 10.0,
    **agent: Any,
) -> AsyncIterator[Guest]:
    """A client with these capabilities, introduced to a scripted agent behind a hub."""
    async with guest(scripted_agent(**agent), journal, cancel_grace=cancel_grace) as first:
        await first.initialize(**(client or {}))
        yield first


@asynccontextmanager
async def guest(
    agent: Sequence[str],
    journal: str | Path,
    *,
    cancel_grace: float = 10.0,
    start_timeout: float = START_TIMEOUT,
    limit: int = MAX_MESSAGE,
) -> AsyncIterator[Guest]:
    """A client in front of the program `agent`; at the end both have left."""
    here, there = memory_pair()
    service = Service(
        make_agent=lambda listener, _: ProcessAgent(
            agent,
            listener,
            Surroundings.here(),
            ProcessOptions(start_timeout=start_timeout, limit=limit),
        ),
        options=ServeOptions(journal=journal, cancel_grace=cancel_grace, max_message=limit),
    )
    serving = asyncio.create_task(serve(there, service, stop=asyncio.Event()))
    client = Guest(here, serving)
    reading = asyncio.create_task(client.read())
    try:
        yield client
    finally:
        await client.leave()
        reading.cancel()
        await asyncio.wait([reading])
