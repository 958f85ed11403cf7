"""Queued prompts in a session, above where one writes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, WebSocketRoute, expect

import acphold
from tests.page.conftest import opened, row_of, steps, typed, violations, watch
from tests.page.test_whose import code
from tests.page.test_writing import heard
from tests.watched_processes import until
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


def rows(page: Page) -> Locator:
    return page.locator(".queue ol li")


async def at_work(
    page: Page, agent: acphold.RemoteAgent, folder: Path, until: str = ""
) -> acphold.RemoteSession:
    """A session whose turn runs until there is a file `done`, or until this."""
    session = await agent.new_session(cwd=folder)
    await opened(page, session.id)
    await typed(page, steps({"say": "At work."}, {"until": until or str(folder / "done")}))
    await expect(page.locator(".said", has_text="At work.")).to_be_visible()
    return session


async def put_off(page: Page, *texts: str) -> None:
    """Write prompts while a turn runs; each is in the queue."""
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    before = await rows(page).count()
    for count, text in enumerate(texts, before + 1):
        await area.fill(text)
        await area.press("Enter")
        await expect(rows(page)).to_have_count(count)
        await expect(area).to_have_value("")


async def pressed_at_once(page: Page, name: str) -> None:
    """Press this answer to what a stop asks as soon as it is asked."""
    await page.evaluate(
        """(name) => new MutationObserver(() =>
          [...document.querySelectorAll(".rest button")].find((it) => it.textContent === name)
            ?.click()).observe(document.body, { childList: true, subtree: true })""",
        name,
    )


async def expect_words(page: Page, *texts: str) -> None:
    await expect(page.locator(".queue ol li .words > p:first-child")).to_have_text(list(texts))


def answer(page: Page, text: str) -> Locator:
    """The agent's answer to a prompt."""
    return page.locator(".said", has_text=f'heard: [{{"type": "text", "text": "{text}"')


def said(served: Served, session: acphold.RemoteSession) -> list[str]:
    """The texts that the agent was prompted with behind the first one."""
    prompts = heard(served, "session/prompt", session.id)
    return [block["text"] for prompt in prompts[1:] for block in prompt["prompt"]]


@pytest_asyncio.fixture(loop_scope="session")
async def other(
    page: Page, device: BrowserContext, served: Served, wrong: list[str]
) -> AsyncIterator[Page]:
    """A second page of the device."""
    found = await device.new_page()
    watch(found, wrong)
    await found.goto(f"{served.url}/#/")
    await found.get_by_role("searchbox").wait_for()
    yield found


async def test_what_is_put_off_is_edited_moved_and_removed_before_it_begins(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await put_off(page, "one", "two", "three", "<b onclick=alert()>four</b>")
    await expect(page.get_by_role("heading", name="4 queued prompts")).to_be_visible()
    await expect_words(page, "one", "two", "three", "<b onclick=alert()>four</b>")
    # With the keyboard alone: the focus goes with the row.
    for text in ("two", "one", "<b"):
        await page.get_by_role("button", name=f"Next: {text}").focus()
        await page.keyboard.press("Enter")
        await expect(rows(page).first).to_contain_text(text)
        await expect(page.get_by_role("button", name=f"Next: {text}")).to_be_disabled()
        await expect(page.get_by_role("button", name=f"Edit: {text}")).to_be_focused()
    await expect_words(page, "<b onclick=alert()>four</b>", "one", "two", "three")
    await page.get_by_role("button", name="Edit: two").click()
    words = page.get_by_role("textbox", name="Prompt", exact=True)
    await expect(words).to_be_focused()
    await expect(words).to_have_value("two")
    await words.fill("two, in other words")
    await words.press("Enter")
    await expect(words).to_have_value("")
    await expect(rows(page).nth(2)).to_contain_text("two, in other words")
    # A removed prompt can be put back at its place.
    await page.get_by_role("button", name="Remove: one").click()
    await expect(rows(page)).to_have_count(3)
    await page.get_by_role("button", name="Undo").click()
    await expect(rows(page).nth(1)).to_contain_text("one")
    await page.get_by_role("button", name="Remove: <b").click()
    await expect_words(page, "one", "two, in other words", "three")
    (tmp_path / "done").touch()
    await expect(page.locator("article.prompt")).to_have_count(4)
    await expect(page.locator(".queue")).to_have_count(0)
    await expect(page.locator(".said")).to_have_count(4)
    assert said(served, session) == ["one", "two, in other words", "three"]


async def test_a_prompt_written_behind_one_that_is_on_its_way_is_queued_and_both_run_in_order(
    page: Page, served: Served, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await area.evaluate(
        """async (area, prompts) => {
          for (const words of prompts) {
            area.value = words;
            area.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise((resolve) => setTimeout(resolve));
            const enter = { key: "Enter", bubbles: true, cancelable: true };
            area.dispatchEvent(new KeyboardEvent("keydown", enter));
            await new Promise((resolve) => setTimeout(resolve));
          }
        }""",
        [steps({"say": "At work."}, {"until": "cancel"}), "one", "two"],
    )
    await expect_words(page, "one", "two")
    await expect(page.locator(".sending")).to_have_count(0)
    await page.get_by_role("button", name="Stop", exact=True).click()
    await page.get_by_role("alert").get_by_role("button", name="Resume").click()
    await expect(answer(page, "two")).to_be_visible()
    assert said(served, session) == ["one", "two"]


async def test_two_pages_see_the_same_queue_and_it_needs_neither(
    page: Page, other: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await opened(other, session.id)
    await put_off(page, "from one page")
    await expect_words(other, "from one page")
    await put_off(other, "from the other")
    await expect_words(page, "from one page", "from the other")
    await other.get_by_role("button", name="Next: from the other").click()
    await expect_words(page, "from the other", "from one page")
    for each in (page, other):
        await each.reload()
        await expect_words(each, "from the other", "from one page")
    await page.goto("about:blank")
    await other.close()
    (tmp_path / "done").touch()
    await page.goto(f"{served.url}/#/session/{session.id}")
    await expect(answer(page, "from one page")).to_be_visible()
    assert said(served, session) == ["from the other", "from one page"]


async def test_stop_holds_what_waits_until_somebody_says_go(
    page: Page, other: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path, until="cancel")
    waits = row_of(other, session).locator(".about")
    await put_off(page, "one", steps({"until": str(tmp_path / "done")}), "two")
    await expect(waits).to_contain_text(re.compile("3 queued(?!,)"))
    for fact in (".agent", ".last"):  # there is no room for all of them: they are only read out
        assert await waits.locator(fact).evaluate("(it) => it.getBoundingClientRect().width") <= 1
    name = await waits.locator(".agent").inner_text()
    await expect(waits.locator("..")).to_have_accessible_name(re.compile(f" {re.escape(name)} "))
    # Answered before the page knows that the stop has held them.
    await pressed_at_once(page, "Keep paused")
    await page.get_by_role("button", name="Stop", exact=True).click()
    status = page.locator(".queue header [role=status]")
    await expect(status).to_have_text("paused: stopped")
    await expect(waits).to_contain_text("3 queued, paused")
    await expect(page.locator(".ending.cancelled")).to_be_visible()
    assert said(served, session) == []
    # Held prompts do not hinder a new one, nor does it wait for them.
    await typed(page, "first this")
    await expect(answer(page, "first this")).to_be_visible()
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(answer(page, "one")).to_be_visible()
    await expect(status).to_have_text("")
    # The next one runs; a person holds the ones after it.
    await expect(rows(page)).to_have_count(1)
    await page.get_by_role("button", name="Pause").click()
    await expect(status).to_have_text("paused")
    (tmp_path / "done").touch()
    await expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    await expect_words(page, "two")
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(answer(page, "two")).to_be_visible()
    assert [it[:10] for it in said(served, session)] == ["first this", "one", '[{"until":', "two"]


async def test_a_moment_is_chosen_where_one_writes_in_a_session_that_works_and_in_an_idle_one(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    field = page.get_by_label("Not before")
    for count, text in enumerate(("while it works", "while it is idle"), 1):
        await area.fill(text)
        await page.get_by_role("button", name="Later at…").click()
        await expect(field).to_be_focused()
        await field.fill("2001-01-02T02:00")
        await page.get_by_role("button", name="Queue", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("in the future")
        assert await violations(page) == []
        await field.fill("2099-01-02T02:00")
        await field.press("Enter")
        await expect(rows(page)).to_have_count(count)
        await expect(rows(page).last.locator(".aside")).to_have_text("not before Jan 2, 02:00 AM")
        await expect(area).to_have_value("")
        (tmp_path / "done").touch()
        await expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    # With the keyboard one comes back from it, and nothing is lost.
    await area.fill("at once")
    await page.get_by_role("button", name="Later at…").click()
    await field.press("Escape")
    await expect(field).to_have_count(0)
    await expect(area).to_have_value("at once")
    await area.press("Enter")
    await expect(answer(page, "at once")).to_be_visible()
    assert said(served, session) == ["at once"]


async def test_words_are_said_into_the_running_turn_and_stand_there_also_in_a_replay(
    page: Page, other: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await opened(other, session.id)
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await area.fill("use the other file")
    await page.get_by_role("button", name="Now", exact=True).click()
    await expect(area).to_have_value("")
    for each in (page, other):
        told = each.locator("article.prompt", has_text="use the other file")
        await expect(told).to_have_count(1)
    # A turn that is over when the words come: then they are a prompt, behind it.
    await area.fill("too late for this turn")
    await page.get_by_role("button", name="Now", exact=True).click()
    await expect_words(page, "too late for this turn")
    (tmp_path / "done").touch()
    await expect(answer(page, "too late for this turn")).to_be_visible()
    await expect(page.locator("article.prompt")).to_have_count(3)
    turns = page.locator("article.prompt, .said")
    clock = re.compile(r"\d\d:\d\d\s[AP]M| on the page")
    drawn = [clock.sub("", it) for it in await turns.all_text_contents()]
    await page.reload()
    await expect(answer(page, "too late for this turn")).to_be_visible()
    assert [clock.sub("", it) for it in await turns.all_text_contents()] == drawn
    assert len(drawn) == 5
    assert [it[:8] for it in said(served, session)] == ["too late"]
    steered = heard(served, "_session/steering", session.id)
    assert [it["_meta"]["steering"] for it in steered] == [{"idleBehavior": "promptRequired"}] * 2
    await area.fill("no turn runs")
    await expect(page.get_by_role("button", name="Later at…")).to_be_visible()
    await expect(page.get_by_role("button", name="Now", exact=True)).to_have_count(0)


async def test_a_prompt_put_off_over_a_line_that_is_cut_is_in_the_queue_once(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    routes: list[WebSocketRoute] = []
    cut: list[Any] = []

    def routed(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        routes.append(route)

        async def told(message: str | bytes) -> None:
            answer = json.loads(message)
            if cut and answer.get("id") == cut[0] and "result" in answer:
                cut[0] = None  # the server has it, and the page is not told
                await route.close()
            elif not (cut and cut[0] is None and route is routes[0]):
                route.send(message)

        def sent(message: str | bytes) -> None:
            asked = json.loads(message)
            if not cut and "change" in asked.get("params", {}):
                cut.append(asked["id"])
            server.send(message)

        route.on_message(sent)
        server.on_message(told)

    await page.route_web_socket(re.compile(r"/acp"), routed)
    await page.reload()
    session = await at_work(page, agent, tmp_path)
    await put_off(page, "only once")
    await until(lambda: cut == [None])  # its row may be there before the answer
    await expect(page.locator(".sending")).to_have_count(0)
    await expect_words(page, "only once")
    await put_off(page, "behind it")
    await expect_words(page, "only once", "behind it")
    (tmp_path / "done").touch()
    await expect(answer(page, "behind it")).to_be_visible()
    assert said(served, session) == ["only once", "behind it"]


async def test_what_happens_behind_a_failure_and_a_restart_is_said_and_switched(
    page: Page, other: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await opened(other, session.id)
    await put_off(page, steps({"error": {"code": -32603, "message": "no"}}), "one", "two")
    await page.get_by_role("button", name="Remove: two").click()
    await expect(page.get_by_role("button", name="Remove: one")).to_be_focused()
    rules = page.locator(".queue footer summary").first
    await expect(rules).to_have_text("If a turn fails or acphold restarts: pause")
    await rules.focus()
    await page.keyboard.press("Enter")
    failure = page.get_by_role("checkbox", name="Continue after a turn that failed or was refused")
    await failure.focus()
    await page.keyboard.press("Space")
    await expect(rules).to_have_text("If a turn fails: continue; if acphold restarts: pause")
    seen_there = other.locator(".queue footer summary").first
    await expect(seen_there).to_have_text("If a turn fails: continue; if acphold restarts: pause")
    await page.get_by_role("checkbox", name="Continue after a restart").check()
    await expect(rules).to_have_text("If a turn fails or acphold restarts: continue")
    await expect(seen_there).to_have_text("If a turn fails or acphold restarts: continue")
    (tmp_path / "done").touch()
    await expect(answer(page, "one")).to_be_visible()
    # The outcome of the others is shown beside the waiting prompts.
    await page.get_by_role("textbox", name="Prompt", exact=True).fill("tomorrow")
    await page.get_by_role("button", name="Later at…").click()
    await page.get_by_label("Not before").fill("2099-01-02T02:00")
    await page.get_by_role("button", name="Queue", exact=True).click()
    over = page.locator(".queue footer summary").last
    await expect(over).to_have_text("1 taken back, 1 failed, 1 done")
    await over.click()
    told = page.locator(".queue footer li")
    await expect(told).to_have_count(3)
    await expect(told.last).to_contain_text("done one")
    assert await violations(page) == []


async def test_a_prompt_waits_for_its_moment_with_no_turn_before_it(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await put_off(page, "later that day", "at once")
    await page.get_by_role("button", name="Edit: later").click()
    await page.get_by_role("button", name="Later at…").click()
    await page.get_by_label("Not before").fill("2099-01-02T02:00")
    await page.get_by_role("button", name="Queue", exact=True).click()
    await expect(rows(page).first.locator(".aside")).to_have_text("not before Jan 2, 02:00 AM")
    (tmp_path / "done").touch()
    await expect(answer(page, "at once")).to_be_visible()
    await expect_words(page, "later that day")
    # A prompt sent now does not wait for it.
    await page.get_by_role("textbox", name="Prompt", exact=True).fill("before it")
    await page.get_by_role("button", name="Send").click()
    await expect(answer(page, "before it")).to_be_visible()
    assert said(served, session) == ["at once", "before it"]


async def test_a_prompt_does_not_begin_while_it_is_edited_also_on_a_page_that_is_loaded_again(
    page: Page, other: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await opened(other, session.id)
    await put_off(page, "half", "all")
    words = page.get_by_role("textbox", name="Prompt", exact=True)
    await page.get_by_role("button", name="Edit: half").click()
    await expect(words).to_have_value("half")
    await expect(other.locator(".queue ol .aside")).to_have_text("being edited")
    await page.reload()
    await expect(words).to_have_value("half")
    (tmp_path / "done").touch()
    await expect(answer(page, "all")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    await expect_words(other, "half")
    await words.fill("half and the rest")
    await words.press("Enter")
    await expect(answer(page, "half and the rest")).to_be_visible()
    # Somebody else takes it out: what is written is a prompt of its own.
    await page.get_by_role("textbox", name="Prompt", exact=True).fill("tomorrow")
    await page.get_by_role("button", name="Later at…").click()
    await page.get_by_role("button", name="Queue", exact=True).click()
    await page.get_by_role("button", name="Edit: tomorrow").click()
    await expect(words).to_have_value("tomorrow")
    await other.get_by_role("button", name="Remove: tomorrow").click()
    await expect(page.get_by_text("You are editing")).to_have_count(0)
    await words.press("Enter")
    await expect(answer(page, "tomorrow")).to_be_visible()
    assert said(served, session) == ["all", "half and the rest", "tomorrow"]


async def test_who_may_only_watch_sees_what_waits_and_has_nothing_to_press(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    session = await at_work(page, agent, tmp_path)
    await put_off(page, "one", "two")
    browser = page.context.browser
    assert browser is not None
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    watching = await context.new_page()
    await watching.goto(f"{served.url}/#pair={code(served, '--scope', 'watch')}")
    await watching.get_by_role("link", name="New", exact=True).wait_for()
    await watching.goto(f"{watching.url.partition('#')[0]}#/session/{session.id}")
    await expect_words(watching, "one", "two")
    await expect(watching.locator(".queue button")).to_have_count(0)
    await expect(watching.get_by_text("You can only watch this session.")).to_be_visible()
    await expect(watching.locator(".asking textarea, .asking button")).to_have_count(0)
    await page.get_by_role("button", name="Pause").click()
    await expect(watching.locator(".queue header")).to_contain_text("paused")
    await context.close()
    (tmp_path / "done").touch()


@pytest.mark.parametrize("width", [360, 768, 1440])
async def test_what_sends_and_stops_stays_where_it_is_while_somebody_writes(
    page: Page, width: int, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    await opened(page, session.id)
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    later = page.get_by_role("button", name="Later at…")

    async def places(*names: str) -> list[Any]:
        await expect(later).to_have_count(1 if await area.input_value() else 0)
        buttons = [page.get_by_role("button", name=name, exact=True) for name in names]
        return [await it.bounding_box() for it in (*buttons, area)]

    async def stays(*names: str) -> None:
        before = await places(*names)
        await area.fill("words")
        assert await places(*names) == before
        await area.fill("")
        assert await places(*names) == before

    await page.locator(".choices button").wait_for()
    await area.fill("the session is open to write in it")
    await expect(later).to_be_visible()
    await area.fill("")
    await stays("Send")
    turn = session.prompt(steps({"say": "At work."}, {"until": "cancel"}))
    await page.get_by_role("button", name="Stop", exact=True).wait_for()
    await stays("Stop", "Send")
    await page.get_by_role("button", name="Stop", exact=True).click()
    await turn


async def test_a_queue_fits_on_a_small_screen(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await at_work(page, agent, tmp_path)
    await put_off(page, "a word " * 80, "x" * 300, *map(str, range(4)))
    overflow = "(it) => it.scrollWidth - it.clientWidth"
    for inside in (".asking", ".queue", ".queue ol"):
        assert await page.locator(inside).evaluate(overflow) <= 0
    # Its lower edge looks other while more is below it.
    queue = page.locator(".queue ol")
    box = await queue.bounding_box()
    assert box is not None
    edge: Any = {"x": box["x"] + 1, "y": box["y"] + box["height"] - 3, "width": 3, "height": 3}
    begin = await page.screenshot(clip=edge)
    await queue.evaluate("(it) => it.scrollTo(0, it.scrollHeight)")
    assert await page.screenshot(clip=edge) != begin
    bottom = "(it) => it.getBoundingClientRect().bottom - innerHeight"
    assert await page.get_by_role("textbox", name="Prompt", exact=True).evaluate(bottom) < 0
    await page.get_by_role("button", name="Edit: xx").click()
    await expect(page.get_by_role("textbox", name="Prompt", exact=True)).to_have_value("x" * 300)
    await expect(page.locator(".queue ol .aside")).to_have_text("being edited")
    sizes = "(all) => all.map((it) => Math.min(it.offsetHeight, it.offsetWidth))"
    assert min(await page.locator(".queue button").evaluate_all(sizes)) >= 44
    assert await page.locator(".queue ol").evaluate(overflow) <= 0
    await page.get_by_role("button", name="Leave it as it was").click()
    await expect(page.locator(".queue ol .aside")).to_have_count(0)
    await page.get_by_role("button", name="Pause").click()
    (tmp_path / "done").touch()
    await expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    assert await violations(page) == []
