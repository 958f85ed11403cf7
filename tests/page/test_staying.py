"""Unfinished work survives: a form, the focus, a starting session, a place."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

import acphold
from tests.page.conftest import ask, choose, opened, row_of, seen, steps, typed
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

FORM: dict[str, Any] = {
    "mode": "form",
    "message": "Where is it to go?",
    "requestedSchema": {
        "type": "object",
        "properties": {"host": {"type": "string", "title": "Host"}, "port": {"type": "integer"}},
        "required": ["host"],
    },
}

FOCUSED = """() => {
  const asked = document.activeElement.closest("section.question");
  return asked?.getAttribute("aria-label").endsWith("Step 1");
}"""


def home(page: Page) -> str:
    return page.url.partition("#")[0] + "#/"


async def test_a_form_that_is_half_filled_in_is_so_after_a_lost_connection_and_after_later(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await typed(page, steps({"ask": ["elicitation/create", FORM]}))
    question = page.locator(".asking section.question")
    host = question.get_by_label("Host")
    await host.fill("orchard.example")
    await question.evaluate("(it) => void (globalThis.first = it)")
    await page.evaluate("dispatchEvent(new Event('offline'))")
    await page.evaluate(seen("() => !first.isConnected && document.querySelector('.asking form')"))
    await expect(host).to_have_value("orchard.example")
    await question.get_by_role("button", name="Later").click()
    await page.locator(".asking button.later").click()
    await expect(host).to_have_value("orchard.example")
    await question.get_by_role("button", name="Send").click()
    await expect(page.locator(".said")).to_contain_text("orchard.example")


async def test_a_form_that_is_taller_than_the_screen_leaves_its_answers_and_the_prompt_on_it(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 360, "height": 640})
    fields = {f"field{number}": {"type": "string"} for number in range(20)}
    schema = {"type": "object", "properties": fields, "required": ["field19"]}
    await opened(page, session.id)
    long = {**FORM, "requestedSchema": schema}
    await typed(page, steps({"ask": ["elicitation/create", long]}))
    question = page.locator(".asking section.question")
    await expect(question.get_by_role("button", name="More below")).to_be_visible()
    for each in (
        question.get_by_role("button", name="Send"),
        question.get_by_role("button", name="Decline"),
        page.get_by_role("textbox", name="Prompt", exact=True),
    ):
        await expect(each).to_be_in_viewport(ratio=1)
    await question.get_by_label("field19").fill("the last")  # which brings it into sight
    await question.get_by_role("button", name="Send").click()
    await expect(page.locator(".said")).to_contain_text("the last")


async def every_answer(card: Locator, wanted: str) -> None:
    """Have a question show the answers below the two in its row, if one of these is wanted."""
    if wanted == "Later":
        await card.get_by_role("button", name="More answers").click()


@pytest.mark.parametrize("way", ["Later", "Go on"])
async def test_the_focus_goes_to_the_next_question_and_then_to_where_one_writes(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, way: str
) -> None:
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    turns = [
        session.prompt(steps(ask(title=f"Step {number}")))
        for number, session in enumerate(sessions)
    ]
    questions = page.locator(".inbox section.question")
    await expect(questions).to_have_count(2)
    step = questions.filter(has_text="Step 0")
    await every_answer(step, way)
    first = step.get_by_role("button", name=way)
    await first.focus()
    await expect(first).to_be_enabled()
    await first.press("Enter")
    await expect(questions).to_have_count(1)
    await page.evaluate(seen(FOCUSED))
    await every_answer(questions, way)
    last = questions.get_by_role("button", name=way)
    await expect(last).to_be_enabled()
    await last.focus()
    await last.press("Enter")
    await expect(questions).to_have_count(0)
    await expect(page.get_by_role("searchbox")).to_be_focused()
    if way == "Later":
        await opened(page, sessions[1].id)
        question = page.locator(".asking section.question")
        for answer in ("Later", "Go on"):
            await every_answer(question, answer)
            button = question.get_by_role("button", name=answer)
            await expect(button).to_be_enabled()
            await button.focus()
            await button.press("Enter")
            await expect(question).to_have_count(0)
            await expect(page.get_by_role("textbox", name="Prompt", exact=True)).to_be_focused()
            if answer == "Later":
                await page.locator(".asking button.later").click()
        await opened(page, sessions[0].id)
        await question.get_by_role("button", name="Go on").click()
    for turn in turns:
        assert '"go"' in (await asyncio.wait_for(turn, 60)).text


async def test_a_session_that_is_being_started_starts_once_however_often_one_leaves_and_comes_back(
    page: Page, served: Served, tmp_path: Path
) -> None:
    await page.goto(home(page) + "new")
    await page.get_by_label("First prompt").fill("Count the plums")
    await page.get_by_label("Folder on the server").fill(str(tmp_path))
    await page.get_by_label("Agent").select_option("slow")
    await page.get_by_role("button", name="Start").click()
    busy = page.get_by_role("button", name=re.compile(r"^Starting slow … \d+ s$"))
    await expect(busy).to_be_disabled()
    await page.goto(home(page))
    await page.goto(home(page) + "new")
    await expect(busy).to_be_disabled()
    await page.goto(home(page))
    (served.folder / "slow may go").touch()
    row = page.locator("a.session", has_text="Count the plums")
    await expect(row).to_have_count(1)
    assert page.url.endswith("#/")  # the person who moved on is not moved back
    await page.goto(home(page) + "new")
    await expect(page.get_by_label("First prompt")).to_have_value("")


async def test_a_session_that_was_just_started_is_not_read_behind_what_is_said_in_it(
    routed: Page, served: Served, tmp_path: Path
) -> None:
    released = asyncio.Event()

    async def late(route: Route) -> None:
        await released.wait()
        await route.fulfill(json={"entries": [], "before": None})

    await routed.route(re.compile("/entries"), late)
    await routed.goto(f"{served.url}/#/new")
    await routed.get_by_label("Folder on the server").fill(str(tmp_path))
    await routed.get_by_label("Agent").select_option("scripted")
    words = steps({"say": "On it."}, {"until": str(tmp_path / "go")}, {"say": " Done."})
    await routed.get_by_label("First prompt").fill(words)
    await routed.get_by_role("button", name="Start").click()
    await expect(routed.locator(".said")).to_have_text("On it.")
    released.set()
    (tmp_path / "go").touch()
    await expect(routed.locator(".said")).to_have_text("On it. Done.")
    await expect(routed.locator("article.prompt")).to_have_count(1)


async def test_who_has_gone_on_to_another_session_stays_there_when_the_one_before_is_archived(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    first, second = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    for each in (first, second):
        await each.prompt(steps({"say": "Here."}))
    # The page hears of its new address after the server's answer: either may be first.
    late = "addEventListener('hashchange', (it) => window.isLate && it.stopImmediatePropagation())"
    await page.add_init_script(late)
    await page.reload()
    await opened(page, first.id)
    await page.get_by_label("More").click()
    await page.evaluate(
        """(place) => {
          window.isLate = true;
          const found = [...document.querySelectorAll("#session-menu button")];
          found.find((it) => it.textContent === "Archive").click();
          location.hash = place;
        }""",
        f"#/session/{second.id}",
    )
    await expect(page.locator(".undo p")).to_contain_text("is archived")
    await page.evaluate("() => new Promise((resolve) => setTimeout(resolve))")
    assert page.url.endswith(second.id)
    await page.evaluate(
        """() => {
          window.isLate = false;
          dispatchEvent(new HashChangeEvent("hashchange"));
        }"""
    )
    await choose(page, "Archive")
    await expect(page.locator(".undo p")).to_have_count(2)
    await expect(row_of(page, second)).to_have_count(0)
    assert page.url.endswith("#/")


async def test_a_prompt_whose_turn_runs_is_there_once_after_a_reload(
    page: Page, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    thoughts = [{"think": "Hm. "}] * 90  # more than what is read of a conversation at once
    until = {"until": f"{tmp_path / 'go'}"}
    await typed(page, steps({"say": "half "}, *thoughts, until, {"say": "whole"}))
    await expect(page.locator(".thought")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await expect(page.locator(".sending")).to_have_count(0)
    await page.locator("article.prompt").scroll_into_view_if_needed()
    await expect(page.locator("article.prompt header")).to_contain_text("on the page")
    (tmp_path / "go").touch()
    await expect(page.locator(".said").last).to_have_text("whole")
    await typed(page, steps({"say": "next"}))
    await expect(page.locator(".said").last).to_have_text("next")
    await expect(page.locator("article.prompt")).to_have_count(2)
    await expect(page.locator(".of-end")).to_have_count(2)
