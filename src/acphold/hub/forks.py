"""Forks: a conversation up to some turn, to be gone on with in a session of its own.

A fork takes whole turns: who names an entry gets the turn that it belongs to. A turn that still
runs is left to the session it runs in. The journal's copy is all there is at first; the agent
learns of it when the fork is first opened, by its own `session/fork` where that has just the same
conversation, else by being handed it with the next prompt (`hub.restoration`).
"""

from __future__ import annotations

from uuid import uuid4

from msgspec import Struct

from acphold.agents import Agent
from acphold.errors import NothingSaidError, UnknownSessionError
from acphold.history.turn_spans import span_at, turn_spans
from acphold.journal import Free, Journal, NewSession, SessionRow, history, session_of
from acphold.journal.copies import copy

FORK_SESSION = "session/fork"
"""Unstable: ACP v1 schema with its unstable parts, `ForkSessionRequest`; RFD session fork."""

MARK = " (fork)"
"""What stands behind the title of a fork, so that a list tells it from what it was made of."""


class Forked(Struct, frozen=True):
    """A new session: `turns` of the first one, of which the newest is left out if it `runs`."""

    session_id: str
    turns: int
    left_out: int
    runs: bool


async def fork(
    journal: Journal,
    row: SessionRow,
    *,
    at: int | None = None,
    agent: str | None = None,
    cwd: str | None = None,
    additional_directories: tuple[str, ...] | None = None,
) -> Forked:
    """Copy the turns of a session up to the one with entry `at`, by default all that are over.

    For `agent`, in `cwd`, by default those of the session. Raises NothingSaidError when there is
    no such turn, and JournalError.
    """
    spans = await turn_spans(history(journal, row.session_id))
    last = None if at is None else span_at(spans, at)
    wanted = spans if at is None else spans[: 0 if last is None else last.number]
    runs = bool(wanted) and wanted[-1].is_open
    if runs:  # what is open goes on only in a process that lives
        runs = not isinstance(await journal.owner(row.session_id), Free)
    taken = wanted[:-1] if runs else wanted
    if not taken:
        what = "no turn that is over" if at is None or runs else f"no turn up to entry {at}"
        raise NothingSaidError(f"session {row.session_id!r} has {what}: there is nothing to copy")
    given, title = additional_directories, row.title
    if title is not None and agent in (None, row.agent) and not title.endswith(MARK):
        title = f"{title}{MARK}"
    new = NewSession(
        uuid4().hex,
        agent or row.agent,
        cwd or row.cwd,
        row.additional_directories if given is None else given,
        title,
        tenant=row.tenant,
    )
    await copy(journal, row, new, taken[-1].last)
    return Forked(new.session_id, len(taken), len(spans) - len(taken), runs)


async def forked_from(journal: Journal, session_id: str, agent: Agent) -> str | None:
    """What the agent itself would have to fork to have just this conversation, by its own id.

    None when it cannot, when nothing or something else would come of that: this session is no
    fork, or has gone on, or the one it was made of has, or another agent knows that one.
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
