"""Rules offered after a yes in the terminal, from the journal here or a server far away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from acphold.errors import RuleError
from acphold.faces.cli import bounds
from acphold.faces.cli.journals import reading
from acphold.faces.cli.terminal_text import this_terminal
from acphold.record.history.decisions import asked_question
from acphold.record.history.entries import QUESTION
from acphold.record.history.raw_update import string
from acphold.record.standing.decision import allowance

if TYPE_CHECKING:
    from acphold.faces.cli.servers import FarServer
    from acphold.live.reading.session_reader import OfferedRule, SessionReader


class YesRules:
    """A `screen.answers.RuleMaker`; the journal or the server is opened for each offer."""

    def __init__(self, server: FarServer | None, journal: str | None) -> None:
        if server is not None:  # a code in its URL was used when the session was opened
            server = server._replace(url=server.url.partition("#")[0])
        self._reading: Callable[[], AbstractAsyncContextManager[SessionReader]] = lambda: reading(
            server, journal
        )

    async def offers(self, session_id: str, call: str) -> Sequence[OfferedRule]:
        """Return the offers for the last question about this call; raises AcpError."""
        async with self._reading() as reader:
            question = await _question(reader, session_id, call)
            return [] if question is None else await reader.rule_offers(session_id, question)

    async def make(
        self, session_id: str, call: str, offer: OfferedRule, *, all_agents: bool
    ) -> str:
        """Make one; return the message for the person. Raises AcpError."""
        async with self._reading() as reader:
            if (question := await _question(reader, session_id, call)) is None:
                raise RuleError("its question is no longer among the latest entries of the session")
            revoke = await reader.make_rules(
                session_id, question, offer.text, all_agents=all_agents, made_with=this_terminal()
            )
            at_server = ", on the server's machine or its page" if reader.origin else ""
        made = allowance("" if all_agents else offer.agent, offer.words or offer.text)
        return f"{made} (30 days). To revoke it: {revoke}{at_server}"


async def _question(reader: SessionReader, session_id: str, call: str) -> str | None:
    """Return the id of the last question about a tool call."""
    page = await reader.read_back(session_id, None, bounds.ANSWERED_ENTRIES)
    for entry in page.entries:
        if entry.kind == QUESTION:
            asked = asked_question(entry.raw)
            if string(asked.tool_call.get("toolCallId")) == call:
                return asked.id
    return None
