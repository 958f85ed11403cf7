"""The list and the inbox of a page show every question, whatever failed on the way."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Route, WebSocket, expect

import acphold
from tests.page.conftest import row_of, steps
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

FEED = "**/sessions/feed"
POSITION = "last-event-id"

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  const state = hidden ? "hidden" : "visible";
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_the_list_is_followed_anew_with_each_connection_and_not_while_nobody_looks(
    page: Page,
) -> None:
    begun: list[str] = []
    page.on("request", lambda it: begun.append(it.url.rpartition("/")[2]))
    numbers, introduced = count(), defaultdict[int, asyncio.Event](asyncio.Event)

    def opened(socket: WebSocket) -> None:
        number = next(numbers)
        socket.on("framereceived", lambda _: introduced[number].set())

    page.on("websocket", opened)
    await page.reload()
    await asyncio.wait_for(introduced[0].wait(), 60)
    async with page.expect_request(FEED):
        await page.evaluate("dispatchEvent(new Event('offline'))")
    await page.evaluate(HIDE, True)
    begun.clear()
    await page.evaluate("dispatchEvent(new Event('offline'))")
    await asyncio.wait_for(introduced[2].wait(), 60)
    await page.evaluate("true")  # after the page has handled the answer
    assert "feed" not in begun
    async with page.expect_request(FEED):
        await page.evaluate(HIDE, False)


async def test_what_ended_while_nobody_looked_is_told_by_a_whole_list_as_by_its_changes(
    page: Page, served: Served, agent: acphold.RemoteAgent
) -> None:
    session = await agent.new_session(cwd=served.folder)
    turn = session.prompt(steps({"say": "On it."}, {"until": str(served.folder / "go")}))
    row = row_of(page, session)
    await expect(row).to_contain_text("running")
    await page.evaluate(HIDE, True)
    (served.folder / "go").touch()
    await asyncio.wait_for(turn, 60)

    async def without_position(route: Route) -> None:
        headers = {name: it for name, it in route.request.headers.items() if name != POSITION}
        await route.continue_(headers=headers)

    await page.route(FEED, without_position)
    await page.evaluate(HIDE, False)
    await expect(row).to_contain_text("done")


async def test_what_began_and_ended_elsewhere_before_it_is_first_told_is_news_and_nothing_else_is(
    page: Page,
) -> None:
    now, then = "2099-01-02T03:04:05Z", "2001-01-02T03:04:05Z"
    row = {"agent": "a", "agentName": "a", "cwd": "/w", "messageCount": 2, "live": None}
    row |= {"unseen": False, "updatedAt": now}
    rows = [
        {**row, "sessionId": name, "title": name, "createdAt": at}
        for name, at in (("begun", now), ("imported", then), ("opened", now))
    ]
    snapshot = 'event: snapshot\nid: 1\ndata: {"sessions": []}\n\n'
    told = "".join(f"id: 2\ndata: {json.dumps({'session': each})}\n\n" for each in rows)
    stream = {"content-type": "text/event-stream"}
    event = snapshot
    await page.route(FEED, lambda it: it.fulfill(body=event, headers=stream))
    await page.goto(f"{page.url.partition('#')[0]}#/session/opened")
    await page.reload()
    await expect(page.get_by_role("heading", name="Session not found")).to_be_visible()
    await page.get_by_role("link", name="All sessions").click()
    event += told
    await expect(page.locator("a.session", has_text="begun")).to_contain_text("done")
    for name in ("imported", "opened"):
        await expect(page.locator("a.session", has_text=name)).to_have_count(1)
        await expect(page.locator("a.session", has_text=name)).not_to_contain_text("done")


async def test_the_archive_says_when_it_cannot_be_read_and_is_read_with_the_next_connection(
    page: Page,
) -> None:
    await page.context.set_offline(True)
    search = page.get_by_role("searchbox")
    await page.get_by_role("button", name="Archived").click()
    alert = page.get_by_role("alert").filter(has_text="sessions are not shown")
    await expect(alert).to_have_text(
        "The server cannot be reached. Archived sessions are not shown."
    )
    await page.locator(".filters button", has_text="All").click()
    await search.fill("no such word")
    await expect(alert).to_have_text("The server cannot be reached. Older sessions are not shown.")
    hits = page.locator(".hits [role=status]")
    await expect(hits).to_contain_text("The server cannot be reached.")
    await page.context.set_offline(False)
    await expect(alert).to_have_count(0)
    await expect(hits).to_have_text(re.compile("No messages match"))


async def test_every_archived_session_can_be_reached(routed: Page, served: Served) -> None:
    at = "2026-01-02T03:04:05Z"
    fixed: dict[str, object] = {
        "agent": "a",
        "agentName": "a",
        "cwd": "/w",
        "createdAt": at,
        "updatedAt": at,
    }
    fixed |= {"messageCount": 1, "outcome": None, "unseen": False, "archived": True, "live": None}

    async def page_of(route: Route) -> None:
        begin = int(parse_qs(urlsplit(route.request.url).query).get("cursor", ["0"])[0])
        rows = [{**fixed, "sessionId": f"s{n}", "title": f"t{n}"} for n in range(begin, begin + 2)]
        more = {"nextCursor": str(begin + 2)} if begin < 4 else {}
        await route.fulfill(json={"sessions": rows, **more})

    await routed.route(re.compile(r"/sessions\?.*archived=only"), page_of)
    await routed.goto(f"{served.url}/#/")
    await routed.get_by_role("button", name="Archived").click()
    rows = routed.locator("a.session[href^='#/session/s']")
    more = routed.get_by_role("button", name="More sessions")
    for number in (2, 4):
        await expect(rows).to_have_count(number)
        await more.click()
    await expect(rows).to_have_count(6)
    await expect(more).to_have_count(0)
