"""Two machines with a journal each, between which sessions move over connections that break."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeAlias

from acp_wire.surroundings import Surroundings
from acp_wire.transports.streams import MemoryTransport, memory_pair
from acphold.conversation.history.entries import turn_spans
from acphold.errors import AcpError, ConnectionLostError, SessionMovedError
from acphold.journal.journal import Journal, history
from acphold.journal.moves import mark_of, row_here
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stores import open_journal
from acphold.live.hub.kept_stores import stores_of
from acphold.live.hub.move_giver import give
from acphold.live.hub.move_taker import WantedPlace, take
from acphold.live.hub.moves import MovedSession
from tests.editor import DEADLINE
from tests.empty_journal import empty
from tests.raw_entries import CONVERSATION, Raw, ended, prompt, said
from tests.snapshots.conftest import Project, files


def origin(folder: Path) -> Project:
    """A repository with one commit, that both machines have clones of."""
    (folder / "origin").mkdir()
    made = Project(folder / "origin")
    made.git("init", "-q", "-b", "main")
    made.write("a.txt", "first\n")
    made.write("folder/b.txt", "second\n")
    made.commit()
    return made


ROUNDS = 6
"""Moves with a broken connection in every run."""

SOAKED = int(os.environ.get("MOVES", "20"))
"""The same in the slow ones; `make soak` has 200."""


class Machine:
    """A journal, and a clone of the project: new ones, or those that are in its folder."""

    def __init__(self, folder: Path, name: str, project: Project | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self.journal: Journal = open_journal(empty(folder / "journal.db"))
        self.clone = folder / "clone"
        if project is not None and not self.clone.exists():
            project.git("clone", "-q", str(project.top), str(self.clone))
        self.project = Project(Path(mkdtemp(dir=folder, prefix="kept")))
        self.project.top = self.clone

    async def remember(self, session_id: str, *entries: Raw, cwd: str | None = None) -> None:
        """Begin a session, or go on with it."""
        try:
            await self.journal.session(session_id)
            lease = await self.journal.acquire(session_id)
            await row_here(self.journal, lease)
        except AcpError as error:
            if isinstance(error, SessionMovedError):
                raise
            new = NewSession(session_id, "scripted", cwd or str(self.clone), title="T")
            lease = await self.journal.create(new)
        for kind, raw in entries:
            await self.journal.append(lease, [(kind, [raw])])
        await self.journal.settle(lease, lease.next_seq - 1)
        await self.journal.change(lease, RowChange(prompted=True))
        await self.journal.release(lease)

    async def keep(self, session_id: str, *, cwd: Path | None = None) -> None:
        """Keep the files at the end of the last turn."""
        self.project.top = cwd or self.clone
        self.project.stores = await stores_of(self.journal)
        taken = self.project.take()
        spans = await turn_spans(history(self.journal, session_id))
        row = TurnSnapshot(
            turn=spans[-1].first - 1,
            edge="end",
            root=str(self.project.top),
            at=5,
            state="whole",
            store=taken.store,
            tree=taken.tree,
            commit=taken.head.commit,
            left_out=tuple((one.path, one.why) for one in taken.left_out),
            left_out_count=taken.left_out_count,
        )
        await self.journal.snapshots.keep(session_id, [row])

    async def told(self, session_id: str) -> list[tuple[int, str, int, bytes]]:
        """All entries of a session up to the mark of the last move."""
        found = []
        async for segment in history(self.journal, session_id):
            found += [(it.seq, it.kind, it.at, it.raw) for it in segment.entries()]
        marks = [place for place, (_, kind, _, _) in enumerate(found) if kind == "moved"]
        return found[: marks[-1] + 1]

    async def owns(self, session_id: str) -> bool:
        """True if the session can be continued here."""
        try:
            row = await self.journal.session(session_id)
        except AcpError:
            return False
        return row.prompted and not row.moved


@asynccontextmanager
async def machines(tmp_path: Path, project: Project | None = None) -> AsyncIterator[list[Machine]]:
    made = [Machine(tmp_path / name, name, project) for name in ("here", "there")]
    try:
        yield made
    finally:
        for machine in made:
            await machine.journal.aclose()


class Cut:
    """A transport that breaks, in both directions, after so many bytes."""

    def __init__(self, inner: MemoryTransport, left: list[int], other: list[Cut]) -> None:
        self._inner = inner
        self.left = left
        self._other = other
        other.append(self)
        self.buffered = 0

    async def receive(self) -> bytes:
        return await self._inner.receive()

    def send(self, data: bytes) -> None:
        passes = data[: max(self.left[0], 0)]
        self.left[0] -= len(data)
        self._inner.send(passes)
        if self.left[0] < 0:
            for one in self._other:
                one._inner._sink.close(kept=1 << 30)

    async def drain(self) -> None:
        await self._inner.drain()

    async def aclose(self) -> None:
        await self._inner.aclose()


def cut_pair(after: int) -> tuple[Cut, Cut]:
    """Return the two ends of a connection that breaks after so many bytes."""
    near, far = memory_pair(1 << 20)
    left: list[int] = [after]
    ends: list[Cut] = []
    return Cut(near, left, ends), Cut(far, left, ends)


async def move(
    giver: Machine,
    taker: Machine,
    session_id: str = "s-1",
    place: WantedPlace | None = None,
    *,
    after: int = 1 << 40,
) -> tuple[MovedSession | AcpError, MovedSession | AcpError, int]:
    """Move a session over a connection that breaks after so many bytes; return both results, and
    how many bytes went."""
    one, other = cut_pair(after)

    async def run(work: object, end: Cut) -> MovedSession | AcpError:
        try:
            return await work  # type: ignore[misc, no-any-return]
        except AcpError as error:
            return error
        finally:
            await end.aclose()

    place = place or WantedPlace(cwd=str(taker.clone if taker.clone.exists() else taker.folder))
    async with asyncio.timeout(DEADLINE):
        given, taken = await asyncio.gather(
            run(give(giver.journal, one, session_id, taker.name, giver=giver.name), one),
            run(take(taker.journal, other, place, Surroundings.here()), other),
        )
    return given, taken, after - one.left[0]


Result: TypeAlias = MovedSession | AcpError

Move: TypeAlias = Callable[[Machine, Machine, WantedPlace, int], Awaitable[Result]]
"""Moves the session `s-1` over a connection that breaks after so many bytes."""


async def broken(giver: Machine, taker: Machine, place: WantedPlace, after: int) -> Result:
    """Move a session over a connection like that of ssh."""
    given, taken, _ = await move(giver, taker, place=place, after=after)
    assert isinstance(taken, MovedSession | ConnectionLostError), taken
    return given


async def broken_moves(
    tmp_path: Path, project: Project, rounds: int, seed: int, move: Move = broken
) -> None:
    """Move a session to and fro, the connection being cut anywhere, until both ends are equal."""
    chance = random.Random(seed)
    async with machines(tmp_path, project) as (here, there):
        for machine in (here, there):
            await machine.remember("known", *CONVERSATION)
        await here.remember("s-1", *CONVERSATION)
        giver, taker, folder = here, there, here.clone
        for number in range(rounds):
            (folder / "a.txt").write_text(f"{number} {chance.random()}\n")
            await giver.remember("s-1", prompt(f"{number}"), said("x" * 2000), ended())
            await giver.keep("s-1", cwd=folder)
            place = WantedPlace(cwd=str(taker.clone))
            least = 0
            while True:
                least += 2_000  # what is told of earlier files grows with each round
                cut = chance.randrange(chance.choice((2_000, 12_000))) + least
                given = await move(giver, taker, place, cut)
                owners = [await machine.owns("s-1") for machine in (giver, taker)]
                assert sum(owners) <= 1, (number, cut)
                assert isinstance(given, MovedSession | ConnectionLostError), (number, cut, given)
                if isinstance(given, MovedSession):
                    break
                if chance.random() < 0.3 and owners[0]:  # it goes on where it is
                    await giver.remember("s-1", prompt("meanwhile"), ended())
                    await giver.keep("s-1", cwd=folder)
            assert owners == [False, True], number
            assert await giver.told("s-1") == await taker.told("s-1")
            row = await taker.journal.session("s-1")
            assert files(Path(row.cwd)) == files(folder)
            assert mark_of(await giver.journal.session("s-1")).to
            giver, taker, folder = taker, giver, Path(row.cwd)
