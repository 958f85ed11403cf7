"""The answers that a person's rules give to an agent's questions in one session.

The rules are read from the journal for each question, and once more, in the transaction that notes
their use, before the agent hears anything: a rule that was revoked in any process gives no answer
any more. They are paused while a guest may prompt here, and in a turn in which one has spoken; and
once the agent reports that it ran something other than was allowed, until the person uses them
again: the pause is a rule, too, which asks everything.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from acp_wire.schema import REQUEST_PERMISSION, encode, splice
from acp_wire.tasks import timeout
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.decisions import AskedQuestion
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.raw_update import array, items, members, string, with_meta
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import JournalError
from acphold.journal.access import Deed
from acphold.journal.journal import Journal
from acphold.journal.lineage import rule_place
from acphold.live.agents.interface import AgentRequest, HubAgent
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.session import HubSession
from acphold.live.hub.tool_calls import calls_since

if TYPE_CHECKING:  # imported late: most sessions never see a rule
    from acphold.safety.standing.asked_actions import Action, RunAction
    from acphold.safety.standing.decision import RuleDecision, StandingRule

    class Spoken(Protocol):
        """Knows who has spoken in the running turn."""

        @property
        def is_by_owner(self) -> bool:
            """False if a guest has said anything."""

        @property
        def is_unruled(self) -> bool:
            """True if whoever prompted it wants no rule to answer."""


log = logging.getLogger(__name__)

RULE = "acphold/rule"
"""The `_meta` key of an update that says which rules have allowed a call, and whose they are."""

PAUSED = "Your rules are paused in this session"
PAUSED_HOW = (
    "acphold asks you again from now on. The agent reported that it did something other than your "
    "rule {} allows: {}"
)
RESUME_HOW = ". To use your rules again in this session: {}"

UNDO = "{} \u00b7 revoke with: {}"


ANSWERED = "answer by rule"
"""The deed in the audit log."""


class Considered(Struct, frozen=True):
    """A question, and the rules that there were when it came.

    `watched` is what rules that only watch would have done, as JSON for the answer's entry.
    `pauses` counts how often the rules had been paused in this session when these were read.
    `newest` is the highest number of theirs: a person is asked if one that asks was made since.
    `place` is this machine and journal.
    """

    action: RunAction | None
    verdict: RuleDecision
    watched: bytes = b""
    pauses: int = 0
    newest: int = 0
    place: str = ""

    @property
    def unruled(self) -> str:
        """The reason why a person is asked; "" if the rules answer."""
        return "" if self.verdict.allows else self.verdict.why


class GivenAnswer(Struct, frozen=True):
    """An answer by rules: the `result` for the agent, `who` gave it, and `rule`, the facts for the
    journal; `update` tells clients of it."""

    result: bytes
    who: str
    rule: bytes
    update: bytes


class AllowedCall(Struct, frozen=True):
    """A call that rules have allowed: for what `action`, and the spoken `numbers` of the rules.

    `line` is the part of its content that says so, and `mark` the value of RULE.
    """

    action: RunAction
    numbers: str
    line: bytes
    mark: bytes


class StandingAnswers(Struct, eq=False):
    """The standing answers of one session. `allowed` are the calls of this turn that rules have
    allowed, by id; `_looked` is the last entry in which a cd was looked for."""

    _session: HubSession
    _agent: HubAgent
    _journal: Journal
    _turns: Callable[[], Spoken]
    _counted: tuple[int, int] = (0, 0)
    _is_paused: bool = False
    _pauses: int = 0
    _answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looked: int = 0
    _has_moved: bool = False
    _threads: Threads = field(default_factory=lambda: Threads(1))  # one, also if a disk hangs
    allowed: dict[str, AllowedCall] = {}

    async def consider(
        self, asked: AgentRequest, question: AskedQuestion, before: int
    ) -> Considered | None:
        """Return what rules say about a question that is about to be journalled; None if there are
        none. `before` is the last entry before the turn. The caller holds `session.writing`. Never
        raises: then a person is asked.
        """
        if asked.method != REQUEST_PERMISSION.name or asked.child or self._is_paused:
            return None
        pauses = self._pauses
        try:
            access, tenant = self._journal.access, self._session.tenant
            rules = await self._session.answered(lambda: access.rules(tenant))
            now = self._journal.now_ms()
            if not any(rule.is_live(now) and not rule.is_off for rule in rules):
                return None
            return await self._consider(rules, question, before, pauses)
        except JournalError as exc:
            log.warning("session %s: cannot read its rules: %s", self._session.id, exc)
        except TimeoutError:
            log.warning("session %s: asking a person: its folder cannot be read", self._session.id)
        except Exception:
            log.exception(
                "session %s: asking a person, as its rules cannot be applied", self._session.id
            )
        return None

    async def _consider(
        self, rules: Sequence[StandingRule], question: AskedQuestion, before: int, pauses: int
    ) -> Considered | None:
        from acphold.conversation.presentation.permissions import is_too_long
        from acphold.safety.standing.asked_actions import (
            RunAction,
            Unclear,
            decode_call,
            read_action,
        )
        from acphold.safety.standing.decision import Circumstances, decide
        from acphold.safety.standing.folders import paths_outside_rules
        from acphold.safety.standing.repositories import PersonalSettings

        session = self._session
        earlier: Mapping[str, object] = {}
        shown = question.tool_call
        if (id_ := string(shown.get("toolCallId"))) is not None:
            known = (await calls_since(session, before)).get(id_)
            earlier = {} if known is None else decode_call(known.fields)
            shown = shown if known is None else {**known.fields, **shown}
        name, place = self._agent.known_as, await rule_place(self._journal)
        if is_too_long(ToolCall("", shown)):  # a person cannot allow it, either
            action: Action = Unclear("the request is too long to check")
        else:
            action = read_action(name, question.method, question.params, earlier)
        file = self._journal.file
        at = Circumstances(
            name,
            session.row.cwd,
            session.id,
            session.tenant,
            self._journal.now_ms(),
            self._answer_count(before),
            session.attributes.mode_words,
            paths_outside_rules(self._agent.surroundings.home, "" if file is None else file.path),
            await self._has_guests(),
            isinstance(action, RunAction) and action.stays and await self._may_have_moved(),
            place,
            self._agent.shell,
            self._turns().is_unruled,
            PersonalSettings.of(self._agent.surroundings),
        )
        watched = b""
        async with timeout(bounds.RULES_LOOK_SECONDS):
            counting = [rule for rule in rules if not rule.watches]
            verdict = await self._threads.run(decide, action, counting, at)
            if len(counting) < len(rules):
                would = await self._threads.run(decide, action, rules, at)
                watched = encode(
                    {"allows": would.allows, "why": would.why, "rules": _numbers(would.rules)}
                )
        newest = max(_numbers(rules))
        clear = None if isinstance(action, Unclear) else action
        return Considered(clear, verdict, watched, pauses, newest, place)

    async def answer(
        self, considered: Considered, question: AskedQuestion, before: int
    ) -> GivenAnswer | None:
        """Return the answer of the rules, whose use is noted; None if a person is asked."""
        verdict, action = considered.verdict, considered.action
        if action is None or not verdict.allows:
            return None
        from acphold.safety.standing.asked_actions import allow_once
        from acphold.safety.standing.decision import revoke_words

        if (option := allow_once(question.params)) is None:
            return None
        numbers, now = _numbers(verdict.rules), self._journal.now_ms()
        async with self._answering:  # many may be asked at once
            try:
                used = await self._use(considered, numbers, now, before)
            except JournalError as exc:
                log.warning(
                    "session %s: asking a person instead of its rules: %s", self._session.id, exc
                )
                return None
            except Exception:
                log.exception("session %s: asking a person instead of its rules", self._session.id)
                return None
            if used is None or self._is_paused_since(considered):
                return None
            self._counted = (before, self._answer_count(before) + 1)
        facts = {"numbers": numbers, "user": self._session.tenant}
        update = b""
        if (id_ := string(question.tool_call.get("toolCallId"))) is not None:
            undo = revoke_words(numbers[:1], self._session.tenant)
            words = UNDO.format(verdict.why, undo)
            line = {"type": "content", "content": {"type": "text", "text": words}}
            self.allowed[id_] = AllowedCall(
                action,
                " and ".join(map(str, numbers)),
                encode(line),
                encode({**facts, "words": words}),
            )
            content = question.tool_call.get("content", b"[]")
            if not content.startswith(b"["):
                content = b"[]"
            head = {"sessionUpdate": "tool_call_update", "toolCallId": id_}
            update = self.with_line(splice(encode(head), {"content": content}))
        return GivenAnswer(
            b'{"outcome":{"outcome":"selected","optionId":%b}}' % option,
            verdict.why.removeprefix("allowed by "),
            encode({**facts, "texts": [rule.text for rule in used], "at": now}),
            update,
        )

    async def _use(
        self, considered: Considered, numbers: Sequence[int], now: int, before: int
    ) -> Sequence[StandingRule] | None:
        """Note that these rules are used, and return them; None if they may not answer any more.

        A use that could not be noted is none: then nothing else could be written either.
        """
        from acphold.safety.standing.decision import MOST_ANSWERS, RuleChange

        if self._is_paused_since(considered) or self._answer_count(before) >= MOST_ANSWERS:
            return None
        if await self._has_guests():
            return None
        access, tenant = self._journal.access, self._session.tenant
        used = await access.change_rules(tenant, numbers, RuleChange(used_at=now))
        if len(used) != len(numbers) or any(
            not rule.is_live(now)
            or rule.is_off
            or rule.watches
            or not rule.holds_at(considered.place)
            for rule in used
        ):
            return None
        newer = (it for it in await access.rules(tenant) if it.number > considered.newest)
        if any(rule.verdict == "ask" for rule in newer):
            return None
        await access.keep_deeds(
            [
                Deed(
                    at=now,
                    deed=ANSWERED,
                    name=f"rule {rule.number}: {rule.text}"[:200],
                    session_id=self._session.id,
                    transport="rule",
                )
                for rule in used
            ]
        )
        return used

    def with_line(self, update: bytes) -> bytes:
        """Return an update; if it replaces the content of an allowed call, with our line in it."""
        parts = members(update)
        call = self.allowed.get(string(parts.get("toolCallId")) or "")
        content = parts.get("content", b"")
        if call is None or not content.startswith(b"["):
            return update
        lines = array([*items(content), call.line])
        return with_meta(splice(update, {"content": lines}), RULE, call.mark)

    async def look(self, update: bytes) -> None:
        """Pause the rules if an update reports something else for a call that was allowed."""
        from acphold.safety.standing.asked_actions import decode_call, differs
        from acphold.safety.standing.decision import pausing_rule, revoke_words

        parts = members(update)
        id_ = string(parts.get("toolCallId")) or ""
        if id_ not in self.allowed:
            return
        call = self.allowed[id_]
        if differs(call.action, decode_call(parts), self._session.row.cwd):
            del self.allowed[id_]
            self._pauses += 1
            self._is_paused = True  # at once, and until the journal has it
            words = PAUSED_HOW.format(call.numbers, string(parts.get("title")) or id_)
            rule = pausing_rule(self._session.id, self._session.tenant, self._journal.now_ms())
            try:
                made = await self._journal.access.add_rule(rule)
                words += RESUME_HOW.format(revoke_words([made.number], made.person))
                self._is_paused = False
            except JournalError as exc:  # then for as long as this process has the session
                log.warning(
                    "session %s: rules are paused in this process only: %s", self._session.id, exc
                )
            await self._session.publish("update", [notice(PAUSED, words, "warning")])

    def _is_paused_since(self, considered: Considered) -> bool:
        return self._is_paused or self._pauses != considered.pauses

    def _answer_count(self, before: int) -> int:
        """The answers given in the turn after this entry."""
        turn, count = self._counted
        if turn != before:
            self.allowed.clear()
            return 0
        return count

    async def _may_have_moved(self) -> bool:
        """True if a command of this session, asked for or only reported, may have led a shell that
        stays to another folder. The caller holds `session.writing`."""
        if not self._has_moved:
            held = self._session.updates_held_back()
            async for segment in self._session.segments(self._looked):
                if b'"rawInput"' in segment.raw:
                    self._look_for_cd(segment.entries())
                self._looked = segment.last_seq
            self._look_for_cd(held)
        return self._has_moved

    def _look_for_cd(self, entries: Iterable[Entry]) -> None:
        from acphold.safety.standing.asked_actions import decode_call, ran_lines
        from acphold.safety.standing.moved_shells import leads_away

        for entry in entries:
            if b'"rawInput"' in entry.raw and (update := entry.update):
                lines = ran_lines(decode_call(members(update)))
                self._has_moved |= any(leads_away(it, self._session.row.cwd) for it in lines)

    async def _has_guests(self) -> bool:
        """True if somebody else than the session's owner may have prompted what runs here."""
        tenant = self._session.tenant
        for attachment in self._session.attachments:
            client = attachment.client
            if not (client.owns(tenant) or client.only_watches(self._session.id)):
                return True
        if not self._turns().is_by_owner:
            return True
        row = await self._journal.session(self._session.id)
        return any(row.shared_with.values())


def _numbers(rules: Sequence[StandingRule]) -> list[int]:
    return [rule.number for rule in rules]
