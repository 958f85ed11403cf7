"""Changes that an agent asks for, in the terminal: against the files as they are here."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from acp_wire.workspace.threads import Threads
from acphold.errors import AcpError
from acphold.faces.cli import bounds
from acphold.faces.cli.journals import existing_journal
from acphold.live.presentation.present_diffs import present_diffs, with_present_diffs
from acphold.live.reading.present_files import present_files

if TYPE_CHECKING:
    from acphold.record.history.timeline import ToolCall

log = logging.getLogger(__name__)


class PresentCalls:
    """A `screen.answers.CallReader` for sessions of the journal here."""

    def __init__(self, journal: str | None) -> None:
        self._journal = journal
        self._threads = Threads(1)

    async def read(self, session_id: str, tool: ToolCall) -> ToolCall:
        """Return the call with its diffs against the files; as it is, if these cannot be read."""
        if not tool.diffs:
            return tool
        try:
            async with (
                asyncio.timeout(bounds.PRESENT_SECONDS),
                existing_journal(self._journal) as journal,
            ):
                reader = present_files(await journal.session(session_id))
                found = await self._threads.run(present_diffs, tool.fields, reader)
        except (AcpError, TimeoutError) as error:
            log.info("a change is shown as the agent says it: %s", error)
            return tool
        return with_present_diffs(tool, found)
