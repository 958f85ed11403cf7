"""Snapshots of a session's files at both ends of its turns.

    begin   begun as the prompt is sent; the prompt does not wait for it
    end     taken in the background after the answer was sent

A snapshot is whole if it ended before the agent said anything in the turn that had begun, and late
if the agent was at work: it had reported a tool call or asked for one. In between it is likely
whole: no agent writes before its model has answered, but its hooks may. A prompt that comes before
the snapshot behind the last turn is taken shares that one: nothing has happened between the two.
All turns that begin or end while a snapshot waits for an earlier one share it; it is late for all
but the last end, and the beginning behind it.

Only for folders in git repositories, unless all folders are wanted. The row is written once the
files are in the store. The first time in a project, a notice says so; another one says when a
folder is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire.schema import READ_TEXT_FILE
from acp_wire.tasks import TaskSet, end
from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.raw_update import CHUNK_STARTS
from acphold.errors import AcpError
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import Journal
from acphold.journal.seams import SnapshotState, TurnSnapshot
from acphold.live.agents.interface import AgentRequest, HubAgent, Updates
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.session import HubSession
from acphold.safety.snapshots import bounds as snapshot_bounds

if TYPE_CHECKING:  # late below: an editor waits for the start, and most sessions keep no files
    from acphold.safety.snapshots.checkouts import Checkout
    from acphold.safety.snapshots.snapshot import NotTaken, Taken
    from acphold.safety.snapshots.store import Stores

Edge: TypeAlias = Literal["begin", "end"]

T = TypeVar("T")

log = logging.getLogger(__name__)

KEPT = "Files are kept with each turn"
KEPT_HOW = "`acphold help files`"

NOT_KEPT = "Files are not kept with the conversation"
NOT_KEPT_HOW = (
    "{}: {}. acphold tries again in a day, or when the project changes. "
    "`snapshots = false` in the settings turns snapshots off, for all agents or for one."
)


class _TakenRow(Struct, frozen=True):
    """The row of a snapshot; `is_full`: there was no room for it; `is_last`: the folder is left
    alone from now on."""

    row: TurnSnapshot
    is_full: bool = False
    is_last: bool = False


class FileKeeper(Struct, eq=False):
    """Takes the snapshots of all sessions at a desk: `wanted` is the option `snapshots`."""

    _journal: Journal
    wanted: bool | Literal["all"]
    _agent: HubAgent
    _threads: Threads = field(default_factory=lambda: Threads(bounds.SNAPSHOTS_AT_ONCE))
    _taking: TaskSet = field(default_factory=TaskSet)
    _failures: Counter[str] = field(default_factory=Counter)
    _tidying: asyncio.Task[None] | None = None
    _is_untidy: bool = False
    _is_ending: bool = False

    def roots(self, folders: tuple[str, ...]) -> list[Checkout]:
        """The work trees of these folders that are kept; blocks."""
        from acphold.safety.snapshots.checkouts import Checkout, checkout_of

        found: dict[str, Checkout] = {}
        for folder in folders:
            checkout = checkout_of(folder)
            if checkout is None and self.wanted == "all":
                checkout = Checkout(os.path.realpath(folder))
            if checkout is not None and self._failures[checkout.top] < snapshot_bounds.REFUSALS:
                found[checkout.top] = checkout
        return [*found.values()]

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin some work; the end of the process waits for it."""
        return self._taking.start(work, "snapshot")

    def tidy(self) -> None:
        """Begin the upkeep of the stores in the background; after one that is running."""
        self._is_untidy = True

        async def work() -> None:
            # Late: rarely needed, and the start waits for it.
            from acphold.live.hub.kept_stores import tidy

            while self._is_untidy:
                self._is_untidy = False
                try:
                    await tidy(self._journal)
                except Exception:
                    log.exception("cannot clean up the kept files")

        if self._tidying is None or self._tidying.done():
            self._tidying = self.start(work())

    async def take(
        self,
        session: HubSession,
        moments: Sequence[Moment],
        roots: list[Checkout],
        state: Callable[[Moment], SnapshotState],
    ) -> None:
        """Take snapshots of these folders. `moments` are the ends of turns that they are of, in
        order; while they are taken, one more may be added. `state` says how sure that is once they
        are. Raises AcpError and OSError."""
        from acphold.live.hub.kept_stores import is_due, stores_of

        stores = await stores_of(self._journal)
        first = moments[0]
        taken = [await self._take(stores, root, first) for root in roots]
        for _ in range(2):  # what the agent has said by now is in our pipe: read it first
            await asyncio.sleep(0)
        found = [it.row for it in taken]
        rows: list[TurnSnapshot] = []
        for moment in tuple(moments):
            its_state = state(moment)
            for row in found:
                if row.is_kept:
                    row = replace(row, state=its_state)
                rows.append(replace(row, turn=moment.turn, edge=moment.edge))
        last = (await self._journal.snapshots.newest([session.id])).get(session.id)
        if last is not None and first.edge == last.edge == "begin" and last.turn < first.turn:
            # The process ended in the turn before, and could not take its end.
            later = [row for row in rows if row.is_kept]
            rows += [replace(row, turn=last.turn, edge="end", state="later") for row in later]
        await self._journal.snapshots.keep(session.id, rows)
        given_up = [it.row for it in taken if it.is_last]
        notices = [notice(NOT_KEPT, NOT_KEPT_HOW.format(row.root, row.reason)) for row in given_up]
        for row in found:
            if row.is_kept and (store := stores.find(row.store)) is not None:
                store.was_named(row.tree)
                if len(session.attachments) and stores.is_news():
                    notices.append(notice(KEPT, KEPT_HOW))
        if notices:
            await session.publish("update", notices)
        if any(it.is_full for it in taken) or (first.edge == "begin" and is_due(stores)):
            self.tidy()  # while the agent works

    async def _take(self, stores: Stores, root: Checkout, moment: Moment) -> _TakenRow:
        """Take the snapshot of a folder at a moment."""
        from acphold.safety.snapshots.snapshot import NotTaken, take

        file = self._journal.file
        own = () if file is None else (file.path, f"{file.path}-wal", f"{file.path}-shm")
        row = TurnSnapshot(
            turn=moment.turn,
            edge=moment.edge,
            root=os.fsencode(root.top).decode(errors="replace"),
            at=now_ms(),
            state="whole",
        )

        surroundings = self._agent.surroundings

        def work(checkpoint: Checkpoint) -> Taken | NotTaken:
            return take(
                *(stores, root, surroundings),
                spared=own,
                gently=moment.edge == "end",
                checkpoint=checkpoint,
                is_ending=lambda: self._is_ending,
            )

        taken = await self._threads.run_in_steps(work)
        if isinstance(taken, NotTaken):
            row = replace(row, state="refused", reason=taken.reason)
            # The person is to learn that this folder is left alone from now on. The store remembers
            # it; without one, as for a missing git, this process.
            gives_up = False
            if taken.cause in ("folder", "git", "home", "slow", "given up"):
                times = self._failures[root.top] = max(self._failures[root.top] + 1, taken.times)
                if times == snapshot_bounds.REFUSALS and taken.cause != "given up":
                    log.warning("no longer keeping the files in %s: %s", row.root, taken.reason)
                    gives_up = taken.cause != "home"
            return _TakenRow(row, taken.cause == "full", gives_up)
        self._failures[root.top] = 0
        left_out = taken.left_out[: journal_bounds.LEFT_OUT_NAMED]
        row = replace(
            row,
            store=taken.store,
            tree=taken.tree,
            commit=taken.head.commit,
            branch=taken.head.branch,
            files=taken.added,
            size=taken.size,
            left_out=tuple((it.path, it.why) for it in left_out),
            left_out_count=taken.left_out_count,
        )
        return _TakenRow(row)

    async def aclose(self) -> None:
        """Finish the last snapshots, within a bound. The rest, as a first snapshot and the upkeep,
        is for whoever comes next."""
        self._is_ending = True
        await end(self._tidying)
        await self._taking.finish(bounds.LAST_SNAPSHOTS_SECONDS)


class Moment(Struct, frozen=True):
    """An end of a turn; `turn` is the last entry before its prompt."""

    turn: int
    edge: Edge


class AgentNews(Enum):
    """The most that the agent has said since it got its last prompt: nothing, something, or that it
    is at work or done. The value is the state of a snapshot that ends then."""

    NOTHING = "whole"
    WORDS = "likely"
    WORK = "late"


READS = frozenset({READ_TEXT_FILE.name})
"""Requests by which an agent changes nothing; neither does a question."""


class _Taking(Struct, eq=False):
    """Snapshots that are taken, or will be: of some folders, for some ends of turns, in order.
    While it `is_waiting` for earlier ones, all further ends of turns share them; until it is no
    longer `is_open`, the next beginning does."""

    folders: tuple[str, ...]
    moments: list[Moment]
    roots: list[Checkout] = []
    is_waiting: bool = True
    is_open: bool = True


class TurnFiles(Struct, eq=False):
    """The files of one session, whose turns run one after the other."""

    _keeper: FileKeeper
    _session: HubSession
    _looking: asyncio.Task[list[Checkout]] | None = None
    _without: tuple[str, ...] = ()  # folders in which no work tree was found
    _without_until: float = 0.0
    _last: asyncio.Task[None] | None = None
    _newest: _Taking | None = None
    _begun: tuple[int, _Taking] | None = None
    _turn: int = -1  # the one whose prompt the agent has got last
    _last_turn: int = -1  # the one before
    _news: AgentNews = AgentNews.NOTHING

    def hear(self, updates: Updates, *, is_speech: bool) -> None:
        """Note what the agent says."""
        if self._news is AgentNews.NOTHING:
            self._news = AgentNews.WORDS
        if self._news is AgentNews.WORDS and not is_speech:
            for raw in updates.raws:
                if not raw.startswith(CHUNK_STARTS) and b'"tool_call' in raw:
                    self._news = AgentNews.WORK

    def hear_request(self, asked: AgentRequest) -> None:
        """Note what the agent asks for."""
        if not asked.is_decision and asked.method not in READS:
            self._news = AgentNews.WORK
        elif self._news is AgentNews.NOTHING:
            self._news = AgentNews.WORDS

    def begin(self, turn: int, folders: tuple[str, ...]) -> None:
        """Begin to take snapshots at the beginning of a turn, as its prompt is sent."""
        self._last_turn, self._turn, self._news = self._turn, turn, AgentNews.NOTHING
        moment, newest = Moment(turn, "begin"), self._newest
        if newest is not None and newest.is_open and newest.folders == folders:
            newest.moments.append(moment)
        elif not self._keeper.wanted or (self._looking is not None and not self._looking.done()):
            return  # a disk, as a network one, hangs
        elif folders == self._without and time.monotonic() < self._without_until:
            return
        else:
            newest = _Taking(folders, [moment])
            looking = Threads(1).run(self._keeper.roots, folders)
            self._looking = self._keeper.start(looking)
            self._start(newest, self._looking)
        self._begun = (turn, newest)

    def end(self, turn: int) -> None:
        """Take snapshots at the end of a turn that had some at its beginning."""
        if self._turn == turn:
            self._news = AgentNews.WORK
        begun, self._begun = self._begun, None
        if begun is None or begun[0] != turn:
            return
        if begun[1].is_waiting:
            begun[1].moments.append(Moment(turn, "end"))
        else:
            ended = _Taking(begun[1].folders, [Moment(turn, "end")])
            self._start(ended, begun[1])

    def _start(self, taking: _Taking, roots: asyncio.Task[list[Checkout]] | _Taking) -> None:
        """Take them after earlier ones, so that rows are written in order."""
        before, self._newest = self._last, taking

        def state(moment: Moment) -> SnapshotState:
            taking.is_open = False
            if moment == Moment(self._turn, "end"):
                return "whole"
            # Only the last end of a turn and the beginning of this one are of the same files.
            last = (Moment(self._last_turn, "end"), Moment(self._turn, "begin"))
            return self._news.value if moment in last else "late"

        async def work() -> None:
            if before is not None and not before.done():
                await asyncio.wait([before])
            try:
                if isinstance(roots, _Taking):
                    taking.roots = roots.roots
                else:
                    taking.roots = await roots
                    if not taking.roots:
                        self._without = taking.folders
                        self._without_until = time.monotonic() + bounds.NO_WORK_TREE_SECONDS
                taking.is_waiting = False
                if taking.roots:
                    await self._keeper.take(self._session, taking.moments, taking.roots, state)
            except (AcpError, OSError) as exc:
                log.warning("session %s: cannot keep its files: %s", self._session.id, exc)
            except Exception:  # nobody awaits this task
                log.exception("session %s: cannot keep its files", self._session.id)
            finally:
                taking.is_open = taking.is_waiting = False

        self._last = self._keeper.start(work())
