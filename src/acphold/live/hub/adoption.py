"""Sessions that only the agent knows are adopted: taken into the journal when a client loads them.

Adopting is complete once the agent's replay is in the journal whole. Until then the session is in
no list, and a failure leaves nothing behind: the agent still has it, so it can be opened again.
Removal needs our own lease, and a linked session is never removed.
"""

# See docs/decisions.md, 1.

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from msgspec import UNSET

from acp_wire.schema import LOAD_SESSION, RESUME_SESSION
from acp_wire.tasks import TaskSet
from acphold import errors
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.titles import is_own, title_of_words
from acphold.journal.journal import Lease, is_forgotten, row_of, session_of, take_lease
from acphold.journal.rows import NewSession, RowChange
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.agents_list import AgentsList
from acphold.live.hub.annotations import first_words, without_context
from acphold.live.hub.choices import settings_in
from acphold.live.hub.hub import Hub
from acphold.live.hub.routes import is_usable_id
from acphold.live.hub.session_list import check_folder
from acphold.live.hub.shared_parts import SharedParts

log = logging.getLogger(__name__)


class Adoption:
    """Adopts sessions of one agent. `under_way` are the adoptions that have begun here and are not
    over; `hub.adopting` has those of all desks."""

    def __init__(self, hub: Hub, agents: AgentsList, shared: SharedParts) -> None:
        self._hub = hub
        self._list = agents
        self._shared = shared
        self.under_way = TaskSet()

    async def is_known(self, session_id: str) -> bool:
        """Return True if the journal has this session whole; a half-adopted one does not count."""
        if (row := await row_of(self._hub.journal, session_id)) is None:
            return False
        if row.prompted or row.downstream_id is not None:
            return True
        return await self._was_made_here(session_id)

    async def _was_made_here(self, session_id: str) -> bool:
        # An adopted session has its "settings" entry last, any other has it first.
        first = await self._hub.journal.read(session_id, 0, 1)
        return bool(first) and first[0].kind == "settings"

    async def may_correct_folder(self, session_id: str) -> bool:
        """Return True if the session's folder is only what the first client said that loaded it.

        That is so if it was adopted from an agent without a session list.
        """
        lists = self._shared.agent.capabilities.session_capabilities.list is not None
        return not lists and not await self._was_made_here(session_id)

    async def once(self, session_id: str, setup: Setup) -> bool:
        """Wait until a session is adopted, as in `adopt`; all who ask for it share one adoption.
        Return True if it was adopted with this setup."""
        adopting = self._hub.adopting.get(session_id)
        if begins := adopting is None:
            adopting = self.under_way.start(self.adopt(session_id, setup), f"adopt {session_id}")
            self._hub.adopting[session_id] = adopting

            def over(task: asyncio.Task[None]) -> None:
                del self._hub.adopting[session_id]
                if not task.cancelled():
                    task.exception()  # mark it as retrieved, also if nobody waits any more

            adopting.add_done_callback(over)
        with suppress(errors.SessionExistsError):  # another process has adopted it meanwhile
            await asyncio.shield(adopting)
            return begins
        return False

    async def adopt(self, session_id: str, setup: Setup) -> None:
        """Take a session into the journal, from the agent's own replay.

        Raises UnknownSessionError if the agent has no such session, or it was deleted here;
        SessionExistsError if another process has it meanwhile; InvalidParamsError for another
        working directory than the agent lists; RemoteError if the agent asks the person to sign in;
        AgentError.
        """
        agent, can, journal = self._shared.agent, self._shared.agent.capabilities, self._hub.journal
        # The journal has all sessions of an agent that reads it.
        if agent.reads_journal or not is_usable_id(session_id):
            raise errors.UnknownSessionError(session_id)
        if not can.load_session and can.session_capabilities.resume is None:
            raise errors.UnknownSessionError(session_id)
        if await is_forgotten(journal, agent.key, session_id):
            raise errors.UnknownSessionError(session_id, f"session {session_id!r} was deleted")
        if (known := await session_of(journal, agent.key, session_id)) is not None:
            if known != session_id:
                raise errors.UnknownSessionError(session_id)  # one of ours, under another id
            raise errors.SessionExistsError(
                f"session {session_id!r} was adopted by another process"
            )
        if (listed := await self._list.look_up(session_id)) is not None:
            check_folder(listed.info.cwd, setup.cwd)
        method = (LOAD_SESSION if can.load_session else RESUME_SESSION).name
        lease = await self._claim(session_id, setup)
        row = await journal.session(session_id)
        conversation = await self._hub.ownership.enter(lease, row, setup, self._shared)
        await conversation.waiting.wake()
        side, session = conversation.side, conversation.session
        try:
            for early in side.bind(session.id):
                await conversation.hear(early)
            setup = side.setup
            async with side.exchange(method, setup.params, bounds.ADOPT_SECONDS) as answer:
                side.on_opened(answer, setup)
                # What the list shows of it: from the agent's list, else from the replay.
                listed = self._list.line(session.id)
                title = session.attributes.title or (listed.info.title if listed else None)
                title = without_context(title or "").strip()
                words = await first_words(session.segments(0)) or ""
                if not title or not is_own(title, filter(None, [words])):
                    title = title_of_words(words) or title
                session.row.untitled = False
                at = None if listed is None else listed.updated_at
                change = RowChange(title=title or UNSET, updated_at=at or now_ms(), prompted=True)
                await session.publish("settings", [settings_in(answer)], change=change)
                await session.link(agent.key, session.id)
            session.rest.begin(positions=False)  # nobody is attached yet
        except BaseException as exc:
            self._hub.ownership.abandon(conversation)
            try:
                if (await journal.session(session_id)).downstream_id is None:
                    await journal.delete(lease)
            except (errors.LeaseLostError, errors.UnknownSessionError):
                log.info("session %s: another process is adopting it", session_id)
            if isinstance(exc, errors.RemoteError) and exc.code != errors.AUTH_REQUIRED:
                raise errors.UnknownSessionError(
                    session_id, f"neither acphold nor the agent has session {session_id!r}: {exc}"
                ) from exc
            raise

    async def _claim(self, session_id: str, setup: Setup) -> Lease:
        """Return a lease of a session without entries; remove what a half-done adoption has left.

        Raises HeldElsewhereError while another process adopts it, where it can be joined, and
        SessionExistsError if that has finished.
        """
        key, journal = self._shared.agent.key, self._hub.journal
        new = NewSession(session_id, key, setup.cwd, setup.additional_directories)
        with suppress(errors.SessionExistsError):
            return await journal.create(new)
        with suppress(errors.UnknownSessionError):  # it has just removed that itself
            lease = await take_lease(journal, session_id)
            if await self.is_known(session_id):
                await journal.release(lease)
            else:
                await journal.delete(lease)
        return await journal.create(new)
