"""A text that a person has removed stands nowhere in the journal, and comes back with nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from acphold.conversation.history.entries import FORGOTTEN_TEXT, PastEntry
from acphold.journal.journal import Journal, history
from acphold.journal.removal import BlankedSessions, blank_sessions, note
from acphold.journal.rows import ListFilter, Marks, NewSession, RowChange, WholeSession
from acphold.journal.stores import open_journal
from tests.raw_entries import Raw, ended, plan, prompt, said, update

SECRET = "sk-SEKRET77xyz"
STORY: tuple[Raw, ...] = (
    prompt(f"the key is {SECRET}"),
    said("I see sk-SEK"),
    said("RET77xyz, fine"),
    update("tool_call", toolCallId="c1", title="Read", rawInput={"key": SECRET}),
    update("session_info_update", title=f"About {SECRET}", _meta={"key": SECRET}),
    plan("pending"),
    ("queue", b'{"do":"add","id":"q1","prompt":%s}' % prompt(SECRET)[1]),
    ended(),
)


async def make(
    journal: Journal, session_id: str, tenant: str = "", story: tuple[Raw, ...] = STORY
) -> None:
    lease = await journal.create(NewSession(session_id, "demo", "/work", tenant=tenant))
    await journal.append(lease, [(kind, [raw]) for kind, raw in story])
    if story is STORY:
        meta = b'{"key":"sk-SEKRET77xyz"}'
        change = RowChange(title=f"About {SECRET}", prompted=True, meta=meta)
        await journal.change(lease, change)
    await journal.settle(lease, lease.next_seq - 1)
    await journal.release(lease)


async def everything(journal: Journal) -> str:
    """All that can be read of the sessions."""
    rows = await journal.page(ListFilter(include_unprompted=True, archived="include"))
    told = [str(row) for row in rows]
    for row in rows:
        told.append(str(await journal.summary(row.session_id)))
        told += [it.raw.decode() async for it in history(journal, row.session_id)]
    told += [str(await journal.index.search(word)) for word in ("SEKRET77xyz", "RET77xyz")]
    return "\n".join(told)


async def remove(journal: Journal) -> BlankedSessions:
    return await blank_sessions(journal, await note(journal, SECRET))


async def test_it_goes_from_entries_titles_tags_queue_and_index_of_all_tenants(
    journal: Journal,
) -> None:
    await make(journal, "s1")
    await make(journal, "s2", tenant="eve")
    await make(journal, "s3", story=(prompt("nothing"), said("to see"), ended()))
    await journal.change("s3", RowChange(given="Mine"))
    await journal.mark("s2", Marks(added=(SECRET,)))
    before = await journal.session("s3")
    assert "SEKRET77xyz" in await everything(journal)
    done = await remove(journal)
    assert (done.sessions, done.places > 8, done.left) == (2, True, {})
    told = await everything(journal)
    assert "SEKRET" not in told
    assert "the key is [removed: forgotten]" in told
    assert "I see [removed: forgotten], fine" in told
    assert (await journal.session("s1")).title == "About [removed: forgotten]"
    assert [row.waiting for row in [(await journal.summary("s1")).queue]] != [()]
    assert await journal.session("s3") == before
    assert await remove(journal) == BlankedSessions()
    assert len([mark for kind, mark in await journal.links.of(None) if kind == FORGOTTEN_TEXT]) == 1
    # Its agent may call it so again, from its own copy.
    await journal.change("s1", RowChange(title=f"About {SECRET}"))
    assert (await journal.session("s1")).title == "About [removed: forgotten]"


async def test_a_title_alone_is_overwritten_too(journal: Journal) -> None:
    await make(journal, "s1", story=(prompt("nothing"), ended()))
    await journal.change("s1", RowChange(given=f"My {SECRET}"))
    entries = [it async for it in history(journal, "s1")]
    assert (await remove(journal)).places == 1
    assert (await journal.session("s1")).title == "My [removed: forgotten]"
    assert [it async for it in history(journal, "s1")] == entries
    assert journal.file is None or await journal.file.unswept() == 1


async def test_what_is_taken_in_later_comes_without_it(journal: Journal) -> None:
    await remove(journal)
    past = [PastEntry(kind, 1000, raw) for kind, raw in STORY]
    titled = RowChange(title=f"About {SECRET}", prompted=True)
    lease = await journal.create(NewSession("s1", "demo", "/work"))
    await journal.take_in(lease, past, titled)
    await journal.release(lease)
    new = NewSession("s2", "demo", "/work", title=f"About {SECRET}")
    await journal.add_whole([WholeSession(new, past, RowChange(given=f"The {SECRET}"), [])])
    await journal.index.catch_up(10)
    assert "SEKRET77xyz" not in await everything(journal)


async def test_a_session_that_is_open_is_left_and_said(journal: Journal, location: str) -> None:
    await make(journal, "s1")
    await make(journal, "s2")
    other = open_journal(location)
    await other.acquire("s1")
    done = await remove(journal)
    assert (done.sessions, done.left) == (1, {"s1": "it is open"})
    await other.aclose()
    assert (await remove(journal)).sessions == 1
    assert "SEKRET77xyz" not in await everything(journal)


async def test_wherever_it_ends_the_next_one_ends_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in range(1, 30):
        await make(journal, f"s{count}", story=STORY)
        left = [count]

        def ending(write: Callable[..., Awaitable[Any]], left: list[int] = left) -> Any:
            async def one(*words: Any, **options: Any) -> Any:
                left[0] -= 1
                if not left[0]:
                    raise KeyboardInterrupt
                return await write(*words, **options)

            return one

        with monkeypatch.context() as patch:
            for name in ("withdraw", "settle", "change", "acquire"):
                patch.setattr(journal, name, ending(getattr(journal, name)))
            try:
                await remove(journal)
            except KeyboardInterrupt:
                lease = await journal.acquire(f"s{count}")
                await journal.release(lease)
        await remove(journal)
        assert "SEKRET77xyz" not in await everything(journal), count
        if left[0] > 0:
            return
    pytest.fail("it never ends")
