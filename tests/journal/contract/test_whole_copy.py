"""All sessions of a journal in another one: whole, the same, while they go on, and once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from random import Random

import psycopg
import pytest
import pytest_asyncio
from msgspec.structs import replace

from acphold.conversation.history.entries import FORGOTTEN, Origin, PastEntry, Segment
from acphold.errors import JournalUnavailableError, NotAJournalError
from acphold.journal import bounds
from acphold.journal.access import Share
from acphold.journal.copies import Became, copy_all
from acphold.journal.journal import Journal, Lease, is_forgotten, is_live
from acphold.journal.rows import Listed, ListFilter, NewSession, RowChange, SessionRow
from acphold.journal.stores import open_journal
from tests.conversations import chunk
from tests.journal.promises.promise import append, turn
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

EVERYTHING = ListFilter(include_unprompted=True, archived="include")


@pytest_asyncio.fixture
async def target(journal: Journal, tmp_path: Path, databases: Databases) -> AsyncIterator[Journal]:
    """A journal without sessions: in a database for one in a file, and in a file for others."""
    with databases.new() as url:
        opened = open_journal(tmp_path / "target.db" if journal.file is None else url)
        yield opened
        await opened.aclose()


async def copied(source: Journal, target: Journal) -> dict[str, Became]:
    """Copy all sessions and return the outcome of each."""
    became: dict[str, Became] = {}
    counts = await copy_all(source, target, became.__setitem__)
    assert sum(counts.values()) == len(became)
    return became


async def all_of(journal: Journal, session_id: str) -> list[Segment]:
    return await journal.read(session_id, 0, 1 << 30)


def but_lineage(row: SessionRow) -> SessionRow:
    """A row without the fields that differ in every copy."""
    assert row.lineage
    return replace(row, lineage="", home="")


async def prompted(journal: Journal, lease: Lease, *texts: str) -> None:
    """A turn in which the agent says these."""
    await append(journal, lease, turn("Go", *(chunk("agent_message", text) for text in texts)))
    await journal.change(lease, RowChange(prompted=True, updated_at=5000 + lease.next_seq))


async def over(journal: Journal, lease: Lease) -> None:
    """Nobody has it open any more."""
    await journal.settle(lease, lease.next_seq - 1)
    await journal.release(lease)


async def test_a_copy_has_everything_as_it_was(journal: Journal, target: Journal) -> None:
    origin = Origin("elsewhere", "b", 7)
    new = NewSession("s1", "a", "/w", ("/x",), created_at=1000, origins=(origin,), tenant="me")
    lease = await journal.create(new)
    for downstream_id in ("d2", "d1"):
        await journal.links.link(lease, "a", downstream_id)
    await prompted(journal, lease, "One. ", "Two.")
    await journal.settle(lease, lease.next_seq - 1)
    await prompted(journal, lease, "Three.")
    await over(journal, lease)
    await journal.change("s1", RowChange(given="Mine", archived=True, start="mark", unseen=True))
    await journal.access.keep_share(Share("s1", "you", prompts=True))
    await journal.release(await journal.create(NewSession("s0", "a", "/w")))
    unread = Listed(NewSession("s2", "c", "/w", title="Old"), "d3", 900, b"{}")
    await journal.links.enlist([unread])
    await journal.links.link(None, "a", "forgotten")

    assert await copied(journal, target) == {"s0": "new", "s1": "new", "s2": "new"}

    theirs, ours = await target.page(EVERYTHING), await journal.page(EVERYTHING)
    assert [but_lineage(row) for row in theirs] == [but_lineage(row) for row in ours]
    assert but_lineage(await target.session("s1")) == but_lineage(await journal.session("s1"))
    assert await all_of(target, "s1") == await all_of(journal, "s1")
    assert await target.links.of("s1") == [("a", "d2"), ("a", "d1")]
    assert await is_forgotten(target, "a", "forgotten")
    assert set((await copied(journal, target)).values()) == {"same"}


async def test_a_copy_that_is_made_again_writes_what_is_new_and_nothing_else(
    tmp_path: Path,
) -> None:
    place = tmp_path / "target.db"
    log = place.with_name(f"{place.name}-wal")

    async def copied_bytes(journal: Journal) -> int:
        """The bytes that one more copy adds to the log."""
        async with aclosing(open_journal(place)) as target:
            await target.count()
            before = log.stat().st_size
            await copied(journal, target)
            return log.stat().st_size - before

    async with aclosing(open_journal(tmp_path / "journal.db")) as journal:
        for number in range(40):
            lease = await journal.create(NewSession(f"s{number}", "a", "/w"))
            await prompted(journal, lease, *["x" * 2000] * 10)
            await over(journal, lease)
        whole = await copied_bytes(journal)
        assert await copied_bytes(journal) == 0
        lease = await journal.acquire("s7")
        await prompted(journal, lease, "more")
        await over(journal, lease)
        grown = await copied_bytes(journal)
        assert 0 < grown < whole / 5


async def test_of_an_open_session_goes_what_was_said_until_its_last_turn_ended(
    journal: Journal, target: Journal
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await append(journal, lease, turn("Go", chunk("agent_message", "a"))[:-1])
    assert await copied(journal, target) == {"s1": "left"}
    assert await target.count() == 0
    await append(journal, lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await append(journal, lease, turn("On", chunk("agent_message", "b"))[:-1])
    await journal.change(lease, RowChange(prompted=True))
    assert await copied(journal, target) == {"s1": "left"}
    assert (await target.session("s1")).last_seq == 3

    await append(journal, lease, turn("", chunk("agent_message", "c"))[1:])
    await over(journal, lease)
    assert await copied(journal, target) == {"s1": "grown"}
    assert await all_of(target, "s1") == await all_of(journal, "s1")


async def test_what_was_taken_out_since_the_last_copy_is_taken_out_of_that_too(
    journal: Journal, target: Journal
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w", title="My secret"))
    await append(journal, lease, [("queue", [b'{"do":"add","id":"q","prompt":"my secret"}'])])
    for words in ("One.", "My secret.", "Three."):
        await prompted(journal, lease, words)
    title = b'{"sessionUpdate":"session_info_update","title":%s}'
    await append(journal, lease, [("update", [title % b'"My secret"'])])
    await over(journal, lease)
    assert await copied(journal, target) == {"s1": "new"}
    await target.index.catch_up(10)
    assert len(await target.index.search("secret")) == 1

    lease = await journal.acquire("s1")
    instead = [(1, b'{"do":"drop","id":"q"}'), (11, title % b"null")]
    await journal.withdraw(lease, [(5, 7)], instead=instead)
    out = PastEntry(FORGOTTEN, 9000, b'{"turns":[]}')
    await journal.take_in(lease, [out], RowChange(title=None, updated_at=9000))
    await journal.release(lease)
    assert await copied(journal, target) == {"s1": "grown"}
    assert await all_of(target, "s1") == await all_of(journal, "s1")
    assert (await target.session("s1")).title is None
    assert await target.index.search("secret") == []


@contextmanager
def somebody_else_writing(location: str) -> Iterator[None]:
    """In the same server, for the block."""
    if not location.startswith("postgresql"):
        yield
        return
    with psycopg.connect(location) as line:
        line.execute("SELECT pg_current_xact_id()")
        yield


async def test_a_session_that_goes_on_while_others_are_copied_is_looked_at_again(
    journal: Journal, target: Journal, location: str
) -> None:
    leases = [await journal.create(NewSession(name, "a", "/w")) for name in ("s1", "s2")]
    for lease in leases:
        await prompted(journal, lease, "a")
        await over(journal, lease)
    told: list[str] = []

    def go_on(session_id: str, became: Became) -> None:
        told.append(f"{session_id} {became}")

    async def page(*given: object) -> object:
        found = await real(*given)  # type: ignore[arg-type]
        if told and not found:
            with somebody_else_writing(location):
                lease = await journal.acquire("s1")
                await prompted(journal, lease, "b")
                await over(journal, lease)
        return found

    real, journal.page = journal.page, page  # type: ignore[method-assign,assignment]
    counts = await copy_all(journal, target, go_on)
    assert counts == {"new": 2}
    assert await all_of(target, "s1") == await all_of(journal, "s1")


async def test_a_copy_that_was_broken_off_goes_on_and_doubles_nothing(
    journal: Journal, target: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    for _ in range(4):
        await prompted(journal, lease, "x" * 300_000)
    await over(journal, lease)
    real = target.take_in

    async def take_in(lease: Lease, *given: object) -> None:
        if lease.next_seq > 1:
            raise JournalUnavailableError("full")
        await real(lease, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "take_in", take_in)
    with pytest.raises(JournalUnavailableError):
        await copied(journal, target)
    monkeypatch.undo()
    left = await target.session("s1")
    assert 0 < left.last_seq < 12
    assert not left.prompted
    assert await copied(journal, target) == {"s1": "new"}
    assert await all_of(target, "s1") == await all_of(journal, "s1")
    assert but_lineage(await target.session("s1")) == but_lineage(await journal.session("s1"))


BROKEN_OFF = """
import asyncio, os, signal, sys
from acphold.journal.rows import NewSession
from acphold.journal.stores import open_journal

async def begin(location, created_at):
    journal = open_journal(location)
    await journal.create(NewSession("s1", "a", "/w", created_at=created_at), yields=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(begin(sys.argv[1], int(sys.argv[2])))
"""
"""A copy that is killed as soon as it has begun a session."""


async def test_a_copy_that_was_killed_leaves_no_owner_behind(
    journal: Journal, tmp_path: Path, databases: Databases
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await prompted(journal, lease, "a")
    await over(journal, lease)
    created_at = str((await journal.session("s1")).created_at)
    with databases.new() as url:
        location = str(tmp_path / "target.db") if journal.file is None else url
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BROKEN_OFF, location, created_at
        )
        assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL
        target = open_journal(location)
        assert await copied(journal, target) == {"s1": "new"}
        assert await all_of(target, "s1") == await all_of(journal, "s1")
        await target.aclose()


DIED = """
import asyncio, os, signal, sys
from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal

async def begin(location):
    journal = open_journal(location)
    lease = await journal.acquire("s1")
    await journal.append(lease, [("prompt", [b"[]"])], RowChange(prompted=True))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(begin(sys.argv[1]))
"""
"""A process that is killed in the middle of a turn."""


async def test_of_a_session_whose_process_was_killed_all_is_copied(
    journal: Journal, target: Journal, location: str
) -> None:
    await journal.release(await journal.create(NewSession("s1", "a", "/w")))
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", DIED, location)
    assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL
    async with asyncio.timeout(60):  # a database notices it a moment later, behind a pooler in 12 s
        while await is_live(journal, "s1"):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    assert await copied(journal, target) == {"s1": "new"}
    assert await all_of(target, "s1") == await all_of(journal, "s1")


async def test_what_went_on_in_the_copy_differs_and_is_left_as_it_is(
    journal: Journal, target: Journal
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await prompted(journal, lease, "a")
    await over(journal, lease)
    await copied(journal, target)
    lease = await target.acquire("s1")
    await prompted(target, lease, "b")
    await over(target, lease)
    before = await all_of(target, "s1")
    assert await copied(journal, target) == {"s1": "differs"}
    assert await all_of(target, "s1") == before


async def test_another_conversation_of_as_many_entries_is_told_to_differ(
    journal: Journal, target: Journal
) -> None:
    for store, text in ((journal, "a"), (target, "b")):
        lease = await store.create(NewSession("s1", "a", "/w", created_at=1000))
        await prompted(store, lease, text)
        await over(store, lease)
    assert await copied(journal, target) == {"s1": "differs"}


async def test_a_session_that_a_store_cannot_keep_is_told_and_the_others_are_copied(
    tmp_path: Path, databases: Databases
) -> None:
    source = open_journal(tmp_path / "journal.db")
    with databases.new() as url:
        target = open_journal(url)
        for name, cwd in (("s1", "/w\0"), ("s2", "/w")):
            lease = await source.create(NewSession(name, "a", cwd))
            await prompted(source, lease, "a")
            await over(source, lease)
        assert await copied(source, target) == {"s1": "differs", "s2": "new"}
        await target.aclose()
    await source.aclose()


async def test_the_end_of_a_crashed_session_that_is_put_together_later_is_copied_again(
    journal: Journal, target: Journal
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await prompted(journal, lease, "a")
    await over(journal, lease)
    lease = await journal.acquire("s1")
    said = [chunk("agent_message", "outside of a "), chunk("agent_message", "turn")]
    await append(journal, lease, turn("", *said)[1:-1])
    await journal.release(lease)  # and not settled: its process was killed
    assert await copied(journal, target) == {"s1": "new"}
    await target.change("s1", RowChange(given="Mine"))

    lease = await journal.acquire("s1")
    await append(journal, lease, turn("", chunk("agent_message", ", and more"))[1:-1])
    await journal.change(lease, RowChange(updated_at=1 << 50))
    await over(journal, lease)
    assert await copied(journal, target) == {"s1": "grown"}
    assert await all_of(target, "s1") == await all_of(journal, "s1")
    assert (await target.session("s1")).title == "Mine"
    assert await copied(journal, target) == {"s1": "same"}


async def test_one_that_went_on_in_the_copy_is_not_begun_again(
    journal: Journal, target: Journal
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    await prompted(journal, lease, "a")
    await over(journal, lease)
    lease = await journal.acquire("s1")
    await append(journal, lease, turn("", chunk("agent_message", "b"))[1:-1])
    await journal.release(lease)
    await copied(journal, target)
    lease = await target.acquire("s1")
    await prompted(target, lease)
    await over(target, lease)
    there = await all_of(target, "s1")

    lease = await journal.acquire("s1")
    await append(journal, lease, turn("", *[chunk("agent_message", "c")] * 9)[1:-1])
    await journal.change(lease, RowChange(updated_at=1 << 50))
    await over(journal, lease)
    assert await copied(journal, target) == {"s1": "differs"}
    assert await all_of(target, "s1") == there


async def test_a_damaged_session_is_told_and_left_out_and_the_others_are_copied(
    journal: Journal, target: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s1", "s2"):
        lease = await journal.create(NewSession(name, "a", "/w"))
        for _ in range(3):  # of which no more than one is read at once, also when it is packed
            await prompted(journal, lease, Random(1).randbytes(bounds.READ_BYTES).hex())
        await over(journal, lease)
    real = journal.read

    async def read(session_id: str, after: int, *given: object, **more: object) -> list[Segment]:
        if session_id == "s1" and after:
            raise NotAJournalError("a row is damaged")
        return await real(session_id, after, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "read", read)
    assert await copied(journal, target) == {"s1": "damaged", "s2": "new"}
    assert [row.session_id for row in await target.page(EVERYTHING)] == ["s2"]
    monkeypatch.undo()
    assert await copied(journal, target) == {"s1": "new", "s2": "same"}
