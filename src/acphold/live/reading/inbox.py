"""Open questions to people over all sessions, and earlier decisions.

Both are read from the journal's `question` and `answer` entries: nothing is kept here, so it cannot
differ from the sessions. A question is open if a running process waits for it; a question that a
crash left is closed when its session is opened again, and is not in the inbox.

Questions are answered over ACP alone, by a client that attaches to the session.
"""

# See docs/decisions.md, 5.

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.decisions import (
    AskedQuestion,
    Came,
    ClosedQuestion,
    asked_question,
    closed_question,
)
from acphold.conversation.history.entries import ANSWER, CHILD, PARAMS, QUESTION, UPDATE, Entry
from acphold.conversation.history.raw_update import members, string, tool_id, update_kind
from acphold.conversation.history.timeline import ToolDraft
from acphold.errors import RewrittenError, UnknownSessionError
from acphold.journal.journal import Entries, Journal, rows_of
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.reading import bounds
from acphold.live.reading.processes import Live


class InboxQuestion(Struct, frozen=True):
    """A question to a person, and its session; times are ms since the epoch.

    `call` is the tool call in question, as it stood then, each field raw: the fields of the request
    over those of earlier updates. `decided` is the decision, None while it is open, `came` is that
    for people, and `answered_at` its time. `told` is the question in words, where only these are
    known.
    """

    row: SessionRow
    seq: int
    at: int
    question: AskedQuestion
    call: Mapping[str, bytes] = {}
    decided: ClosedQuestion | None = None
    came: Came = Came("")
    answered_at: int = 0
    told: str = ""

    @property
    def asks(self) -> str:
        """The question, in the agent's words."""
        if self.told:
            return self.told
        if self.question.untitled_call is not None and (title := string(self.call.get("title"))):
            return title
        return self.question.title


class Whose(Struct, frozen=True):
    """Selects questions: of the sessions that a tenant sees, all for None; with `session_id` only
    of that session."""

    tenant: str | None = None
    session_id: str | None = None

    def has(self, row: SessionRow) -> bool:
        """Return True if questions of this session are selected."""
        return self.session_id in (None, row.session_id) and row.is_there_for(self.tenant)


ALL: Final = Whose()


async def open_questions(journal: Journal, live: Live, whose: Whose = ALL) -> list[InboxQuestion]:
    """Return all open questions in the live sessions; the oldest first."""
    found: list[InboxQuestion] = []
    for session_id, (session, _) in live.items():
        if not session.waiting:
            continue
        try:
            row = await journal.session(session_id)
            if not whose.has(row):
                continue
            asked = session.questions or (await journal.summary(session_id)).open_questions
            for entry in await _as_asked(journal, session_id, asked):
                question = asked_question(entry.raw)
                call = await _call(journal, session_id, question, entry.seq)
                found.append(InboxQuestion(row, entry.seq, entry.at, question, call))
        except UnknownSessionError:  # deleted meanwhile
            continue
    return sorted(found, key=lambda each: (each.at, each.row.session_id, each.seq))


async def decisions(
    journal: Journal, live: Live, limit: int, before: int | None = None, whose: Whose = ALL
) -> tuple[list[InboxQuestion], int | None]:
    """Return the last decisions, before that time (ms) if given, newest first; and the time to
    continue before, None at the end. Decisions of one time stay together, so there may be more than
    `limit`. One that copies of its session have, too, is that of the session which was copied.

    Searches the `INBOX_SESSIONS` active last, or the selected one; raises UnknownSessionError.
    """
    once: dict[str, InboxQuestion] = {}
    is_all = True
    async for row, is_live in _rows(journal, live, whose):
        # A decision in a session at rest is never later than its row.
        later = sum(each.answered_at > row.updated_at for each in once.values())
        if later > limit and not is_live:
            is_all = False
            break
        for each in await _decisions(journal, row, limit, before):
            known = once.setdefault(each.question.id, each)
            if _copied(each.row) < _copied(known.row):  # as the session has it that is less a copy
                once[each.question.id] = each
    found = sorted(
        once.values(), key=lambda each: (-each.answered_at, each.row.session_id, -each.seq)
    )
    following = None
    if len(found) > limit:
        last = found[limit - 1].answered_at
        shown = [each for each in found if each.answered_at >= last]
        if len(shown) < len(found) or not is_all:
            following = last
        found = shown
    for place, each in enumerate(found):
        if each.question.untitled_call is not None:  # its call has the title
            call = await _call(journal, each.row.session_id, each.question, each.seq)
            found[place] = replace(each, call=call)
    return found, following


def _copied(row: SessionRow) -> tuple[int, int]:
    """The order of sessions of which the later ones are copies of the earlier ones."""
    return len(row.origins), row.created_at


async def _rows(
    journal: Journal, live: Live, whose: Whose
) -> AsyncIterator[tuple[SessionRow, bool]]:
    """Yield the sessions to search: live ones, whose rows may be behind, then the newest."""
    if whose.session_id is not None:
        row = await journal.session(whose.session_id)
        if not whose.has(row):
            raise UnknownSessionError(row.session_id)
        yield row, True
        return
    async for row in rows_of(journal, live):
        if whose.has(row):
            yield row, True
    wanted = ListFilter(archived="include", tenant=whose.tenant)
    for row in await journal.page(wanted, None, bounds.INBOX_SESSIONS):
        if row.session_id not in live:
            yield row, False


async def _decisions(
    journal: Entries, row: SessionRow, limit: int, before: int | None
) -> list[InboxQuestion]:
    """Return the decisions of one session; those of one time are never separated."""
    answers: dict[str, tuple[ClosedQuestion, int]] = {}
    found: list[InboxQuestion] = []
    async for entry in _back(journal, row.session_id, (QUESTION, ANSWER)):
        if entry.kind == ANSWER:
            if before is None or entry.at < before:
                closed = closed_question(entry.raw)
                answers[closed.question] = closed, entry.at
            continue
        question = asked_question(entry.raw)
        if (known := answers.pop(question.id, None)) is None:
            continue
        answer, at = known
        if len(found) > limit and at < found[-1].answered_at:
            break
        came = answer.came(question)
        found.append(InboxQuestion(row, entry.seq, entry.at, question, {}, answer, came, at))
    return found


async def _as_asked(journal: Entries, session_id: str, ids: Collection[str]) -> list[Entry]:
    """Return the questions with these ids, as far as the session has them."""
    wanted, found = {*ids}, list[Entry]()
    if wanted:
        async for entry in _back(journal, session_id, (QUESTION,)):
            if (id_ := asked_question(entry.raw).id) in wanted:
                wanted.discard(id_)
                found.append(entry)
                if not wanted:
                    break
    return found


async def rule_answers(journal: Entries, session_id: str) -> int:
    """Count the questions of a session that rules have answered."""
    count = 0
    async for entry in _back(journal, session_id, (ANSWER,)):
        count += bool(closed_question(entry.raw).rules)
    return count


async def _call(
    journal: Entries, session_id: str, question: AskedQuestion, seq: int
) -> dict[str, bytes]:
    """Return the tool call of a permission request: see InboxQuestion; {} for other questions."""
    asked = question.tool_call
    if not (id_ := string(asked.get("toolCallId"))):
        return {}
    draft = ToolDraft(id_)
    for entry in reversed(await call_entries(journal, session_id, id_, seq)):
        draft.patch(update_kind(entry.update), members(entry.update))
    draft.patch("tool_call_update", asked)
    return draft.fields


async def call_entries(journal: Entries, session_id: str, call: str, seq: int) -> Sequence[Entry]:
    """Return the entries before `seq` that describe this tool call, newest first."""
    found: list[Entry] = []
    looked_at = 0
    async for entry in _back(journal, session_id, (UPDATE, PARAMS, CHILD), seq):
        looked_at += 1
        if tool_id(update := entry.update) == call:
            found.append(entry)
            if update_kind(update) == "tool_call":
                break
        if looked_at >= bounds.CALL_ENTRIES:
            break
    return found


async def question_of(
    journal: Entries, session_id: str, id_: str
) -> tuple[Entry, ClosedQuestion | None] | None:
    """Return the entry of this question, and its end if it has one; None if there is no such
    question."""
    closed: ClosedQuestion | None = None
    async for entry in _back(journal, session_id, (QUESTION, ANSWER)):
        if entry.kind == QUESTION:
            if asked_question(entry.raw).id == id_:
                return entry, closed
        elif (answer := closed_question(entry.raw)).question == id_:
            closed = answer
    return None


async def _back(
    journal: Entries, session_id: str, kinds: Sequence[str], before: int | None = None
) -> AsyncIterator[Entry]:
    """Yield the entries of these kinds, newest first. If the session is compacted meanwhile,
    reading starts from the end again, so that nothing is left out."""
    seen = before
    while True:
        try:
            page = await journal.read_back(session_id, before, bounds.INBOX_ENTRIES, kinds=kinds)
        except RewrittenError:
            page = await journal.read_back(session_id, None, bounds.INBOX_ENTRIES, kinds=kinds)
        for entry in page.entries:
            if seen is None or entry.seq < seen:
                seen = entry.seq
                yield entry
        if (before := page.before) is None:
            return
