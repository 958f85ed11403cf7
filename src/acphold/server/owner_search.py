"""The search for the process that owns a session: open it there, or here if it is live nowhere.

A session may change hands while it is looked for: its owner has ended, or another process was
quicker. A process that cannot be reached loses the session only if it is known to be silent or to
have ended.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from acphold.errors import (
    AcpholdError,
    EndedPeerError,
    HeldElsewhereError,
    LeaseLostError,
    OwnerLostError,
    SilentPeerError,
    UnreachableOwnerError,
)
from acphold.journal.owners import SILENT_SECONDS
from acphold.transports.addresses import are_here, can_be_tried

log = logging.getLogger(__name__)

ATTEMPTS = 25
"""Attempts to find the owner while it changes: each time it has ended, or another process was
quicker. One that ends while it opens the session costs two attempts."""

SEARCH_SECONDS = SILENT_SECONDS + 15.0
"""Seconds to look for an owner that cannot be reached: by then the journal knows if it is silent,
and an attempt may take some seconds."""

UNSEEN_SECONDS = 2.5
"""Seconds to look for one that has no address that can be tried from here, as in another container:
a socket that was removed with its folder is bound anew sooner."""

WAIT_SECONDS = 0.5
"""Most seconds of one wait for an owner that runs and listens nowhere: its socket was removed and
will be bound anew, or it is about to end. ATTEMPTS limits this, too."""

OpenHere = Callable[[int | None], Awaitable[None]]
"""Opens a session in this process, given the epoch of a lease whose owner is silent. Raises
HeldElsewhereError, and LeaseLostError if the client has seen nothing of the session yet."""

OpenAtOwner = Callable[[HeldElsewhereError], Awaitable[AcpholdError | None]]
"""Opens it at its owner; returns the owner's problem if that fails."""


def next_step(
    held: HeldElsewhereError, problem: AcpholdError
) -> Literal["look again", "take over", "wait"]:
    """Return what to do about an owner that could not open a session for `problem`.

    An owner that was reached and then lost did nothing, and the session may have another one by
    now. One that cannot be reached loses the session only if it is known to be silent or to have
    ended. On this machine an owner without an answer hangs; elsewhere it may be the network's
    fault, and the journal knows.
    """
    if isinstance(problem, OwnerLostError):
        return "look again"
    is_mute = isinstance(problem, SilentPeerError)
    if is_mute and are_here(held.addresses):
        return "take over"
    has_ended = isinstance(problem, EndedPeerError) or (
        held.is_gone and not is_mute and can_be_tried(held.addresses)
    )
    return "take over" if held.is_silent or has_ended else "wait"


async def open_where_live(
    session_id: str, here: OpenHere, there: OpenAtOwner, *, only_here: bool
) -> None:
    """Open a session where it is live; here, if it is live nowhere or its owner is silent.

    With `only_here`, HeldElsewhereError is raised if it is live elsewhere. Raises
    UnreachableOwnerError if its owner runs and cannot be reached from here.
    """
    over: int | None = None
    why = "it changes hands all the time"
    wait = 0.0
    began = asyncio.get_running_loop().time()
    for _ in range(ATTEMPTS):
        try:
            await here(over)
            return
        except LeaseLostError as exc:  # while it was opened; the client has seen nothing of it
            if exc.deleted:
                raise
            log.info("%s; its new owner is looked for", exc)
            continue
        except HeldElsewhereError as exc:
            if only_here:
                raise
            held = exc
        if (problem := await there(held)) is None:
            return
        match next_step(held, problem):
            case "take over":
                log.info("session %s is taken over: %s", session_id, problem)
                over = held.epoch
            case "wait":
                why = f"it is open in {held.where}, which cannot be reached from here: {problem}"
                searched = asyncio.get_running_loop().time() - began
                most = SEARCH_SECONDS if can_be_tried(held.addresses) else UNSEEN_SECONDS
                if searched > most or (held.owner_id and not held.addresses):
                    break
                if not wait:
                    log.info("session %s: %s", session_id, why)
                await asyncio.sleep(wait)
                wait = min(WAIT_SECONDS, wait * 2 or 0.01)
    raise UnreachableOwnerError(session_id, why)
