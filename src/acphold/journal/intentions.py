"""History is not intention: what was planned under another identity of the journal is shown only.

The row of a session says where its history was made (`SessionRow.home`). A session that is created
here has the identity of this journal; entries from the past, as an import, a copy and a move bring
them, take it away; and a journal that was restored, copied, or has gone back has another identity
(`journal.lineage`). Whoever takes such a session first writes a mark behind its history, in
one commit and before anything acts. From there on the history is as if it were this journal's, and
what it had planned is held until a person says so:

    before the mark                           behind it
    ----------------------------------------  --------------------------------------------------
    queued prompts, also with a moment        held; a person may start, edit and drop them
    a hold with an end, `restarts`,           ended: nothing happens by itself
    `goes_on`
    modes and options                         not set again at the agent: it begins with its own

The mark is ours, and comes last, so that no entry from elsewhere can prevent or undo it. Until a
session is taken, those who only look are shown what the mark will say.

The queue of a session that is not live is changed here, in the journal alone.
"""

# See docs/decisions.md, 37.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from acphold.conversation.history.entries import QUEUE, SETTINGS, Run, now_ms
from acphold.conversation.history.fold import Summary
from acphold.conversation.history.prompt_queue import (
    ELSEWHERE,
    NO_QUEUE,
    PromptQueue,
    QueueChange,
    after_entry,
    fitting,
    plan_elsewhere,
)
from acphold.journal.journal import Journal, take_lease
from acphold.journal.moves import row_here
from acphold.journal.rows import RowChange, SessionRow

_QUEUE_MARK: Final = b'{"do":"hold","why":"elsewhere"}'
_SETTINGS_MARK: Final = b'{"anew":true}'


def marks(summary: Summary) -> Sequence[Run]:
    """Return the entries that make history of what a session has planned; none if it has not."""
    runs: list[Run] = []
    if summary.queue != NO_QUEUE:
        runs.append((QUEUE, [_QUEUE_MARK]))
    known = summary.attributes
    if known.current_mode_id is not None or known.config_options is not None:
        runs.append((SETTINGS, [_SETTINGS_MARK]))
    return runs


def row_for(row: SessionRow, journal: str) -> SessionRow:
    """Return the row of a session as it is shown in the journal of this identity."""
    if row.home == journal or not row.queued:
        return row
    return replace(row, held=ELSEWHERE, held_until=None)


def summary_for(summary: Summary, home: str, journal: str) -> Summary:
    """Return the state of a session of this home as it is shown in the journal of this identity."""
    if home == journal or summary.queue == NO_QUEUE:
        return summary
    return replace(summary, queue=plan_elsewhere(summary.queue))


def queue_change(queue: PromptQueue) -> RowChange:
    """Return what the list shows of the queued prompts."""
    return RowChange(queued=len(queue.waiting), held=queue.held, held_until=queue.until_ms)


async def change_queue(journal: Journal, session_id: str, change: QueueChange) -> PromptQueue:
    """Change the queue of a session that nobody has, and return it.

    Raises HeldElsewhereError if some process has the session, UnknownSessionError,
    SessionMovedError if it is another machine's, InvalidParamsError if the change does not fit, and
    JournalError.
    """
    lease = await take_lease(journal, session_id)
    row = await row_here(journal, lease)
    try:
        summary = await journal.summary(session_id)
        before = marks(summary) if row.home != lease.journal else []
        queue = summary.queue
        raw = fitting(queue, change)
        seq = lease.next_seq + sum(len(raws) for _, raws in before)
        queue = after_entry(queue, raw, seq, now_ms())
        in_list = replace(queue_change(queue), home=lease.journal)
        await journal.append(lease, [*before, (QUEUE, [raw])], in_list)
    finally:
        await journal.release(lease)
    return queue
