"""Standing answers on the page: made with the tap behind a yes, seen, undone, switched off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, StorageState, expect

import acphold
from tests.editor import scripted_agent, under_name
from tests.page.conftest import ask, fits, note, opened, steps, violations, watch
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

CLAUDE = "@agentclientprotocol/claude-agent-acp"
MODES = {
    "currentModeId": "default",
    "availableModes": [
        {"id": "default", "name": "Default"},
        {"id": "acceptEdits", "name": "Accept Edits"},
    ],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of an agent whose commands can be read."""
    folder = tmp_path_factory.mktemp("served")
    command = scripted_agent(info={"name": CLAUDE, "version": "1"}, opened={"modes": MODES})
    command = under_name("claude-agent-acp", folder, command)
    with serving(folder, agent=tuple(command)) as found:
        yield found


def runs(command: str, call: str) -> str:
    """A prompt that has the agent ask for a command."""
    tool = {"name": "Bash", "kind": "execute", "rawInput": {"command": command}}
    return steps(ask(call, title=command, **tool))


async def allowed(page: Page, session: acphold.RemoteSession, command: str, call: str) -> Locator:
    """A person allows a command; returns the offer that follows."""
    turn = session.prompt(runs(command, call))
    await opened(page, session.id)
    await page.locator(".asking").get_by_role("button", name="Allow once: Go on").click()
    await asyncio.wait_for(turn, 60)
    return page.get_by_role("region", name="Allow it from now on")


def rules(served: Served, *words: str) -> list[dict[str, Any]]:
    return [json.loads(it) for it in served.run("rules", *words, "--json").splitlines()]


async def test_a_rule_is_offered_beside_a_question_of_which_one_can_be_made(
    page: Page, session: acphold.RemoteSession
) -> None:
    card = page.locator(".asking section.question")
    offer = card.get_by_role("button", name="Allow once, and choose a rule for the next time")
    unclear = steps(ask("t0", title="Think", kind="think"))
    for number, (prompt, count) in enumerate(((runs("pytest -q", "t1"), 1), (unclear, 0))):
        turn = session.prompt(prompt)
        if number == 0:
            await opened(page, session.id)
        await card.wait_for()
        async with page.expect_response("**/rules/offers*") as told:
            await card.get_by_role("button", name="More answers").click()
        await (await told.value).finished()
        await expect(offer).to_have_count(count)
        await card.get_by_role("button", name="Allow once: Go on").click()
        await asyncio.wait_for(turn, 60)


async def test_the_card_of_an_edit_offers_the_mode_in_which_the_agent_accepts_edits(
    page: Page, session: acphold.RemoteSession
) -> None:
    card = page.locator(".asking section.question")
    words = "Allow once, and let the agent accept edits from now on, in its mode Accept Edits"
    offer = card.get_by_role("button", name=words)
    edit = steps(ask("t2", title="Write a.py", kind="edit"))
    for number, prompt in enumerate((runs("pytest -q", "t1"), edit)):
        turn = session.prompt(prompt)
        if number == 0:
            await opened(page, session.id)
        await card.wait_for()
        await card.get_by_role("button", name="More answers").click()
        await expect(offer).to_have_count(number)
        await (offer if number else card.get_by_role("button", name="Allow once: Go on")).click()
        await asyncio.wait_for(turn, 60)
    async for update in session.updates():
        if getattr(update, "current_mode_id", "") == "acceptEdits":
            break
    assert session.mode == "acceptEdits"


async def test_after_a_yes_the_next_tap_makes_a_rule_and_the_next_such_question_is_answered(
    page: Page, served: Served, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    offered = await allowed(page, session, "pytest -q", "t1")
    buttons = offered.locator("li button")
    await expect(buttons).to_have_count(2)
    place = f"in {tmp_path.name} for 30 days"
    exact = f"Always allow claude to run pytest -q {place}: exactly this command"
    await expect(buttons.first).to_have_text(exact)
    wider = f"Always allow claude to run pytest with any arguments {place}: runs this folder's code"
    means = "whoever can edit files here can run anything with it"
    await expect(buttons.last).to_have_text(f"{wider}: {means}")
    await offered.get_by_text("More").click()
    assert await fits(page)
    assert await violations(page) == []
    assert rules(served) == []
    await expect(buttons.first).to_be_enabled()  # not a moment ago, under somebody's finger
    await buttons.first.focus()
    await page.keyboard.press("Enter")
    made = page.get_by_role("region", name="New rule")
    await expect(made).to_contain_text("Rule 1: run pytest -q")
    assert await violations(page) == []
    [rule] = rules(served)
    assert (rule["text"], rule["agent"]) == ("run pytest -q", "claude")

    answer = await asyncio.wait_for(session.prompt(runs("pytest -q", "t2")), 60)
    assert '"go"' in answer.text
    said = page.locator(".by-rules").last
    await expect(said).to_contain_text("by your rule 1")
    await expect(page.locator("section.question")).to_have_count(0)
    assert await fits(page)
    assert await violations(page) == []
    # Read anew from the journal it is the same.
    await page.reload()
    await expect(page.locator(".by-rules")).to_have_count(1)

    await said.get_by_role("button", name="Undo: revoke rule 1").click()
    await expect(said).to_contain_text("revoked")
    turn = session.prompt(runs("pytest -q", "t3"))
    again = page.locator(".asking").get_by_role("button", name="Allow once: Go on")
    await again.click()
    assert '"go"' in (await asyncio.wait_for(turn, 60)).text
    assert rules(served) == []


async def test_after_a_yes_one_thing_is_offered_at_a_time_and_takes_little_of_a_phone(
    page: Page, session: acphold.RemoteSession
) -> None:
    # A browser without windows allows no notifications.
    await page.add_init_script("Object.defineProperty(Notification, 'permission', {value: ''})")
    await page.reload()
    await page.set_viewport_size({"width": 360, "height": 740})
    notices = page.get_by_role("group", name="Notifications")
    await note(page, ".asking [aria-label=Notifications]")
    offered = await allowed(page, session, "make check", "t1")
    await expect(offered.locator("li button")).to_be_in_viewport(ratio=1)
    height = "(it) => it.getBoundingClientRect().height"
    assert await page.locator(".asking").evaluate(height) < 740 / 3
    assert await page.evaluate("noted") == []  # not even for a moment
    await offered.get_by_role("button", name="No, keep asking").click()
    await expect(offered).to_have_count(0)
    await expect(notices).to_be_visible()


async def test_the_list_has_each_rule_and_switches_and_revokes(
    page: Page, served: Served, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    for text in ("run make check", "ask run git push ..."):
        served.run("rules", "add", text, "--cwd", str(tmp_path))
    await page.reload()
    news = page.locator(".inbox .offer")
    await expect(news).to_contain_text("2 new rules were made elsewhere")
    await news.get_by_role("link").click()
    rows = page.locator(".rule-list li")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("run make check")
    await expect(rows.first).to_contain_text("exactly this command")
    await expect(rows.first).to_contain_text("never used")
    await expect(rows.first).to_contain_text("new")
    await expect(news).to_have_count(0)
    await expect(page.locator("main.rules")).to_contain_text(
        "Rules cannot stop an agent that does not ask"
    )
    assert await fits(page)
    assert await violations(page) == []
    switch = page.get_by_role("switch")
    await switch.press("Space")
    await expect(page.get_by_text("Rules are off", exact=True)).to_be_visible()
    turn = session.prompt(runs("make check", "t1"))
    await expect(page.locator(".inbox section.question")).to_have_count(1, timeout=30_000)
    await switch.press("Space")
    await page.goto(f"{served.url}/#/session/{session.id}")
    await page.locator(".asking").get_by_role("button", name="Stop it").click()
    await asyncio.wait_for(turn, 60)
    await asyncio.wait_for(session.prompt(runs("make check", "t2")), 60)
    await expect(page.locator(".by-rules")).to_have_count(1)
    await page.goto(f"{served.url}/#/rules")
    await expect(rows.first).to_contain_text("used 1 time")
    for number in (rules(served)[0]["number"], rules(served)[1]["number"]):
        await page.get_by_role("button", name=f"Revoke rule {number}").click()
        await expect(page.get_by_role("status").get_by_text("revoked")).to_have_count(1)
    await expect(page.get_by_text("No rules.")).to_be_visible()
    assert rules(served) == []


async def test_who_may_make_no_rule_is_offered_none_and_revokes_them_and_a_guest_sees_none(
    browser: Browser,
    served: Served,
    paired: dict[str, StorageState],
    wrong: list[str],
    tmp_path: Path,
    session: acphold.RemoteSession,
) -> None:
    served.run("rules", "add", "run make check", "--cwd", str(tmp_path))
    [rule] = rules(served)
    scopes = ("watch", "prompt", "answer", "manage")
    older = [word for scope in scopes for word in ("--scope", scope)]
    await asyncio.wait_for(session.prompt(runs("make check", "t1")), 60)

    async def device(*options: str) -> Page:
        code = json.loads(served.run("access", "pair", *options, "--json"))["pair"]
        context = await browser.new_context(viewport={"width": 360, "height": 760})
        found = await context.new_page()
        watch(found, wrong)
        await found.goto(f"{served.url}/#pair={code}")
        await found.get_by_role("link", name="New", exact=True).wait_for()
        return found

    phone = await device(*older)
    offered = await allowed(phone, session, "pytest -q", "t2")
    await expect(phone.locator(".by-rules")).to_have_count(1)
    await expect(offered).to_have_count(0)
    served.run("access", "share", session.id, "--with", "bob")
    guest = await device("--user", "bob")
    await guest.goto(f"{served.url}/#/session/{session.id}")
    await expect(guest.locator(".decision")).to_have_count(2)
    await expect(guest.locator(".by-rules")).to_have_count(0)
    await expect(guest.get_by_text("your rule")).to_have_count(0)
    await guest.goto(f"{served.url}/#/rules")
    await expect(guest.get_by_text("No rules.")).to_be_visible()
    undo = phone.get_by_role("button", name=f"Undo: revoke rule {rule['number']}")
    await undo.click()
    await expect(phone.locator(".by-rules")).to_contain_text("revoked")
    assert rules(served) == []
    for each in (phone, guest):
        await each.context.close()
    assert wrong == []
