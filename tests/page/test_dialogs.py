"""The page's own dialogs, and undoing: a deletion, and a swipe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

import acphold
from tests.page.conftest import (
    as_paired,
    ask,
    choose,
    fits,
    opened,
    row_of,
    steps,
    violations,
    watch,
)
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

GONE_SECONDS = 40


async def named(
    page: Page, agent: acphold.RemoteAgent, folder: Path, title: str
) -> acphold.RemoteSession:
    """A session with this title, open on the page."""
    session = await agent.new_session(cwd=folder)
    await session.prompt(steps({"say": "Here."}))
    await opened(page, session.id)
    await choose(page, "Rename")
    await page.get_by_role("dialog").get_by_label("Name").fill(title)
    await page.keyboard.press("Enter")
    await expect(page.locator(".bar h1")).to_have_text(title)
    return session


def is_kept(served: Served, session_id: str) -> bool:
    """The server has it."""
    listed = served.run("list", "--json").splitlines()
    return any(json.loads(line)["sessionId"] == session_id for line in listed)


async def deleted(page: Page) -> None:
    """Delete the session that is open."""
    await choose(page, "Delete")
    dialog = page.get_by_role("dialog", name="Delete this session?")
    await dialog.get_by_role("button", name="Delete").click()


@pytest.mark.parametrize(
    ("width", "height"), [(360, 740), (180, 370)], ids=["a phone", "a phone, at 200 %"]
)
async def test_a_dialog_is_used_with_the_keyboard_and_read_by_whoever_listens(
    page: Page, width: int, height: int, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await page.set_viewport_size({"width": width, "height": height})
    more = page.get_by_label("More")
    title = await page.locator(".bar h1").inner_text()
    for what, name, focused in (
        ("Rename", "Rename this session", "input"),
        ("Delete", "Delete this session?", "button"),
    ):
        await more.focus()
        await page.keyboard.press("Enter")
        await page.locator("#session-menu").get_by_text(what, exact=True).focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name=name)
        await expect(dialog.locator(focused).first).to_be_focused()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await violations(page) == []
        assert await fits(page)
        for button in await dialog.get_by_role("button").all():
            await button.scroll_into_view_if_needed()
            await expect(button).to_be_in_viewport(ratio=1)
        # The focus stays in it.
        for _ in range(5):
            await page.keyboard.press("Tab")
            assert await page.evaluate(
                "document.activeElement === document.body"
                " || document.activeElement.closest('dialog') !== null"
            )
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(more).to_be_focused()
    await expect(page.locator(".bar h1")).to_have_text(title)


async def test_a_dialog_goes_with_the_page_that_it_was_about(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    for session in sessions:
        await session.prompt(steps({"say": "Here."}))
        await opened(page, session.id)
    await page.set_viewport_size({"width": 1280, "height": 760})
    link = page.get_by_role("link", name="New", exact=True)
    await link.focus()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_be_visible()
    await page.go_back()
    await expect(dialog).to_have_count(0)
    await expect(link).to_be_focused()


async def test_a_deleted_session_can_be_had_back_for_ten_seconds(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    session = await named(page, agent, tmp_path, "Not that one")
    await page.clock.install()
    await deleted(page)
    bar = page.locator(".undo p", has_text="“Not that one” will be deleted in ten seconds.")
    await expect(bar).to_be_visible()
    row = row_of(page, session)
    await expect(row).to_have_count(0)
    await expect(page.locator("#main")).to_be_focused()
    assert await violations(page) == []
    await bar.get_by_role("button", name="Undo").click()
    await expect(row).to_be_visible()
    await expect(bar).to_have_count(0)
    await page.clock.fast_forward(11_000)
    assert is_kept(served, session.id)
    await expect(row).to_be_visible()


async def test_a_session_that_nobody_wants_back_is_deleted_and_a_page_that_is_left_keeps_it(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    session = await named(page, agent, tmp_path, "In haste")
    await deleted(page)
    await expect(row_of(page, session)).to_have_count(0)
    await page.reload()
    await expect(row_of(page, session)).to_be_visible()
    assert is_kept(served, session.id)
    await opened(page, session.id)
    await page.clock.install()
    await deleted(page)
    await expect(row_of(page, session)).to_have_count(0)
    await page.clock.fast_forward(11_000)
    async with asyncio.timeout(GONE_SECONDS):
        while await asyncio.to_thread(is_kept, served, session.id):
            assert await row_of(page, session).count() == 0
    await page.reload()
    await page.get_by_role("searchbox").wait_for()
    await expect(row_of(page, session)).to_have_count(0)


@pytest_asyncio.fixture(loop_scope="session")
async def phone(
    device: BrowserContext, page: Page, served: Served, wrong: list[str]
) -> AsyncIterator[Page]:
    """The page on a touch screen."""
    state = await device.storage_state()
    browser = device.browser
    assert browser is not None
    context = await browser.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    context.set_default_timeout(30_000)
    found = await context.new_page()
    watch(found, wrong)
    await as_paired(found, served.url, state)
    await found.goto(f"{served.url}/#/")
    await found.get_by_role("searchbox").wait_for()
    yield found
    await context.close()


async def swiped(page: Page, what: Locator, across: int, along: int = 0) -> None:
    """Put a finger on it, and move that."""
    await what.scroll_into_view_if_needed()
    box = await what.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] - 60, box["y"] + 20
    tools = await page.context.new_cdp_session(page)

    async def touch(kind: str, *points: tuple[float, float]) -> None:
        told = [{"x": at[0], "y": at[1]} for at in points]
        await tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": told})

    await touch("touchStart", (x, y))
    for part in range(1, 11):
        await touch("touchMove", (x + across * part / 10, y + along * part / 10))
    await touch("touchEnd")
    await tools.detach()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
async def test_a_swipe_archives_a_session_and_that_can_be_undone(
    phone: Page, served: Served, motion: str, session: acphold.RemoteSession
) -> None:
    await phone.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]
    await session.prompt(steps({"say": "Here."}))
    row = row_of(phone, session)
    await expect(row).to_be_visible()
    await phone.evaluate(
        """(href) => {
          const row = document.querySelector(`a.session[href="${href}"]`);
          globalThis.moved = [];
          const look = () => moved.push(row.style.translate);
          new MutationObserver(look).observe(row, { attributes: true });
        }""",
        f"#/session/{session.id}",
    )
    await swiped(phone, row, -60)  # not far enough
    await swiped(phone, row, -40, 160)  # somebody scrolls
    await expect(row).to_be_visible()
    assert await phone.locator(".undo p").count() == 0
    await swiped(phone, row, -200)
    bar = phone.locator(".undo p")
    await expect(bar).to_contain_text("is archived")
    await expect(row).to_have_count(0)
    assert phone.url.endswith("#/")  # it was no tap
    assert (await phone.evaluate("moved.some((it) => it !== '')")) == (motion != "reduce")
    await bar.get_by_role("button", name="Undo").click()
    await expect(row).to_be_visible()


async def test_a_swipe_puts_a_question_off_and_answers_nothing(
    phone: Page, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps(ask(title="Sweep the stairs", rawInput={"steps": 14})))
    question = phone.locator(".inbox section.question")
    await expect(question).to_be_visible()
    # A finger that slips over a button neither answers nor puts off.
    for name in ("Go on", "Stop it"):
        await swiped(phone, question.get_by_role("button", name=name), -200)
    await expect(question.get_by_role("button", name="Go on")).to_be_enabled()
    await swiped(phone, question.locator("h2"), -200)
    await expect(question).to_have_count(0)
    await phone.locator(".inbox summary").click()
    await phone.locator("button.later", has_text="Sweep the stairs").click()
    await question.get_by_role("button", name="Stop it").click()
    assert '"stop"' in (await asyncio.wait_for(turn, 60)).text


async def test_a_finger_copies_code_with_a_button_that_covers_none_of_it(
    phone: Page, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": f"```py\n{'value = ' * 20}1\n```\n"}))
    await opened(phone, session.id)
    code, button = phone.locator(".code pre"), phone.get_by_role("button", name="Copy")
    await expect(button).to_be_visible()
    above, below = await code.bounding_box(), await button.bounding_box()
    assert above is not None
    assert below is not None
    assert below["y"] >= above["y"] + above["height"]
    assert below["height"] >= 44
