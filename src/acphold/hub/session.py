"""One conversation while it is live here: publishes its entries and keeps its attachments.

To publish is to commit entries to the journal, then fold them into the state, then deliver them to
every attachment, in this order: no client sees what a crash could undo. The lease says that this
process owns the session. Once another process has taken it over, nothing more can be published, and
`on_lost` is called, once.
"""

# See docs/decisions.md, 1.

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from acphold.agents import Agent
from acphold.errors import (
    HistoryLostError,
    InvalidParamsError,
    JournalError,
    LeaseLostError,
    UnknownSessionError,
)
from acphold.history import Entry, Segment, SessionState, ToolCall
from acphold.history import entries as entries_of
from acphold.history.attributes import Attributes
from acphold.history.children import OpenChild, child_entry, opencode_entry
from acphold.history.decisions import AskedQuestion, question_entry
from acphold.history.fold import Fold
from acphold.history.raw_update import string
from acphold.history.timeline import with_those_inside
from acphold.hub.annotations import (
    ended_child,
    ended_compaction,
    failed_tool,
    milliseconds,
    notice,
)
from acphold.hub.attachment import DUE, DUE_BYTES, Attachment, Client
from acphold.hub.publication import NO_CHANGE, Prepared, Publication, both, speech
from acphold.hub.rest import Rest
from acphold.journal import (
    Append,
    Entries,
    Lease,
    Links,
    Owners,
    RowChange,
    SessionRow,
    Sessions,
    state_of,
)
from acphold.schema.update_kinds import CHILD

if TYPE_CHECKING:
    from acphold.journal.in_file import InFile

log = logging.getLogger(__name__)

CLOSE_SETTLE = 1.0
"""Seconds to compact and index what has come when the session is closed."""

TOUCH_MS = 1000
"""Milliseconds in which further prompts do not move the session up in the list again: see
`prompt_change`."""

DELETED_NOTICE = notice(
    "This session was deleted",
    "It was deleted elsewhere; what you see here is no longer stored.",
    "warning",
)

HISTORY_LOST = "A part of this session is lost"
HISTORY_LOST_HOW = (
    "The journal has gone back, as when a backup or a standby that lagged takes its place: it has "
    "nothing of this session behind entry {}. What you see of it here is kept nowhere else."
)

TERMINALS = 4096
"""Most terminals whose owner is remembered; older ones are forgotten. Agents no longer mention
them."""

TOOLS_PAGE = 1024 * 1024
"""Bytes read at once to find the updates of a tool call."""


class Kept(Owners, Entries, Sessions, Links, Protocol):
    """The seams of a journal that a live session needs."""

    @property
    def file(self) -> InFile | None:
        """See Journal."""


class Session:
    """See the module.

    `attributes` is the small part of the state that is kept live; the whole is folded from the
    journal when needed. `last_seq` is the last committed entry. `untitled` is True until the
    session has had a title. `is_listed_elsewhere` means that an acphold in front keeps the session
    in the same journal, too: no list shows it here.
    """

    def __init__(
        self,
        journal: Kept,
        lease: Lease,
        row: SessionRow,
        attributes: Attributes,
        on_lost: Callable[[LeaseLostError], None],
        settling: asyncio.Semaphore,
    ) -> None:
        self.id = row.session_id
        self.cwd = row.cwd
        self.agent = row.agent
        self.tenant = row.tenant
        self._additional_directories = row.additional_directories
        self.attributes = attributes
        self.last_seq = lease.next_seq - 1
        self.attachments: list[Attachment] = []
        self.untitled = not row.prompted and attributes.title is None
        self._journal = journal
        self._lease = lease
        self._on_lost = on_lost
        self._lost: LeaseLostError | None = None
        self.writing = asyncio.Lock()
        """Held by each publication while it commits."""
        self._held: list[Publication] = []
        self._active = 0
        self._last_active = row.updated_at
        self._touched = 0
        self._touching: asyncio.Task[None] | None = None
        self._followers = 0  # as the journal has it
        self._unseen = row.unseen
        self.is_listed_elsewhere = False
        self._untold: list[tuple[str, bytes]] = []
        self.terminals: dict[str, Client | None] = {}
        self._rest = Rest(self._settle, settling)

    # -- publishing -----------------------------------------------------------------------

    async def publish(
        self,
        kind: str,
        raws: Sequence[bytes],
        author: Attachment | None = None,
        then: Callable[[], None] | None = None,
        change: RowChange = NO_CHANGE,
        audience: Attachment | None = None,
    ) -> Segment:
        """Commit, fold, deliver; in this order, so that no client sees what a crash could undo.

        The client of `author` wrote these entries and is not sent them; `then` runs when it has
        been sent everything up to here. If there is an `audience`, only that client is sent them.
        `change` is what the list shows from now on, committed with them. Raises JournalError; then
        nothing was delivered.
        """
        publication = Publication(kind, raws, author, then, change, audience)
        async with self.writing:
            return await self._publish(publication)

    async def publish_speech(self, raws: Sequence[bytes]) -> Segment:
        """Like `publish`, for nothing but pieces of the agent's messages and thoughts."""
        async with self.writing:
            return await self._publish(speech(raws))

    async def ask(self, question: AskedQuestion, child: str, since: int) -> Segment:
        """Publish a question to people, as `publish` does.

        A permission request describes its tool call, as an update does; some agents have not
        mentioned that call before (ACP v1 schema, `RequestPermissionRequest`). Publish what it adds
        first, so that clients that are not asked, and a replay, have it, too. `child` is the
        sub-agent that asks, "" for none; updates of the call lie behind `since`.
        """
        asked = Publication(
            entries_of.QUESTION,
            [question_entry(question)],
            None,
            None,
            self.question_change(),
            None,
        )
        async with self.writing:
            if (said := await self._said_of_call(question.tool_call, since)) and child:
                self.hold(entries_of.CHILD, [child_entry(child, said)])
            elif said:
                self.hold("update", [said])
            return await self._publish(asked)

    async def _said_of_call(self, asked: Mapping[str, bytes], since: int) -> bytes:
        """Return an update with what a permission request adds to its call; b"" if nothing."""
        if not (id_ := string(asked.get("toolCallId"))):
            return b""
        from acphold.hub.asked_calls import said_anew  # late: an editor waits for what stands above

        known, is_open = (await self.tools(since)).get(id_), False
        if known is None:
            summary = await self._journal.summary(self.id)
            inside = (id_ in child.open_tools for child in summary.open_children)
            is_open = id_ in summary.open_tools or any(inside)
        return said_anew(asked, known, is_open=is_open)

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
        self._held.append(Publication(kind, raws, author, None, change, None))

    @property
    def holds_any(self) -> bool:
        """True while publications are held back."""
        return bool(self._held)

    async def come_behind(self) -> None:
        """Wait until everything published or held so far is in the journal. Raises JournalError.

        Messages that are not journalled call this to keep their place behind it.
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
            segments = await self._journal.append(append.lease, append.runs, append.change)
        except BaseException as exc:
            self.put_off(prepared, exc)
            raise
        self.committed(prepared, segments)
        try:
            if first is not None:
                first()
        finally:
            for each, segment in zip(prepared.publications, segments, strict=True):
                self.deliver(each, segment)
        return segments[-1]

    # The same in steps, for publishing in several sessions at once; the caller holds `writing`.

    def prepare(self, *last: Publication) -> Prepared:
        """Return what is held and `last`, ready to append."""
        publications = (*self._held, *last) if self._held else last
        attributes, change = self.attributes, NO_CHANGE
        for each in publications:
            attributes = each.after(attributes)
            change = both(change, each.change)
        runs = [(each.kind, each.raws) for each in publications]
        append = Append(self._lease, runs, self._row_change(change, attributes))
        held, self._held = self._held, []
        return Prepared(held, publications, attributes, append)

    def put_off(self, prepared: Prepared, why: BaseException) -> None:
        """Hold again what was held: appending failed."""
        self._held = prepared.held + self._held
        if isinstance(why, LeaseLostError):
            self.lose(why)

    def committed(self, prepared: Prepared, segments: Sequence[Segment]) -> None:
        """Note that the journal has it."""
        self.attributes, self.last_seq = prepared.attributes, segments[-1].last_seq

    def deliver(self, publication: Publication, segment: Segment) -> None:
        """Deliver a committed segment to the clients."""
        author = publication.author
        if author is not None:  # its client may have attached anew
            author = self.find(author.client) or author
        if author is not None:  # before the others: a program may wait for the answer
            author.untold.add(segment.last_seq)
            author.deliver(segment)
            if publication.then is not None:
                author.when_reached(segment.last_seq, publication.then)
        audience = publication.audience
        for attachment in tuple(self.attachments):
            if attachment is author:
                continue
            if audience is not None and attachment.client is not audience.client:
                attachment.untold.add(segment.last_seq)
            attachment.deliver(segment)

    def _row_change(self, change: RowChange, attributes: Attributes) -> RowChange | None:
        """Return the change, with what the entries themselves change in the list; None for
        nothing."""
        before = self.attributes
        if attributes is before:
            return None if change is NO_CHANGE else change
        if attributes.title != before.title:
            self.untitled = False
            change = replace(change, title=attributes.title)
        at = milliseconds(attributes.updated_at)
        if attributes.updated_at != before.updated_at and at:
            change = replace(change, updated_at=at)
        return None if change == NO_CHANGE else change

    def prompt_change(self, title: str | None, agent: Agent) -> RowChange:
        """Return what a prompt changes in the list: the session is worth listing, and moves to the
        top.

        How `agent` was started is noted if the session belongs to it.

        Within TOUCH_MS of the last written change nothing is returned; the new time is written
        later, once for all prompts. `title` stands in the list until a turn has ended.
        """
        self._active = now()
        if self._touched <= self._active <= self._touched + TOUCH_MS:
            if self._touching is None or self._touching.done():
                self._touching = asyncio.create_task(self._touch_late(), name="touch")
            return NO_CHANGE
        self._touched = self._active
        shown = UNSET if title is None or not self.untitled else title
        start = agent.start if agent.start and agent.key == self.agent else UNSET
        return RowChange(
            title=shown,
            updated_at=self._active,
            prompted=UNSET if self.is_listed_elsewhere else True,
            archived=False,  # whoever goes on with it would not look for it in the archive
            start=start,
        )

    async def _touch_late(self) -> None:
        """Write the time of a prompt that changed no row, so that followers of the list hear of it
        before the session comes to rest."""
        await asyncio.sleep(TOUCH_MS / 1000)
        try:
            await self._move_up()
        except LeaseLostError as exc:
            self.lose(exc)
        except JournalError as exc:  # it is written when the session comes to rest
            log.info("session %s is not yet first in the list: %s", self.id, exc)

    async def _move_up(self) -> None:
        while (active := self._active) > self._touched:  # one may come while it is written
            await self._journal.change(self._lease, RowChange(updated_at=active))
            self._touched = active

    def question_change(self) -> RowChange:
        """Return what a question and its end change in the list: the session moves to the top.
        Followers of the list in other processes notice it by that."""
        self._active = now()
        return RowChange(updated_at=self._active)

    def end_change(self) -> RowChange:
        """Return what the end of a turn changes in the list: the session is unseen if nobody is
        attached."""
        if self.attachments or self._unseen:
            return NO_CHANGE
        self._unseen = True
        return RowChange(unseen=True)

    def row_changed(self) -> None:
        """Note that another process changed the row: the next prompt writes to it in any case."""
        self._touched = 0

    def turn_over(self) -> None:
        """Begin to rest: the last turn of the queue has ended."""
        self._active = now()
        self.rest()

    # -- reading --------------------------------------------------------------------------

    async def read(self, after: int, limit_bytes: int) -> list[Segment]:
        """Return committed segments above `after`, at least one; LeaseLostError if they are
        gone."""
        # Not while rows are rewritten, or a page could mix old and new rows. And compaction looks
        # at the cursors, so whoever gets a page must have moved past it by then.
        async with self._rest.reading():
            page = await self._journal.read(self.id, after, limit_bytes)
        if self._lost is not None or not page:
            # Deleted, or taken over, meanwhile: the id may now belong to another session.
            raise self._lost or LeaseLostError(self.id, deleted=True)
        return page

    async def state(self, *, through: int) -> SessionState:
        """Return all entries up to `through`, folded."""
        return await state_of(self._journal, self.id, through)

    async def close_open(self, why: str, since: int = 0, *, cancelled: bool = False) -> None:
        """Publish an end, with the reason, for everything whose own end will never be reported.

        That is: tool calls, with what updates behind `since` said of them; compactions; and
        sub-agents with such things of their own.
        """
        found = await self._journal.summary(self.id)
        told = await self.tools(since) if found.open_tools else {}
        tools = [told.get(id_, ToolCall(id_, {})) for id_ in found.open_tools]
        await self.close_children(why, found.open_children, cancelled=cancelled)
        closing = [
            *(failed_tool(tool, why) for tool in tools),
            *(ended_compaction(id_, why, cancelled=cancelled) for id_ in found.open_compactions),
        ]
        if closing:
            await self.publish("update", closing)

    async def close_refused(self, refused: Mapping[tuple[str, str], str]) -> None:
        """Publish the end of calls that were not allowed, if their agent has not reported it.

        `refused` maps (sub-agent, tool call id) to the reason.
        """
        found = await self._journal.summary(self.id)
        opened = {("", id_) for id_ in found.open_tools}
        for child in found.open_children:
            opened |= {(child.session_id, id_) for id_ in child.open_tools}
        for (child_id, id_), why in refused.items():
            if (child_id, id_) in opened:
                ended = failed_tool(ToolCall(id_, {}), why)
                if child_id:
                    await self.publish(entries_of.CHILD, [child_entry(child_id, ended)])
                else:
                    await self.publish("update", [ended])

    async def close_children(
        self, why: str, open_children: Sequence[OpenChild], *, cancelled: bool = False
    ) -> None:
        """Publish the end of sub-agents, innermost first, and of what is open in them."""
        for child in sorted(open_children, key=lambda child: -child.depth):
            inside = [
                *(failed_tool(ToolCall(id_, {}), why) for id_ in child.open_tools),
                *(ended_compaction(it, why, cancelled=cancelled) for it in child.open_compactions),
            ]
            if inside:
                entries = [child_entry(child.session_id, update) for update in inside]
                await self.publish(entries_of.CHILD, entries)
            if not child.is_at_work:
                continue
            ended = ended_child(child, self.id, why, cancelled=cancelled)
            if child.spelling == "opencode":
                await self.publish(entries_of.CHILD, [opencode_entry(ended)])
            elif child.parent:
                await self.publish(entries_of.CHILD, [child_entry(child.parent, ended)])
            else:
                await self.publish("update", [ended])

    async def tools(self, since: int) -> dict[str, ToolCall]:
        """Return the tool calls by their ids, as described by updates behind `since`."""
        folding = Fold()
        held = [each for each in self._held if each.kind in ("update", entries_of.CHILD)]
        while since < self.last_seq:
            page = await self.read(since, TOOLS_PAGE)
            for segment in page:
                if b'"toolCallId"' in segment.raw:
                    for entry in segment.entries():
                        folding.add(entry)
            since = page[-1].last_seq
        for publication in held:
            for raw in publication.raws:
                folding.add(Entry(0, publication.kind, 0, raw))
        return {
            item.tool_call_id: item
            for item in with_those_inside(folding.state().timeline)
            if isinstance(item, ToolCall)
        }

    async def link(self, agent: str, downstream_id: str) -> None:
        """Note that the agent knows this session as `downstream_id`."""
        await self._journal.link(self._lease, agent, downstream_id)

    @property
    def folders(self) -> tuple[str, ...]:
        """The roots: the working directory, then the additional ones."""
        return (self.cwd, *self._additional_directories)

    async def touch(self, change: RowChange) -> None:
        """Change what the list shows of it; raises JournalError."""
        await self._journal.change(self._lease, change)

    async def open_in(self, cwd: str, additional_directories: tuple[str, ...]) -> None:
        """Show these folders in the list: a client opens the session in them.

        The protocol: roots that are left out no longer belong to the session (spec v1, session
        setup, "Additional Workspace Roots").
        """
        change = NO_CHANGE
        if not is_same_folder(cwd, self.cwd):
            change = replace(change, cwd=cwd)
        if additional_directories != self._additional_directories:
            change = replace(change, additional_directories=additional_directories)
        if change != NO_CHANGE:
            await self._journal.change(self._lease, change)
            self.cwd, self._additional_directories = cwd, additional_directories

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
        with suppress(UnknownSessionError):
            if (await self._journal.owner(self.id)).epoch == self._lease.epoch:
                return
        for lost in await self._journal.renew([self._lease]):  # tells how it was lost
            self.lose(lost)
            raise lost

    @property
    def is_far(self) -> bool:
        """True if the journal is a database: then a look at it takes as long as a commit."""
        return self._journal.file is None

    @property
    def lease(self) -> Lease:
        """The lease under which the session is written."""
        return self._lease

    def lose(self, error: LeaseLostError) -> None:
        """Note that another process has taken the session over, or deleted it."""
        if self._lost is None:
            self._lost = error
            self._on_lost(error)

    # -- clients --------------------------------------------------------------------------

    def attach(
        self, client: Client, after: int, live_after: int, *, positions: bool = False
    ) -> Attachment:
        """Return an attachment that is held until its client has the answer that opens the session.

        It replaces the client's present attachment in one step, so that no client ever has two.
        `after`, `live_after` and `positions` as in Attachment.
        """
        attachment = Attachment(self, client, after, live_after, positions=positions)
        for known in tuple(self.attachments):
            if known.client is client:
                self.attachments.remove(known)
                known.replaced_by(attachment)
        self.attachments.append(attachment)
        return attachment

    def put_back(self, attachment: Attachment) -> bool:
        """Undo `attach`: the session could not be opened. False if the client had no attachment
        before."""
        if (before := attachment.before) is None or attachment not in self.attachments:
            return False
        self.attachments[self.attachments.index(attachment)] = before
        before.take_back(attachment)
        return True

    def open_to(self, attachment: Attachment) -> None:
        """Go live: the client has the answer that opens the session. Send it what was kept for
        it."""
        attachment.open()
        for method, params in self._untold:
            attachment.tell(method, params)
        self._untold.clear()

    def tell(self, method: str, params: bytes, *, about_child: bool = False) -> None:
        """Pass a notification that is no update to all clients; it is not journalled.

        If it is about a sub-agent, only clients that show sub-agents get it.
        """
        for attachment in self.attachments:
            if not (about_child and CHILD in attachment.client.offer.withheld):
                attachment.tell(method, params)
        if about_child or self.attachments:
            return
        # Right after the agent's answer to session/new nobody is attached yet.
        size = len(params) + sum(len(kept) for _, kept in self._untold)
        if len(self._untold) < DUE and size < DUE_BYTES:
            self._untold.append((method, params))
        else:
            log.warning("session %s: %s dropped: nobody is attached", self.id, method)

    def made_terminal(self, terminal: str, owner: Client | None) -> None:
        """Note which client shows a terminal, None for this process: no other client can."""
        self.terminals[terminal] = owner
        if len(self.terminals) > TERMINALS:
            del self.terminals[next(iter(self.terminals))]

    def tell_deleted(self, but: Client | None = None) -> None:
        """Tell all clients but one that the session is gone for good."""
        self.tell_last(DELETED_NOTICE, lambda client: client is but)

    def tell_history_lost(self, error: HistoryLostError) -> None:
        """Tell all clients that the journal has gone back, and what it lacks now."""
        update = notice(HISTORY_LOST, HISTORY_LOST_HOW.format(error.last_seq), "warning")
        self.tell_last(update, lambda _: False)

    def tell_last(self, update: bytes, knows: Callable[[Client], bool]) -> None:
        """Send an update that is not journalled to all clients that do not know it; nothing follows
        it."""
        for attachment in self.attachments:
            if attachment.is_open and not knows(attachment.client):
                attachment.tell_last(update)

    def find(self, client: Client) -> Attachment | None:
        """Return the attachment of this client, if it has one."""
        for known in self.attachments:  # a loop: asked for several times in each turn
            if known.client is client and known.is_fed:
                return known
        return None

    def attachment_of(self, client: Client) -> Attachment:
        """Return the attachment of this client; UnknownSessionError if it has none."""
        if (attachment := self.find(client)) is not None:
            return attachment
        raise UnknownSessionError(
            self.id, f"session {self.id!r} is not open here; call session/load or session/resume"
        )

    def detach(self, attachment: Attachment) -> None:
        """End one attachment, if it has not been replaced since; the turn goes on."""
        if attachment in self.attachments:
            self.attachments.remove(attachment)
            for terminal, owner in self.terminals.items():
                if owner is attachment.client:
                    self.terminals[terminal] = None
            attachment.close()

    def keep_position(self, attachment: Attachment, *, in_turn: bool) -> None:
        """Keep the position of a client whose connection was lost, so that it can resume."""
        if attachment.positions:
            self._rest.leave_bookmark(in_turn=in_turn)

    async def be_followed(self, attachment: Attachment) -> None:
        """Note that the client has seen what happened and, with positions, take its bookmark back.

        The number of followers is written for a later owner. If writing fails, the client may have
        to load the session later. Raises LeaseLostError.
        """
        change = RowChange(unseen=False) if self._unseen else NO_CHANGE
        self._unseen = False
        if attachment.positions:
            self._rest.take_bookmark()
            if self._followed_by > self._followers:
                self._followers = self._followed_by
                change = replace(change, followers=self._followers)
        if change is NO_CHANGE:
            return
        try:
            await self._journal.change(self._lease, change)
        except LeaseLostError as exc:
            self.lose(exc)
            raise
        except JournalError:
            log.warning("session %s: positions are not kept", self.id, exc_info=True)

    def keep_places(self, followers: int, *, in_turn: bool) -> None:
        """Keep the places of `followers` clients that the last owner cut off; they may come
        back."""
        self._followers = followers
        # Not in the future: a clock was set back, or the agent has told a time of its own.
        ago = max(0, now() - self._last_active) / 1000
        for _ in range(self._followers):
            self._rest.leave_bookmark(in_turn=in_turn, ago=ago)

    @property
    def lineage(self) -> str:
        """The lineage of the positions told here; "" if the journal has none."""
        return self._lease.lineage

    async def require_exact(self, position: int, lineage: str | None) -> None:
        """Raise InvalidParamsError unless a client can go on behind this position."""
        await self._rest.compaction_ends()
        if position and not await self._is_of_ours(lineage):
            why = "it is of a history that the journal does not have any more"
        elif position > self.last_seq:
            why = f"the session has no more than {self.last_seq}"
        elif not await self._journal.is_exact(self.id, position):
            why = "what came behind it was put together since"
        else:
            return
        raise InvalidParamsError(
            f"acphold/after: nobody can go on behind {position}: {why}; load the session",
            field="_meta.acphold/after",
        )

    async def _is_of_ours(self, lineage: str | None) -> bool:
        if lineage == self.lineage or not self.lineage:
            return True
        # While a session is owned, another process may have renewed the journal's era.
        return lineage == (await self._journal.session(self.id)).lineage

    # -- rest -----------------------------------------------------------------------------

    def rest(self) -> None:
        """Compact and index what has come, unless a turn begins at once."""
        self._rest.begin(positions=any(known.positions for known in self.attachments))

    @property
    def _followed_by(self) -> int:
        """Number of clients with positions that are here or may come back."""
        return sum(known.positions for known in self.attachments) + self._rest.bookmarks

    def wake(self) -> None:
        """Put settling off: a turn begins."""
        self._rest.end()

    async def _settle(self) -> bool:
        if self.is_listed_elsewhere:  # it is found in that list: no index has its words here
            return True
        # Compaction must not join entries across the cursor of a client that lags. Waiting for such
        # a client instead would keep the session out of the list and the search.
        apart = {seq for known in self.attachments if known.is_fed for seq in known.kept_apart}
        try:
            await self._move_up()
            await self._journal.settle(
                self._lease, self.last_seq, self._rest.end_compaction, apart=apart
            )
            # A client may have come, and lost its connection, while words were indexed.
            if self._followed_by < self._followers:
                self._followers = self._followed_by
                await self._journal.change(self._lease, RowChange(followers=self._followers))
        except LeaseLostError as exc:
            self.lose(exc)
        except JournalError as exc:
            log.warning("session %s could not be compacted: %s", self.id, exc)
            return False
        return True

    def move(self) -> None:
        """Detach everybody: the session goes on in another process, and open clients are to follow
        it."""
        open_ = [known if known.is_open else known.before for known in self.attachments]
        self.detach_all()
        for attachment in open_:
            if attachment is not None:
                attachment.moved()

    def detach_all(self) -> None:
        """Send nothing more to anybody."""
        self._rest.stop()
        if self._touching is not None:
            self._touching.cancel()
        for attachment in tuple(self.attachments):
            self.detach(attachment)

    async def aclose(self) -> None:
        """Detach everybody, settle for a moment, let go of the lease."""
        self.detach_all()
        if self._lost is not None:
            return
        try:
            await self.release()
        except JournalError as exc:
            log.error("session %s: what it told last is not in the journal: %s", self.id, exc)
        # A long history is compacted another time: a client that closes does not wait for that.
        await self._rest.aclose(CLOSE_SETTLE)
        await self._journal.release(self._lease)


def is_same_folder(one: str, other: str) -> bool:
    """Return True if two paths lead to one folder."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def now() -> int:
    """Return milliseconds since the epoch."""
    return int(time() * 1000)
