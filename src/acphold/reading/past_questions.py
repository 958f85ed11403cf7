"""Questions that people have decided, read again as standing answers would read them today."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from acphold.history.decisions import AskedQuestion, Came
from acphold.history.entries import CHILD
from acphold.history.raw_update import members, string, update_kind
from acphold.history.timeline import ToolDraft
from acphold.journal import Entries, Journal, SessionRow
from acphold.known_agents import short_name
from acphold.reading.inbox import Decided, InboxQuestion, Whose, call_entries, decisions
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
from acphold.standing.folders import kept_from_rules

AT_ONCE: Final = 500
"""Decisions read at once."""


class PastQuestion(Struct, frozen=True):
    """A question to a person, the `action` that it asked for, and their decision.

    `decided` is "allowed", "refused", or "" if no person decided. `kept` is as in Circumstances,
    `rules` and `unruled` as in ClosedQuestion.
    """

    row: SessionRow
    id: str
    at: int
    title: str
    action: Action
    decided: Literal["allowed", "refused", ""]
    kept: tuple[str, ...] = ()
    rules: tuple[int, ...] = ()
    unruled: str = ""

    def judged(
        self,
        rules: Iterable[StandingRule],
        *,
        now: int | None = None,
        mode: str = "",
        guests: bool = True,
    ) -> Decision:
        """Return what these rules say, at the time of the question or at `now`, in that mode.

        Without `guests`, as if nobody else could prompt in the session.
        """
        row = self.row
        at = Circumstances(
            short_name(row.agent),
            row.cwd,
            row.session_id,
            row.tenant,
            self.at if now is None else now,
            mode=mode,
            kept=self.kept,
            has_guests=guests and any(row.shared_with.values()),
        )
        return decide(self.action, rules, at)

    def allowed_by(self, rule: StandingRule) -> bool:
        """True if the rule alone would have allowed it, had there been one."""
        return self.judged([replace(rule, number=1, expires_at=0)]).allows


async def past_questions(
    journal: Journal, since: int, whose: Whose, *, only_refused: bool = False
) -> AsyncIterator[PastQuestion]:
    """Yield the decided permission questions since then (ms since the epoch), newest first."""
    before: int | None = None
    while True:
        found, before = await decisions(journal, {}, AT_ONCE, before, whose)
        for each in found:
            if each.answered_at < since:
                return
            if not only_refused or _decided(each) == "refused":
                yield await past_question(journal, each)
        if before is None:
            return


async def past_question(journal: Journal, each: InboxQuestion) -> PastQuestion:
    """Return a question of the inbox with its action."""
    question, row, came = each.question, each.row, each.decided or Decided("", Came(""))
    action = await action_then(journal, row, question, each.seq)
    by, kept = _decided(each), kept_paths(journal)
    return PastQuestion(
        row, question.id, each.at, each.asks, action, by, kept, came.rules, came.unruled
    )


def _decided(each: InboxQuestion) -> Literal["allowed", "refused", ""]:
    came = each.decided
    if came is None or came.client is None or came.rules:
        return ""
    if came.came.how.startswith("allow"):
        return "allowed"
    return "refused" if came.came.how.startswith("reject") else ""


def kept_paths(journal: Journal) -> tuple[str, ...]:
    """Return the paths around which no rule counts; see `kept_from_rules`."""
    return kept_from_rules("" if journal.file is None else journal.file.path)


async def action_then(
    journal: Entries, row: SessionRow, question: AskedQuestion, seq: int
) -> Action:
    """Return the action that a question asked for; `seq` is that of its entry."""
    asked = question.tool_call
    told = await call_entries(journal, row.session_id, string(asked.get("toolCallId")) or "", seq)
    if any(entry.kind == CHILD for entry in told):
        return Unclear("a sub-agent asks")
    draft = ToolDraft("")
    for entry in reversed(told):
        parts = members(entry.update)
        # What the request itself added to its call was published with it, and says nothing more.
        added = entry.seq == seq - 1 and all(
            asked.get(name) == value
            for name, value in parts.items()
            if name not in ("sessionUpdate", "toolCallId")
        )
        if not added:
            draft.patch(update_kind(entry.update), parts)
    return asked_action(
        short_name(row.agent), question.method, question.params, decoded_call(draft.fields)
    )


def is_readable(action: Action) -> bool:
    """True if a rule could be for it."""
    return not isinstance(action, Unclear)
