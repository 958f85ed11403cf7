"""Beside the list, while nothing is open: the news, and the hits of a search."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

import acphold
from tests.page.conftest import ask, did, note, opened, row_of, steps, violations

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 360, "height": 760}


def edit(path: Path) -> dict[str, object]:
    diff = {"type": "diff", "path": str(path), "oldText": None, "newText": "new\n"}
    call = {"sessionUpdate": "tool_call", "toolCallId": "t1", "status": "completed"}
    return {"update": {**call, "title": "Edit", "kind": "edit", "content": [diff]}}


async def test_what_ended_meanwhile_stands_there_with_its_last_words_until_somebody_looks(
    page: Page, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    await session.prompt(steps({"say": "I have begun."}))
    await expect(page.locator(f"a.session[href='#/session/{session.id}']")).to_be_visible()
    await session.prompt(steps(edit(tmp_path / "a.py"), {"say": "I have written `a.py`."}))
    news = page.locator(".news section")
    glance = news.locator(".glance", has=page.locator(f"a[href='#/session/{session.id}']"))
    await expect(news.locator("h2").first).to_have_text("Since you last looked")
    await expect(glance).to_contain_text("done")
    await expect(glance.locator(".last")).to_have_text("I have written a.py.")
    await glance.get_by_role("link", name="1 file changed").click()
    await expect(page.locator(".files button")).to_have_text(["a.py +1"])
    await opened(page, session.id)
    await page.goto(f"{page.url.partition('#')[0]}#/")
    await expect(glance).to_have_count(0)


async def test_a_session_that_failed_says_why(page: Page, session: acphold.RemoteSession) -> None:
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    with pytest.raises(acphold.AcpError):
        await session.prompt(steps({"error": {"code": -32000, "message": "No credit is left."}}))
    glance = page.locator(".glance", has=page.locator(f"a[href='#/session/{session.id}']"))
    await expect(glance).to_contain_text("failed")
    await expect(glance.locator(".bad")).to_have_text("No credit is left.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_turn_that_was_cancelled_is_news_but_not_done_and_not_green(
    page: Page, scheme: Any, session: acphold.RemoteSession
) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    turn = session.prompt(steps(ask(title="Sweep the yard")))
    await page.locator(".inbox section.question").wait_for()
    session.cancel()
    await turn
    await session.close()
    news = page.locator(".news section").filter(has_text="Since you last looked")
    glance = news.locator(".glance", has=page.locator(f"a[href='#/session/{session.id}']"))
    await expect(glance.locator(".state")).to_have_text("cancelled")
    colour = "(it) => getComputedStyle(it, '::before').backgroundColor"
    for state in (glance.locator(".state"), row_of(page, session).locator(".state")):
        red, green, blue, *_ = map(int, re.findall(r"\d+", await state.evaluate(colour)))
        assert max(red, green, blue) - min(red, green, blue) < 30
    assert await violations(page) == []


async def test_a_search_shows_hits_with_what_was_said_around_them_where_there_is_room(
    page: Page, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": "The word is **quillaja**, of `course`."}))
    await session.prompt(steps({"say": "And this was after it."}))
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    await page.get_by_label("Search sessions").fill("quillaja course")
    before = page.locator(".around:has(+ .excerpt)", has_text="You: ")
    hit = page.locator(".news .hits li", has=before)
    await expect(hit.locator("mark")).to_have_text(["quillaja", "course"])
    await expect(hit.locator(".excerpt")).to_have_text("The word is quillaja, of course.")
    await expect(hit.locator(".excerpt + .around")).to_contain_text("after it.")
    await expect(page.locator(".home .hits")).to_have_count(0)  # they stand there once
    assert await violations(page) == []
    await page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    await expect(page.locator(".home .hits mark").first).to_have_text("quillaja")
    await expect(page.locator(".news")).to_have_count(0)


async def test_the_list_does_not_say_that_nothing_matches_where_messages_do(
    page: Page, session: acphold.RemoteSession
) -> None:
    for words in ("The first.", "In the middle is fenugreek.", "The last."):
        await session.prompt(steps({"say": words}))
    await note(page, ".home .empty")
    search = page.get_by_label("Search sessions")
    await search.fill("fenugreek")
    await expect(page.locator(".home .hits mark").first).to_have_text("fenugreek")
    empty = page.locator(".home .empty")
    await expect(empty).to_have_text("")  # the status of the hits
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    await expect(empty).to_have_text("No title has all of these words.")
    assert not [it for it in await page.evaluate("() => noted") if "No session" in it]
    await search.fill("zygophyllum")
    await expect(empty).to_have_text("No session matches by title, agent or folder.")


async def test_what_waits_stands_below_what_a_search_finds_while_somebody_searches(
    page: Page, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": "The word is saponaria."}))
    turn = session.prompt(steps(ask(title="Run it")))
    question = page.locator(".inbox section.question")
    hit = page.locator(".hits mark", has_text="saponaria").first
    search = page.get_by_label("Search sessions")

    async def height(of: Locator) -> float:
        box = await of.bounding_box()
        assert box is not None
        return box["y"]

    await expect(question).to_be_visible()
    assert await height(question) < await height(search)
    await search.fill("saponaria")
    await expect(hit).to_be_visible()
    assert await height(search) < await height(hit) < await height(question)
    await search.fill("")
    assert await height(question) < await height(search)
    await question.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_right_half_is_never_empty_and_has_no_faults_that_axe_finds(
    page: Page, tmp_path: Path, scheme: str, session: acphold.RemoteSession
) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    await did(page, session, {"say": "Said."})
    await page.goto(f"{page.url.partition('#')[0]}#/")
    form = page.get_by_label("News").locator("form")
    await form.get_by_label("Folder on the server").fill(str(tmp_path))
    await form.get_by_label("First prompt").fill(steps({"say": "Begun beside the list."}))
    assert await violations(page) == []
    await form.get_by_role("button", name="Start and send").click()
    await expect(page.locator(".said")).to_have_text("Begun beside the list.")
