"""The page offers to import what agents left on the server's disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from tests.editor import scripted_agent
from tests.imports.claude_home import Transcript
from tests.page.conftest import choose, steps, typed
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server on a machine with a conversation of Claude Code."""
    home = tmp_path / "home"
    Transcript("Where is the needle?").write(home)
    with serving(tmp_path, variables={"HOME": str(home)}) as found:
        yield found


async def test_conversations_found_here_are_in_the_list_after_one_tap(page: Page) -> None:
    offer = page.get_by_role("group", name="Import")
    await expect(offer).to_contain_text("claude")
    await offer.get_by_role("button", name="Import 1 conversation found here").click()
    await page.get_by_text("Where is the needle?").first.wait_for()
    await expect(offer).to_be_hidden()
    await page.reload()
    await page.get_by_text("Where is the needle?").first.wait_for()
    await expect(offer).to_be_hidden()


async def test_what_can_be_done_stands_in_place_of_a_prompt_where_its_agent_is_not_served(
    page: Page,
) -> None:
    offer = page.get_by_role("group", name="Import")
    await offer.get_by_role("button", name="Import 1 conversation found here").click()
    row = page.locator("a.session", has_text="Where is the needle?")
    await expect(row.locator(".agent")).to_have_text("claude")
    await expect(row.locator(".words")).to_have_count(0)  # nobody knows why it has no answer
    await row.click()
    await expect(page.locator(".ending")).to_have_text("No answer")
    instead = page.get_by_label("Another agent")
    await expect(instead).to_contain_text("This server does not run claude.")
    await expect(instead).to_contain_text("install it")
    await expect(page.locator(".composer")).to_have_count(0)
    await instead.get_by_role("button").first.click()
    await expect(page.get_by_role("textbox", name="Prompt", exact=True)).to_be_focused()
    await expect(instead).to_have_count(0)
    whose = page.locator(".bar .name p")
    await expect(whose).to_contain_text("demo ·")


async def test_who_continues_a_copy_is_asked_once_also_after_a_reload_and_a_restart(
    browser: Browser, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    Transcript("Where is the needle?").write(home)
    command = tuple(scripted_agent(info={"name": "@makers/helper", "version": "1"}))
    with serving(tmp_path, agent=command, variables={"HOME": str(home)}) as served:
        page = await browser.new_page()
        await page.goto(f"{served.url}/#pair={served.pair}")
        offer = page.get_by_role("group", name="Import")
        await offer.get_by_role("button", name="Import 1 conversation found here").click()
        await page.locator("a.session", has_text="Where is the needle?").click()
        await page.get_by_label("Another agent").get_by_role("button").first.click()
        prompt = page.get_by_role("textbox", name="Prompt", exact=True)
        await expect(prompt).to_be_focused()
        copy = page.url.rpartition("/")[2]
        await page.reload()
        await expect(prompt).to_be_visible()
        port = served.url.rpartition(":")[2]
        served.process.kill()
        await asyncio.to_thread(served.process.wait, 60)
        served.words = [word.replace("127.0.0.1:0", f"127.0.0.1:{port}") for word in served.words]
        served.start_again()
        await page.reload()
        await typed(page, steps({"say": "Here it is."}))
        await expect(page.locator("article.said").last).to_have_text("Here it is.")
        assert page.url.endswith(copy)
        await page.close()


async def test_no_prompt_can_be_written_before_it_is_known_who_would_get_it(page: Page) -> None:
    offer = page.get_by_role("group", name="Import")
    await offer.get_by_role("button", name="Import 1 conversation found here").click()
    await page.locator("a.session", has_text="Where is the needle?").click()
    may = asyncio.Event()

    async def late(route: Route) -> None:
        await may.wait()
        await route.continue_()

    await page.route("**/sessions/feed", late)
    await page.reload()
    await expect(page.locator(".asking")).to_have_count(1)
    await expect(page.locator(".ending")).to_have_text("No answer")
    await expect(page.locator(".composer")).to_have_count(0)
    may.set()
    await expect(page.get_by_label("Another agent")).to_be_visible()


@pytest.mark.parametrize("width", [360, 1440])
async def test_what_was_done_is_said_above_what_can_be_done(page: Page, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    offer = page.get_by_role("group", name="Import")
    await offer.get_by_role("button", name="Import 1 conversation found here").click()
    await page.locator("a.session", has_text="Where is the needle?").click()
    instead = page.get_by_label("Another agent")
    await expect(instead).to_be_visible()
    place = await page.evaluate("location.hash")
    await choose(page, "Archive")
    bar = page.locator(".undo p")
    await expect(bar).to_contain_text("archived")
    await page.evaluate("(place) => (location.hash = place)", place)
    await expect(instead).to_be_visible()
    assert await is_above(bar, instead)
    await instead.get_by_role("button").first.click()
    assert await is_above(bar, page.locator(".composer"))


async def is_above(upper: Locator, lower: Locator) -> bool:
    above, below = await upper.bounding_box(), await lower.bounding_box()
    assert above
    assert below
    return 0 < above["y"] < above["y"] + above["height"] <= below["y"]


async def test_no_thanks_is_remembered_on_this_device(page: Page) -> None:
    offer = page.get_by_role("group", name="Import")
    await offer.get_by_role("button", name="No, thanks").click()
    await expect(offer).to_be_hidden()
    await page.reload()
    await page.get_by_role("link", name="New", exact=True).wait_for()
    await expect(offer).to_be_hidden()


async def test_conversations_that_are_not_current_are_counted_with_the_reasons(page: Page) -> None:
    left = {"claude": {"new": 1, "unreadable": 2}, "codex": {"grown": 1}}
    told = {"found": {}, "isAll": True, "left": left, "isRunning": False, "problem": None}
    await page.route("**/import", lambda route: route.fulfill(json=told))
    await page.reload()
    offer = page.get_by_role("group", name="Import")
    await offer.get_by_role("button", name="Import 4 conversations not current here").wait_for()
    await expect(offer).to_contain_text("from claude (new 1, unreadable 2), codex (grown 1)")
