"""Notices that a turn is done: which turns, which devices, what stands on a lock screen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.json import encode

from acp_wire.transports.streams import memory_pair
from acphold.journal.access import SCOPES, Share
from acphold.journal.journal import take_lease
from acphold.journal.rows import NewSession, RowChange
from acphold.live.reading.processes import LiveSession, Process
from acphold.live.server.principals import THIS_USER
from acphold.live.server.service import Service
from acphold.serve_options import ServeOptions
from acphold.web import bounds, ended_turns
from acphold.web.push import KeptSubscriptions
from tests.editor import DEADLINE
from tests.hub.shared import InMemory, PuppetAgent
from tests.journal.conversations import Pieces, append, turn
from tests.watched_processes import until
from tests.web.conftest import Live
from tests.web.in_process import Site, site
from tests.web.test_inbox import asked, waits
from tests.web.test_list_feed import short_run  # noqa: F401 (a fixture)
from tests.web.test_notices import (
    ANSWERED,
    Browser,
    PushService,
    _quick,  # noqa: F401 (a fixture)
    notified,
    telling,
)

GITHUB = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


def runs(session_id: str, before: int | None = 0) -> tuple[LiveSession, Process]:
    session = LiveSession(session_id, 1, running=True, turn=before)
    return session, Process(1, "scripted", [session])


def said(text: str) -> dict[str, object]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "content": content}


def edited(call: str, *paths: str) -> dict[str, object]:
    diffs = [{"type": "diff", "path": it, "oldText": "a", "newText": "b"} for it in paths]
    call_of = {"toolCallId": call, "title": "Edit", "status": "completed", "content": diffs}
    return {"sessionUpdate": "tool_call", **call_of}


def by(name: str, pieces: Pieces) -> Pieces:
    """The same turn, with its author."""
    return [("author", [encode({"name": name, "version": "1"})]), *pieces]


def ends(how: bytes) -> Pieces:
    return [*turn("Go")[:-1], ("turn_end", [how])]


async def run(web: Site, live: Live, session_id: str, pieces: Pieces, **row: Any) -> None:
    """Have a session run a turn, and end it; it is looked at."""
    await begin(web, live, session_id)
    await web.remember(session_id, pieces, settled=False, **row)
    live.pop(session_id)
    await until(lambda: not (web.notices._turns._running or web.notices._turns._over))


async def begin(web: Site, live: Live, session_id: str, before: int = 0) -> None:
    live[session_id] = runs(session_id, before)
    await until(lambda: (session_id, before) in web.notices._turns._running)


async def wish(web: Site, token: str | None = None, **said: Any) -> int:
    return (await web.post("/notices/wishes", token, **said)).status


async def until_tried(service: PushService, count: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while len(service.asked) < count:
            service.changed.clear()
            await service.changed.wait()


async def test_the_end_of_a_long_turn_is_told_once_with_its_title_and_the_files_that_changed(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, notices):
        pieces = turn(
            "Go", edited("c1", "/w/a", "/w/b"), edited("c2", "/w/b", "/w/c"), said("Yes.")
        )
        await run(web, live, "s1", pieces, title="Mend \x1b[2J it")
        (told,) = await service.until(1)
        assert told["done"] is True
        assert told["body"] == "done, 3 files changed"
        assert "\x1b" not in told["title"]
        assert (told["sessionId"], told["seq"]) == ("s1", 5)
        # It takes the place of no question, and is of interest for an hour.
        delivery = service.asked[0].delivery
        assert delivery.topic.startswith("done-")
        assert len(delivery.topic) <= 32
        assert delivery.seconds <= 3600
        assert delivery.urgency == "normal"
        await run(web, live, "s2", turn("Go", edited("c1", "/w/a")), title="Other")
        _, other = await service.until(2)
        assert other["body"] == "done, 1 file changed"
        assert service.asked[1].delivery.topic != delivery.topic
        await until(lambda: not len(notices._telling))


async def test_a_short_turn_is_told_where_somebody_asked_for_it_and_then_no_more(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path) as (web, service, _):
        token = await web.new_token(*SCOPES)
        assert await wish(web, token, sessionId="s1") == 409  # it is notified of nothing
        for each in (None, token):
            assert (await web.post("/notices", each, **Browser().json)).status == 200
        await run(web, live, "s0", turn("Go"))
        assert await wish(web, token, sessionId="s1") == 200
        assert (await web.get("/notices", token)).json["sessions"] == ["s1"]
        await run(web, live, "s1", turn("Go"))
        (told,) = await service.until(1)
        assert (told["sessionId"], told["body"]) == ("s1", "done")
        assert (await web.get("/notices", token)).json["sessions"] == []
        assert await wish(web, token, sessionId="s2") == 200
        assert await wish(web, token, sessionId="s2", tell=False) == 200
        await run(web, live, "s2", turn("Go"))
        assert len(service.came) == 1


async def test_a_turn_that_an_editor_began_is_told_only_where_somebody_asked_for_it(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, _):
        await run(web, live, "s1", by("Zed", turn("Go")))
        assert service.asked == []
        assert await wish(web, sessionId="s2") == 200
        await run(web, live, "s2", by("Zed", turn("Go")))
        (told,) = await service.until(1)
        assert told["sessionId"] == "s2"
        for number, face in enumerate(("acphold-page", "acphold", "acphold-ask"), 3):
            await run(web, live, f"s{number}", by(face, turn("Go")))
            await service.until(number - 1)


async def test_a_device_whose_page_was_visible_within_a_minute_is_not_told(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with telling(tmp_path, 0.0) as (web, service, _):
        desk = await web.new_token(*SCOPES)
        for token, browser in ((desk, Browser()), (None, Browser("https://push.example.com/p"))):
            assert (await web.post("/notices", token, **browser.json)).status == 200
        assert (await web.post("/notices/attended", desk)).status == 200  # seen, not touched
        assert (await web.get("/notices/attended", desk, method="DELETE")).status == 200
        await run(web, live, "s1", turn("Go"))
        await service.until(1)
        assert service.came[0][0].endswith("/p")
        monkeypatch.setattr(bounds, "VISIBLE_SECONDS", 0.0)
        await run(web, live, "s2", turn("Go"))
        await service.until(3)


async def test_a_visible_page_takes_away_what_was_answered_and_gets_no_push_for_it(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path) as (web, service, notices):
        desk = await web.new_token("watch")
        for token in (desk, None):
            assert (await web.post("/notices", token, **Browser().json)).status == 200
        await web.remember("s1", asked("q1"), settled=False)
        live["s1"] = waits("s1", "q1")
        await service.until(2)
        assert (await web.post("/notices/attended", desk)).status == 200
        live.clear()
        *_, last = await service.until(3)
        assert last == ANSWERED
        await until(lambda: not notices._kept.questions)
        await service.until(3)


async def test_last_words_are_told_where_they_are_wanted_without_what_is_secret_in_them(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path, 0.0) as (web, service, _):
        token = await web.new_token(*SCOPES)
        for each in (None, token):
            assert (await web.post("/notices", each, **Browser().json)).status == 200
        assert await wish(web, token, words=True) == 200
        assert (await web.get("/notices", token)).json["words"] is True
        # In pieces, as agents say it.
        words = [said(it) for it in ("Pushed with ", GITHUB[:12], GITHUB[12:], " for ada@corp.io.")]
        await run(web, live, "s1", turn("Go", *words))
        bodies = sorted(told["body"] for told in await service.until(2))
        assert bodies[0] == "done"
        assert bodies[1].startswith("done: Pushed with ")
        assert GITHUB[4:12] not in bodies[1]
        assert "ada@corp.io" not in bodies[1]


async def test_a_turn_with_words_that_take_too_many_steps_to_check_is_told_without_them(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, _):
        assert await wish(web, words=True) == 200
        bodies = {0: "done", ended_turns.STEPS: "done: [removed: API key]"}
        for number, (steps, body) in enumerate(bodies.items(), 1):
            monkeypatch.setattr(ended_turns, "STEPS", steps)
            await run(web, live, f"s{number}", turn("Go", said("sk-ant-" * 2000)))
            assert (await service.until(number))[-1]["body"] == body


async def test_others_are_answered_while_the_words_of_a_turn_are_checked(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, checked = Event(), Event()

    def wait(shown: object) -> str:
        begun.set()
        assert checked.wait(DEADLINE)
        return "Yes."

    monkeypatch.setattr(ended_turns, "last_words", wait)
    async with notified(tmp_path, 0.0) as (web, service, _):
        assert await wish(web, words=True) == 200
        running = asyncio.create_task(run(web, live, "s1", turn("Go", said("Yes."))))
        try:
            await until(begun.is_set)
            assert [(await web.get(it)).status for it in ("/sessions", "/search?q=a")] == [200, 200]
        finally:
            checked.set()
        await running
        assert (await service.until(1))[-1]["body"] == "done: Yes."


async def test_it_is_said_how_a_turn_ended_and_whoever_cancelled_it_knows(
    tmp_path: Path, live: Live
) -> None:
    ends_told = {
        b'{"stopReason":"cancelled"}': None,
        b'{"interrupted":true}': None,
        b'{"error":{"code":-32603,"message":"no"}}': "failed",
        b'{"stopReason":"refusal"}': "refused by the agent",
        b'{"stopReason":"max_tokens"}': "stopped at a limit",
    }
    async with notified(tmp_path, 0.0) as (web, service, _):
        for number, end in enumerate(ends_told):
            await run(web, live, f"s{number}", ends(end))
        expected = [told for told in ends_told.values() if told is not None]
        assert [it["body"] for it in await service.until(len(expected))] == expected


async def test_each_of_two_turns_that_follow_each_other_at_once_is_told(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, _):
        await begin(web, live, "s1")
        await web.remember("s1", [*turn("One"), *turn("Two")], settled=False)
        await begin(web, live, "s1", 2)
        await service.until(1)
        del live["s1"]
        assert [it["seq"] for it in await service.until(2)] == [2, 4]


async def test_a_silent_process_has_ended_nothing_until_the_journal_says_so(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, notices):
        lease = await web.journal.create(NewSession("s1", "scripted", "/w"))
        await append(web.journal, lease, turn("Go")[:-1])
        await web.journal.change(lease, RowChange(prompted=True))
        for _ in range(2):
            await begin(web, live, "s1")
            assert not notices._turns._over
            live.clear()
            await until(lambda: notices._turns._over)
        # It is looked for ever later.
        first = bounds.NOTICE_CHECK_SECONDS
        await until(lambda: all(pause > first for _, pause in notices._turns._over.values()))
        assert service.asked == []
        await append(web.journal, lease, turn("Go")[-1:])
        (told,) = await service.until(1)
        assert told["sessionId"] == "s1"


async def test_a_browser_is_told_of_the_turns_that_its_token_sees(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path, 0.0) as (web, service, _):
        for sees in ({"session_id": "s2"}, {"tenant": "rita"}):
            text = await web.new_token(**sees)  # type: ignore[arg-type]
            assert (await web.post("/notices", text, **Browser().json)).status == 200
            assert await wish(web, text, sessionId="s1") == 200
        await run(web, live, "s1", turn("Go"))
        assert service.asked == []
        await begin(web, live, "s2")
        await web.remember("s2", turn("Go"), settled=False)
        await web.journal.access.keep_share(Share("s2", "rita"))
        live.clear()
        assert {it["sessionId"] for it in await service.until(2)} == {"s2"}


async def test_what_is_refused_is_sent_again_unless_it_would_be_refused_again(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, notices):
        came = 0
        for status, again in ((503, True), (429, True), (0, True), (413, False), (301, False)):
            service.asked.clear()
            service.status = status
            await run(web, live, f"s{status}", turn("Go"))
            await until_tried(service, 1)
            service.status = 201
            came += again
            await service.until(came)
            await until(lambda: not len(notices._telling))
            lives = [order.delivery.seconds for order in service.asked]
            assert lives == sorted(lives, reverse=True)
            assert (len(lives) > 1) is again, status


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_turn_that_was_forgotten_meanwhile_is_not_sent_again(
    tmp_path: Path, live: Live, *, is_deleted: bool
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, notices):
        service.status = 503
        await run(web, live, "s1", turn("Go"))
        await until_tried(service, 2)
        if is_deleted:
            await web.journal.delete("s1")
        else:
            lease = await take_lease(web.journal, "s1")
            await web.journal.withdraw(lease, [(1, lease.next_seq - 1)])
        await until(lambda: not len(notices._telling))


async def test_a_service_says_when_it_wants_to_be_asked_again_and_that_a_browser_is_gone(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, notices):
        service.status, service.retry_after = 429, 3600
        await run(web, live, "s1", turn("Go"))
        await until_tried(service, 1)
        assert len(service.asked) == 1
        service.status = 410
        await run(web, live, "s2", turn("Go"))
        await until(lambda: not notices._kept.browsers)


async def test_the_end_of_a_turn_that_hangs_at_its_service_keeps_back_no_question(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path, 0.0) as (web, service, _):
        await run(web, live, "s1", turn("Go"))
        await service.until(1)
        service.hanging.add(service.asked[0].delivery.topic)
        await begin(web, live, "s1", 2)
        lease = await take_lease(web.journal, "s1")
        await append(web.journal, lease, turn("Again"))
        live.clear()
        await until_tried(service, 2)
        await web.remember("s2", asked("q1"), settled=False)
        live["s2"] = waits("s2", "q1")
        _, question = await service.until(2)
        assert (question["sessionId"], question["isNews"]) == ("s2", True)


async def test_wishes_are_checked_kept_and_bounded(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "WANTED_SESSIONS", 2)
    async with notified(tmp_path) as (web, _, _):
        for session in ("s1", "s2", "s1"):
            assert await wish(web, sessionId=session) == 200
        assert await wish(web, sessionId="s3") == 409
        for wrong in ({"words": 1}, {"sessionId": 7}, {"sessionId": "x" * 1001}):
            assert await wish(web, **wrong) == 400
        assert (await web.get("/notices/wishes")).status == 404
        kept = KeptSubscriptions(str(tmp_path / "journal.db"))
        (token,) = kept.browsers
        assert kept.wishes(token).sessions == {"s1", "s2"}
        assert (await web.get("/notices", method="DELETE")).status == 200
        assert (await web.get("/notices")).json["sessions"] == []


@pytest.mark.usefixtures("short_run")
async def test_the_processes_say_which_turn_runs(tmp_path: Path) -> None:
    """With a hub: two turns of one session, and a prompt that the journal has before both."""
    agents: list[PuppetAgent] = []

    def make_agent(listener: Any, _: object) -> PuppetAgent:
        agents.append(PuppetAgent(listener))
        return agents[0]

    options = ServeOptions(journal=tmp_path / "journal.db")
    services = {"puppet": Service(make_agent=make_agent, options=options)}
    service = PushService()
    async with site(tmp_path, services=services, send=service.send, turn_seconds=0.0) as web:
        near, far = memory_pair()
        client = InMemory(near)
        tasks = [
            asyncio.create_task(web.relay.attend("puppet", far, THIS_USER, {})),
            asyncio.create_task(client.read()),
        ]
        await client.introduce(None, {})
        session = await client.new()
        (agent,) = agents
        assert (await web.post("/notices", **Browser().json)).status == 200
        seqs = []
        for number in (1, 2):
            turn = client.begin_prompt(session, "go")
            await agent.prompted(session)
            await until(lambda: web.notices._turns._running)
            await agent.end(session)
            await turn
            seqs.append((await service.until(number))[-1]["seq"])
        assert seqs[0] < seqs[1] == (await web.journal.session(session)).last_seq
        await client.leave()
        await asyncio.wait(tasks)
