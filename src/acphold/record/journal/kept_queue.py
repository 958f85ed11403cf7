"""The queue of prompts of a session that is not live: changed in the journal alone."""

from __future__ import annotations

from msgspec.structs import replace

from acphold.record.history.entries import QUEUE, now_ms
from acphold.record.history.prompt_queue import PromptQueue, QueueChange, after_entry, fitting
from acphold.record.journal.intentions import marks
from acphold.record.journal.journal import Journal
from acphold.record.journal.moves import row_here
from acphold.record.journal.owners import is_free, refuse_held
from acphold.record.journal.rows import RowChange


def queue_change(queue: PromptQueue) -> RowChange:
    """Return what the list shows of the queued prompts."""
    return RowChange(queued=len(queue.waiting), held=queue.held, held_until=queue.until)


async def change_queue(journal: Journal, session_id: str, change: QueueChange) -> PromptQueue:
    """Change the queue of a session that nobody has, and return it.

    Raises HeldElsewhereError if some process has the session, UnknownSessionError,
    SessionMovedError if it is another machine's, InvalidParamsError if the change does not fit, and
    JournalError.
    """
    whose = await journal.owner(session_id)
    if not is_free(whose):
        refuse_held(session_id, whose)
    lease = await journal.acquire(session_id, seen=whose.epoch)
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
