"""Offers to make a yes standing: past questions, and the rules that would have allowed them.

An offer is read from the journal: the question as the agent asked it, and the person's rules as
they are now. It has the rules that the question still needs, mostly one, and there is only one if
these would have answered it. To accept one reads it again: no client can make any other rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acphold.conversation.history.decisions import AskedQuestion, asked_question
from acphold.conversation.history.entries import CHILD
from acphold.conversation.history.raw_update import members, string, update_kind
from acphold.conversation.history.timeline import ToolDraft
from acphold.journal.journal import Entries, Journal
from acphold.journal.lineage import rule_place
from acphold.journal.rows import SessionRow
from acphold.known_agents import short_name
from acphold.live.reading import bounds
from acphold.live.reading.inbox import InboxQuestion, Whose, call_entries, decisions, question_of
from acphold.safety.errors import RuleError
from acphold.safety.standing.asked_actions import (
    Action,
    RunAction,
    Unclear,
    allow_once,
    decode_call,
    read_action,
)
from acphold.safety.standing.decision import (
    DAY,
    USUAL,
    Circumstances,
    RuleDecision,
    StandingRule,
    decide,
    flaw,
)
from acphold.safety.standing.folders import paths_outside_rules, real
from acphold.safety.standing.programs import UnreadableLine, read_line, row_of
from acphold.safety.standing.repositories import PersonalSettings


class PastQuestion(Struct, frozen=True):
    """A question to a person, the `action` that it asked for, and their decision.

    `decided` is "allowed", "refused", or "" if no person decided. `kept` and `place` are as in
    Circumstances.
    """

    asked: InboxQuestion
    action: Action
    decided: Literal["allowed", "refused", ""]
    kept: tuple[str, ...]
    place: str

    def judge(
        self,
        rules: Iterable[StandingRule],
        *,
        now: int | None = None,
        mode: str = "",
        guests: bool = True,
    ) -> RuleDecision:
        """Return what these rules say, at the time of the question or at `now`, in that mode.

        Without `guests`, as if nobody else could prompt in the session.
        """
        row = self.asked.row
        at = Circumstances(
            short_name(row.agent),
            row.cwd,
            row.session_id,
            row.tenant,
            self.asked.at if now is None else now,
            mode=mode,
            kept=self.kept,
            has_guests=guests and any(row.shared_with.values()),
            place=self.place,
            git_settings=PersonalSettings.of(Surroundings.here()),
        )
        return decide(self.action, rules, at)


async def past_questions(
    journal: Journal, since: int, whose: Whose, *, only_refused: bool = False
) -> AsyncIterator[PastQuestion]:
    """Yield the decided permission questions since then (ms since the epoch), newest first."""
    before: int | None = None
    while True:
        found, before = await decisions(journal, {}, bounds.DECISIONS_AT_ONCE, before, whose)
        for each in found:
            if each.answered_at < since:
                return
            if not only_refused or _decision(each) == "refused":
                yield await past_question(journal, each)
        if before is None:
            return


async def past_question(journal: Journal, each: InboxQuestion) -> PastQuestion:
    """Return a question of the inbox with its action."""
    action = await action_then(journal, each.row, each.question, each.seq)
    kept, place = paths_without_rules(journal), await rule_place(journal)
    return PastQuestion(each, action, _decision(each), kept, place)


def _decision(each: InboxQuestion) -> Literal["allowed", "refused", ""]:
    closed = each.decided
    if closed is None or closed.client is None or closed.rules or closed.is_automatic:
        return ""
    if each.came.how.startswith("allow"):
        return "allowed"
    return "refused" if each.came.how.startswith("reject") else ""


def paths_without_rules(journal: Journal) -> tuple[str, ...]:
    """Return the paths around which no rule counts; see `paths_outside_rules`."""
    place = "" if journal.file is None else journal.file.path
    return paths_outside_rules(Surroundings.here().home, place)


async def action_then(
    journal: Entries, row: SessionRow, question: AskedQuestion, seq: int
) -> Action:
    """Return the action that a question asked for; `seq` is that of its entry."""
    asked = question.tool_call
    told = await call_entries(journal, row.session_id, string(asked.get("toolCallId")) or "", seq)
    if any(entry.kind == CHILD for entry in told):
        return Unclear("the request comes from a sub-agent")
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
    return read_action(
        short_name(row.agent), question.method, question.params, decode_call(draft.fields)
    )


# See docs/decisions.md, 35.


REFUSED_SINCE: Final = 365 * DAY
"""A rule must not allow what its person refused in this time (ms)."""


class RuleOffer(Struct, frozen=True):
    """Rules that would have allowed a question, and that nobody has made yet."""

    rules: tuple[StandingRule, ...]

    @property
    def agent(self) -> str:
        """The name of the agent that they are for; "" for every agent."""
        return self.rules[0].agent

    @property
    def text(self) -> str:
        """The rules as they are typed."""
        return " and ".join(rule.text for rule in self.rules)

    @property
    def words(self) -> str:
        """The end of a sentence that begins with "allow the agent to"."""
        return f"{' and '.join(rule.deed for rule in self.rules)} in {self.rules[0].place}"

    @property
    def meaning(self) -> str:
        """Their effect, in plain words."""
        return "; ".join(dict.fromkeys(rule.meaning for rule in self.rules))

    def for_all_agents(self) -> RuleOffer:
        """Return the same offer for every agent, and not only for the one that asked."""
        return RuleOffer(tuple(replace(rule, agent="") for rule in self.rules))


class AllowsRefusedError(RuleError):
    """A rule would have allowed `questions` that its person has refused."""

    def __init__(self, questions: Sequence[PastQuestion]) -> None:
        many = "1 question" if len(questions) == 1 else f"{len(questions)} questions"
        super().__init__(f"this rule would have allowed {many} that you refused")
        self.questions = questions


async def rule_offers(
    journal: Journal, session_id: str, question_id: str, tenant: str | None
) -> list[RuleOffer]:
    """Return the offers for a question, open or just allowed, the one that allows least first.

    Each is for the agent that asked, in the session's folder, for USUAL. There are none for guests:
    `tenant` has to be the session's, or None, which stands for all. Raises UnknownSessionError and
    JournalError.
    """
    row = await journal.session(session_id)
    if tenant not in (None, row.tenant) or any(row.shared_with.values()):
        return []
    if (found := await question_of(journal, session_id, question_id)) is None:
        return []
    entry, closed = found
    question = asked_question(entry.raw)
    if closed is not None and not closed.came(question).how.startswith("allow"):
        return []
    if allow_once(question.params) is None:
        return []
    now = journal.now_ms()
    rules = [rule for rule in await journal.access.rules(row.tenant) if rule.is_live(now)]
    answering = [rule for rule in rules if rule.verdict == "allow"]
    if answering and all(rule.is_off for rule in answering):
        return []  # they were switched off
    summary = await journal.summary(session_id)
    at = Circumstances(
        short_name(row.agent),
        row.cwd,
        session_id,
        row.tenant,
        now,
        mode=summary.attributes.mode_words,
        kept=paths_without_rules(journal),
        place=await rule_place(journal),
        git_settings=PersonalSettings.of(Surroundings.here()),
    )
    action = await action_then(journal, row, question, entry.seq)
    return await asyncio.to_thread(_offers, action, rules, at)


def _offers(action: Action, rules: Sequence[StandingRule], at: Circumstances) -> list[RuleOffer]:
    """Return the offers for an action in these circumstances, beside those rules; blocks."""
    offers: list[RuleOffer] = []
    folder, now = real(at.folder), at.now
    for reach in _reaches(action):
        if not all(flaw(rule, is_typed=False) == "" for rule in reach):
            continue
        made = tuple(
            replace(
                rule,
                folder=folder,
                agent=at.agent,
                places=(at.place,),
                person=at.person,
                expires_at=now + USUAL,
                made_at=now,
            )
            for rule in reach
        )
        offer = RuleOffer(_select_needed(action, made, rules, at))
        if offer.rules and offer.text not in [other.text for other in offers]:
            offers.append(offer)
    return offers


async def accept_offer(
    journal: Journal,
    session_id: str,
    question_id: str,
    text: str,
    *,
    tenant: str | None,
    all_agents: bool = False,
    made_with: str = "",
) -> list[StandingRule]:
    """Make the rules of the offer with that text; return them with their numbers.

    Raises RuleError if there is no such offer, and AllowsRefusedError as `add_rules` does.
    """
    for offer in await rule_offers(journal, session_id, question_id, tenant):
        if offer.text == text:
            chosen = offer.for_all_agents() if all_agents else offer
            made = [replace(rule, made_with=made_with) for rule in chosen.rules]
            return await add_rules(journal, made)
    raise RuleError("this question does not offer that rule, or you already have it")


async def add_rules(
    journal: Journal, rules: Sequence[StandingRule], *, although: bool = False
) -> list[StandingRule]:
    """Add rules of one person, which hold in this journal on this machine; return them with their
    numbers.

    Raises AllowsRefusedError if they, beside those that there are, would have allowed something
    that the person refused, unless `although` is set. Questions count, too, where rules rest now,
    or somebody else may prompt.
    """
    place = await rule_place(journal)
    rules = [replace(rule, places=(place,)) for rule in rules]
    if not although:
        person = rules[0].person
        found = await journal.access.rules(person)
        known = [rule for rule in found if not (rule.watches or rule.is_rest)]
        first = max((rule.number for rule in known), default=0) + 1
        new = [replace(rule, number=first + at, expires_at=0) for at, rule in enumerate(rules)]
        since = journal.now_ms() - REFUSED_SINCE
        refused = [
            each
            async for each in past_questions(journal, since, Whose(person), only_refused=True)
            if (verdict := await asyncio.to_thread(each.judge, [*known, *new], guests=False)).allows
            and any(rule.number >= first for rule in verdict.rules)  # by one of the new ones
        ]
        if refused:
            raise AllowsRefusedError(refused)
    return [await journal.access.add_rule(rule) for rule in rules]


def _reaches(action: Action) -> Iterator[tuple[StandingRule, ...]]:
    """Yield the rules that may allow it, without their scope; those that allow least first."""
    if isinstance(action, RunAction):
        argvs: list[tuple[str, ...]] = []
        for line in map(read_line, action.lines):
            if isinstance(line, UnreadableLine):
                return
            argvs += [command.argv for command in line if command.argv[0] != "cd"]
        exact = [StandingRule("allow", "run", argv) for argv in dict.fromkeys(argvs)]
        yield tuple(exact)
        # With any arguments, of the programs that acphold knows.
        rows = [(rule, row_of(rule.argv)) for rule in exact]
        wide = [replace(it, argv=row.words, is_prefix=True) if row else it for it, row in rows]
        yield tuple(dict.fromkeys(wide))


def _select_needed(
    action: Action,
    made: Sequence[StandingRule],
    rules: Sequence[StandingRule],
    at: Circumstances,
) -> tuple[StandingRule, ...]:
    """Return those of the `made` rules that are used beside the person's own; () if they are not
    enough."""
    first = max((rule.number for rule in rules), default=0) + 1
    numbered = [replace(rule, number=first + place) for place, rule in enumerate(made)]
    verdict = decide(action, [*(rule for rule in rules if not rule.watches), *numbered], at)
    if not verdict.allows:
        return ()
    return tuple(replace(rule, number=0) for rule in verdict.rules if rule.number >= first)
