"""The list of sessions as a stream: the list, then its changes, for any number of watchers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from acp_wire.transports.streams import memory_pair
from acphold.conversation.history.entries import now_ms
from acphold.journal.access import token_id
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stores import open_journal
from acphold.live.reading.processes import LiveSession, Process, processes
from acphold.live.server.principals import THIS_USER
from acphold.live.server.service import Service
from acphold.serve_options import ServeOptions
from acphold.web import list_feed
from tests.hub.shared import PERMISSION, InMemory, Person, PuppetAgent
from tests.web.in_process import Site, site
from tests.web.test_journal_pages import said

FEED = "/sessions/feed"


class Watching:
    """A watcher of the list: the events, in order."""

    def __init__(self) -> None:
        self._unread = b""
        self.head: dict[str, Any] = {}
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.position = ""
        self.row: dict[str, Any] = {}
        self.beats = 0
        self.serving: asyncio.Future[None]

    async def next(self) -> tuple[str, Any]:
        """The next event, and its data."""
        async with asyncio.timeout(30):
            while True:
                while b"\n\n" not in self._unread:
                    self._unread += await self.arrived.get()
                event, _, self._unread = self._unread.partition(b"\n\n")
                if event == b":":
                    self.beats += 1
                    continue
                fields = dict(line.split(": ", 1) for line in event.decode().split("\n"))
                self.position = fields["id"]
                return fields["event"], json.loads(fields["data"])

    async def until(self, wanted: str, **facts: object) -> Any:
        """The next change of this session with these facts in its row."""
        while True:
            _, told = await self.next()
            row = told.get("session", {})
            if row.get("sessionId") == wanted and facts.items() <= row.items():
                self.row = row
                return row

    async def until_state(self, wanted: str, state: str | None) -> None:
        """The next change in which this goes on in this session; None once it is not live."""
        while True:
            live = (await self.until(wanted))["live"]
            if state == (live and live["state"]):
                return


@asynccontextmanager
async def watching(web: Site, token: str | None = None, **headers: str) -> AsyncIterator[Watching]:
    """Watch for the block."""
    watcher = Watching()
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            watcher.head = message
        else:
            watcher.arrived.put_nowait(message.get("body", b""))

    scope = web.scope(FEED, token, "GET", headers)
    watcher.serving = asyncio.ensure_future(web.app(scope, receive, send))
    try:
        yield watcher
    finally:
        gone.set()
        async with asyncio.timeout(30):
            await watcher.serving


async def test_who_watches_is_told_what_is_there_and_what_changes(web: Site) -> None:
    await web.remember("s1", said(1), title="One")
    async with watching(web) as watcher:
        event, told = await watcher.next()
        assert event == "snapshot"
        assert told == (await web.get("/sessions?said=true")).json
        assert (told["sessions"][0]["outcome"], told["sessions"][0]["live"]) == ("completed", None)
        await web.remember("s2", said(2))
        await watcher.until("s2", outcome="completed")
        await web.journal.change("s1", RowChange(given="Another"))
        assert (await watcher.until("s1", title="Another"))["agent"] == "scripted"
        await web.journal.change("s1", RowChange(archived=True))
        await watcher.until("s1", archived=True)
        await web.journal.delete("s2")
        while (await watcher.next())[1] != {"gone": "s2"}:
            pass
    async with watching(web) as later:
        assert await later.next() == ("snapshot", {"sessions": []})


async def test_it_is_told_if_there_are_older_sessions(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.SNAPSHOT_SESSIONS", 2)
    for number in range(3):
        await web.remember(f"s{number}", said(number))
    async with watching(web) as watcher:
        _, told = await watcher.next()
        assert (len(told["sessions"]), told["more"]) == (2, True)


async def test_who_comes_back_is_told_what_was_missed_and_nothing_twice(web: Site) -> None:
    await web.remember("s1", said(1))
    async with watching(web) as watcher, watching(web) as other:
        await watcher.next()
        await web.remember("s2", said(2))
        await watcher.until("s2", messageCount=2)
        await other.until("s2", messageCount=2)
    position = watcher.position
    await web.journal.change("s1", RowChange(given="Meanwhile"))
    async with watching(web) as fresh:
        _, told = await fresh.next()
        if all(row["title"] != "Meanwhile" for row in told["sessions"]):
            await fresh.until("s1", title="Meanwhile")
        async with watching(web, last_event_id=position) as again:
            await again.until("s1", title="Meanwhile")  # after any other event about s2
            await web.remember("s3", said(3))
            assert (await again.next())[1]["session"]["sessionId"] == "s3"


async def test_who_comes_back_to_a_server_that_was_started_again_is_told_all_anew(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as web:
        for number in range(3):
            await web.remember(f"s{number}", said(number))
        async with watching(web) as watcher:
            await watcher.next()
    async with site(tmp_path) as web:
        await web.journal.delete("s2")
        async with watching(web, last_event_id=watcher.position) as again:
            event, told = await again.next()
            assert (event, {row["sessionId"] for row in told["sessions"]}) == (
                "snapshot",
                {"s0", "s1"},
            )
            await web.journal.change("s0", RowChange(given="Later"))
            assert (await again.next())[1]["session"]["title"] == "Later"


async def test_who_comes_back_from_elsewhere_is_told_all_anew(web: Site) -> None:
    await web.remember("s1", said(1))
    odd = ("", "x", "0.1", "0.1.", ".", ".1", "9" * 20, "é.1", "a.²", f"a.{'9' * 5000}")
    for position in odd:
        async with watching(web, last_event_id=position) as watcher:
            event, told = await watcher.next()
            assert (event, len(told["sessions"])) == ("snapshot", 1)


async def test_who_falls_far_behind_is_told_all_anew(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.KEPT_CHANGES", 3)
    async with watching(web) as first:
        await first.next()
        position = first.position
        for number in range(5):
            await web.remember(f"s{number}", said(number))
            await first.until(f"s{number}", messageCount=2)
        async with watching(web, last_event_id=position) as late:
            event, told = await late.next()
            if event == "snapshot":
                assert len(told["sessions"]) == 5


async def test_many_watch_with_one_look_at_the_journal(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acphold.live.reading import followed_list

    begun = 0
    before = followed_list.follow_list

    def counted(*given: Any) -> Any:
        nonlocal begun
        begun += 1
        return before(*given)

    monkeypatch.setattr("acphold.live.reading.followed_list.follow_list", counted)
    watchers = [watching(web) for _ in range(20)]
    entered = [await each.__aenter__() for each in watchers]
    for watcher in entered:
        await watcher.next()
    await web.remember("s1", said(1))
    for watcher in entered:
        await watcher.until("s1", messageCount=2)
    for each in watchers:
        await each.__aexit__(None, None, None)
    assert begun == 1


async def test_only_what_has_changed_is_read(web: Site) -> None:
    for number in range(30):
        await web.remember(f"s{number}", [], settled=False)
    last = (await web.journal.changes(None)).last
    assert not (await web.journal.changes(last)).session_ids
    await web.journal.change("s7", RowChange(given="x"))
    await web.journal.change("s3", RowChange(given="y"))
    await web.journal.change("s7", RowChange(given="z"))
    assert [*(await web.journal.changes(last)).session_ids] == ["s3", "s7"]
    some = await web.journal.changes(last, 1)
    assert (some.session_ids, some.more) == (["s3"], True)
    assert (await web.journal.changes(some.last, 1)).session_ids == ["s7"]


@pytest.fixture
def short_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime folder of this test's own, in which the path of a socket is no long one."""
    with TemporaryDirectory(prefix="run-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.mark.usefixtures("short_run")
async def test_what_goes_on_in_a_session_of_this_process_is_told_without_a_look_at_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.live.reading.bounds.LOOK_SECONDS", 3600.0)
    # Nobody asks again where we are too busy to answer.
    monkeypatch.setattr("acphold.live.reading.bounds.ANSWER_SECONDS", 30.0)

    async def live_at(_: object) -> dict[str, tuple[LiveSession, Process]]:
        found = await processes()
        return {it.session_id: (it, process) for process in found for it in process.sessions}

    monkeypatch.setattr("acphold.live.reading.processes.live_at", live_at)
    agents: list[PuppetAgent] = []

    def make_agent(listener: Any, _: object) -> PuppetAgent:
        agents.append(PuppetAgent(listener))
        return agents[0]

    options = ServeOptions(journal=tmp_path / "journal.db")
    services = {"puppet": Service(make_agent=make_agent, options=options)}
    async with site(tmp_path, services=services) as web:
        near, far = memory_pair()
        client = InMemory(near)
        tasks = [
            asyncio.create_task(web.relay.attend("puppet", far, THIS_USER, {})),
            asyncio.create_task(client.read()),
        ]
        await client.introduce(None, {})
        session = await client.new()
        (agent,) = agents
        turn = client.begin_prompt(session, "go")
        await agent.prompted(session)
        async with watching(web) as watcher:
            event, told = await watcher.next()
            assert (event, told["sessions"][0]["live"]["state"]) == ("snapshot", "running")
            person = Person(client)
            asked = asyncio.create_task(
                agent.ask_client(PERMISSION, sessionId=session, toolCall={}, options=[])
            )
            await watcher.until_state(session, "waiting")
            [question] = (await web.get("/inbox")).json["questions"]
            assert watcher.row["openQuestions"] == [question]
            person.answer.set_result({"outcome": {"outcome": "cancelled"}})
            await watcher.until_state(session, "running")
            assert "openQuestions" not in watcher.row
            assert (await web.get("/inbox")).json == {"questions": []}
            await asked
            await agent.end(session)
            await watcher.until_state(session, "idle")
            await turn
            await client.call("session/close", {"sessionId": session})
            await watcher.until_state(session, None)
        await client.leave()
        await asyncio.wait(tasks)


async def test_what_a_token_of_one_session_is_told_has_nothing_of_how_much_goes_on_elsewhere(
    web: Site,
) -> None:
    await web.remember("s1", said(1))
    token = await web.new_token("watch", session_id="s1")
    async with watching(web, token) as watcher, watching(web) as other:
        await watcher.next()
        await other.next()
        at_first = watcher.position
        await web.remember("s2", said(2))
        await other.until("s2", messageCount=2)
        await web.journal.change("s1", RowChange(given="Shown"))
        _, told = await watcher.next()
        assert told["session"]["title"] == "Shown"
        assert watcher.position == at_first
        async with watching(web, token, last_event_id=at_first) as again:
            event, told = await again.next()
            assert (event, told["sessions"][0]["title"]) == ("snapshot", "Shown")


async def test_what_is_gone_before_somebody_has_their_list_is_gone_from_it(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.SNAPSHOT_SESSIONS", 1)
    is_read, may_go_on = threading.Event(), threading.Event()
    before = list_feed._rows_of

    async def slow(*given: Any) -> Any:
        rows = await before(*given)
        is_read.set()
        while not may_go_on.is_set():  # noqa: ASYNC110 - in the loop of another thread
            await asyncio.sleep(0.01)
        return rows

    monkeypatch.setattr("acphold.web.list_feed._rows_of", slow)
    for session_id, tenant in (("hers", "alice"), ("newer", "bob")):
        await web.remember(session_id, [], settled=False, tenant=tenant)
    text = await web.new_token(tenant="alice")
    async with watching(web) as other, watching(web, text) as watcher:
        await other.next()
        await asyncio.to_thread(is_read.wait, 30)
        await web.journal.delete("hers")
        while (await other.next())[1] != {"gone": "hers"}:
            pass
        may_go_on.set()
        event, told = await watcher.next()
        assert (event, [row["sessionId"] for row in told["sessions"]]) == ("snapshot", ["hers"])
        assert (await watcher.next())[1] == {"gone": "hers"}


async def test_what_goes_on_elsewhere_keeps_back_no_sign_of_life(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.STREAM_HEARTBEAT_SECONDS", 0.5)
    monkeypatch.setattr("acphold.live.reading.bounds.LOOK_SECONDS", 0.01)
    for session_id in ("s1", "s2"):
        await web.remember(session_id, said(1))
    token = await web.new_token("watch", session_id="s1")
    async with watching(web, token) as watcher, watching(web) as other:
        await watcher.next()
        async with asyncio.timeout(30):
            for number in count():
                await web.journal.change("s2", RowChange(given=f"title {number}"))
                await other.until("s2", title=f"title {number}")
                if not watcher.arrived.empty():
                    break
        assert watcher.arrived.get_nowait() == b":\n\n"


async def test_a_live_session_that_is_deleted_meanwhile_is_not_told_of(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.live.reading.bounds.LOOK_SECONDS", 0.0)
    loop, looked = asyncio.get_running_loop(), asyncio.Event()
    looks = 0

    async def live_at(_: object) -> dict[str, tuple[LiveSession, Process]]:
        nonlocal looks
        looks += 1
        if looks == 4:
            loop.call_soon_threadsafe(looked.set)
        elsewhere = {"foreign": (LiveSession("foreign", clients=1), Process(1, "x", []))}
        return elsewhere if looks == 2 else {}

    monkeypatch.setattr("acphold.live.reading.processes.live_at", live_at)
    await web.remember("s1", said(1))
    async with watching(web) as watcher:
        await watcher.next()
        async with asyncio.timeout(30):
            await looked.wait()
        await web.journal.change("s1", RowChange(given="Later"))
        _, told = await watcher.next()
        assert "gone" not in told
        assert told["session"]["title"] == "Later"


async def test_a_watcher_whose_token_is_revoked_is_sent_away(web: Site) -> None:
    token = await web.new_token("watch")
    async with watching(web, token) as watcher:
        await watcher.next()
        [kept] = [it for it in await web.journal.access.tokens() if it.is_of(token)]
        await web.journal.access.keep_token(replace(kept, revoked_at=now_ms()))
        await web.gate.check()
        async with asyncio.timeout(30):
            await asyncio.wait([watcher.serving])
    assert web.feed.watchers == 0


async def test_a_watcher_who_comes_while_the_server_ends_is_refused(web: Site) -> None:
    web.gate.stop()
    async with watching(web) as watcher, asyncio.timeout(30):
        await asyncio.wait([watcher.serving])
        assert watcher.head["status"] == 503
    assert web.feed.watchers == 0


async def test_of_many_tokens_and_shares_a_server_reads_only_those_that_have_changed(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await web.new_token("watch", tenant="bob")
    async with watching(web, token) as watcher:
        await watcher.next()
        await web.gate.check()
        asked: list[object] = []
        read = SqliteTables.execute

        def noted(tables: SqliteTables, statement: str, *given: Any) -> Any:
            asked.append((statement, *given))
            return read(tables, statement, *given)

        monkeypatch.setattr(SqliteTables, "execute", noted)
        await web.gate.check()
        assert asked == []  # the log is read, and it has nothing new
        other = await web.new_token("watch")
        asked.clear()
        await web.gate.check()
        assert [
            it for it in asked if "access_tokens WHERE" in str(it) and token_id(other) in str(it)
        ]
        assert not [it for it in asked if "shares" in str(it)]


async def test_who_is_cut_off_between_two_missed_changes_gets_the_rest(web: Site) -> None:
    await web.remember("s1", said(1))
    async with watching(web) as other:
        await other.next()
        position = other.position
        await web.remember("s2", said(2))
        await web.remember("s3", said(3))
        await other.until("s2", outcome="completed")
        await other.until("s3", outcome="completed")
        last = other.position
        async with watching(web, last_event_id=position) as cut_off:
            await cut_off.next()
            position, missed = cut_off.position, []
            while cut_off.position != last:
                missed.append(await cut_off.next())
        async with watching(web, last_event_id=position) as again:
            assert [await again.next() for _ in missed] == missed != []


async def test_watchers_are_so_many_at_most(web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acphold.web.bounds.FEEDS_OF_TOKEN", 2)
    async with watching(web) as one, watching(web) as two:
        await one.next()
        await two.next()
        assert (await web.get(FEED)).status == 429
        other = await web.new_token("watch")
        async with watching(web, other) as three:
            await three.next()
    for query in ("?x=1", "?limit=1"):
        assert (await web.get(FEED + query)).status == 400
    assert (await web.get(FEED, method="HEAD")).status == 405
    assert (await web.get(FEED, await web.new_token("prompt"))).status == 403


async def test_a_journal_that_is_replaced_is_told_anew(web: Site, tmp_path: Path) -> None:
    await web.remember("s1", said(1))
    other = open_journal(tmp_path / "other.db")
    lease = await other.create(NewSession("s9", "scripted", "/w"))
    await other.change(lease, RowChange(prompted=True))
    await other.aclose()
    async with watching(web) as watcher:
        _, told = await watcher.next()
        assert [row["sessionId"] for row in told["sessions"]] == ["s1"]
        for end in ("", "-wal", "-shm"):
            (tmp_path / f"journal.db{end}").replace(tmp_path / f"before.db{end}")
        (tmp_path / "other.db").replace(tmp_path / "journal.db")
        while True:
            event, told = await watcher.next()
            if event == "snapshot":
                break
        assert [row["sessionId"] for row in told["sessions"]] == ["s9"]
