"""The entries of a live session, published alone or together with those of other sessions.

To publish is to commit entries to the journal, then fold them into the state, then deliver them to
every attachment, in this order: no client sees what a crash could undo. The lease says that this
process owns the session. Once another process has taken it over, nothing more can be published.

A commit costs ten times as much as a row in it. If hundreds of sessions stream at once, each piece
alone would be a commit, and so would each prompt; every session would wait for all of them. So
`publish_together` commits for several sessions at once.
"""

# See docs/decisions.md, 1.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias, TypeVar

from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.tasks import TaskSet
from acphold import errors
from acphold.conversation.history import entries as entries_of
from acphold.conversation.history.children import child_entry
from acphold.conversation.history.decisions import AskedQuestion, question_entry
from acphold.conversation.history.entries import Entry, Segment
from acphold.conversation.history.fold import Summary
from acphold.conversation.history.prompt_queue import PromptQueue
from acphold.conversation.history.titles import UNTITLED, says_nothing
from acphold.journal.intentions import queue_change
from acphold.journal.journal import Append, Entries, Journal, Lease
from acphold.journal.rows import NO_CHANGE, RowChange, SessionRow, merge_changes
from acphold.live.hub import bounds
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.attachments import Attachments
from acphold.live.hub.outages import Outage
from acphold.live.hub.publication import FOLDED, QUEUED, ListedRow, Prepared, Publication
from acphold.live.hub.rest import Rest

log = logging.getLogger(__name__)

T = TypeVar("T")


class HubSession:
    """See the module.

    `attributes` is the small part of the state that is kept live; the whole is folded from the
    journal when needed. `queue` are the queued prompts. `last_seq` is the last committed entry.
    `rest` begins with each end of the last turn, and ends with the next. `on_lost` lets go of a
    session that was deleted, or that another process owns now.
    """

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        row: SessionRow,
        summary: Summary,
        on_lost: Callable[[str, errors.LeaseLostError], None],
        settling: asyncio.Semaphore,
        outage: Outage,
    ) -> None:
        self.id = row.session_id
        self.tenant = row.tenant
        self.attributes = summary.attributes
        self.queue = summary.queue
        self.last_seq = lease.next_seq - 1
        self.attachments = Attachments(self)
        self.rest = Rest(self.settle, self._move_up, settling)
        self.row = ListedRow(journal, lease, row, self.rest.look_soon)
        title = summary.attributes.title
        self.row.untitled = row.title == UNTITLED or (
            not row.renamed and (says_nothing(title) if title is not None else not row.prompted)
        )
        if summary.turn != "idle" and not row.renamed and title not in (None, row.title):
            self.row.put_off(RowChange(title=title))  # as its owner did, which was killed
        self._journal = journal
        self.lease = lease
        self.outage = outage
        self.max_outage = 0.0
        """Seconds for which it waits for a database that is out of reach; 0 once it ends."""
        self._on_lost = on_lost
        self._lost: errors.LeaseLostError | None = None
        self.writing = asyncio.Lock()
        """Held by each publication while it commits."""
        self._held: list[Publication] = []
        self._moving_up = TaskSet()

    # -- publishing -----------------------------------------------------------------------

    async def publish(
        self,
        kind: str,
        raws: Sequence[bytes],
        author: Attachment | None = None,
        then: Callable[[], None] | None = None,
        change: RowChange = NO_CHANGE,
        audience: Attachment | None = None,
        *,
        is_speech: bool = False,
    ) -> Segment:
        """Commit, fold, deliver; in this order, so that no client sees what a crash could undo.

        The client of `author` wrote these entries and is not sent them; `then` runs when it has
        been sent everything up to here. If there is an `audience`, only that client is sent them.
        `change` is what the list shows from now on, committed with them; `is_speech` as in
        Publication. Raises JournalError; then nothing was delivered.
        """
        publication = Publication(kind, raws, author, then, change, audience, is_speech)
        async with self.writing:
            return await self._publish(publication)

    async def ask(
        self, question: AskedQuestion, child: str, adds: Callable[[], Awaitable[bytes]]
    ) -> Segment:
        """Publish a question to people, as `publish` does.

        `child` is the sub-agent that asks, "" for none. `adds` returns an update that comes before
        the question, b"" for none.
        """
        change = self.row.question_change()
        asked = Publication(entries_of.QUESTION, [question_entry(question)], change=change)
        async with self.writing:
            if (update := await adds()) and child:
                self.hold(entries_of.CHILD, [child_entry(child, update)])
            elif update:
                self.hold("update", [update])
            return await self._publish(asked)

    async def change_queue(self, make: Callable[[PromptQueue], bytes]) -> None:
        """Publish the change of the queue that `make` returns for it as it is then; what that
        raises is raised."""
        async with self.writing:
            raw = make(self.queue)
            await self._publish(Publication(entries_of.QUEUE, [raw]))

    async def come_home(self, marks: Sequence[entries_of.Run]) -> None:
        """Publish what makes its history this journal's; see `journal.intentions`. Raises
        JournalError."""
        change = RowChange(home=self.lease.journal)
        for kind, raws in marks:
            self.hold(kind, raws, change=change)
        if marks:
            await self.flush()
        else:
            await self.row.change(change)

    def hold(
        self,
        kind: str,
        raws: Sequence[bytes],
        author: Attachment | None = None,
        change: RowChange = NO_CHANGE,
    ) -> None:
        """Publish this together with the next publication, before it and in one transaction.

        Call this when more will be published in the same step; otherwise call `release`.
        """
        self._held.append(Publication(kind, raws, author, change=change))

    @property
    def holds_any(self) -> bool:
        """True while publications are held back."""
        return bool(self._held)

    async def flush(self) -> None:
        """Wait until everything published or held so far is in the journal. Raises JournalError.

        Call it before a message that is not journalled: it keeps its place after them.
        """
        async with self.writing:  # the lock is fair: first come, first served
            if self._held:
                await self._publish()

    async def release(self, first: Callable[[], None] | None = None) -> None:
        """Publish what is held, unless a publication has taken it along; raises JournalError.

        `first` runs after the commit, before anything is delivered.
        """
        if not self._held and first is None:
            return
        async with self.writing:
            if self._held:
                await self._publish(first=first)
            elif first is not None:
                first()

    async def _publish(
        self, *last: Publication, first: Callable[[], None] | None = None
    ) -> Segment:
        """Publish what is held and `last`, all or nothing; if it fails, what was held stays
        held."""
        prepared = self.prepare(*last)
        append = prepared.append
        try:
            while True:  # as `answered`, which costs a hundredth of a prompt
                try:
                    if self.outage.is_paused:
                        self.outage.refuse_to_write()
                    segments = await self._journal.append(append.lease, append.runs, append.change)
                    break
                except errors.JournalBusyError as exc:
                    await self.outage.wait(exc, lambda: self.max_outage)
        except BaseException as exc:
            self.hold_again(prepared, exc)
            raise
        self.on_commit(prepared, segments)
        try:
            if first is not None:
                first()
        finally:
            for each, segment in zip(prepared.publications, segments, strict=True):
                self.attachments.deliver(each, segment)
            if prepared.tells_queue:
                self.attachments.notify_queue()
        return segments[-1]

    # The same in steps, for publishing in several sessions at once; the caller holds `writing`.

    def prepare(self, *last: Publication) -> Prepared:
        """Return what is held and `last`, ready to append."""
        publications = (*self._held, *last) if self._held else last
        attributes, change = self.attributes, NO_CHANGE
        queue, last_seq = self.queue, self.last_seq
        runs: list[entries_of.Run] = []
        for each in publications:
            runs.append((each.kind, each.raws))
            if each.kind in FOLDED and not each.is_speech:
                attributes = each.after(attributes)
                if each.kind in QUEUED:
                    queue = each.queue_after(queue, last_seq, self._journal)
            if each.change is not NO_CHANGE:
                change = merge_changes(change, each.change)
            last_seq += len(each.raws)
        if tells_queue := queue is not self.queue:
            change = merge_changes(change, queue_change(queue))
        append = Append(
            self.lease, runs, self.row.entries_change(change, self.attributes, attributes)
        )
        held, self._held = self._held, []
        return Prepared(held, publications, attributes, queue, append, tells_queue)

    def hold_again(self, prepared: Prepared, why: BaseException) -> None:
        """Hold again what was held: appending failed."""
        self._held = prepared.held + self._held
        if prepared.attributes is not self.attributes:
            self.row.put_off_again()
        if isinstance(why, errors.LeaseLostError):
            self.lose(why)

    def on_commit(self, prepared: Prepared, segments: Sequence[Segment]) -> None:
        """Note that the journal has it."""
        self.attributes, self.last_seq = prepared.attributes, segments[-1].last_seq
        self.queue = prepared.queue

    # -- reading --------------------------------------------------------------------------

    async def read(self, after: int, limit_bytes: int) -> list[Segment]:
        """Return committed segments above `after`, at least one; LeaseLostError if they are
        gone."""
        # Not while rows are rewritten, or a page could mix old and new rows. And compaction looks
        # at the cursors, so whoever gets a page must have moved past it by then.

        async def read() -> list[Segment]:
            async with self.rest.reading():
                return await self._journal.read(self.id, after, limit_bytes)

        page = await self.answered(read)
        if self._lost is None and not page:
            await self.verify()  # which tells all clients how it was lost
        if self._lost is not None or not page:
            # Deleted, or taken over, meanwhile: the id may now belong to another session.
            raise self._lost or errors.LeaseLostError(self.id, deleted=True)
        return page

    async def segments(self, after: int) -> AsyncIterator[Segment]:
        """Yield the committed segments above `after`, oldest first, a few at the beginning; raises
        as `read`."""
        size = bounds.FIRST_PAGE_BYTES
        while after < self.last_seq:
            page = await self.read(after, size)
            for segment in page:
                yield segment
            after, size = page[-1].last_seq, min(4 * size, bounds.PAGE_BYTES)

    def now_ms(self) -> int:
        """Return the time by the clock of the journal, in ms since the epoch."""
        return self._journal.now_ms()

    async def summary(self) -> Summary:
        """Return what the journal's entries amount to; see `Entries.summary`."""
        return await self.answered(lambda: self._journal.summary(self.id))

    def updates_held_back(self) -> list[Entry]:
        """Return the updates that are held back, of the agent and of its sub-agents."""
        updates = (each for each in self._held if each.kind in ("update", entries_of.CHILD))
        return [Entry(0, each.kind, 0, raw) for each in updates for raw in each.raws]

    async def link(self, agent: str, downstream_id: str) -> None:
        """Note that the agent knows this session as `downstream_id`."""
        links = self._journal.links
        await self.answered(lambda: links.link(self.lease, agent, downstream_id))

    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what the journal answers, once it can be reached; raises as `Outage.wait`."""
        while True:
            try:
                return await ask()
            except errors.JournalBusyError as exc:
                await self.outage.wait(exc, lambda: self.max_outage)

    # -- owned ----------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """True if another process owns this session now, or it was deleted."""
        return self._lost is not None

    def require_owned(self) -> None:
        """Raise LeaseLostError if the session was found to be lost."""
        if self._lost is not None:
            raise self._lost

    async def verify(self) -> None:
        """Raise LeaseLostError unless this process still owns the session."""
        while True:  # as in `_publish`
            try:
                lost = await self._journal.loss(self.lease)
                break
            except errors.JournalBusyError as exc:
                await self.outage.wait(exc, lambda: self.max_outage)
        if lost is not None:
            self.lose(lost)
            raise lost

    def lose(self, error: errors.LeaseLostError) -> None:
        """Note that another process has taken the session over, or deleted it."""
        if self._lost is None:
            self._lost = error
            self._on_lost(self.id, error)

    # -- clients --------------------------------------------------------------------------

    async def note_follower(self, attachment: Attachment) -> None:
        """Note that the client has seen what happened and, with positions, take its bookmark back.

        The number of followers is written for a later owner. If writing fails, the client may have
        to load the session later. Raises LeaseLostError.
        """
        change = self.row.opening_change()
        if attachment.positions:
            self.rest.take_bookmark()
            if self._follower_count > self.row.followers:
                change = merge_changes(change, self.row.followers_change(self._follower_count))
        if change is NO_CHANGE:
            return
        try:
            await self.row.change(change)
        except errors.LeaseLostError as exc:
            self.lose(exc)
            raise
        except errors.JournalError:
            lost = "session %s: cannot note its followers: positions may be lost"
            log.warning(lost, self.id, exc_info=True)

    async def require_exact(self, position: int, lineage: str | None) -> None:
        """Raise InvalidParamsError unless a client can resume after this position."""
        await self.rest.compaction_ends()
        ours = self.lease.lineage
        is_strange = bool(position and ours and lineage != ours)
        if is_strange:  # while a session is owned, another process may renew the journal's era
            is_strange = lineage != (await self._journal.session(self.id)).lineage
        if is_strange and lineage is None:
            why = "it has to come with the acphold/lineage of the answer that opened the session"
        elif is_strange:
            why = "the journal no longer has the history that it belongs to"
        elif position > self.last_seq:
            why = f"the session ends at {self.last_seq}"
        elif not await self._journal.is_exact(self.id, position):
            why = "the entries after it have been merged since"
        else:
            return
        raise errors.InvalidParamsError(
            f"acphold/after: cannot resume after {position}: {why}; load the session",
            field="_meta.acphold/after",
        )

    # -- rest -----------------------------------------------------------------------------

    def turn_over(self) -> None:
        """Begin to rest: the last turn of the queue has ended."""
        self.rest.begin(positions=any(known.positions for known in self.attachments))

    @property
    def _follower_count(self) -> int:
        """Number of clients with positions that are here or may come back."""
        return sum(known.positions for known in self.attachments) + self.rest.bookmarks

    async def settle(self) -> bool:
        """Bring its row up to date and compact its entries; return False if the journal fails."""
        if self.row.is_kept_in_front:  # it is found there: no index has its words here
            return True
        # Compaction must not join entries across the cursor of a client that lags. Waiting for such
        # a client instead would keep the session out of the list and the search.
        apart = {seq for known in self.attachments if known.is_fed for seq in known.boundaries}
        try:
            await self.row.move_up()
            await self._journal.settle(
                self.lease, self.last_seq, self.rest.end_compaction, apart=apart
            )
            # A client may have come, and lost its connection, while words were indexed.
            if self._follower_count < self.row.followers:
                await self.row.change(self.row.followers_change(self._follower_count))
        except errors.LeaseLostError as exc:
            self.lose(exc)
        except errors.JournalError as exc:
            log.warning("session %s could not be compacted: %s", self.id, exc)
            return False
        return True

    def _move_up(self) -> None:
        """Write what was not worth a row change of its own, as the time of a prompt: followers of
        the list hear of it before the session comes to rest."""

        async def move_up() -> None:
            try:
                await self.row.move_up()
            except errors.LeaseLostError as exc:
                self.lose(exc)
            except errors.JournalError as exc:  # it is written when the session comes to rest
                log.info("session %s: cannot move it up in the list yet: %s", self.id, exc)

        if self.row.is_late:
            self._moving_up.start(move_up(), "move up")

    def wait_no_more(self) -> None:
        """Wait no longer for a database that is out of reach: it is being closed."""
        self.max_outage = 0.0
        self.outage.wake()

    def stop(self) -> None:
        """Stop background writes: the session leaves this process."""
        self.rest.stop()
        for task in self._moving_up:
            task.cancel()

    async def aclose(self) -> None:
        """Detach all clients, settle for a moment, release the lease."""
        self.stop()
        if self._lost is None:
            await self.attachments.catch_up(bounds.CATCH_UP_CLOSE_SECONDS)
        self.attachments.detach_all()
        if self._lost is not None:
            return
        try:
            await self.release()
            await self.row.move_up()
        except errors.JournalError as exc:
            log.error("session %s: its last entries are not in the journal: %s", self.id, exc)
        # A long history is compacted another time: a client that closes does not wait for that.
        await self.rest.aclose(bounds.SETTLE_CLOSE_SECONDS)
        await self._journal.release(self.lease)


async def publish_together(
    journal: Entries, due: Sequence[tuple[HubSession, Publication | None]]
) -> list[errors.JournalError | None]:
    """Publish what each of these sessions of `journal` holds, and its publication; no session
    twice.

    Return the error of each, as `HubSession.publish` would raise it; nothing was delivered then.
    """
    sessions = [session for session, _ in due]
    for session in sessions:
        await session.writing.acquire()
    try:
        prepared = [
            session.prepare() if publication is None else session.prepare(publication)
            for session, publication in due
        ]
        try:
            appends = [each.append for each in prepared]
            outage = sessions[0].outage

            async def append() -> list[list[Segment] | errors.LeaseLostError]:
                if outage.is_paused:
                    outage.refuse_to_write()
                return await journal.append_all(appends)

            results = await sessions[0].answered(append)
        except BaseException as exc:
            for session, each in zip(sessions, prepared, strict=True):
                session.hold_again(each, exc)
            if isinstance(exc, errors.JournalError):
                return [exc] * len(sessions)
            raise
        # Note all of them before any delivery: whatever a delivery causes, these are in the
        # journal.
        committed: list[tuple[HubSession, Prepared, Sequence[Segment]]] = []
        failures: list[errors.JournalError | None] = []
        for session, each, result in zip(sessions, prepared, results, strict=True):
            if isinstance(result, errors.LeaseLostError):
                session.hold_again(each, result)
                failures.append(result)
            else:
                session.on_commit(each, result)
                committed.append((session, each, result))
                failures.append(None)
        _deliver_together(committed)
        return failures
    finally:
        for session in sessions:
            session.writing.release()


def _deliver_together(committed: Sequence[tuple[HubSession, Prepared, Sequence[Segment]]]) -> None:
    """Deliver what was committed together; speech goes out in few writes for all sessions.

    A write has one message of each session: a client that starts all it reads at once would mix up
    several of one session.
    """
    speech_of: dict[Client, list[list[bytes]]] = {}
    for session, prepared, segments in committed:
        for publication, segment in zip(prepared.publications, segments, strict=True):
            if not publication.is_speech:
                session.attachments.deliver(publication, segment)
                continue
            for attachment in session.attachments:
                client = attachment.client
                if client.buffered or not (lines := attachment.lines_of(segment)):
                    attachment.deliver(segment)
                else:
                    speech_of.setdefault(client, []).append(lines)
    for client, lines_of_sessions in speech_of.items():
        for write in zip_longest(*lines_of_sessions, fillvalue=b""):
            client.send(b"".join(write))
    for session, prepared, _ in committed:
        if prepared.tells_queue:
            session.attachments.notify_queue()


Alone: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Publishes what one session holds."""


class CommonRelease:
    """Publishes what the sessions of a hub hold at the end of a step of the event loop.

    In one transaction, without what was published together with a later publication.
    """

    def __init__(self, journal: Entries, tasks: EagerTasks) -> None:
        self._journal = journal
        self._tasks = tasks
        self._due: dict[HubSession, Alone] = {}
        self._under_way = TaskSet()

    def add(self, session: HubSession, alone: Alone) -> None:
        """Publish what this session holds, too; `alone` does so if it cannot go with the others."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._leave)
        self._due[session] = alone

    def _leave(self) -> None:
        due, self._due = self._due, {}
        self._begin(self._release({each: due[each] for each in due if each.holds_any}))

    async def _release(self, due: dict[HubSession, Alone]) -> None:
        together = [(each, None) for each in due if not each.writing.locked()]
        if len(together) > 1:
            try:
                await publish_together(self._journal, together)
            except Exception:  # nobody awaits this task; each session finds out alone
                log.exception("%d prompts could not be journalled together", len(together))
        for session, alone in due.items():
            if session.holds_any:
                self._begin(alone())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.begin(work, "release")
        if task is not None:
            self._under_way.add(task)

    async def aclose(self) -> None:
        """Wait until everything under way is in the journal."""
        await self._under_way.finish()
