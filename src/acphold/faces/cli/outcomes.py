"""Outcomes of questions that a terminal asked and another client answered, from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acphold.faces.cli import bounds
from acphold.faces.cli.journals import reading
from acphold.record.history.decisions import ClosedQuestion, asked_question, closed_question
from acphold.record.history.entries import ANSWER, QUESTION
from acphold.record.history.raw_update import string
from acphold.record.reports.transcript import DecidedQuestion

if TYPE_CHECKING:
    from acphold.faces.cli.servers import FarServer


class Outcomes:
    """A `screen.answers.OutcomeReader`, of the journal here or a server far away."""

    def __init__(self, server: FarServer | None, journal: str | None) -> None:
        self._server = server and server._replace(url=server.url.partition("#")[0])
        self._journal = journal

    async def read(self, session_id: str, call: str) -> DecidedQuestion | None:
        """Return the last question about a tool call, decided; None if it is open, or not among the
        latest entries. Raises AcpError."""
        closed: dict[str, ClosedQuestion] = {}
        async with reading(self._server, self._journal) as reader:
            page = await reader.read_back(session_id, None, bounds.ANSWERED_ENTRIES)
        for entry in page.entries:
            if entry.kind == ANSWER:
                answer = closed_question(entry.raw)
                closed[answer.question] = answer
            elif entry.kind == QUESTION:
                asked = asked_question(entry.raw)
                if string(asked.tool_call.get("toolCallId")) == call:
                    if (found := closed.get(asked.id)) is None:
                        return None
                    title, by_rule = asked.title, bool(found.rules)
                    return DecidedQuestion(title, found.came(asked), found.client, by_rule)
        return None
