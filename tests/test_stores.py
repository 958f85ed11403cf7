"""A third-party store: opened by its URL, and judged by the promises of journals."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

import acphold
from acphold import stores
from acphold.errors import JournalUnavailableError
from acphold.journal.sqlite.store import SqliteJournal
from acphold.testing import JOURNAL_PROMISES, JournalPromise
from tests.journal.conversations import begun


class Tiny(SqliteJournal):
    """A third-party store, kept short."""

    file = None  # type: ignore[assignment]


class Forgetful(Tiny):
    """A store that lets a session's former owner write to it."""

    async def append(
        self,
        lease: stores.Lease,
        runs: Iterable[stores.Run],
        change: stores.RowChange | None = None,
    ) -> list[stores.Segment]:
        lease.epoch = (await self.owner(lease.session_id)).epoch
        return await super().append(lease, runs, change)


def promise(words: str) -> JournalPromise:
    [found] = [it for it in JOURNAL_PROMISES if it.name == words]
    return found


async def test_a_store_that_keeps_them_passes_and_one_that_has_no_fence_fails_where_it_has_none(
    tmp_path: Path,
) -> None:
    fence = promise("the old owner writes nothing after a takeover")
    words = promise("all words must be there in any order")
    await words.check(lambda: Tiny.open(tmp_path / "1.db"))
    await fence.check(lambda: Tiny.open(tmp_path / "2.db"))
    await words.check(lambda: Forgetful.open(tmp_path / "3.db"))
    with pytest.raises(AssertionError, match="raised no LeaseLostError"):
        await fence.check(lambda: Forgetful.open(tmp_path / "4.db"))


class Nameless(Tiny):
    """One that keeps no titles."""

    async def session(self, session_id: str, *, counted: bool = False) -> stores.SessionRow:
        return replace(await super().session(session_id, counted=counted), title=None)


async def test_a_broken_promise_says_what_should_hold_and_what_is(tmp_path: Path) -> None:
    new = promise("a new session is as it was created")
    with pytest.raises(AssertionError) as caught:
        await new.check(lambda: Nameless.open(tmp_path / "1.db"))
    told = str(caught.value)
    assert told.startswith("The store breaks a promise: a new session is as it was created.\n")
    assert 'assert (row.title, row.created_at, row.updated_at) == ("Title", 1234, 1234)' in told
    assert "    row = SessionRow(session_id='s1', agent='gemini'" in told


def test_the_promises_have_names_of_their_own() -> None:
    names = [it.name for it in JOURNAL_PROMISES]
    assert len({*names}) == len(names) > 100


async def test_a_store_is_opened_for_the_scheme_that_it_has_claimed(tmp_path: Path) -> None:
    asked: list[tuple[str, bool]] = []

    def open_tiny(
        url: str, *, create: bool, read_transcript: stores.ReadTranscript | None
    ) -> stores.Journal:
        asked.append((url, create))
        return Tiny.open(tmp_path / url.removeprefix("tiny://"), create=create)

    stores.register("tiny", open_tiny)
    agent = acphold.Agent("echo", version="1")

    @agent.prompt
    async def echo(turn: acphold.Turn) -> None:
        await turn.say(f"you said {turn.text}")

    async with agent.server(journal="tiny://here.db") as server:
        assert server is not None
    assert asked == [("tiny://here.db", True)]
    journal = stores.open_journal("tiny://here.db", create=False)
    try:
        await begun(journal)
    finally:
        await journal.aclose()


async def test_a_package_offers_its_store_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_store.py"
    package.write_text(
        "from acphold.journal.sqlite.store import SqliteJournal\n"
        "def open_mine(url, *, create, read_transcript):\n"
        f"    return SqliteJournal.open({str(tmp_path / 'mine.db')!r}, create=create)\n"
    )
    about = tmp_path / "my_store-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-store\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[acphold.stores]\nmine = my_store:open_mine\nbroken = my_store:no_such\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    journal = stores.open_journal("mine://anything")
    await begun(journal)
    await journal.aclose()
    assert (tmp_path / "mine.db").exists()
    with pytest.raises(JournalUnavailableError, match=r"broken:// journals .* cannot be loaded"):
        stores.open_journal("broken://x")


def test_a_scheme_that_nobody_has_claimed_is_refused_without_telling_the_url() -> None:
    with pytest.raises(JournalUnavailableError, match="no store for mysql://") as caught:
        stores.open_journal("mysql://me:secret@host/db")
    assert "secret" not in str(caught.value)
