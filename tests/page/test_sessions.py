"""Sessions as a whole: beginning, naming, copying, archiving, deleting; decisions and usage."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect

import acphold
from tests.editor import introduced, scripted_agent
from tests.owners import lone_command
from tests.page.conftest import ask, choose, fits, opened, put_off, row_of, steps, typed, violations
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


async def is_left(served: Served, session_id: str) -> None:
    """Wait until no client has it open; the browser closes a page's sessions in the background."""
    async with asyncio.timeout(30):
        while True:
            listed = await asyncio.to_thread(served.run, "list", "--json")
            rows = {row["sessionId"]: row for row in map(json.loads, listed.splitlines())}
            if rows[session_id]["live"]["clients"] == 0:
                return


async def test_another_agent_continues_a_conversation_only_when_the_person_says_which(
    page: Page, served: Served
) -> None:
    words = lone_command(scripted_agent(info={"name": "elsewhere", "version": "1"}))
    journal = served.env["ACPHOLD_JOURNAL"]
    async with introduced(words, journal=journal, env=served.env) as editor:
        session_id = await editor.talk({"say": "Held elsewhere."}, cwd=served.folder)
        await editor.leave()
    await opened(page, session_id)
    await expect(page.locator(".said")).to_have_text("Held elsewhere.")  # to be read by anybody
    choice = page.get_by_label("Another agent")
    await typed(page, steps(ask()))
    await expect(choice).to_contain_text("elsewhere")
    await expect(page.get_by_label("Prompts being sent")).to_contain_text("Saved on this device")
    await choice.get_by_role("button", name="Continue with other").click()
    card = page.locator(".asking section.question")
    await expect(card.locator("h2")).to_have_text("other asks")
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("[^/]other"))
    await expect(choice).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Prompt", exact=True)).to_be_focused()
    await card.get_by_role("button", name="Go on").click()
    await expect(page.locator(".said").last).to_contain_text("go")
    rows = map(json.loads, served.run("list", "--json").splitlines())
    agents = {row["sessionId"]: row["agent"] for row in rows}
    copy = page.url.partition("#/session/")[2]
    assert (agents[session_id], agents[copy]) == ("elsewhere", "@makers/other")
    await opened(page, session_id)
    await expect(choice).to_be_visible()
    await expect(page.locator(".prompt")).to_have_count(1)


async def test_a_session_is_begun_named_copied_exported_put_away_and_deleted(
    page: Page, served: Served, tmp_path: Path
) -> None:
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_label("Agent").select_option("other")
    await page.get_by_label("Folder on the server").fill(str(tmp_path))
    await page.get_by_role("button", name="Start").click()
    await page.wait_for_url(re.compile("#/session/"))
    await typed(page, steps({"say": "First words."}))
    await expect(page.locator(".said")).to_have_text("First words.")
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("[^/]other"))
    await choose(page, "Rename")
    await page.get_by_role("dialog").get_by_label("Name").fill("The long way home")
    await page.keyboard.press("Enter")
    title = page.locator(".bar h1")
    await expect(title).to_have_text("The long way home")
    await page.locator(".undo").get_by_role("button", name="Undo").click()
    await expect(title).not_to_have_text("The long way home")
    await choose(page, "Rename")
    await page.get_by_role("dialog").get_by_label("Name").fill("The long way home")
    await page.keyboard.press("Enter")
    await expect(title).to_have_text("The long way home")
    async with page.expect_download() as download:
        await choose(page, "Export")
    file = await (await download.value).path()
    assert "First words." in file.read_text()
    # A copy goes its own way, and has the history up to here.
    original = page.url
    await choose(page, "Continue in a copy…")
    await page.get_by_role("dialog").get_by_label("Agent").select_option("scripted")
    await page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    await page.wait_for_url(lambda url: "#/session/" in url and url != original)
    await expect(page.locator(".said")).to_have_text("First words.")
    await typed(page, steps({"say": "Only in the copy."}))
    await expect(page.locator(".said", has_text="Only in the copy.")).to_be_visible()
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("[^/]scripted"))
    await choose(page, "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    rows = page.locator("a.session", has_text="The long way home")
    await expect(rows).to_have_count(1)
    await rows.click()
    await expect(page.locator(".said")).to_have_text("First words.")
    # Put away, it is in the list no more, and comes back.
    await choose(page, "Archive")
    await expect(page.get_by_role("searchbox")).to_be_visible()
    await expect(rows).to_have_count(0)
    await page.reload()
    await page.get_by_role("button", name="Archived").click()
    await rows.click()
    await expect(title).to_have_text("The long way home")
    await expect(page.locator(".bar .name p")).to_contain_text(
        re.compile("archived.*scripted|archived.*other")
    )
    await choose(page, "Unarchive")
    await page.goto(f"{served.url}/#/")
    await page.get_by_role("button", name=re.compile("^All")).click()
    # The copy is there again, too, if the page was left before it was deleted.
    await expect(page.locator(f"a.session[href='#{original.partition('#')[2]}']")).to_be_visible()


async def test_what_is_put_off_is_no_refusal_and_what_was_decided_is_kept(
    page: Page, served: Served, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps(ask(title="Sweep the yard"), {"say": "done"}))
    question = page.locator(".inbox section.question")
    await put_off(question)
    await expect(question).to_have_count(0)
    await page.reload()
    await page.locator(".inbox summary").click()
    left = page.locator("button.later", has_text="Sweep the yard")
    await expect(left).to_be_visible()
    row = page.locator("a.session.waiting")
    await expect(row).to_contain_text("waiting for you")
    await left.click()
    await question.get_by_role("button", name="Stop it").click()
    assert '"stop"' in (await asyncio.wait_for(turn, 30)).text
    await page.get_by_role("link", name="Decisions").click()
    decided = page.locator("a.session", has_text="Sweep the yard").first
    await expect(decided).to_contain_text("Rejected")
    await expect(decided).to_contain_text("on the page")
    await decided.click()
    await expect(page.locator(".decision.refused")).to_be_in_viewport()


async def test_what_was_done_since_one_looked_is_told_until_one_does(
    page: Page, device: BrowserContext, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    (folder := tmp_path / "unseen").mkdir()
    session = await agent.new_session(cwd=folder)
    await session.close()
    phone = await device.new_page()
    await phone.goto(served.url)
    await opened(phone, session.id)
    await typed(phone, steps({"say": "On it."}, {"until": str(tmp_path / "go")}, {"say": " Done."}))
    await expect(phone.locator(".said")).to_have_text("On it.")
    await phone.close()  # and put away, while it works
    await is_left(served, session.id)
    project = page.locator("section.project", has=page.get_by_role("heading", name="unseen"))
    await expect(project).to_contain_text("running")
    (tmp_path / "go").touch()
    await expect(project).to_contain_text("done")
    done = page.get_by_role("button", name=re.compile("^Unseen"))
    await done.click()
    await expect(page.locator("a.session.unseen")).to_have_count(1)
    await page.locator("a.session.unseen").click()
    await expect(page.locator(".said")).to_have_text("On it. Done.")
    await page.goto(f"{served.url}/#/")
    await expect(page.get_by_text("Nothing has finished since you last looked.")).to_be_visible()
    await page.get_by_role("button", name=re.compile("^All")).click()
    await expect(done).to_have_count(0)


async def test_what_ends_while_one_looks_at_something_else_is_told_on_a_page_that_has_it_open(
    page: Page, tmp_path: Path, served: Served, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await typed(page, steps({"say": "On it."}, {"until": str(tmp_path / "go")}, {"say": " Done."}))
    await expect(page.locator(".said")).to_have_text("On it.")
    await page.goto(f"{served.url}/#/")
    await expect(page.locator(".said")).to_have_count(0)
    row = row_of(page, session)
    await expect(row).to_contain_text("running")
    (tmp_path / "go").touch()
    await expect(row).to_contain_text("done")
    await row.click()
    await expect(page.locator(".said")).to_have_text("On it. Done.")
    await page.goto(f"{served.url}/#/")
    await expect(row).not_to_contain_text("done")


async def test_what_was_used_is_a_picture(
    page: Page, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    usage = {"inputTokens": 9000, "outputTokens": 3000, "totalTokens": 12_000}
    await session.prompt(steps({"answer": {"stopReason": "end_turn", "usage": usage}}))
    await page.get_by_role("link", name="Usage", exact=True).click()
    await expect(page.locator("figure.days figcaption")).to_contain_text(
        "Tokens per day, at most 12K"
    )
    columns = await page.locator(".days .column").evaluate_all(
        "(all) => all.map((it) => it.getBoundingClientRect().height)"
    )
    assert len(columns) == 30
    *others, day = sorted(columns)
    assert day in columns[-2:]  # of today, which may have been tomorrow when it was prompted
    assert day > 100
    assert sum(others) < 30
    project = page.locator("ul.bars li", has_text=tmp_path.name)
    await expect(project).to_contain_text("1 session")
    await expect(project.locator(".number")).to_have_text(["12K", re.compile(r"\d%$")])
    by_model = page.locator("section", has=page.get_by_role("heading", name="By model"))
    await expect(by_model.locator("li")).to_contain_text("Model not reported")
    await expect(page.get_by_text("No agent reported a model.")).to_be_visible()
    by_day = page.locator("section", has=page.get_by_role("heading", name="Tokens by day"))
    await expect(by_day.locator("li").first).to_contain_text("12K")
    await expect(by_day.locator(".what").first).to_have_text(re.compile("^(Today|Yesterday)$"))
    await expect(page.locator(".ends span").first).to_have_text(re.compile(r"^[A-Z][a-z]+ \d+"))
    await expect(page.locator("ul.bars li", has_text=re.compile("^scripted"))).to_be_visible()


def contrast(one: list[float], other: list[float]) -> float:
    """The contrast of two colours, as WCAG 2 has it."""

    def light(colour: list[float]) -> float:
        parts = [it / 255 for it in colour[:3]]
        linear = [it / 12.92 if it <= 0.03928 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
        return sum(share * it for share, it in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


COLOURS = """(it) => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  let ground = it;
  const isClear = () => /, 0\\)$/.test(getComputedStyle(ground).backgroundColor);
  while (isClear()) ground = ground.parentElement;
  const dot = it.closest("a").querySelector(".state");
  return [
    getComputedStyle(it).color,
    getComputedStyle(ground).backgroundColor,
    getComputedStyle(dot, "::before").backgroundColor,
  ].map(parts);
}"""


async def test_a_failed_session_says_so_in_words_and_in_a_colour_that_can_be_read(
    page: Page, session: acphold.RemoteSession
) -> None:
    with pytest.raises(acphold.AcpError):
        await session.prompt(steps({"error": {"code": -32603, "message": "out of order"}}))
    row = row_of(page, session)
    words = row.locator(".words")
    await expect(words).to_contain_text("failed")
    await page.set_viewport_size({"width": 360, "height": 740})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        colour, ground, dot = await words.evaluate(COLOURS)
        assert contrast(colour, ground) >= 4.5
        assert colour == dot
        assert colour != await row.locator("time").evaluate(f"(it) => ({COLOURS})(it)[0]")


async def test_a_filter_that_leaves_nothing_says_why(
    page: Page, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps(ask(title="Wait here")))
    await page.set_viewport_size({"width": 360, "height": 740})
    filters = page.locator(".filters")
    await expect(filters.get_by_role("button", name="Waiting")).to_be_visible()
    await filters.get_by_role("button", name="Waiting").click()
    await page.locator(".inbox").get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    await expect(page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    await page.get_by_role("button", name="Archived").click()
    await expect(filters.get_by_role("button", name="Archived")).to_be_in_viewport(ratio=1)
    assert await filters.get_by_role("button").count() == 2  # also to all
    await page.get_by_role("searchbox").fill("zzz never said")
    await expect(page.get_by_text("No archived session matches")).to_be_visible()


@pytest.mark.parametrize("width", [360, 1440])
async def test_every_filter_is_whole_in_one_row_beside_hundreds_of_sessions(
    page: Page, width: int
) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    row = {"agent": "a", "agentName": "a", "cwd": "/w", "title": "One", "messageCount": 2}
    row |= {"createdAt": "2026-01-02T03:04:05Z", "updatedAt": "2026-01-02T03:04:05Z", "live": None}
    live = {"state": "idle", "clients": 0, "background": False}
    rows = [
        {**row, "sessionId": f"s{n}", "unseen": n >= 20, "live": live if n < 120 else None}
        for n in range(199)
    ]
    rows[0]["live"] = {**live, "state": "waiting"}
    told = json.dumps({"sessions": rows, "more": width > 384})  # with older ones, where is room
    event = f"event: snapshot\nid: 1\ndata: {told}\n\n"
    stream = {"content-type": "text/event-stream"}
    await page.route("**/sessions/feed", lambda it: it.fulfill(body=event, headers=stream))
    await page.reload()
    filters = page.locator(".filters")
    chips = filters.get_by_role("button")
    more = "+" if width > 384 else ""
    chosen = [f"All 199{more}", "Active 120", "Waiting 1", "Unseen 179"]
    await expect(chips).to_have_text(chosen)
    await chips.last.click()  # whatever is not whole is scrolled to now
    boxes = "(all) => all.map((it) => it.getBoundingClientRect().toJSON())"
    found = await chips.evaluate_all(boxes)
    assert found[0]["left"] == 16  # where the rows stand
    assert found[-1]["right"] <= min(width, 384) - 16
    assert found[0]["top"] == found[-1]["top"]
    assert await filters.evaluate("(it) => it.scrollWidth <= it.clientWidth")


async def test_a_conversation_without_a_word_says_what_to_do(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    empty = page.get_by_text("No messages yet.")
    await expect(empty).to_be_visible()
    await typed(page, steps({"say": "Now there is."}))
    await expect(page.locator(".said")).to_have_text("Now there is.")
    await expect(empty).to_have_count(0)


async def test_agents_are_called_by_their_short_names(
    page: Page, served: Served, tmp_path: Path
) -> None:
    name = "@agentclientprotocol/claude-agent-acp"
    words = lone_command(scripted_agent(info={"name": name, "version": "1"}))
    journal = served.env["ACPHOLD_JOURNAL"]
    async with introduced(words, journal=journal, env=served.env) as editor:
        session_id = await editor.talk({"say": "By its short name."}, cwd=tmp_path)
        await editor.leave()
    row = page.locator(f"a.session[href='#/session/{session_id}']")
    await expect(row.locator(".agent")).to_have_text("claude")
    await row.click()
    await expect(page.locator(".bar .name p")).to_contain_text("claude ·")


@pytest.mark.parametrize("width", [360, 720, 1440])
async def test_a_bar_that_is_a_thousand_times_longer_leaves_the_others_to_be_compared(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, width: int
) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    for name, tokens in (("much", 90_000_000_000), ("less", 4_000_000), ("least", 1_000_000)):
        (folder := tmp_path / f"{name}-{width}").mkdir()
        session = await agent.new_session(cwd=folder)
        usage = {"inputTokens": tokens, "outputTokens": 0, "totalTokens": tokens}
        await session.prompt(steps({"answer": {"stopReason": "end_turn", "usage": usage}}))
    await page.goto(f"{page.url.partition('#')[0]}#/usage")
    bars = page.locator("section", has=page.get_by_role("heading", name="By project"))

    async def length(name: str) -> float:
        row = bars.locator("li", has_text=f"{name}-{width}").locator(".row")
        return float(await row.evaluate("(it) => it.getBoundingClientRect().width"))

    await expect(bars.locator("li", has_text=f"much-{width}").locator(".cut")).to_be_visible()
    await expect(bars).to_contain_text("Bars with a gap are shortened")
    assert await length("much") > await length("less")
    assert await length("less") == pytest.approx(4 * await length("least"), rel=0.05)
    assert await fits(page)
    assert await violations(page) == []
