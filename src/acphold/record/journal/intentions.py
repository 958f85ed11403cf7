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
"""

# See docs/decisions.md, 37.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from acphold.record.history.entries import QUEUE, SETTINGS, Run
from acphold.record.history.fold import Summary
from acphold.record.history.prompt_queue import ELSEWHERE, NO_QUEUE, plan_elsewhere
from acphold.record.journal.rows import SessionRow

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
