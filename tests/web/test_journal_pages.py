"""The journal for small screens: the list, the entries of a session, and the search."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from acphold.conversation.history.prompt_queue import QueueChange
from acphold.journal.intentions import change_queue
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import SearchHit, Sought
from acphold.live.reading.bounds import SAME_WORDS
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.processes import Live
from acphold.web import bounds
from tests.cli.command_line import CommandLine
from tests.conversations import chunk, encode
from tests.journal.conversations import Pieces, append, turn
from tests.web.in_process import Site, address


def said(number: int) -> Pieces:
    """A turn with an answer that has its number."""
    return turn(f"ask {number}", chunk("agent_message", f"answer{number} is here"))


async def all_pages(web: Site, session_id: str, limit: int) -> list[Any]:
    """All entries of a session, page by page, the newest first."""
    found: list[Any] = []
    before: int | None = None
    while True:
        position = {} if before is None else {"before": before}
        answer = await web.get(address(session_id, limit=limit, **position))
        assert answer.status == 200, answer.body
        found += answer.json["entries"]
        assert len(answer.json["entries"]) <= limit
        before = answer.json["before"]
        if before is None:
            return found


async def test_a_reader_that_asks_for_it_gets_the_beginning_of_long_output_and_the_whole_later(
    web: Site,
) -> None:
    text = "a line of output\n" * 100_000
    output = {"type": "content", "content": {"type": "text", "text": text}}
    named = {"toolCallId": "t", "title": "make", "kind": "execute", "status": "completed"}
    call = {"sessionUpdate": "tool_call", **named, "content": [output]}
    await web.remember("s1", [*said(1)[:-1], ("update", [encode(call)]), *said(1)[-1:]])
    whole = await web.get(address("s1", limit=9))
    brief = await web.get(address("s1", limit=9, brief="true"))
    assert len(brief.body) < len(whole.body) / 5
    [place] = [n for n, it in enumerate(whole.json["entries"]) if it != brief.json["entries"][n]]
    entry = brief.json["entries"][place]
    assert text.startswith(entry["update"]["content"][0]["content"]["text"])
    assert entry["update"]["_meta"]["acphold/whole"][0] == len(encode(call))
    later = await web.get(address("s1", limit=1, before=entry["seq"] + 1))
    assert later.json["entries"] == [whole.json["entries"][place]]
    assert whole.json["entries"][place]["update"] == call


# -- the list ---------------------------------------------------------------------------------


@pytest.fixture
def acphold(tmp_path: Path) -> CommandLine:
    """The commands of this machine, with the same journal."""
    return CommandLine(tmp_path / "journal.db")


async def test_the_list_has_the_rows_that_the_command_prints_and_their_last_words(
    web: Site, acphold: CommandLine
) -> None:
    await web.remember("s1", said(1), title="One \x1b[2J", at=1000)
    await web.remember("s2", said(2), at=2000)
    answer = await web.get("/sessions")
    printed = acphold.run("list", "--json").out
    assert answer.json["sessions"] == [json.loads(line) for line in printed.splitlines()]
    rows = (await web.get("/sessions?said=true")).json["sessions"]
    last = [row.pop("said") for row in rows]
    assert last == ["answer2 is here", "answer1 is here"]
    assert rows == [json.loads(line) for line in printed.splitlines()]
    assert [row["sessionId"] for row in rows] == ["s2", "s1"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "private, no-cache"


async def test_pages_of_the_list_follow_each_other_to_its_end(web: Site) -> None:
    for number in range(9):
        await web.remember(f"s{number}", said(number), at=1000 + number, title=f"t{number % 8}")
    for query, there in (("limit=3", "876543210"), ("limit=3&q=t0", "80"), ("limit=1&q=t0", "80")):
        found, cursor = list[str](), ""
        while True:
            page = (await web.get(f"/sessions?{query}{cursor}")).json
            found += [row["sessionId"] for row in page["sessions"]]
            if "nextCursor" not in page:
                break
            cursor = f"&cursor={page['nextCursor']}"
        assert found == [f"s{number}" for number in there], query


async def test_the_list_is_narrowed_down_by_agent_folder_words_and_archive(web: Site) -> None:
    await web.remember("s1", said(1), agent="a", cwd="/w/one", title="Red apples")
    await web.remember("s2", said(2), agent="b", cwd="/w/two", title="Green pears")
    await web.remember("s3", said(3), agent="b", cwd="/w/two", title="Put away")
    await web.journal.change("s3", RowChange(archived=True))

    async def found(query: str) -> set[str]:
        page = (await web.get(f"/sessions?{query}")).json
        return {row["sessionId"] for row in page["sessions"]}

    assert await found("agent=a") == {"s1"}
    assert await found("cwd=/w/two") == {"s2"}
    assert await found("q=PEARS+two") == {"s2"}
    assert await found("archived=only") == {"s3"}
    assert await found("archived=include&agent=b") == {"s2", "s3"}


async def test_sessions_of_programs_are_left_out_and_counted_if_asked(web: Site) -> None:
    await web.remember("s1", said(1))
    for number in range(SAME_WORDS):
        await web.remember(f"same-{number}", said(2), title="Look at the log")
    whole = (await web.get("/sessions")).json
    assert "leftOut" not in whole
    mine = (await web.get("/sessions?mine=true")).json
    assert mine["leftOut"] == SAME_WORDS
    assert len(mine["sessions"]) == len(whole["sessions"]) - SAME_WORDS
    assert {it["title"] for it in whole["sessions"] if it["byProgram"]} == {"Look at the log"}


async def test_the_list_has_the_sessions_in_which_prompts_wait(web: Site) -> None:
    for session in ("s1", "s2"):
        await web.remember(session, turn("Go"))
    prompt = Raw(b'[{"type":"text","text":"next"}]')
    await change_queue(web.journal, "s1", QueueChange("add", "q", prompt))
    found = (await web.get("/sessions?queued=true")).json["sessions"]
    assert [(it["sessionId"], it["queued"]) for it in found] == [("s1", 1)]


# -- a session --------------------------------------------------------------------------------


async def test_entries_come_newest_first_and_as_the_command_prints_them(
    web: Site, acphold: CommandLine
) -> None:
    await web.remember("s1", [*said(1), *said(2)])
    shown = acphold.run("show", "s1", "--json").out
    lines = [json.loads(line) for line in shown.splitlines()]
    told = (await web.get(address("s1"))).json
    lineage = told.pop("lineage")
    assert (told.pop("state"), told.pop("may"), told.pop("begun")) == ({}, ["watch"], None)
    assert told == {"entries": lines[::-1], "before": None}
    assert (await web.get(address("s1", lineage=lineage))).status == 200
    assert (await web.get(address("s1", lineage="of another time"))).status == 409


@pytest.mark.parametrize("settled", [True, False])
async def test_pages_of_entries_have_each_once_whatever_their_size(
    web: Site, *, settled: bool
) -> None:
    pieces = [piece for number in range(5) for piece in said(number)]
    pieces.append(("update", [encode(chunk("agent_message", text)) for text in "several"]))
    await web.remember("s1", pieces, settled=settled)
    whole = (await web.get(address("s1", limit=500))).json["entries"]
    places = [entry["seq"] for entry in whole]
    assert places == sorted({*places}, reverse=True)
    for limit in (1, 2, 7):
        assert await all_pages(web, "s1", limit) == whole


async def test_what_was_put_in_order_between_two_pages_is_told_not_left_out(web: Site) -> None:
    lease = await web.journal.create(NewSession("s1", "scripted", "/w"))
    chunks = [("update", [encode(chunk("agent_message", text))]) for text in "abcdef"]
    await append(web.journal, lease, [*said(1)[:1], *chunks, *said(1)[-1:]])
    page = (await web.get(address("s1", limit=3))).json
    assert page["before"] == 6  # in the middle of the message
    await web.journal.settle(lease, lease.next_seq - 1)
    answer = await web.get(address("s1", before=6))
    assert answer.status == 409
    assert "start again at the end" in answer.json["error"]
    await web.journal.release(lease)


async def test_a_page_of_long_entries_ends_before_its_limit(web: Site) -> None:
    await web.remember("s1", turn("x", *(chunk("agent_thought", "y" * 600_000, messageId=str(n))
                                          for n in range(6))))  # fmt: skip
    page = (await web.get(address("s1", limit=100))).json
    assert 1 <= len(page["entries"]) < 8
    assert len(await all_pages(web, "s1", 100)) == 8


async def test_an_old_turn_is_asked_for_again_as_it_may_have_been_forgotten(web: Site) -> None:
    await web.remember("s1", [*said(1), *said(2)])
    newest = (await web.get(address("s1", limit=3))).json
    older = address("s1", limit=3, before=newest["before"])
    first = await web.get(older)
    assert first.headers["cache-control"] == "private, no-cache"
    lease = await web.journal.acquire("s1")
    await web.journal.withdraw(lease, [(1, 3)], overwrites=True)
    again = await web.get(older, if_none_match=first.headers["etag"])
    assert (again.status, b"answer1" in first.body, b"answer1" in again.body) == (200, True, False)


async def test_what_is_known_already_is_not_sent_again(web: Site) -> None:
    await web.remember("s1", said(1))
    for url in ("/sessions", address("s1"), "/search?q=answer1"):
        first = await web.get(url)
        tag = first.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await web.get(url, if_none_match=known)
            assert (again.status, again.body) == (304, b"")
            assert again.headers["etag"] == tag
        assert (await web.get(url, if_none_match='"other"')).body == first.body
    before = (await web.get("/sessions")).headers["etag"]
    await web.journal.change("s1", RowChange(given="Another title"))
    assert (await web.get("/sessions", if_none_match=before)).status == 200


# -- the search -------------------------------------------------------------------------------


async def test_a_search_finds_what_the_command_finds(web: Site, acphold: CommandLine) -> None:
    for number in range(3):
        await web.remember(f"s{number}", said(number))
    printed = acphold.run("search", "answer", "here", "--json").out
    found = (await web.get("/search?q=answer*+here")).json["hits"]
    assert len(found) == 3
    assert all(hit["excerpt"] == f"answer{hit['sessionId'][1]} is here" for hit in found)
    printed = acphold.run("search", "answer*", "here", "--json").out
    assert found == [json.loads(line) for line in printed.splitlines()]


async def test_pages_of_hits_follow_each_other_also_when_more_is_said_meanwhile(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    search = LocalReader.search

    def noted(self: LocalReader, sought: Sought) -> Coroutine[None, None, list[SearchHit]]:
        asked.append(sought.limit)
        return search(self, sought)

    monkeypatch.setattr(LocalReader, "search", noted)
    for number in range(5):
        await web.remember(f"s{number}", said(number))
    first = (await web.get("/search?q=here&limit=2")).json
    await web.remember("new", said(9))
    found = [*first["hits"]]
    page = first
    while "nextCursor" in page:
        page = (await web.get(f"/search?q=here&limit=2&cursor={page['nextCursor']}")).json
        found += page["hits"]
    places = [hit["place"] for hit in found]
    assert len(places) == len({*places}) == 5
    assert asked == [3, 6, 9]  # nobody who looks at the first pays for all
    for number in range(20, 25):  # more than a page of them
        await web.remember(f"s{number}", said(number))
    page = (await web.get(f"/search?q=here&limit=2&cursor={first['nextCursor']}")).json
    assert [hit["place"] for hit in page["hits"]] == places[2:4]
    assert "nextCursor" in page
    asked.clear()
    monkeypatch.setattr(bounds, "MOST_HITS", 4)
    await web.get(f"/search?q=here&limit=2&cursor={first['nextCursor']}")
    assert asked == [4]  # once: there are no more to ask for


async def test_a_search_is_narrowed_down_as_that_of_the_command(web: Site) -> None:
    await web.remember("s1", said(1), agent="a", cwd="/w/one")
    await web.remember("s2", said(2), agent="b", cwd="/w/two")

    async def found(query: str) -> set[str]:
        answer = await web.get(f"/search?q=here&{query}")
        assert answer.status == 200, answer.body
        return {hit["sessionId"] for hit in answer.json["hits"]}

    assert await found("agent=a") == {"s1"}
    assert await found("cwd=/w/two") == {"s2"}
    assert await found("in=tools") == set()
    assert await found("rank=true") == {"s1", "s2"}
    assert await found("since=2999-01-01") == set()


# -- access -----------------------------------------------------------------------------------


async def test_nothing_is_read_without_a_token_nor_without_its_scope(web: Site) -> None:
    await web.remember("s1", said(1))
    other = await web.new_token("prompt", "answer")
    for url in ("/sessions", address("s1"), "/search?q=here"):
        assert (await web.get(url, "acphold_0_0")).status == 401
        refused = await web.get(url, other)
        assert refused.status == 403
        assert "watch" in refused.json["error"]


# -- refused requests -------------------------------------------------------------------------


REFUSED = {
    "/sessions?limit=many": "limit must be a number from 1 to 500",
    "/sessions?archived=yes": "archived must be exclude or include or only",
    f"/sessions?archived={'x' * 8000}": "archived must be exclude or include or only",
    "/sessions?queued=perhaps": "queued must be true or false",
    "/sessions?limit=1&limit=2": "the query has a parameter twice",
    "/sessions?limits=1": "unknown parameter 'limits'; this address takes q, agent, cwd, archived",
    "/inbox?limit=1": "this address takes no parameters",
    **dict.fromkeys(
        (
            *(f"/sessions?limit={it}" for it in (0, 501, -1, "1e3", "%D9%A1", "9" * 5000)),
            *("/sessions?cursor=none", "/sessions?cursor=1.s1", "/sessions?unprompted=perhaps"),
            *("/sessions?q=%FF", f"/sessions?q={'x' * 9000}"),
            f"/sessions?{'&'.join('abcdefghijklmnopqrstuvwxyz')}",
            *(f"/sessions/s1/entries?{it}" for it in ("before=0", "before=4294967296", "after=1")),
            *("/search", "/search?q=", "/search?q=%00", "/search?q=x&in=everything"),
            *(f"/search?q=x&since={it}" for it in ("yesterday", "99999-01-01")),
            *(f"/search?q=x&cursor={it}" for it in ("abc", "-1.s1@1", "99999.s1@1")),
        ),
        "",
    ),
}
"""Requests that cannot be, and how the answer begins."""


async def test_what_cannot_be_is_refused_with_what_is_wrong(web: Site) -> None:
    await web.remember("s1", said(1))
    for url, told in REFUSED.items():
        answer = await web.get(url)
        assert answer.status == 400, url
        assert answer.json["error"]
        assert answer.json["error"].startswith(told)
        assert len(answer.body) < 400


async def test_a_session_of_any_name_is_found_and_there_is_nothing_at_other_addresses(
    web: Site,
) -> None:
    for id_ in ("s1", "a/b", "entries", "feed", "%s ?#&", "ünï"):
        await web.remember(id_, said(1))
        assert len((await web.get(address(id_))).json["entries"]) == 3
    for id_ in ("%00", "s1%00", "../s1", "s1/", "%2e%2e", "%FF", "s" * 4000, "'"):
        assert (await web.get(f"/sessions/{id_}/entries")).status == 404
    for path in ("/sessions/", "/sessions/s1/x", "/sessionsx", "/search/", "/x"):
        assert (await web.get(path)).status == 404


async def test_these_addresses_are_only_read(web: Site) -> None:
    await web.remember("s1", said(1))
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert (await web.get("/sessions", method=method)).status == 405
    whole = await web.get("/sessions")
    head = await web.get("/sessions", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers == whole.headers


async def test_who_asks_much_at_once_is_told_to_come_later(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.QUESTIONS_AT_ONCE", 2)
    await web.remember("s1", said(1))
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(web.get("/search?q=here")) for _ in range(20)]
    statuses = [task.result().status for task in asking]
    assert {*statuses} == {200, 503}
    assert (await web.get("/search?q=here")).status == 200


async def test_processes_are_asked_once_for_all_who_list(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def counted(_: object) -> Live:
        nonlocal asked
        asked += 1
        return {}

    monkeypatch.setattr("acphold.live.reading.processes.live_at", counted)
    monkeypatch.setattr("acphold.web.bounds.LIVE_SECONDS", 3600.0)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(web.get("/sessions"))
            group.create_task(web.get("/metrics"))
    assert asked == 1


async def test_processes_are_asked_again_after_a_failure(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.LIVE_SECONDS", 3600.0)
    with monkeypatch.context() as busy:
        busy.setattr("acphold.web.bounds.QUESTIONS_AT_ONCE", 0)
        assert (await web.get("/metrics")).status == 503
    assert (await web.get("/metrics")).status == 200
