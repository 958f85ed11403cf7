"""The code of a process that runs for days is kept in memory: an upgrade takes its files."""

from __future__ import annotations

import asyncio
import logging

from acp_wire.processes.installation import keep_code
from acphold.faces.cli import bounds

log = logging.getLogger(__name__)


async def keep_own_code() -> None:
    """Keep our code, once the first client has its agent."""
    await asyncio.sleep(bounds.KEEP_CODE_SECONDS)
    try:
        await asyncio.to_thread(keep_code, "acphold", "acp_wire")
    except OSError as exc:
        log.warning("the code cannot be kept; end this process before an upgrade: %s", exc)
