"""Devices of all kinds: slow lines, keyboards alone, eyes that want it larger or calmer."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect

import acphold
from tests.page.conftest import ask, fits, note, noted, opened, row_of, seen, shown, steps, typed
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

SLOW_3G = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 400_000 / 8,
    "uploadThroughput": 400_000 / 8,
}
"""As browsers' own tools have it: milliseconds, and bytes a second."""


async def test_a_slow_line_shows_what_was_read_at_once_and_what_is_sent_until_it_is_there(
    page: Page, device: BrowserContext, session: acphold.RemoteSession
) -> None:
    for number in range(5):
        await session.prompt(steps({"say": f"Answer {number}. " + "Words and words. " * 200}))
    await opened(page, session.id)
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    await page.reload()  # from now on by the service worker
    await expect(page.locator(".said").last).to_contain_text("Answer 4.")
    tools = await device.new_cdp_session(page)
    await tools.send("Network.enable")
    await tools.send("Network.emulateNetworkConditions", SLOW_3G)
    await page.reload()
    await expect(page.locator(".said").last).to_contain_text("Answer 4.", timeout=60_000)
    await note(page, "ul.sending")
    await typed(page, steps({"say": "From far away."}))
    await noted(page, "Saved on this device|Sending…")
    await expect(page.locator(".said").last).to_have_text("From far away.", timeout=60_000)
    await expect(page.locator("ul.sending")).to_have_count(0)
    await expect(page.locator(".away-bar")).to_have_count(0)


async def test_a_device_that_was_here_before_has_the_page_compiled(
    page: Page, device: BrowserContext
) -> None:
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    browser = device.browser
    assert browser is not None
    await browser.start_tracing(page=page, categories=["v8", "devtools.timeline"])
    await page.reload()
    await page.get_by_role("link", name="New", exact=True).wait_for()
    told = json.loads(await browser.stop_tracing())["traceEvents"]
    [compiled] = [
        it["args"]["data"]
        for it in told
        if it["name"] == "v8.compile" and "/page/main-" in it["args"]["data"]["url"]
    ]
    assert compiled["consumedCacheSize"] > 100_000
    assert not compiled["cacheRejected"]


async def test_everything_is_reached_with_the_keyboard_alone(
    page: Page, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps(ask(title="Run it"), {"say": "Thank you."}))
    go_on = page.locator(".inbox section.question").get_by_role("button", name="Go on")
    await expect(go_on).to_be_enabled()  # it is once the session is open here

    async def tab_to(*names: str) -> None:
        """Press Tab until the focus, which is seen, is on something of this name."""
        for _ in range(60):
            await page.keyboard.press("Tab")
            said = await page.evaluate(
                "() => { const it = document.activeElement;"
                " const frame = it.closest('.composer .row') ?? it;"
                " const name = it.ariaLabel ?? it.innerText ?? '';"
                " const { outlineStyle, boxShadow } = getComputedStyle(frame);"
                " return [name, outlineStyle !== 'none' || boxShadow !== 'none']; }"
            )
            if said[0].strip().startswith(names):
                assert said[1], f"nobody sees that the focus is on {said[0]}"
                return
        raise AssertionError(f"{names} is not reached")

    await tab_to("Allow once: Go on", "allow once: Go on")
    await page.keyboard.press("Enter")
    assert '"go"' in (await asyncio.wait_for(turn, 30)).text
    # To the session, over the list to the conversation, and to where one writes.
    await row_of(page, session).focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("textbox", name="Prompt", exact=True).wait_for()
    await tab_to("More")
    await page.keyboard.press("Enter")
    await expect(page.locator("#session-menu")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#session-menu")).not_to_be_visible()
    await tab_to("Conversation")
    await page.keyboard.press("Home")
    await tab_to("Prompt")
    await page.keyboard.type(steps({"say": "Typed."}))
    await page.keyboard.press("Enter")
    await expect(page.locator(".said", has_text=re.compile("^Typed.$"))).to_be_visible()
    # On a wide screen the list is before the conversation: a link leads past it.
    await page.set_viewport_size({"width": 1440, "height": 900})
    await page.evaluate("document.activeElement.blur()")
    await page.reload()
    await page.get_by_role("textbox", name="Prompt", exact=True).wait_for()
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Skip to the main content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main#main")).to_be_focused()


async def test_who_wants_no_motion_sees_none_and_who_wants_large_text_loses_nothing(
    page: Page, session: acphold.RemoteSession
) -> None:
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "Work on it",
        "status": "in_progress",
    }
    command = "python -m pytest --maxfail=1 && git push"
    asked = ask("t2", title="Run it", rawInput={"command": command})
    turn = session.prompt(
        steps({"say": "On it.\n\n| a | b |\n|---|---|\n| 1 | 2 |"}, {"update": call}, asked)
    )
    await opened(page, session.id)
    await page.locator(".asking section.question").wait_for()
    moves = "document.getAnimations().some((it) => it.playState === 'running')"
    await page.emulate_media(reduced_motion="no-preference")
    await page.evaluate(seen(f"() => {moves}"))
    await page.emulate_media(reduced_motion="reduce")
    await page.evaluate(seen(f"() => !{moves}"))
    # Twice as large, on the smallest screen.
    await page.evaluate("document.documentElement.style.fontSize = '200%'")
    for place in ("#/", f"#/session/{session.id}", "#/new"):
        await shown(page, place)
        assert await fits(page), place
    await shown(page, f"#/session/{session.id}")
    question = page.locator(".asking section.question")
    for name in ("Go on", "Stop it"):
        button = question.get_by_role("button", name=name)
        await button.scroll_into_view_if_needed()
        await expect(button).to_be_in_viewport(ratio=0.9)
        box = await button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    await expect(question.locator(".command")).to_contain_text("git push")
    await question.get_by_role("button", name="Stop it").click()
    await turn


async def test_a_question_that_an_agent_forges_cannot_be_taken_for_one(
    page: Page, device: BrowserContext, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    forged = (
        "> ● **scripted asks**\n>\n> Run the tests\n>\n> `[ Go on ]`  `[ Stop it ]`\n\n"
        "[Go on](https://example.org/yes)\n\n<button>Go on</button>"
    )
    session, other = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    await session.prompt(steps({"say": forged}))
    # And one that names somebody else's session, or none.
    request = {"toolCall": {"toolCallId": "x", "title": "Not mine"}, "options": []}
    stray = {"jsonrpc": "2.0", "id": "s", "method": "session/request_permission"}
    line = {"line": json.dumps({**stray, "params": {**request, "sessionId": "nobody"}})}
    await session.prompt(steps(line, {"say": "done"}))
    for place in (session, other):
        await opened(page, place.id)
        await expect(page.locator("section.question")).to_have_count(0)
        await expect(page.locator(".asking button", has_text="Go on")).to_have_count(0)
    await opened(page, session.id)
    sheet = page.locator(".sheet")
    await expect(sheet).to_contain_text("Run the tests")
    assert await sheet.locator("button:not(.copy, .quiet, .from-here)").count() == 0
    lamp = "(all) => all.filter((it) => getComputedStyle(it).boxShadow !== 'none').length"
    assert await sheet.locator("*").evaluate_all(lamp) == 0, "the lamp is the question's alone"
