"""The list of a server is followed over losses of the connection, each change once."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from acphold.errors import ConnectionLostError, RemoteRefusalError
from acphold.journal.rows import ListFilter
from acphold.journal.seams import Sought
from acphold.live.reading.json_facts import session_json
from acphold.live.reading.server_answers import RemoteInbox
from acphold.live.reading.server_reader import ServerReader
from acphold.live.reading.session_reader import News, OnAway, Wanted, last_entries, sessions_on_hold
from acphold.safety.errors import RuleError

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
REFUSED = "HTTP/1.1 401 No\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nno!"


def row(session_id: str, **facts: object) -> dict[str, object]:
    at = "2026-01-01T00:00:00Z"
    of = {"sessionId": session_id, "agent": "a", "cwd": "/", "title": None}
    return {**of, "createdAt": at, "updatedAt": at, **facts}


def event(name: str, id_: str, **data: object) -> str:
    return f"event: {name}\nid: {id_}\ndata: {json.dumps(data)}\n\n"


def json_answer(status: str, **said: object) -> str:
    body = json.dumps(said)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}"


class Feed:
    """Answers each request with the next of `answers`, and ends the connection behind it."""

    def __init__(self, *answers: str) -> None:
        self.positions: list[str] = []
        self.url = ""
        self.served: asyncio.Queue[None] = asyncio.Queue()
        self._answers = iter(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.positions.append(
            {name.lower(): it for name, it in fields.items()}.get("last-event-id", "")
        )
        writer.write(next(self._answers, "").encode())
        with suppress(ConnectionError):  # a client that has heard enough leaves
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.served.put_nowait(None)


@asynccontextmanager
async def feed(*answers: str, on_away: OnAway = bool) -> AsyncIterator[tuple[Feed, ServerReader]]:
    found = Feed(*answers)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with ServerReader(found.url, None, seconds=20) as pages:
            pages.on_away = on_away
            yield found, pages
        for _ in found.positions:
            await found.served.get()


async def test_an_id_is_short_if_the_list_tells_it_from_others_and_longer_otherwise() -> None:
    ids = ["abcdefg", "abcdefgh", "abcdxy", "ab", "cdefghijk", "cdefghijk~1"]
    alone = json_answer("200 OK", sessions=[row("other-1")])
    all_ = json_answer("200 OK", sessions=[row(it) for it in ids])
    no = json_answer("404 Not Found")
    async with feed(alone, all_, no, all_, no, all_) as (_, reader):
        await reader.page(Wanted(ListFilter(queued=True)))
        # No list was read: any other session may begin so.
        uuids = "ee42dc3d-dead-47ca-b975-d40a6d929823", "0192f3ab-1234-7aaa-8000-000000000001"
        shown = await reader.short_ids(["other-1", *uuids])
        assert [*shown.values()] == ["other-1", "ee42dc3d-dead", "0192f3ab-1234"]
        await reader.page(Wanted(ListFilter()))
        short_ids = await reader.short_ids(ids)
        found = [(await reader.session(short_ids[it])).session_id for it in ids[4:]]
    named = {"cdefghijk": "cdefgh", "cdefghijk~1": "cdefgh~"}
    assert short_ids == {it: it for it in ids[:4]} | named
    assert found == [*named]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("acphold.live.reading.server_reader.FIRST_PAUSE", 0.0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def test_what_waits_in_a_session_is_listed_as_its_server_has_it() -> None:
    facts = {"queued": 2, "held": "limited", "heldUntil": "2026-01-02T04:10:00.000Z"}
    answer = HEAD + event("snapshot", "e.0", sessions=[row("s1", **facts)])
    async with feed(answer) as (_, pages), aclosing(pages.changes(200)) as changes:
        [session] = (await anext(changes)).sessions
    assert facts.items() <= json.loads(session_json(session)).items()


async def test_who_comes_back_says_behind_what_and_is_told_that_it_was_away() -> None:
    away: list[ConnectionLostError | None] = []
    news: list[News] = []
    answers = (
        HEAD + event("snapshot", "e.0", sessions=[row("s1", outcome="completed")]),
        "",  # cut before a word
        HEAD + ":\n\n" + event("change", "e.1", session=row("s2", live={"state": "running"})),
        HEAD + event("newer", "e.2") + event("change", "e.3", gone="s1"),
        HEAD + event("snapshot", "f.0", sessions=[]),
    )
    async with (
        feed(*answers, on_away=away.append) as (served, reader),
        aclosing(reader.changes(200)) as found,
    ):
        async for each in found:
            news.append(each)
            if len(news) == 4:
                break
    assert served.positions == ["", "e.0", "e.0", "e.1", "e.3"]
    first, second, third, last = news
    assert first.is_all
    assert first.sessions[0].outcome == "completed"
    assert second.sessions[0].live is not None
    assert (third.gone, last.is_all) == (("s1",), True)
    told = ["lost" if it else "back" for it in away]
    assert told == ["back", "lost", "lost", "back", "lost", "back", "lost", "back"]


async def test_a_feed_that_is_cut_in_an_answer_is_a_connection_that_was_lost() -> None:
    away: list[ConnectionLostError | None] = []
    said = event("snapshot", "e.0", sessions=[])
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    cut = f"{head}{len(said):x}\r\n{said}\r\nff\r\n"
    async with feed(cut, REFUSED, on_away=away.append) as (served, reader):
        with pytest.raises(RemoteRefusalError):
            [news async for news in reader.changes(200)]
    assert [it and str(it) for it in away] == [None, f"the connection to {served.url} was lost"]


async def test_what_is_not_there_or_lets_us_in_no_more_is_an_error() -> None:
    for answers, error in (
        (("",), ConnectionLostError),
        ((REFUSED,), RemoteRefusalError),
        ((HEAD + event("snapshot", "e.0", sessions=[]), REFUSED), RemoteRefusalError),
        ((HEAD + event("snapshot", "e.0", sessions="x"),), ConnectionLostError),
        ((HEAD + "data: " + "x" * (17 << 20),), ConnectionLostError),
    ):
        async with feed(*answers) as (_, reader):
            found = reader.changes(200)
            with pytest.raises(error):
                [news async for news in found]


async def test_sessions_whose_prompts_are_held_are_asked_for_and_told_from_others() -> None:
    told = [
        row("failed", queued=1, held="failed"),
        row("by a person", queued=1, held="person"),
        row("there", queued=1, held="cancelled", live={"state": "idle", "clients": 1}),
        row("left", queued=1, held="cancelled"),
        row("goes on", queued=1),
    ]
    body = json.dumps({"sessions": told, "nextCursor": None})
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    async with feed(f"{head}Content-Length: {len(body)}\r\n\r\n{body}") as (_, pages):
        found = await sessions_on_hold(pages)
    assert [it.row.session_id for it in found] == ["failed", "left"]


async def test_a_cursor_of_decisions_that_is_no_number_is_an_answer_that_cannot_be_read() -> None:
    answers = (json_answer("200 OK", decisions=[], nextCursor=it) for it in ("9", "next"))
    async with feed(*answers) as (_, pages):
        assert await pages.decisions(5) == ([], 9)
        with pytest.raises(ConnectionLostError, match="cannot read the answer"):
            await pages.decisions(5)


def test_an_answer_is_read_in_no_more_memory_than_it_has_bytes() -> None:
    asked = {"id": "q", "sessionId": "s", "seq": 1, "at": "", "agent": "a", "cwd": "/"}
    question = {**asked, "title": None, "asks": "", "method": "m"}
    many: list[list[int]] = [[]] * 200_000
    body = json.dumps({"questions": [{**question, "shows": many, "params": many}]}).encode()
    tracemalloc.start()
    try:
        msgspec.json.decode(body, type=RemoteInbox)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(body)


async def test_a_list_or_an_answer_without_an_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acphold.live.reading.bounds.WHOLE_ANSWER_BYTES", 1 << 20)
    again = json_answer("200 OK", sessions=[], hits=[], entries=[], nextCursor="x", before=7)
    endless = "HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + " " * (1 << 21)
    missing = json_answer("404 Not Found")
    async with feed(missing, *[again] * 5, endless) as (_, reader):
        with pytest.raises(ConnectionLostError, match="the same page"):
            await reader.session("s")
        with pytest.raises(ConnectionLostError, match="the same page"):
            await reader.search(Sought("word"))
        with pytest.raises(ConnectionLostError, match="the same page"):
            await reader.read_back("s", 7, 9)
        with pytest.raises(ConnectionLostError, match="endless"):
            await reader.page(Wanted(ListFilter()))


async def test_pages_that_lead_round_and_round_are_given_up() -> None:
    a, b = (
        json_answer("200 OK", sessions=[], hits=[], entries=[], nextCursor=to, before=before)
        for to, before in (("a", 5), ("b", 9))
    )
    async with feed(a, b, a, a, b, a, a, b) as (_, reader):
        with pytest.raises(ConnectionLostError, match="again and again"):
            await sessions_on_hold(reader)
        with pytest.raises(ConnectionLostError, match="again and again"):
            await reader.search(Sought("word"))
        with pytest.raises(ConnectionLostError, match="again and again"):
            await last_entries(reader, "s")


async def test_a_rule_is_made_of_an_offer_at_the_server() -> None:
    offer = {"text": "run make", "meaning": "exactly this command", "agent": "claude", "folder": ""}
    made = json_answer("200 OK", rules=[{"number": 3, "text": "run make", "user": "bob"}])
    no = json_answer("409 Conflict", error="it would have allowed 1 question that you refused")
    none = json_answer("200 OK", rules=[])
    answers = json_answer("200 OK", offers=[offer]), json_answer("403 Forbidden"), made, no, none
    async with feed(*answers) as (_, pages):
        [offered] = await pages.rule_offers("s", "q")
        assert (offered.text, offered.agent) == ("run make", "claude")
        assert await pages.rule_offers("s", "q") == []  # a token without the scope
        accepts = partial(pages.make_rules, "s", "q", "run make", all_agents=True, made_with="here")
        assert await accepts() == "acphold rules rm --user bob 3"
        with pytest.raises(RuleError, match="1 question that you refused"):
            await accepts()
        assert "rules rm" in await accepts()  # of a server that names none
