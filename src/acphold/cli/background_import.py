"""The import beside `wrap`: it imports the agent's conversations held outside of acphold.

It is a process of its own, with the lowest priority, and ends with `wrap` at the latest;
the next import does the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Final

from acphold.agents.wrapped import ProcessAgent
from acphold.known_agents import KNOWN_AGENTS, short_name
from acphold.tasks import end

SINCE: Final = "30d"
"""`acphold import` imports older ones: nobody waits for them, and there may be many."""

SECONDS_AT_MOST: Final = 600.0
"""A bound, because nobody watches; the first import of 30 days takes a minute."""

NICENESS: Final = 10

log = logging.getLogger(__name__)


class AgentWithImport(ProcessAgent):
    """An agent whose conversations are imported into a journal once its name is known."""

    import_into: str | None = None
    """The journal's place; None for no import."""

    _importing: asyncio.Task[None] | None = None

    async def initialize(self, params: bytes) -> bytes:
        answer = await super().initialize(params)
        known = KNOWN_AGENTS.get(short_name(self.key))
        if (
            known is not None
            and known.is_imported
            and self.import_into is not None
            and self._importing is None
        ):
            importing = _import(known.name, self.import_into)
            self._importing = asyncio.create_task(importing, name="import beside wrap")
        return answer

    async def aclose(self) -> None:
        await end(self._importing)
        await super().aclose()


async def _import(name: str, journal: str) -> None:
    from acphold.processes.own_program import own_command, start_own  # late: few agents need it

    try:
        process = await start_own(
            own_command("import", "--agent", name, "--since", SINCE, "--journal", journal),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
    except OSError as error:
        log.warning("conversations held outside were not imported: %s", error)
        return
    try:
        await _followed(process)
    except TimeoutError:
        log.info("the import of conversations held outside took too long; the next one continues")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _followed(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    async with asyncio.timeout(SECONDS_AT_MOST):
        told, complaints = await process.communicate()
    log.info("imported: %s", told.decode(errors="replace").strip())
    if complaints:
        log.info("import: %s", complaints.decode(errors="replace").strip())
