"""Entries on their way into a session, and the row of the list that changes with them.

Most changes are committed together with the entries that cause them, so they are returned here and
written by the session's next publication. The time of a prompt, and the titles of an agent
that gives many, are not worth a second write within TOUCH_MS: see `HubSession._move_up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from acp_wire.surroundings import is_same_folder
from acphold.conversation.history.attributes import Attributes, fold_settings, fold_update
from acphold.conversation.history.entries import QUEUE, TURN_END, milliseconds
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue, after_entry, after_turn
from acphold.conversation.history.raw_update import CHUNK_STARTS, ROLES, update_kind
from acphold.conversation.history.titles import UNTITLED
from acphold.journal.journal import Append, Journal, Lease, Sessions
from acphold.journal.rows import NO_CHANGE, RowChange, SessionRow, merge_changes
from acphold.live.agents.interface import HubAgent, update_of
from acphold.live.hub import bounds
from acphold.live.hub.attachment import Attachment
from acphold.live.hub.prompt_turn import PromptTurn

FOLDED = frozenset({"update", "params", "settings", QUEUE, TURN_END})
"""Kinds of entries that may change the attributes or the queue of a session."""


QUEUED = frozenset({QUEUE, TURN_END})
"""Those that may change the queue."""


class Publication(Struct, frozen=True):
    """Entries of one kind; see `HubSession.publish`. `is_speech` is set if they are known to be
    speech only: then they change neither attributes nor queue."""

    kind: str
    raws: Sequence[bytes]
    author: Attachment | None = None
    then: Callable[[], None] | None = None
    change: RowChange = NO_CHANGE
    audience: Attachment | None = None
    is_speech: bool = False

    def after(self, attributes: Attributes) -> Attributes:
        """Return the attributes of the session after these entries, given those before."""
        if self.kind in ("update", "params"):
            for item in self.raws:
                raw = update_of(self.kind, item)
                if raw.startswith(CHUNK_STARTS):
                    continue
                if (update := update_kind(raw)) not in ROLES:
                    attributes = fold_update(attributes, update, raw)
        elif self.kind == "settings":
            for raw in self.raws:
                attributes = fold_settings(attributes, raw)
        return attributes

    def queue_after(self, queue: PromptQueue, last_seq: int, journal: Journal) -> PromptQueue:
        """Return the queue of the session after these entries of a journal, of a kind in QUEUED,
        which come after `last_seq`."""
        if self.kind == QUEUE:
            for seq, raw in enumerate(self.raws, last_seq + 1):
                queue = after_entry(queue, raw, seq, journal.now_ms())
        elif queue is not NO_QUEUE:
            queue = after_turn(queue, self.raws[-1], journal.now_ms())
        return queue


class Prepared(Struct, frozen=True):
    """Publications of one session on their way into the journal, with those that were held;
    `tells_queue` if they change the queue."""

    held: list[Publication]
    publications: Sequence[Publication]
    attributes: Attributes
    queue: PromptQueue
    append: Append
    tells_queue: bool


class ListedRow:
    """The row of a session that is live here, as the list of sessions shows it.

    `untitled` is True until the session has had a title. `is_kept_in_front` means that an acphold
    in front keeps the session in the same journal, too: no list shows it here. `look_soon` has
    `move_up` called in a while.
    """

    def __init__(
        self, journal: Sessions, lease: Lease, row: SessionRow, look_soon: Callable[[], None]
    ) -> None:
        self.cwd = row.cwd
        self.untitled = False
        self.is_kept_in_front = False
        self.followers = row.followers  # as the journal has it
        self._row = row  # as it was when the session was opened here
        self._additional_directories = row.additional_directories
        self._unseen = row.unseen
        self._ruled = row.ruled
        self._by_program = row.by_program if row.prompted else None
        self._journal = journal
        self._lease = lease
        self._look_soon = look_soon
        self._told = 0  # when entries alone changed it last, in ms since the epoch
        self._late = NO_CHANGE  # a title and `_meta` that the row does not say yet
        self._late_before = NO_CHANGE  # as that was before the last `entries_change`
        self._moving_up = asyncio.Lock()
        self._active = 0  # the time to show, in ms since the epoch; 0 while it is the row's
        self._touched = 0  # as the row has it
        self._is_changed_elsewhere = False  # since the last prompt: it may have been archived
        self._is_agents = False  # the agent has told it, and nothing has begun since

    @property
    def folders(self) -> tuple[str, ...]:
        """The roots: the working directory, then the additional ones."""
        return (self.cwd, *self._additional_directories)

    # -- changes that are written together with entries -----------------------------------

    def entries_change(
        self, change: RowChange, before: Attributes, after: Attributes
    ) -> RowChange | None:
        """Return the change, with what the entries themselves change in the list. Within
        TOUCH_MS of the last such change `move_up` writes that, unless there is a change anyway; so
        it does while it writes, for of two writes at once the older one may be the last. None for
        nothing."""
        if after is before:
            return None if change is NO_CHANGE else change
        its = self._late_before = self._late
        if after.title != before.title:
            self.untitled = after.title == UNTITLED
            its = replace(its, title=after.title)
        if after.meta != before.meta:
            its = replace(its, meta=after.meta or b"")
        at = milliseconds(after.updated_at)
        is_timed = after.updated_at != before.updated_at and at > 0
        if is_timed:
            self._active, self._is_agents = at, True
            self._touched = min(self._touched, at - 1)  # until it is written
        if is_timed or its is not self._late:
            waits = self._moving_up.locked()
            if change is NO_CHANGE:
                now = self._journal.now_ms()
                waits = waits or self._told <= now < self._told + bounds.TOUCH_MS
                self._told = self._told if waits else now
            if waits:
                self.put_off(its)
                return None if change is NO_CHANGE else change
            self._late = NO_CHANGE
            if is_timed:
                self._touched = at
                its = replace(its, updated_at=at)
            change = merge_changes(change, its)
        return None if change == NO_CHANGE else change

    def put_off(self, change: RowChange) -> None:
        """Have `move_up` write this, what was put off before included."""
        self._late = change
        self._look_soon()

    def put_off_again(self) -> None:
        """Put off again what was in the last `entries_change`: it was not committed."""
        if self._late_before is not NO_CHANGE or self._late is not NO_CHANGE:
            self.put_off(self._late_before)

    def prompt_change(self, title: str | None, agent: HubAgent, turn: PromptTurn) -> RowChange:
        """Return what a prompt changes in the list: the session is worth listing, and moves to the
        top.

        How `agent` was started is noted if the session belongs to it, and a session stays a
        program's while all of its turns are.

        Within TOUCH_MS of the last written change nothing is returned: see the module. `title`
        stands in the list until a turn has ended.
        """
        self.note_activity()
        is_recent = self._touched <= self._active <= self._touched + bounds.TOUCH_MS
        is_same = self._by_program is False or self._by_program is turn.is_by_program
        if is_recent and is_same and not self._is_changed_elsewhere:
            return NO_CHANGE
        by_program: bool | UnsetType = UNSET
        if not is_same:
            self._by_program = by_program = turn.is_by_program
        self._touched, self._is_changed_elsewhere = self._active, False
        shown = UNSET if title is None or not self.untitled else title
        start = agent.start if agent.start and agent.key == self._row.agent else UNSET
        return RowChange(
            title=shown,
            updated_at=self._active,
            prompted=UNSET if self.is_kept_in_front else True,
            archived=False,  # whoever goes on with it would not look for it in the archive
            start=start,
            by_program=by_program,
        )

    def question_change(self, *, by_rule: bool = False) -> RowChange:
        """Return what a question and its end change in the list: the session moves to the top, and
        answers `by_rule` are counted. Followers of the list in other processes notice it by that.
        """
        self.note_activity()
        self._ruled += by_rule
        return RowChange(updated_at=self._active, ruled=self._ruled if by_rule else UNSET)

    def end_change(self, *, is_attached: bool) -> RowChange:
        """Return what the end of a turn changes in the list: the session is unseen if nobody is
        attached; and a turn that took longer than TOUCH_MS was active until now, unless the agent
        has told the time of its last activity in it. What was put off comes along: the next owner
        looks only for what a turn left that was cut off."""
        now, change = self._journal.now_ms(), self._late
        if not self._is_agents and now > self._touched + bounds.TOUCH_MS:
            self._active = self._touched = now
            change = replace(change, updated_at=now)
        if not is_attached and not self._unseen:
            self._unseen = True
            change = replace(change, unseen=True)
        return change

    def opening_change(self) -> RowChange:
        """Return what a client that opens the session changes: it has seen what happened."""
        change = RowChange(unseen=False) if self._unseen else NO_CHANGE
        self._unseen = False
        return change

    def followers_change(self, followers: int) -> RowChange:
        """Return the change to this number of clients that may come back to their positions, which
        a later owner needs."""
        self.followers = followers
        return RowChange(followers=followers)

    # -- changes that are written by themselves -------------------------------------------

    async def change(self, change: RowChange) -> None:
        """Change what the list shows; raises JournalError."""
        await self._journal.change(self._lease, change)

    async def open_in(self, cwd: str, additional_directories: tuple[str, ...]) -> None:
        """Show these folders in the list: a client opens the session in them. Raises JournalError.

        The protocol: roots that are left out no longer belong to the session (spec v1, session
        setup, "Additional Workspace Roots").
        """
        change = NO_CHANGE
        if not is_same_folder(cwd, self.cwd):
            change = replace(change, cwd=cwd)
        if additional_directories != self._additional_directories:
            change = replace(change, additional_directories=additional_directories)
        if change != NO_CHANGE:
            await self.change(change)
            self.cwd, self._additional_directories = cwd, additional_directories

    async def move_up(self) -> None:
        """Write what was put off: the time of the last activity, a title. Raises JournalError."""
        async with self._moving_up:
            while self.is_late:
                late, active = self._late, self._active  # one may come while it is written
                is_timed = active > self._touched
                await self.change(replace(late, updated_at=active) if is_timed else late)
                self._touched = max(active, self._touched)
                if self._late is late:
                    self._late = NO_CHANGE

    # -- times ----------------------------------------------------------------------------

    def note_activity(self) -> None:
        """Note that something begins in the session now."""
        self._active, self._is_agents = self._journal.now_ms(), False

    def on_changed_elsewhere(self) -> None:
        """Note that another process changed the row: the next prompt writes to it in any case."""
        self._is_changed_elsewhere = True

    @property
    def is_late(self) -> bool:
        """True if `move_up` has something to write."""
        return self._late is not NO_CHANGE or self._active > self._touched

    @property
    def has_late_title(self) -> bool:
        """True if the row does not say the newest title yet."""
        return self._late.title is not UNSET

    @property
    def late_time(self) -> int | None:
        """The time of the last activity, in ms since the epoch, if the row does not say it yet."""
        return self._active if self._active > self._touched else None

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last activity that the journal had when the session was opened here."""
        # Not negative: a clock was set back, or the agent has told a time of its own.
        return max(0, self._journal.now_ms() - self._row.updated_at) / 1000
