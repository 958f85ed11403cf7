"""Tool calls that a person at the terminal is asked about.

What they would change, the rules that a yes may become, and the answers of other clients: from the
journal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acp_wire.tasks import timeout
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.decisions import (
    AskedQuestion,
    ClosedQuestion,
    asked_question,
    closed_question,
)
from acphold.conversation.history.entries import ANSWER, QUESTION
from acphold.conversation.history.raw_update import string
from acphold.conversation.presentation.present_diffs import (
    PresentDiff,
    present_diffs,
    present_files,
)
from acphold.conversation.reports.transcript import DecidedQuestion
from acphold.errors import AcpError
from acphold.faces.cli import bounds
from acphold.faces.cli.journals import reading
from acphold.faces.cli.terminal_text import this_terminal
from acphold.faces.screen.answers import AskedCalls
from acphold.live.reading.local_reader import existing_journal, note_deed
from acphold.safety.errors import RuleError
from acphold.safety.standing.decision import allowance, revoke_words

if TYPE_CHECKING:
    from acphold.conversation.history.timeline import ToolCall
    from acphold.live.reading.local_reader import LocalReader
    from acphold.live.reading.rule_offers import RuleOffer

log = logging.getLogger(__name__)


class KnownCalls(AskedCalls):
    """The calls in the journal, which is opened for each look. With `is_far` the agent works on
    another machine, and the files here are not those that it changes."""

    def __init__(self, *, is_far: bool = False) -> None:
        self._is_far = is_far
        self._threads = Threads(1)

    async def at_present(self, session_id: str, tool: ToolCall) -> Mapping[int, PresentDiff]:
        """Return the call's diffs against the files; none of those that cannot be read."""
        if self._is_far or not tool.diffs:
            return {}
        try:
            async with (
                timeout(bounds.PRESENT_SECONDS),
                existing_journal() as journal,
            ):
                row = await journal.session(session_id)
                reader = present_files(row.cwd, row.additional_directories)
                return await self._threads.run(present_diffs, tool.fields, reader)
        except (AcpError, TimeoutError) as error:
            log.info("a change is shown as the agent says it: %s", error)
            return {}

    async def offers(self, session_id: str, call: str) -> Sequence[RuleOffer]:
        """Return the rules offered for the last question about this call; raises AcpError."""
        from acphold.live.reading.rule_offers import rule_offers  # late: few need them

        async with reading() as reader:
            asked, _ = await _last_question(reader, session_id, call)
            if asked is None:
                return ()
            return await rule_offers(reader.journal, session_id, asked.id, None)

    async def make(self, session_id: str, call: str, offer: RuleOffer, *, all_agents: bool) -> str:
        """Make one; return the message for the person. Raises AcpError."""
        from acphold.live.reading.rule_offers import accept_offer

        async with reading() as reader:
            asked, _ = await _last_question(reader, session_id, call)
            if asked is None:
                raise RuleError("its question is no longer among the latest entries of the session")
            made = await accept_offer(
                *(reader.journal, session_id, asked.id, offer.text),
                tenant=None,
                all_agents=all_agents,
                made_with=this_terminal(),
            )
            for rule in made:
                await note_deed(reader.journal, "add rule", rule.text)
        revoke = revoke_words([rule.number for rule in made], made[0].person)
        allowed = allowance("" if all_agents else offer.agent, offer.words)
        return f"{allowed} (30 days). To revoke it: {revoke}"

    async def outcome(self, session_id: str, call: str) -> DecidedQuestion | None:
        """Return the last question about a tool call, decided; None if it is open, or not among the
        latest entries. Raises AcpError."""
        async with reading() as reader:
            asked, closed = await _last_question(reader, session_id, call)
        if asked is None or closed is None:
            return None
        return DecidedQuestion(asked.title, closed.came(asked), closed.client, bool(closed.rules))


class CallsWithoutRules(KnownCalls):
    """The same for a command that ends after the turn: no yes becomes a rule."""

    async def offers(self, session_id: str, call: str) -> Sequence[RuleOffer]:
        return ()


async def _last_question(
    reader: LocalReader, session_id: str, call: str
) -> tuple[AskedQuestion | None, ClosedQuestion | None]:
    """Return the last question about a tool call, and its answer; None for what is not there."""
    closed: dict[str, ClosedQuestion] = {}
    page = await reader.read_back(session_id, None, bounds.ANSWERED_ENTRIES)
    for entry in page.entries:
        if entry.kind == ANSWER:
            answer = closed_question(entry.raw)
            closed[answer.question] = answer
        elif entry.kind == QUESTION:
            asked = asked_question(entry.raw)
            if string(asked.tool_call.get("toolCallId")) == call:
                return asked, closed.get(asked.id)
    return None, None
