"""Questions that people have decided, read again as standing answers would read them today."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal

from msgspec import Struct

from acphold.journal import SessionRow
from acphold.known_agents import short_name
from acphold.reading.inbox import InboxJournal, InboxQuestion, Whose, call_before, decisions
from acphold.standing import (
    Action,
    Circumstances,
    Decision,
    StandingRule,
    Unclear,
    asked_action,
    decide,
    decoded_call,
)

AT_ONCE: Final = 500
"""Decisions read at once."""


class PastQuestion(Struct, frozen=True):
    """A question to a person, the `action` that it asked for, and their decision.

    `decided` is "allowed", "refused", or "" if no person decided.
    """

    row: SessionRow
    id: str
    at: int
    title: str
    action: Action
    decided: Literal["allowed", "refused", ""]

    def judged(self, rules: Iterable[StandingRule], *, now: int | None = None) -> Decision:
        """Return what these rules say, at the time of the question or at `now`."""
        row = self.row
        at = Circumstances(
            short_name(row.agent),
            row.cwd,
            row.session_id,
            row.tenant,
            self.at if now is None else now,
        )
        return decide(self.action, rules, at)


async def past_questions(
    journal: InboxJournal, since: int, whose: Whose
) -> AsyncIterator[PastQuestion]:
    """Yield the decided permission questions since then (ms since the epoch), newest first."""
    before: int | None = None
    while True:
        found, before = await decisions(journal, {}, AT_ONCE, before, whose)
        for each in found:
            if each.answered_at < since:
                return
            yield await _read(journal, each)
        if before is None:
            return


async def _read(journal: InboxJournal, each: InboxQuestion) -> PastQuestion:
    question, row = each.question, each.row
    earlier = await call_before(journal, row.session_id, question, each.seq)
    action = asked_action(
        short_name(row.agent), question.method, question.params, decoded_call(earlier)
    )
    how = "" if each.decided is None or each.decided.client is None else each.decided.came.how
    decided: Literal["allowed", "refused", ""] = ""
    if how.startswith("allow"):
        decided = "allowed"
    elif how.startswith("reject"):
        decided = "refused"
    return PastQuestion(row, question.id, each.at, each.asks, action, decided)


def is_readable(action: Action) -> bool:
    """True if a rule could be for it."""
    return not isinstance(action, Unclear)
