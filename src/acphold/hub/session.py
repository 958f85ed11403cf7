"""One conversation while it is live here: what is published into it, and who is attached.

To publish is to commit entries to the journal, then to fold them into the state, then to deliver
them to every attachment, in this order: no client sees what a crash could undo. The lease says
that this process owns the session. When another process has taken it over, nothing more can be
published, and `on_lost` is called, once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import time
from typing import Protocol

from msgspec import UNSET
from msgspec.structs import replace

from acphold.agents import Agent
from acphold.errors import (
    InvalidParamsError,
    JournalError,
    LeaseLostError,
    UnknownSessionError,
)
from acphold.history import Segment, SessionState, ToolCall
from acphold.history import entries as entries_of
from acphold.history.attributes import Attributes
from acphold.history.children import OpenChild, child_entry, opencode_entry
from acphold.history.fold import Fold
from acphold.history.timeline import with_those_inside
from acphold.hub.annotations import (
    ended_child,
    ended_compaction,
    failed_tool,
    milliseconds,
    notice,
)
from acphold.hub.attachment import DUE, DUE_BYTES, Attachment, Client
from acphold.hub.publication import NO_CHANGE, Prepared, Publication, both
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
from acphold.journal.in_file import InFile
from acphold.schema.update_kinds import CHILD

log = logging.getLogger(__name__)

CLOSE_SETTLE = 1.0
"""Seconds to compact and index what has come when the session is closed."""

TOUCH_MS = 1000
"""How long a session may stay where it is in the list after a prompt: see `prompt_change`."""

DELETED_NOTICE = notice(
    "This session was deleted",
    "Somebody deleted it elsewhere; what you see here is not kept any more.",
    "warning",
)

TERMINALS = 4096
"""Of how many terminals, the newest, is known who has them; an agent tells of old ones no more."""

TOOLS_PAGE = 1024 * 1024
"""Bytes that are read at once to find what was told of a tool call."""


class Kept(Owners, Entries, Sessions, Links, Protocol):
    """What a live session asks of a journal."""

    @property
    def file(self) -> InFile | None:
        """As in Journal."""


class Session:
    """See the module.

    `attributes` is the small part of its state, kept live; the whole is folded from the journal
    when it is needed. `last_seq` is the end of what has been committed; `untitled` is True until
    the session has had a title. Where `is_listed_elsewhere`, an acphold in front keeps it, too, in
    the same journal: no list has it here.
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
        """Held by whoever publishes."""
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
        """Commit, fold, deliver; in this order, so that nobody sees what a crash could unsay.

        The client of `author` wrote these entries and is not told of them; `then` is done when it
        has been sent all up to here. If there is an `audience`, nobody else is told of them.
        `change` is what the list shows from now on, committed with them. Raises JournalError, and
        then nothing was delivered.
        """
        publication = Publication(kind, raws, author, then, change, audience)
        async with self.writing:
            return await self._publish(publication)

    def hold(
        self,
        kind: str,
        raws: Sequence[bytes],
        author: Attachment | None = None,
        change: RowChange = NO_CHANGE,
    ) -> None:
        """Publish this with what is published next, before it and in one transaction.

        For who knows that something follows in the same step, and calls `release` if it does not.
        """
        self._held.append(Publication(kind, raws, author, None, change, None))

    @property
    def holds_any(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    async def come_behind(self) -> None:
        """Wait until what is being published is in the journal, and what is held: for what is in no
        journal, and is told behind that all the same. Raises JournalError."""
        async with self.writing:  # which is given to those who wait for it in their order
            if self._held:
                await self._publish()

    async def release(self, first: Callable[[], None] | None = None) -> None:
        """Publish what is held, if nothing else was published since; raises JournalError.

        `first` is done once it is committed, before anybody is told.
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
        """Publish what is held and this, which is all or nothing; what is held stays so then."""
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

    # The steps of this, for who publishes in several sessions at once; `writing` is held meanwhile.

    def prepare(self, *last: Publication) -> Prepared:
        """What is held and this, as it is to be appended."""
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
        """It was not appended: what was held is held again."""
        self._held = prepared.held + self._held
        if isinstance(why, LeaseLostError):
            self.lose(why)

    def committed(self, prepared: Prepared, segments: Sequence[Segment]) -> None:
        """It is in the journal."""
        self.attributes, self.last_seq = prepared.attributes, segments[-1].last_seq

    def deliver(self, publication: Publication, segment: Segment) -> None:
        """Tell the clients of it."""
        author = publication.author
        if author is not None:  # whose client may have attached anew
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
        """The change, with what the entries themselves change in the list; None for nothing."""
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
        """What a prompt changes in the list: the session is worth listing, and first in it.

        How `agent` was started is noted if the session is its own.

        Not written at every prompt: what comes within a second of the last one is written behind
        that, all at once. `title` stands in the list until a turn is over.
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
            archived=False,
            start=start,
        )

    async def _touch_late(self) -> None:
        """Who follows the list is told of a prompt that changed no row, however long it is until
        the session comes to rest."""
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
        """What a question and its end change in the list: the session is first in it, and by that
        who follows the list in another process knows that there is something to look at."""
        self._active = now()
        return RowChange(updated_at=self._active)

    def end_change(self) -> RowChange:
        """What the end of a turn changes in the list: whether anybody has seen it."""
        if self.attachments or self._unseen:
            return NO_CHANGE
        self._unseen = True
        return RowChange(unseen=True)

    def row_changed(self) -> None:
        """Somebody else has changed its row: the next prompt writes to it whatever it changes."""
        self._touched = 0

    def turn_over(self) -> None:
        """The last turn of the queue has ended."""
        self._active = now()
        self.rest()

    # -- reading --------------------------------------------------------------------------

    async def read(self, after: int, limit_bytes: int) -> list[Segment]:
        """Committed segments above `after`, at least one; LeaseLostError when they are gone."""
        # Before rows are rewritten or after it, never some of each; and who is told of a page is
        # behind it before it is looked up where everybody is.
        async with self._rest.reading():
            page = await self._journal.read(self.id, after, limit_bytes)
        if self._lost is not None or not page:
            # Deleted, or taken elsewhere, meanwhile: what the id now means is not this session.
            raise self._lost or LeaseLostError(self.id, deleted=True)
        return page

    async def state(self, *, through: int) -> SessionState:
        """All entries up to `through`, folded."""
        return await state_of(self._journal, self.id, through)

    async def close_open(self, why: str, since: int = 0, *, cancelled: bool = False) -> None:
        """Publish the end of what nobody will report the end of any more, and why.

        These are tool calls, with what was told of them behind `since`, compactions, and sub-agents
        with such things of their own.
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

    async def close_children(
        self, why: str, open_children: Sequence[OpenChild], *, cancelled: bool = False
    ) -> None:
        """Publish the end of sub-agents, of the innermost first, and of what is open in them."""
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
        """The tool calls by their ids, as far as told behind `since`."""
        folding = Fold()
        while since < self.last_seq:
            page = await self.read(since, TOOLS_PAGE)
            for segment in page:
                if b'"toolCallId"' in segment.raw:
                    for entry in segment.entries():
                        folding.add(entry)
            since = page[-1].last_seq
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
        """A client opens it in these folders: the list shows them from now on.

        The protocol: roots that are left out are none of the session any more (spec v1, session
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
        """Whether another process owns this session now, or it was deleted."""
        return self._lost is not None

    def require_owned(self) -> None:
        """LeaseLostError if it was found to be lost."""
        if self._lost is not None:
            raise self._lost

    async def verify(self) -> None:
        """LeaseLostError unless this process still owns the session."""
        with suppress(UnknownSessionError):
            if (await self._journal.owner(self.id)).epoch == self._lease.epoch:
                return
        for lost in await self._journal.renew([self._lease]):  # which tells what became of it
            self.lose(lost)
            raise lost

    @property
    def is_far(self) -> bool:
        """Whether a look at the journal takes as long as a commit: it is in a database."""
        return self._journal.file is None

    @property
    def lease(self) -> Lease:
        """That under which it is written."""
        return self._lease

    def lose(self, error: LeaseLostError) -> None:
        """Another process has taken it, or deleted it."""
        if self._lost is None:
            self._lost = error
            self._on_lost(error)

    # -- clients --------------------------------------------------------------------------

    def attach(
        self, client: Client, after: int, live_after: int, *, positions: bool = False
    ) -> Attachment:
        """An attachment that is held until its client has the answer that opens the session.

        It replaces what the client has already; in one step, so that no client ever has two.
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
        """It could not be opened: its client has what it had before; whether it had anything."""
        if (before := attachment.before) is None or attachment not in self.attachments:
            return False
        self.attachments[self.attachments.index(attachment)] = before
        before.take_back(attachment)
        return True

    def open_to(self, attachment: Attachment) -> None:
        """Its client has the answer that opens the session: tell it what is new."""
        attachment.open()
        for method, params in self._untold:
            attachment.tell(method, params)
        self._untold.clear()

    def tell(self, method: str, params: bytes, *, about_child: bool = False) -> None:
        """Pass a notification that is no update to all clients; not kept in the journal.

        One about a sub-agent is for those that show sub-agents, if any is there.
        """
        for attachment in self.attachments:
            if not (about_child and CHILD in attachment.client.offer.withheld):
                attachment.tell(method, params)
        if about_child or self.attachments:
            return
        # Right behind the agent's answer to session/new nobody is attached yet.
        size = len(params) + sum(len(kept) for _, kept in self._untold)
        if len(self._untold) < DUE and size < DUE_BYTES:
            self._untold.append((method, params))
        else:
            log.warning("session %s: %s dropped: nobody is attached", self.id, method)

    def made_terminal(self, terminal: str, owner: Client | None) -> None:
        """A terminal was made at this client, None for here: nobody else can show it."""
        self.terminals[terminal] = owner
        if len(self.terminals) > TERMINALS:
            del self.terminals[next(iter(self.terminals))]

    def tell_deleted(self, but: Client | None = None) -> None:
        """Tell all clients but one that the session is gone for good."""
        self.tell_last(DELETED_NOTICE, lambda client: client is but)

    def tell_last(self, update: bytes, knows: Callable[[Client], bool]) -> None:
        """Tell what is not journalled to all clients but those that know; nothing comes behind."""
        for attachment in self.attachments:
            if attachment.is_open and not knows(attachment.client):
                attachment.tell_last(update)

    def find(self, client: Client) -> Attachment | None:
        """The attachment of this client, if it has one."""
        for known in self.attachments:  # a loop: asked for several times in each turn
            if known.client is client and known.is_fed:
                return known
        return None

    def attachment_of(self, client: Client) -> Attachment:
        """The attachment of this client; UnknownSessionError when it has none."""
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
        """The connection of its client was lost: it may come back to where it was."""
        if attachment.positions:
            self._rest.leave_bookmark(in_turn=in_turn)

    async def be_followed(self, attachment: Attachment) -> None:
        """It is let in: what happened is seen; and it has its position back, which a later owner is
        to keep, too.

        If that cannot be written, the client may have to load the session then. Raises
        LeaseLostError.
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
        """It has a new owner: whoever the last one had cut off may come back, so many clients."""
        self._followers = followers
        # Not in the future: a clock was set back, or the agent has told a time of its own.
        ago = max(0, now() - self._last_active) / 1000
        for _ in range(self._followers):
            self._rest.leave_bookmark(in_turn=in_turn, ago=ago)

    async def require_exact(self, position: int) -> None:
        """Raise InvalidParamsError unless a client can go on behind this position."""
        await self._rest.compaction_ends()
        if position > self.last_seq:
            why = f"the session has no more than {self.last_seq}"
        elif not await self._journal.is_exact(self.id, position):
            why = "what came behind it was put together since"
        else:
            return
        raise InvalidParamsError(
            f"acphold/after: nobody can go on behind {position}: {why}; load the session",
            field="_meta.acphold/after",
        )

    # -- rest -----------------------------------------------------------------------------

    def rest(self) -> None:
        """Compact and index what has come, unless a turn begins at once."""
        self._rest.begin(positions=any(known.positions for known in self.attachments))

    @property
    def _followed_by(self) -> int:
        """How many clients with positions are here, or may come back."""
        return sum(known.positions for known in self.attachments) + self._rest.bookmarks

    def wake(self) -> None:
        """A turn begins: what waits to settle waits on."""
        self._rest.end()

    async def _settle(self) -> bool:
        if self.is_listed_elsewhere:  # and found there: here its words are in no index
            return True
        # Nobody reads on before it is compacted, and a client that lags goes on behind its cursor
        # then: one that reads nothing is not to keep what was said out of the list and the search.
        apart = {seq for known in self.attachments if known.is_fed for seq in known.kept_apart}
        try:
            await self._move_up()
            await self._journal.settle(
                self._lease, self.last_seq, self._rest.end_compaction, apart=apart
            )
            # Somebody may have come, and been cut off, while words were indexed.
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
        """It goes on in another process: whoever has it open here is to follow it there."""
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
        # A long history is compacted another time: who closes it does not wait for that.
        await self._rest.aclose(CLOSE_SETTLE)
        await self._journal.release(self._lease)


def is_same_folder(one: str, other: str) -> bool:
    """Whether two paths lead to one folder."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def now() -> int:
    """Milliseconds since the epoch."""
    return int(time() * 1000)
