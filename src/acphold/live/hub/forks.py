"""Forks: a conversation up to some turn, to be continued in a session of its own.

A fork takes whole turns: an entry stands for the turn that it belongs to. A running turn stays with
its session. At first only the journal has the copy. The agent learns of it when the fork is first
opened: by its own `session/fork` if that yields just the same conversation, else the conversation
is handed over with the next prompt (`hub.restoration`).
"""

# See docs/decisions.md, 24.

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from msgspec import Struct

from acphold.conversation.history.entries import TurnSpan, span_at, turn_spans
from acphold.errors import NothingSaidError, UnknownSessionError
from acphold.journal.copies import copy
from acphold.journal.journal import Journal, history, is_live, session_of
from acphold.journal.rows import NewSession, RowChange, SessionRow
from acphold.live.agents.interface import HubAgent

MARK = " (fork)"
"""The end of a fork's title, which tells it from the original in a list."""


class Forked(Struct, frozen=True):
    """A new session with `turns` of the original; `left_out` of them were not copied, the newest
    because it `runs`."""

    session_id: str
    turns: int
    left_out: int
    runs: bool


async def fork(
    journal: Journal,
    row: SessionRow,
    *,
    at: int | None = None,
    before: bool = False,
    agent: str | None = None,
    folders: Sequence[str] = (),
) -> Forked:
    """Copy the turns of a session up to the one with entry `at`, by default all that have ended.

    With `before`, only those before that turn, by default before the last one. `agent` and
    `folders`, the working directory before the additional ones, are by default those of the
    session. Raises NothingSaidError if there is no such turn, and JournalError.
    """
    spans = await turn_spans(history(journal, row.session_id))
    wanted = turns_to_copy(row, spans, at, before=before)
    # An open turn runs only if its process does.
    runs = wanted[-1].is_open and await is_live(journal, row.session_id)
    taken = wanted[:-1] if runs else wanted
    if not taken:
        raise NothingSaidError(
            f"session {row.session_id!r} has no finished turn up to there: there is nothing to copy"
        )
    title = row.title
    if title is not None and agent in (None, row.agent) and not title.endswith(MARK):
        title = f"{title}{MARK}"
    cwd, *more = folders or (row.cwd, *row.additional_directories)
    agent = agent or row.agent
    new = NewSession(uuid4().hex, agent, cwd, tuple(more), title, tenant=row.tenant)
    await copy(journal, row, new, taken[-1].last)
    if row.meta:
        await journal.change(new.session_id, RowChange(meta=row.meta))
    return Forked(new.session_id, len(taken), len(spans) - len(taken), runs)


def turns_to_copy(
    row: SessionRow, spans: Sequence[TurnSpan], at: int | None, *, before: bool
) -> Sequence[TurnSpan]:
    """Return the turns of a session that a copy would have, at least one; NothingSaidError."""
    last = None if at is None else span_at(spans, at)
    wanted = spans if at is None else spans[: 0 if last is None else last.number]
    if wanted := wanted[:-1] if before else wanted:
        return wanted
    if not spans:
        why = f"session {row.session_id!r} has no turn yet: there is nothing to copy"
    elif last is None and at is not None:
        why = (
            f"entry {at} of session {row.session_id!r} is before its first prompt: there is "
            f"nothing to copy; name one of its first turn, {spans[0].first} to {spans[0].last}"
        )
    else:
        why = "there is no turn before that one: start a new session instead"
    raise NothingSaidError(why)


async def fork_source(journal: Journal, session_id: str, agent: HubAgent) -> str | None:
    """Return the agent's id of the session that it would have to fork for this conversation.

    None if it cannot fork, or if the result would differ: this session is no fork, or has gone on,
    or the original has, or another agent knows the original.
    """
    row = await journal.session(session_id)
    if not agent.can_fork or not row.origins:
        return None
    origin = row.origins[-1]
    try:
        known = (await journal.session(origin.session_id)).downstream_id
        if known is None or await session_of(journal, agent.key, known) != origin.session_id:
            return None
        source = await turn_spans(history(journal, origin.session_id))
    except UnknownSessionError:
        return None
    here = await turn_spans(history(journal, session_id))
    has_gone_on = not source or source[-1].first > origin.seq or len(source) != len(here)
    return None if has_gone_on else known
