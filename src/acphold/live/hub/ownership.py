"""The sessions that this process owns, and the journal's knowledge of any other.

Only the owner may write to a session. Another process may take it if the journal says that it is
free (`journal.owners`). Then the session leaves this process's memory at once, and its clients
follow it to the new owner.

If machines share the journal, one that is cut off from it cannot know that. So its agents are
stopped before another process may take the sessions, by its own clock: they must not collide with
the agent of the next owner. Sessions in memory can still be read, and may still be ours.

    after                        what happens
    ---------------------------  -----------------------------------------------------------
    nothing                      an update that cannot be written is waited for: what the agent
                                 says after it is not read (`hub.outages`)
    UNANSWERED_SECONDS           clients of running turns and open questions are told
    PAUSE_SECONDS since we were  every process of the agents is stopped: soon another place may
    last heard in a database     take the sessions, and we could not know. Agents of a library in
                                 this process wait where they next say or ask anything
    `max_outage`                 the turns end, and so do their agents

When the journal is back, the leases are renewed first. An agent with a session that another place
has taken meanwhile is killed while it is stopped; all others continue. Nothing is lost: what the
agents said stands in their pipes.
"""

# See docs/decisions.md, 16, 17 and 37.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Set as AbstractSet
from itertools import chain

from msgspec import Struct, field

from acp_wire.tasks import TaskSet, beside, first, tick
from acphold import errors
from acphold.conversation.history.decisions import closed_question
from acphold.conversation.history.entries import ANSWER, SENT, TURN_END, Entry, id_of_sent
from acphold.journal import bounds as journal_bounds
from acphold.journal.intentions import marks
from acphold.journal.journal import Journal, Lease, Readable, take_lease
from acphold.journal.moves import refuse_moved, row_here
from acphold.journal.owners import clock
from acphold.journal.rows import SessionRow
from acphold.live.agents.interface import HubAgent
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.annotations import notice
from acphold.live.hub.conversation import INTERRUPTED, Conversation
from acphold.live.hub.outages import Outage
from acphold.live.hub.session import HubSession
from acphold.live.hub.shared_parts import SharedParts
from acphold.live.hub.tool_calls import close_children

log = logging.getLogger(__name__)

AWAY = "The database of the conversations cannot be reached"
AWAY_HOW = (
    "This session waits for it, and goes on by itself. Nothing is lost. If it is not back within "
    "{:g} minutes, the turn ends."
)
LOCKED = "Another program locks the file of the conversations"
BACK = "The conversations can be written again"

NOT_OURS = "the journal has been out of reach for so long that another machine may own the session"
TOO_LONG = "the journal has been out of reach for {:g} s (max_outage)"


async def end_of_sent(journal: Readable, session_id: str, wanted: str, after: int) -> Entry | None:
    """Return the `turn_end` of the prompt that its client sent under the `wanted` id, wherever the
    session is live.

    If it has no end, the entry that has the id; None if that is not after `after`.
    """
    sent: Entry | None = None
    while page := await journal.read(session_id, after):
        for entry in chain.from_iterable(segment.entries() for segment in page):
            if sent is not None and entry.kind == TURN_END:
                return entry
            if entry.kind == SENT and id_of_sent(entry.raw) == wanted:
                sent = entry
        after = page[-1].last_seq
    return sent


async def find_accepted(
    journal: Readable, session_id: str, sent_ids: AbstractSet[str], after: int
) -> list[str]:
    """Return those of a client's own ids whose answers were accepted after entry `after`."""
    accepted: list[str] = []
    while page := await journal.read(session_id, after):
        for segment in page:
            if segment.kind == ANSWER:
                answers = [closed_question(entry.raw) for entry in segment.entries()]
                accepted += [it.sent_id for it in answers if it.sent_id in sent_ids]
        after = page[-1].last_seq
    return accepted


class Pause:
    """The pause while the journal is out of reach: see the table of the module. `_stopped` are the
    agents that are stopped, with their generation."""

    def __init__(
        self, live: Mapping[str, Conversation], outage: Outage, *, is_shared: bool
    ) -> None:
        self._live = live
        self._away = AWAY if is_shared else LOCKED
        self._outage = outage
        self._told: set[Conversation] = set()
        self._stopped: dict[HubAgent, int] = {}
        self._ending = TaskSet()

    async def look(self, unheard: float) -> None:
        """Do what is due. The journal has not heard of us for `unheard` seconds."""
        self._outage.begin()
        due = {it: it.shared.options.max_outage for it in self._live.values()}
        for conversation in due:
            if conversation.is_busy and conversation not in self._told:
                self._told.add(conversation)
                how = AWAY_HOW.format(due[conversation] / 60)
                conversation.session.attachments.tell_aside(notice(self._away, how, "warning"))
        if unheard >= bounds.PAUSE_SECONDS:
            self._outage.is_paused = True
            await asyncio.gather(*map(self._stop, due))
        for conversation, seconds in due.items():
            if self._outage.lasted >= seconds:
                await self._end(conversation, TOO_LONG.format(seconds))

    async def _stop(self, conversation: Conversation) -> None:
        agent = conversation.side.agent
        await conversation.services.stop()
        if self._stopped.get(agent) != agent.generation and await agent.stop():
            log.warning("session %s: its agent is stopped: %s", conversation.id, NOT_OURS)
            self._stopped[agent] = agent.generation

    async def _end(self, conversation: Conversation, why: str) -> None:
        if conversation.turns.running is not None:
            await conversation.fail(
                errors.JournalUnavailableError(
                    f"the turn of session {conversation.id!r} was stopped: {why}"
                )
            )
        self.end_agent(conversation)

    def end_agent(self, conversation: Conversation) -> None:
        """End the agent of a session that is no longer ours, or has waited for too long, if it is
        stopped: it must not run again."""
        agent = conversation.side.agent
        if self._stopped.pop(agent, None) is not None:
            self._ending.start(agent.aclose(), "end a stopped agent")

    async def end(self) -> None:
        """Have everything continue: the journal has answered, and what is still live is ours."""
        if not self._outage.begun.is_set():
            return
        live = tuple(self._live.values())
        await asyncio.gather(
            *(agent.go_on() for agent in self._stopped), *(it.services.go_on() for it in live)
        )
        self._stopped.clear()
        self._outage.end()
        for conversation in self._told.intersection(live):
            conversation.session.attachments.tell_aside(notice(BACK, ""))
        self._told.clear()

    async def aclose(self) -> None:
        """Wait until agents that have to end have ended."""
        await self._ending.finish()


class Ownership(Struct, eq=False):
    """The sessions that are live in this process, by their id: `_live` is the hub's own table.

    `deleted` are sessions that were deleted elsewhere while they were live here; `_seen` is the
    last change of rows that was looked at.
    """

    _live: dict[str, Conversation]
    _journal: Journal
    _outage: Outage
    _pause: Pause
    settling: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(bounds.SETTLING_AT_ONCE)
    )
    deleted: set[str] = set()
    _ending: TaskSet = field(default_factory=TaskSet)
    _seen: str | None = None

    async def take(self, row: SessionRow, setup: Setup, shared: SharedParts) -> Conversation:
        """Make a session live at a desk, if it is free.

        Raises HeldElsewhereError, and SessionMovedError if it is another machine's.
        """
        # Before the lease, too: a move that is under way is not ended by a look.
        refuse_moved(row)
        lease = await take_lease(self._journal, row.session_id)
        row = await row_here(self._journal, lease)
        return await self.enter(lease, row, setup, shared)

    async def enter(
        self, lease: Lease, row: SessionRow, setup: Setup, shared: SharedParts
    ) -> Conversation:
        """Make a session live that we own, with its row as it is under the lease, at the desk with
        these parts.

        What was planned in another journal becomes history, before anything acts. What a crash left
        open ends: questions and the running turn are interrupted, and sub-agents end. What is
        queued waits until `WaitingQueue.wake`.
        """
        summary = await self._journal.summary(lease.session_id)
        session = HubSession(
            *(self._journal, lease, row, summary, self.on_lost, self.settling, self._outage)
        )
        if row.home != lease.journal:
            await session.come_home(marks(summary))
        cut_off = summary.turn != "idle"
        doubt = summary.doubt or ("cut" if cut_off else "")
        conversation = Conversation(session, shared, setup, doubt=doubt)
        for _ in range(row.followers):  # clients that the last owner cut off may come back
            session.rest.leave_bookmark(in_turn=cut_off, ago=session.row.idle_seconds)
        await conversation.questions.close_left(summary.open_questions)
        if summary.turn == "running":
            await conversation.close_interrupted_turn()
        elif summary.open_children:  # they went on when their turn was over
            await close_children(session, INTERRUPTED, summary.open_children)
        if row.renamed:
            await conversation.title.look()
        self._live[session.id] = conversation
        self.deleted.discard(session.id)
        return conversation

    async def keep(self) -> None:
        """Renew the leases, drop lost sessions and look at titles, for as long as this runs."""
        last_contact, looking = clock(), TaskSet()
        try:
            while True:
                await first(tick(journal_bounds.RENEW_SECONDS), self._outage.begun.wait())
                if self._outage.begun.is_set():
                    await asyncio.sleep(bounds.OUTAGE_LOOK_SECONDS)
                began = clock()
                async with beside(self._renew(), "renew") as renewing:
                    while not renewing.done():
                        await asyncio.wait({renewing}, timeout=bounds.OUTAGE_LOOK_SECONDS)
                        is_late = clock() - began >= journal_bounds.UNANSWERED_SECONDS
                        if is_late or self._outage.begun.is_set():
                            await self._doubt(last_contact)
                if renewing.result():
                    last_contact = began
                    await self._pause.end()
                    if not looking:  # it may wait for an update that waits for the next renewal
                        looking.start(self._look_at_titles(), "look at titles")
                else:
                    await self._doubt(last_contact)
        finally:
            await looking.aclose()

    async def _renew(self) -> bool:
        """Renew the leases once and drop lost sessions; return False if the journal was not
        reached."""
        live = {**self._live}
        try:
            lost = await self._journal.renew([item.session.lease for item in live.values()])
        except errors.AcpError as exc:
            level = logging.INFO if self._outage.begun.is_set() else logging.WARNING
            log.log(level, "cannot renew the leases of live sessions: %s", exc)
            return False
        except Exception:  # nobody awaits this task, and it has to go on
            log.exception("cannot renew the leases of live sessions")
            return False
        for error in lost:
            log.warning("%s", error)
            live[error.session_id].session.lose(error)
        return True

    async def _look_at_titles(self) -> None:
        """Look at the sessions that may have been renamed since the last time: one query serves all
        open sessions, and none is made for idle ones."""
        seen, self._seen = self._seen, None
        if not self._live:
            return
        renamed: list[Conversation] = []
        try:
            news = await self._journal.changes(seen, if_told=True)
            if news.more:
                seen, news = None, await self._journal.changes(None)
        except errors.AcpError as exc:
            log.warning("cannot look up which titles have changed: %s", exc)
        else:
            self._seen = news.last
            names = self._live if seen is None else news.session_ids
            renamed = [self._live[name] for name in names if name in self._live]
        since = clock()
        for conversation in renamed:
            if clock() - since >= bounds.TITLES_STEP_SECONDS:
                await asyncio.sleep(0)
                since = clock()
            try:
                await conversation.title.look()
            except errors.AcpError as exc:
                log.warning("cannot look up the title of session %s: %s", conversation.id, exc)

    async def _doubt(self, last_contact: float) -> None:
        """Do what is due while the journal does not answer. Whoever locks a file keeps all others
        from our sessions, too: nothing has to be stopped for that."""
        is_shared = self._journal.file is None
        await self._pause.look(clock() - last_contact if is_shared else 0.0)

    async def confirm(self, conversation: Conversation) -> None:
        """Verify that a session is still ours; if it is lost, it leaves and can be acquired
        again."""
        try:
            await conversation.session.verify()
        except errors.LeaseLostError as exc:
            log.info("%s; taking it back", exc)
        except errors.JournalError as exc:  # a full disk, say: the session can be read all the same
            log.warning("cannot look up the owner of session %s: %s", conversation.id, exc)

    def on_lost(self, session_id: str, error: errors.LeaseLostError) -> None:
        """Let go of a session that was deleted, or that another process owns now."""
        # One that was closed here, and only now found lost, has left already; its id may belong to
        # one loaded since.
        live = self._live.get(session_id)
        if live is not None and live.session.is_lost:
            if error.deleted:
                self.deleted.add(session_id)
            self._leave(live, error)

    def abandon(self, conversation: Conversation) -> None:
        """Drop a session whose making failed half-way: no client has it, and its lease is not
        renewed."""
        self._leave(conversation, errors.LeaseLostError(conversation.id, deleted=True))

    def _leave(self, conversation: Conversation, error: errors.LeaseLostError) -> None:
        if self._live.get(conversation.id) is conversation:
            del self._live[conversation.id]
        conversation.lose(error)
        self._pause.end_agent(conversation)
        self._ending.start(conversation.services.aclose(), "end commands")

    async def aclose(self) -> None:
        """Wait until commands and agents of lost sessions have ended."""
        await self._ending.finish()
        await self._pause.aclose()
