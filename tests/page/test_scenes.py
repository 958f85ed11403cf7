"""Using the page, from pairing on, also while server or connection are down."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, Request, Route, expect

import acphold
from tests.page.conftest import (
    ask,
    choose,
    did,
    fits,
    opened,
    seen,
    shown,
    steps,
    typed,
    violations,
)
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


async def test_hits_stand_below_their_session_a_few_of_each(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    for number, session in enumerate(sessions):
        for _ in range(5 - 3 * number):
            await session.prompt(steps({"say": f"A sextant lies on shelf {number}."}))
    await page.get_by_role("searchbox").fill("sextant")
    groups = page.locator(".hits .of-session")
    await expect(groups).to_have_count(2)
    many = groups.filter(has_text="shelf 0")
    await expect(many.get_by_role("heading")).to_have_count(1)
    await expect(many.locator(".about")).to_contain_text(f"scripted · {tmp_path.name}")
    await expect(many.locator("time")).to_have_count(1)
    await expect(many.locator("a.session")).to_have_count(3)
    more = many.get_by_role("button", name="more result")
    hidden = int((await more.inner_text()).split()[0])
    await more.click()
    await expect(many.locator("a.session")).to_have_count(3 + hidden)
    await expect(more).to_have_count(0)
    await page.get_by_role("searchbox").fill("sextant astrolabe")
    left_out = "Nothing has “astrolabe”; 2 conversations with the others."
    await expect(page.locator(".hits")).to_contain_text(left_out)
    await page.get_by_role("searchbox").fill("quadrant astrolabe")
    await expect(page.locator(".hits")).to_contain_text("No messages match")


async def test_a_search_without_the_server_says_so_and_finds_once_it_is_back(
    page: Page, device: BrowserContext, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": "An astrolabe lies here."}))
    await page.locator("main .hits").wait_for(state="detached")
    await device.set_offline(True)
    await page.evaluate("dispatchEvent(new Event('offline'))")
    await page.get_by_role("searchbox").fill("astrolabe")
    status = page.locator(".hits [role=status]")
    await expect(status).to_contain_text("cannot be reached. Messages are searched there")
    await device.set_offline(False)
    await page.evaluate("dispatchEvent(new Event('online'))")
    await expect(page.locator(".hits a.session").first).to_contain_text("An astrolabe lies here.")
    await expect(status).to_have_text("")


async def test_a_pause_of_typing_reads_one_earlier_page_and_the_arrow_reads_on(
    routed: Page, served: Served, session: acphold.RemoteSession
) -> None:
    for number in range(20):
        await session.prompt(steps({"say": f"Answer {number}. " + "Words and words. " * 60}))
    pages = list[str]()

    async def few(route: Route) -> None:
        pages.append(route.request.url)
        site = {"sec-fetch-site": "same-origin"}  # which a browser adds later
        headers = {**route.request.headers, **site}
        url = re.sub(r"limit=\d+", "limit=4", route.request.url)
        await route.fulfill(response=await route.fetch(url=url, headers=headers))

    await routed.route(re.compile(r"/entries.*before="), few)
    await routed.goto(served.url)
    await opened(routed, session.id)
    await choose(routed, "Find")
    await routed.get_by_role("searchbox", name="Find in this session").fill("nowhere")
    status = routed.locator(".find output")
    await expect(status).to_have_text("No matches so far; ↑ looks further")
    assert len(pages) == 1
    await routed.get_by_label("Previous match").click()
    await expect(status).to_have_text("No matches")
    assert len(pages) > 2


async def test_finding_without_the_server_says_that_earlier_messages_are_missing(
    page: Page, device: BrowserContext, session: acphold.RemoteSession
) -> None:
    for number in range(20):
        await session.prompt(steps({"say": f"Answer {number}. " + "Words and words. " * 60}))
    await opened(page, session.id)
    await choose(page, "Find")
    await device.set_offline(True)
    await page.get_by_role("searchbox", name="Find in this session").fill("nowhere")
    await page.keyboard.press("Enter")
    await expect(page.locator(".find output")).to_have_text("Earlier messages cannot be loaded now")
    await device.set_offline(False)
    await page.keyboard.press("Enter")
    await expect(page.locator(".find output")).to_have_text("No matches")


HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>",
    "[a link](javascript:alert(4)) <a href='javascript:alert(5)'>x</a>",
    "abc \u202e gnp.exe \u2066 end",
    "| a | b |\n|---|---|\n| <iframe srcdoc='<script>alert(6)</script>'> | x |",
    "![x](http://127.0.0.1:1/x)",
    "<section class='question'><h2>agent asks</h2><button>Allow</button></section>",
    "</script><script>alert(7)</script>",
    "> " * 4000 + "deep",
    "a**b" * 20_000,
]


async def test_nothing_that_an_agent_says_runs_or_passes_for_the_page(
    page: Page, session: acphold.RemoteSession
) -> None:
    asked_outside: list[str] = []
    origin = page.url.partition("#")[0]

    def note(request: Request) -> None:
        if not request.url.startswith((origin, "blob:")):
            asked_outside.append(request.url)

    page.on("request", note)
    told = [{"say": f"{text}\n\n"} for text in HOSTILE]
    call = {"sessionUpdate": "tool_call", "toolCallId": "t\u202e1", "title": HOSTILE[0]}
    await did(page, session, *told, {"update": call}, {"say": "the end of it"})
    await expect(page.locator("main").get_by_text("the end of it", exact=True)).to_be_visible()
    sheet = page.locator(".sheet")
    for tag in ("script", "img[src^=http]", "svg[onload]", "iframe", "section.question"):
        assert await sheet.locator(tag).count() == 0, tag
    assert await page.locator("a[href^='javascript']").count() == 0
    assert "\u202e" not in await sheet.inner_text()
    assert asked_outside == []


async def test_a_line_of_ten_megabytes_is_shown_by_and_by_and_leaves_the_page_usable(
    page: Page, session: acphold.RemoteSession
) -> None:
    await did(page, session, {"flood of": ["x" * 1024, 10_240]}, {"say": " the end of it"})
    await typed(page, steps({"say": "Still here."}))
    await expect(page.locator("main").get_by_text("Still here.", exact=True)).to_be_visible()
    said = page.locator(".said", has_text="the end of it")
    pieces = said.locator(".prose p")
    shown = await pieces.count()
    assert len(await said.inner_text()) < 100_000
    more = said.get_by_role("button", name="Show earlier text")
    await more.dispatch_event("click")
    await pieces.nth(shown).wait_for(state="attached")


GROWTH = """() => {
  globalThis.growth = [];
  const sheet = document.querySelector(".sheet");
  let before = sheet.textContent.length;
  new MutationObserver(() => {
    const now = sheet.textContent.length;
    growth.push(now - before);
    before = now;
  }).observe(sheet, {childList: true, characterData: true, subtree: true});
}"""
"""Note how many characters each task adds to the conversation."""


async def test_a_long_message_is_drawn_in_pieces_and_the_rest_of_the_page_has_its_turn_between(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await page.evaluate(GROWTH)

    async def at_most(characters: int, of: int) -> None:
        whole = "() => !document.querySelector('.sheet [aria-busy]')"
        enough = f"growth.reduce((sum, each) => sum + each, 0) > {of}"
        await page.evaluate(seen(f"() => {enough} && ({whole})()"))
        drawn = await page.evaluate("growth.splice(0)")
        assert max(drawn) < characters

    # As it comes, in one piece. The last piece of a block may be drawn in the task of another one.
    part = "Some **bold** words of `code`, a [link](https://example.org/), and no more.\n\n"
    long = part * 1500
    await session.prompt(steps({"say": long}, {"say": f"```\n{'a line of it' * 9_000}\n```\n"}))
    await at_most(40_000, of=len(long))
    # When it is opened, and when the earlier part is requested.
    await page.goto(f"{page.url.partition('#')[0]}#/")
    await session.prompt(steps({"say": long}))
    await opened(page, session.id)
    more = page.get_by_role("button", name="Show earlier text").last
    await more.wait_for(state="attached")
    # Both prompts and both answers, each as far as it is drawn by itself.
    await expect(page.locator(".sheet article")).to_have_count(4)
    await page.evaluate(seen("() => !document.querySelector('.sheet [aria-busy]')"))
    await page.evaluate(GROWTH)
    await more.dispatch_event("click")
    await at_most(12_000, of=20_000)
    # The output of a command, and more of it.
    lines = "".join(f"\x1b[3{number % 8}mline {number}\x1b[0m of it\n" for number in range(20_000))
    shown = [{"type": "content", "content": {"type": "text", "text": lines}}]
    run = {"toolCallId": "t", "title": "Run", "kind": "execute", "content": shown}
    await session.prompt(steps({"update": {"sessionUpdate": "tool_call", **run}}))
    await page.locator("details.tool > summary").dispatch_event("click")
    for _ in range(2):
        await page.get_by_role("button", name="Show more").dispatch_event("click")
    await at_most(40_000, of=200_000)
    output = page.locator(".output pre")
    await expect(output).to_contain_text("line 19999 of it")
    text = await output.evaluate("(it) => it.textContent")
    assert text.splitlines() == [f"line {n} of it" for n in range(20_000)][-text.count("\n") :]


async def test_a_page_that_stays_open_keeps_what_came_last_and_reads_the_rest_again(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    tools = page.locator(".sheet > .of-tool")

    def calls(numbers: range, shown: str = "") -> str:
        content = [{"type": "content", "content": {"type": "text", "text": shown}}]
        told = [
            {"toolCallId": f"t{at}", "title": f"Call {at}.", "content": content} for at in numbers
        ]
        return steps(*[{"update": {"sessionUpdate": "tool_call", **each}} for each in told])

    # Many, and then a few of which each has shown more than a million characters.
    for begin in range(0, 1000, 250):
        await session.prompt(calls(range(begin, begin + 250)))
    await expect(tools.last).to_contain_text("Call 999.")
    assert await page.locator(".sheet > .entry").count() <= 900
    for at in range(1000, 1008):
        await session.prompt(calls(range(at, at + 1), "x" * 1_200_000))
    await expect(tools.last).to_contain_text("Call 1007.")
    assert await tools.count() <= 8
    first = tools.filter(has_text="Call 1000.")
    async with asyncio.timeout(60):
        while not await first.count():
            await page.get_by_label("Conversation", exact=True).press("Home")
    await expect(first).to_have_count(1)


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_and_no_screen_is_too_narrow_for_what_is_on_it(
    page: Page, scheme: str, width: int, session: acphold.RemoteSession
) -> None:
    table = "| a | b |\n|---|---|\n| " + "wide " * 40 + " | " + "x" * 300 + " |\n"
    await page.set_viewport_size({"width": width, "height": 800})
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t1",
        "title": "Edit a.py",
        "kind": "edit",
        "content": [{"type": "diff", "path": "/a.py", "oldText": "1\n", "newText": "2\n"}],
    }
    turn = session.prompt(
        steps(
            *({"think": "Hm."}, {"say": "# A head\n\ntext"}, {"update": call}),
            *({"say": f"{table}\n\n```\n{'y' * 400}\n```\n"}, ask(title="Run " + "z" * 300)),
        )
    )
    await page.locator("section.question").first.wait_for()
    for place in ("#/", f"#/session/{session.id}", "#/new"):
        await shown(page, place)
        assert await violations(page) == [], place
        assert await fits(page), place
    session.cancel()
    await turn


MUTE = {"toString": "x", "valueOf": "x", "toJSON": "x"}
"""A value that JavaScript cannot make a string of."""

BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": MUTE},
    {"type": "image", "data": MUTE, "mimeType": "image/png"},
    {"type": "image", "data": "", "mimeType": MUTE},
    {"type": "audio", "data": MUTE, "mimeType": "audio/wav"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav", "ref": 5, "key": MUTE},
    {"type": "resource_link", "uri": MUTE, "name": MUTE},
    {"type": "resource", "resource": {"uri": MUTE, "text": MUTE}},
    {"type": MUTE, "data": MUTE},
]

BROKEN: list[dict[str, Any]] = [
    {"sessionUpdate": "plan", "entries": "none"},
    {"sessionUpdate": "plan", "entries": [None, 5]},
    {"sessionUpdate": "tool_call", "toolCallId": "b1", "title": {}, "content": "a text"},
    {"sessionUpdate": "tool_call", "toolCallId": "b2", "title": "Two", "locations": 5},
    {"sessionUpdate": "tool_call", "toolCallId": "b3", "title": "Three", "content": [None, 1, {}]},
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "b4",
        "title": "Four",
        "content": [{"type": "diff", "path": None, "newText": {}}],
        "rawInput": [[]],
    },
    {"sessionUpdate": "agent_message_chunk", "content": None},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": {"a": 1}}},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": 5}},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "resource", "resource": None}},
    {"sessionUpdate": "available_commands_update", "availableCommands": [None, {"name": 5}]},
    {"sessionUpdate": "config_option_update", "configOptions": [None, {"options": 5}]},
    {"sessionUpdate": "current_mode_update", "currentModeId": {}},
    {"sessionUpdate": "subagent_update", "sessionId": None, "title": {}, "state": []},
    {"sessionUpdate": "compaction_update", "compactionId": None, "summary": 5},
    {"sessionUpdate": "compaction_update", "compactionId": "b", "status": "__proto__"},
    {"sessionUpdate": "tool_call", "toolCallId": "b5", "title": "Five", "kind": "__proto__"},
    {"sessionUpdate": "tool_call", "toolCallId": "b6", "title": "Six", "status": "constructor"},
    {"sessionUpdate": "plan", "entries": [{"content": "a", "status": "__proto__"}]},
    {"sessionUpdate": "session_info_update", "title": {"a": 1}, "_meta": 5},
    {"sessionUpdate": "usage_update", "used": "much"},
    {"sessionUpdate": "of tomorrow", "content": []},
    *({"sessionUpdate": "agent_message_chunk", "content": block} for block in BLOCKS),
    *({"sessionUpdate": "user_message_chunk", "content": block} for block in BLOCKS),
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "b7",
        "title": "Seven",
        "content": [
            *({"type": "content", "content": block} for block in BLOCKS),
            {"type": "diff", "path": MUTE, "oldText": MUTE, "newText": MUTE},
            {"type": "terminal", "terminalId": MUTE},
            {"type": MUTE},
        ],
        "locations": [{"path": MUTE, "line": MUTE}, MUTE],
        "rawInput": {"command": MUTE, "path": MUTE},
        "rawOutput": MUTE,
    },
    {"sessionUpdate": "tool_call", "toolCallId": "b8", "title": "Eight", "rawInput": MUTE},
    {"sessionUpdate": "plan", "entries": [{"content": MUTE, "status": MUTE}]},
    {"sessionUpdate": "notice", "severity": MUTE, "title": MUTE, "description": MUTE},
    {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": MUTE, "description": MUTE}, {"name": "a", "input": MUTE}],
    },
    {
        "sessionUpdate": "config_option_update",
        "configOptions": [
            {"id": MUTE, "name": MUTE, "type": "select", "currentValue": MUTE, "options": [MUTE]},
            {
                "id": "m",
                "name": MUTE,
                "type": "select",
                "currentValue": "a",
                "options": [{"value": "a", "name": MUTE}],
            },
        ],
    },
    {"sessionUpdate": "usage_update", "used": MUTE, "size": MUTE, "cost": {"amount": MUTE}},
    {"sessionUpdate": "compaction_update", "compactionId": "b", "summary": BLOCKS},
]
"""Updates that do not fit the schema."""


async def test_what_is_broken_is_said_in_its_place_and_breaks_nothing_around_it(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    for how in ("as it comes", "as it is read from the journal"):
        broken = [{"update": each} for each in BROKEN]
        await typed(page, steps({"say": "before"}, *broken, {"say": f"behind, {how}"}))
        await expect(page.locator(".said").last).to_contain_text(f"behind, {how}")
        unshown = page.locator(".entries").get_by_text("cannot be shown here")
        await expect(unshown).to_have_count(0)
        await expect(page.locator(".said", has_text="before")).not_to_have_count(0)
        for tool in await page.locator("details.tool > summary").all():
            await tool.click()
        await expect(page.locator("details.tool[open]")).not_to_have_count(0)
        await page.get_by_role("textbox", name="Prompt", exact=True).fill("/")
        await page.reload()
        await opened(page, session.id)
    await typed(page, steps({"say": "Still here."}))
    await expect(page.locator(".said", has_text="Still here.")).to_be_visible()
