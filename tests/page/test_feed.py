"""The list and the inbox of a page: that what is asked is there, whatever failed on the way."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import count

import pytest
from playwright.async_api import Browser, Page, Route, StorageState, WebSocket, expect

import acphold
from tests.page.conftest import ask, steps
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

FEED = "**/sessions/feed"

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
    await page.evaluate("true")  # behind what the page does with the answer
    assert "feed" not in begun
    async with page.expect_request(FEED):
        await page.evaluate(HIDE, False)


async def test_an_inbox_that_could_not_be_read_is_read_again(
    page: Page,
    browser: Browser,
    served: Served,
    agent: acphold.RemoteAgent,
    paired: dict[str, StorageState],
) -> None:
    device = await browser.new_context(storage_state=paired[served.url], service_workers="block")
    other = await device.new_page()
    await other.goto(f"{served.url}/#/")
    await other.get_by_role("link", name="New", exact=True).wait_for()
    failed = asyncio.Event()

    async def fail(route: Route) -> None:
        await route.fulfill(status=503, body="{}")
        if len(seen) == 2:
            await other.unroute("**/inbox", fail)
            failed.set()
        seen.append(route.request.url)

    seen: list[str] = []
    await other.route("**/inbox", fail)
    session = await agent.new_session(cwd=served.folder)
    turn = session.prompt(steps(ask(title="Run it again")))
    await asyncio.wait_for(failed.wait(), 60)
    await expect(other.get_by_text("Run it again")).to_be_visible()
    await other.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    await device.close()
