"""Sessions as a whole: begun, named, copied, put away and deleted; what was decided and used."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect

import acphold
from tests.editor import introduced, scripted_agent, wrap_command
from tests.page.conftest import ask, opened, row_of, steps, typed
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]


async def choose(page: Page, what: str) -> None:
    """An entry of the session's menu."""
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_text(what, exact=True).click()


async def is_left(served: Served, session_id: str) -> None:
    """Wait until no client has it open; a browser closes what a page had open behind its back."""
    async with asyncio.timeout(30):
        while True:
            listed = await asyncio.to_thread(served.run, "list", "--json")
            rows = {row["sessionId"]: row for row in map(json.loads, listed.splitlines())}
            if rows[session_id]["live"]["clients"] == 0:
                return


async def test_another_agent_continues_a_conversation_only_when_the_person_says_which(
    page: Page, served: Served
) -> None:
    words = wrap_command(scripted_agent(info={"name": "elsewhere", "version": "1"}))
    journal = served.env["ACPHOLD_JOURNAL"]
    async with introduced(words, journal=journal, env=served.env) as editor:
        session_id = await editor.talk({"say": "Held elsewhere."}, cwd=served.folder)
        await editor.leave()
    await opened(page, session_id)
    await expect(page.locator(".said")).to_have_text("Held elsewhere.")  # to be read by anybody
    choice = page.get_by_label("Another agent")
    await expect(choice).to_contain_text("elsewhere")
    await typed(page, steps(ask()))
    await expect(page.get_by_label("Waiting prompts")).to_contain_text("Kept on this device")
    await choice.get_by_role("button", name="Continue with other").click()
    card = page.locator(".asking section.question")
    await expect(card.locator("h2")).to_have_text("other asks")
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("[^/]other"))
    await expect(choice).to_have_count(0)
    await card.get_by_role("button", name="Go on").click()
    await expect(page.locator(".said").last).to_contain_text("go")


async def test_a_session_is_begun_named_copied_exported_put_away_and_deleted(
    page: Page, served: Served, tmp_path: Path, answers: list[str]
) -> None:
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_label("Agent").select_option("other")
    await page.get_by_label("Folder on the server").fill(str(tmp_path))
    await page.get_by_role("button", name="Begin").click()
    await page.wait_for_url(re.compile("#/session/"))
    await typed(page, steps({"say": "First words."}))
    await expect(page.locator(".said")).to_have_text("First words.")
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("[^/]other"))
    answers.append("The long way home")
    await choose(page, "Rename")
    title = page.locator(".bar h1")
    await expect(title).to_have_text("The long way home")
    async with page.expect_download() as download:
        await choose(page, "Export")
    file = await (await download.value).path()
    assert "First words." in file.read_text()
    # A copy goes its own way, and knows what was before.
    original = page.url
    await choose(page, "Fork")
    await page.wait_for_url(lambda url: "#/session/" in url and url != original)
    await expect(page.locator(".said")).to_have_text("First words.")
    await typed(page, steps({"say": "Only in the copy."}))
    await expect(page.locator(".said", has_text="Only in the copy.")).to_be_visible()
    answers.append("")  # whether it may be deleted
    await choose(page, "Delete")
    rows = page.locator("a.session", has_text="The long way home")
    await expect(rows).to_have_count(1)
    await rows.click()
    await expect(page.locator(".said")).to_have_text("First words.")
    # Put away, it is in the list no more, and comes back.
    await choose(page, "Archive")
    await expect(page.get_by_role("searchbox")).to_be_visible()
    await expect(rows).to_have_count(0)
    await page.get_by_role("button", name="Archived").click()
    await rows.click()
    await choose(page, "Bring back")
    await page.goto(f"{served.url}/#/")
    await page.get_by_role("button", name=re.compile("^All")).click()
    await expect(rows).to_have_count(1)


async def test_what_is_put_off_is_no_refusal_and_what_was_decided_is_kept(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    session = await agent.new_session(cwd=tmp_path)
    turn = session.prompt(steps(ask(title="Sweep the yard"), {"say": "done"}))
    question = page.locator(".inbox section.question")
    await question.get_by_role("button", name="Later").click()
    await expect(question).to_have_count(0)
    await page.reload()
    await page.locator(".inbox summary").click()
    put_off = page.locator("button.later", has_text="Sweep the yard")
    await expect(put_off).to_be_visible()
    row = page.locator("a.session.waiting")
    await expect(row).to_contain_text("waits for you")
    await put_off.click()
    await question.get_by_role("button", name="Stop it").click()
    assert '"stop"' in (await asyncio.wait_for(turn, 30)).text
    await page.get_by_role("link", name="Decided").click()
    decided = page.locator("a.session", has_text="Sweep the yard").first
    await expect(decided).to_contain_text("Refused")
    await expect(decided).to_contain_text("in acphold-page")
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
    await expect(project).to_contain_text("works")
    (tmp_path / "go").touch()
    await expect(project).to_contain_text("done since you looked")
    done = page.get_by_role("button", name=re.compile("^Done since you looked"))
    await done.click()
    await expect(page.locator("a.session.unseen")).to_have_count(1)
    await page.locator("a.session.unseen").click()
    await expect(page.locator(".said")).to_have_text("On it. Done.")
    await page.goto(f"{served.url}/#/")
    await expect(done).to_have_count(0)


async def test_what_ends_while_one_looks_at_something_else_is_told_on_a_page_that_has_it_open(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    session = await agent.new_session(cwd=tmp_path)
    await opened(page, session.id)
    await typed(page, steps({"say": "On it."}, {"until": str(tmp_path / "go")}, {"say": " Done."}))
    await expect(page.locator(".said")).to_have_text("On it.")
    await page.goto(f"{served.url}/#/")
    row = row_of(page, session)
    await expect(row).to_contain_text("works")
    (tmp_path / "go").touch()
    await expect(row).to_contain_text("done since you looked")
    await row.click()
    await expect(page.locator(".said")).to_have_text("On it. Done.")
    await page.goto(f"{served.url}/#/")
    await expect(row).not_to_contain_text("done since you looked")


async def test_what_was_used_is_a_picture(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await agent.new_session(cwd=tmp_path)
    usage = {"inputTokens": 9000, "outputTokens": 3000, "totalTokens": 12_000}
    await session.prompt(steps({"answer": {"stopReason": "end_turn", "usage": usage}}))
    await page.get_by_role("link", name="Usage", exact=True).click()
    await expect(page.locator("figure.days figcaption")).to_contain_text(
        "Tokens a day, at most 12K"
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
    await expect(project).to_contain_text("1 session · 12K tokens")
    await expect(page.locator("ul.bars li", has_text=re.compile("^scripted"))).to_be_visible()
