"""Which sessions this process owns: taken with a lease, renewed, and left when they are lost.

Only the owner may write to a session. A lease that is not renewed ends, and another process may
take the session; then it leaves this process's memory at once, and its clients are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from acphold.errors import AcpholdError, HeldElsewhereError, JournalError, LeaseLostError
from acphold.hub.agent_session import Setup
from acphold.hub.conversation import Conversation
from acphold.hub.owners import reachable_at
from acphold.hub.session import Session
from acphold.journal import LEASE_SECONDS, Journal, Lease
from acphold.journal.fold import Summary

log = logging.getLogger(__name__)


class Ownership:
    """The sessions that are live in this process, by their id: `live` is the hub's own table.

    `make` makes the conversation around a session.
    """

    def __init__(
        self,
        live: dict[str, Conversation],
        journal: Journal,
        owner: str,
        make: Callable[[Session, Setup, Summary], Conversation],
    ) -> None:
        self._live = live
        self._journal = journal
        self._owner = owner
        self._make = make
        self._ending: set[asyncio.Task[None]] = set()

    async def acquire(self, session_id: str, dead: int | None) -> Lease:
        """Own a session that nobody has live, or whose owner is `dead` or cannot be reached."""
        holder = await self._journal.holder(session_id)
        path = "" if holder.is_released else reachable_at(holder.owner)
        if path and path != reachable_at(self._owner) and holder.epoch != dead:
            raise HeldElsewhereError(session_id, holder.owner, holder.epoch)
        return await self._journal.acquire(session_id, self._owner, seen=holder.epoch)

    async def enter(self, lease: Lease, setup: Setup) -> Conversation:
        """Make a session live that we own; what a crash left open in it is closed."""
        row = await self._journal.session(lease.session_id)
        summary = await self._journal.summary(lease.session_id)
        session = Session(self._journal, lease, row, summary.standing, self._lost(row.session_id))
        conversation = self._make(session, setup, summary)
        await session.keep_places(in_turn=summary.turn != "idle")
        await conversation.close_left_questions(summary.open_questions)
        if summary.turn == "running":
            await conversation.close_interrupted_turn()
        await conversation.title.look()
        self._live[session.id] = conversation
        return conversation

    async def keep(self) -> None:
        """Renew the leases of all that is live, for as long as this runs."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for conversation in tuple(self._live.values()):
                try:
                    await conversation.session.renew()
                    await conversation.title.look()
                except LeaseLostError as exc:
                    log.warning("%s", exc)  # the session has left already
                except AcpholdError as exc:
                    log.warning("the lease of session %s was not renewed: %s", conversation.id, exc)
                except Exception:  # nobody awaits this task; the leases of others are to be kept
                    log.exception("the lease of session %s was not renewed", conversation.id)

    async def confirm(self, conversation: Conversation) -> None:
        """Hold on to it, or let it leave: then it is taken back like any other."""
        try:
            await conversation.session.renew()
        except LeaseLostError as exc:
            log.info("%s; it is taken back", exc)
        except JournalError as exc:  # a full disk, say: what is there can be read all the same
            log.warning("the lease of session %s was not renewed: %s", conversation.id, exc)

    def _lost(self, session_id: str) -> Callable[[LeaseLostError], None]:
        """What to do when another process has taken this session over: it leaves at once.

        One that was closed here, and has only now been found lost, has left already: under its id
        there may be the one that was loaded since.
        """

        def leave(error: LeaseLostError) -> None:
            conversation = self._live.get(session_id)
            if conversation is not None and conversation.session.is_lost:
                self._leave(conversation, error)

        return leave

    def abandon(self, conversation: Conversation) -> None:
        """Its making failed half-way: nobody has it here, and its lease is not renewed."""
        self._leave(conversation, LeaseLostError(conversation.id, deleted=True))

    def _leave(self, conversation: Conversation, error: LeaseLostError) -> None:
        if self._live.get(conversation.id) is conversation:
            del self._live[conversation.id]
        conversation.lose(error)
        ending = asyncio.create_task(conversation.services.aclose(), name="end commands")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Wait until what sessions that were lost had started has ended."""
        if self._ending:
            await asyncio.wait(self._ending)
