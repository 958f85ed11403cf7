"""Somebody with a keyboard finds, goes through and opens sessions with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

import acphold
from tests.page.conftest import ask, opened, row_of, steps, violations

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


async def keyed(page: Page) -> None:
    """Wait until the page hears keys: with what it loads later."""
    await expect(page.locator("p[aria-busy]")).to_have_count(0)


async def test_keys_go_to_the_search_through_the_list_and_to_a_new_session_and_are_shown(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    for number, session in enumerate(sessions):
        await session.prompt(steps({"say": f"Sorrel {number}."}))
        await expect(row_of(page, session)).to_be_visible()
    search = page.get_by_role("searchbox")
    await keyed(page)
    for key in ("/", "Control+k"):
        await page.keyboard.press(key)
        await expect(search).to_be_focused()
        await search.blur()
    # The row that changed last is the first one, as soon as the list has its change.
    first, second = row_of(page, sessions[1]), row_of(page, sessions[0])
    newest = page.locator(".home a.session").first
    await expect(newest).to_have_attribute("href", f"#/session/{sessions[1].id}")
    await page.keyboard.press("j")
    await expect(first).to_be_focused()
    await page.keyboard.press("j")
    await expect(second).to_be_focused()
    await page.keyboard.press("k")
    await expect(first).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator(".said")).to_have_text("Sorrel 1.")
    # What is typed is typed.
    prompt = page.get_by_role("textbox", name="Prompt", exact=True)
    await prompt.fill("")
    await prompt.press("n")
    await prompt.press("?")
    await expect(prompt).to_have_value("n?")
    await prompt.fill("")
    await prompt.blur()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_contain_text("Next session in the list")
    assert await dialog.locator("dt").first.inner_text() == "Ctrl K"
    assert await violations(page) == []
    await dialog.get_by_label("Keys without Ctrl").uncheck()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await page.keyboard.press("n")
    await page.keyboard.press("Control+k")
    await expect(search).to_be_focused()
    assert "#/session/" in page.url


async def test_on_a_narrow_screen_the_search_is_found_from_a_session(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await keyed(page)
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.get_by_role("searchbox").blur()
    await page.keyboard.press("n")
    await expect(page.get_by_role("heading", name="New session")).to_be_visible()


async def test_a_row_keeps_the_keyboard_where_it_or_another_becomes_the_newest(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(9)]
    for number, session in enumerate(sessions):
        await session.prompt(steps({"say": f"Tansy {number}."}))
    newest = page.locator(".home a.session").first
    await expect(newest).to_have_attribute("href", f"#/session/{sessions[-1].id}")
    # The last one that is listed without asking for more, which others push out of what is listed.
    held = row_of(page, sessions[1])
    await held.focus()
    for moving in (sessions[3], sessions[0], sessions[1], sessions[2]):
        await moving.prompt(steps({"say": "Again."}))
        await expect(newest).to_have_attribute("href", f"#/session/{moving.id}")
        await expect(held).to_be_focused()
    await keyed(page)
    await page.keyboard.press("k")
    await expect(newest).to_be_focused()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator(".said").first).to_have_text("Tansy 1.")


async def test_enter_takes_the_keyboard_into_the_conversation_and_escape_out_of_its_input(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(3)]
    for session, word in zip(sessions, ("Alder", "Birch", "Cedar"), strict=True):
        for said in ("Begun.", word, "Over."):
            await session.prompt(steps({"say": said}))
    newest = page.locator(".home a.session").first
    await expect(newest).to_have_attribute("href", f"#/session/{sessions[2].id}")
    await keyed(page)
    read = page.get_by_role("log", name="Conversation")
    prompt = page.get_by_role("textbox", name="Prompt", exact=True)
    search = page.get_by_role("searchbox")
    for key in ("j", "j", "Enter"):
        await page.keyboard.press(key)
    await expect(page.locator(".said").nth(1)).to_have_text("Birch")
    await expect(read).to_be_focused()
    await page.keyboard.press("w")
    await expect(prompt).to_be_focused()
    await page.keyboard.type("a / in it")
    await page.keyboard.press("Escape")
    await expect(read).to_be_focused()
    await expect(prompt).to_have_value("a / in it")
    await prompt.fill("")
    await prompt.press("Escape")
    # Only a message has the word, and whoever types it waits for nothing.
    await page.keyboard.press("/")
    await page.keyboard.type("alder")
    await page.keyboard.press("Enter")
    await expect(page.locator(".said").nth(1)).to_have_text("Alder")
    await expect(read).to_be_focused()
    await page.keyboard.press("j")
    await expect(search).to_have_value("alder")
    await expect(page.locator(".home a.session:focus")).to_have_count(1)
    await search.press("Escape")
    await row_of(page, sessions[1]).press("Enter")
    await row_of(page, sessions[1]).press("Enter")  # that is open
    await expect(read).to_be_focused()


async def test_sessions_are_selected_archived_and_taken_back_with_keys(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(3)]
    for session in sessions:
        await session.prompt(steps({"say": "Said."}))
    newest = page.locator(".home a.session").first
    await expect(newest).to_have_attribute("href", f"#/session/{sessions[2].id}")
    await expect(newest).to_contain_text("Said.")
    await keyed(page)
    await page.get_by_role("button", name="Select").press("Enter")
    for key in ("j", "Space", "j", "Space", "k", "j", "j"):
        await page.keyboard.press(key)
    await expect(page.get_by_text("2 selected")).to_be_visible()
    chosen = page.locator("label.session input")
    assert await chosen.evaluate_all("(all) => all.map((it) => it.checked)") == [
        place < 2 for place in range(await chosen.count())
    ]
    await expect(chosen.nth(2)).to_be_focused()
    await page.keyboard.press("a")
    undo = page.locator(".undo").get_by_role("button", name="Undo")
    await expect(undo).to_be_focused()
    await expect(row_of(page, sessions[2])).to_have_count(0)
    await page.keyboard.press("u")
    for session in sessions:
        await expect(row_of(page, session)).to_be_visible()
    await expect(page.locator(".undo")).to_contain_text("2 sessions are back in the list.")
    await page.set_viewport_size({"width": 1100, "height": 400})
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog.get_by_text("Search all conversations")).to_be_in_viewport()
    for words in ("Undo what was done last", "Write to the agent", "open the first result"):
        await expect(dialog).to_contain_text(words)


async def test_keys_lead_into_the_menu_of_a_row_and_into_a_new_prompt(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    await session.prompt(steps({"say": "Said."}))
    await keyed(page)
    await row_of(page, session).focus()
    await page.keyboard.press("m")
    menu = page.locator("#session-menu")
    await expect(menu.get_by_role("button", name="Find")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(menu.get_by_role("link", name="Changes")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await expect(menu.get_by_role("button", name="Delete")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("End")
    for key in ("ArrowUp", "ArrowUp"):
        await page.keyboard.press(key)
    await expect(menu.get_by_role("button", name="Export")).to_be_focused()
    await page.keyboard.press("Home")
    await expect(menu.get_by_role("button", name="Find")).to_be_focused()
    # Two begin with a C here after the first one; a letter without an item does nothing.
    for key, name in (("c", "Changes"), ("c", "Copy link"), ("j", "Copy link"), ("d", "Delete")):
        await page.keyboard.press(key)
        await expect(menu.locator(":focus")).to_have_text(name)
    await page.keyboard.press("Escape")
    await expect(menu).to_be_hidden()
    await page.keyboard.press("n")
    await expect(page.get_by_label("First prompt")).to_be_focused()


@pytest.mark.parametrize("width", [360, 1440])
async def test_arrows_go_from_the_search_through_what_it_finds_and_back(
    page: Page, width: int, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": width, "height": 900})
    for word in (f"yarrow{width}", "Then.", f"yarrow{width} once more"):
        await session.prompt(steps({"say": word}))
    search = page.get_by_role("searchbox")
    await keyed(page)
    await search.fill(f"yarrow{width}")
    found = page.locator(".hits a.session")
    row = row_of(page, session)
    await expect(found).to_have_count(3)  # a prompt has the word, too
    await expect(row).to_be_visible()
    await search.focus()
    for key, its in (
        ("ArrowDown", row),
        ("ArrowDown", found.nth(0)),
        ("ArrowDown", found.nth(1)),
        ("ArrowDown", found.nth(2)),
        ("ArrowDown", found.nth(2)),
        ("ArrowUp", found.nth(1)),
        ("ArrowUp", found.nth(0)),
        ("ArrowUp", row),
        ("ArrowUp", search),
    ):
        await page.keyboard.press(key)
        await expect(its).to_be_focused()


async def test_what_was_done_last_is_undone_when_it_is_shown_no_more(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    sessions = [await agent.new_session(cwd=tmp_path) for _ in range(3)]
    for session in sessions:
        await session.prompt(steps({"say": "Said."}))
    rows = [row_of(page, session) for session in sessions]
    await expect(page.locator(".home a.session").first).to_have_attribute(
        "href", f"#/session/{sessions[2].id}"
    )
    shown = page.locator(".undo p")
    await keyed(page)
    await rows[2].focus()
    await page.keyboard.press("x")
    await page.get_by_role("toolbar").get_by_role("button", name="Delete").press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    await expect(shown).to_contain_text("will be deleted")
    await expect(shown).to_have_count(0)
    await page.keyboard.press("u")
    await page.keyboard.press("u")
    await expect(shown).to_have_text(["Nothing to undo.Close"])
    await rows[1].focus()
    await page.keyboard.press("x")
    await page.keyboard.press("t")
    await page.get_by_label("Tags, with spaces").fill("sedge")
    await page.keyboard.press("Enter")
    await expect(rows[1]).to_contain_text("#sedge")
    await expect(shown.get_by_role("button", name="Undo")).to_be_focused()
    await expect(shown).to_have_count(0)
    # What had the keyboard is gone: it is where it was in the list.
    await expect(rows[1]).to_be_focused()
    await page.keyboard.press("j")
    await expect(rows[0]).to_be_focused()
    await page.keyboard.press("u")
    await expect(shown).to_have_text(["Undone.Close"])
    await expect(rows[1]).not_to_contain_text("#sedge")


async def test_a_key_leads_to_the_open_question_which_only_ctrl_enter_in_it_allows(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    turn = session.prompt(steps(ask(title="Install it"), {"say": "Installed."}))
    await opened(page, session.id)
    await keyed(page)
    card = page.locator(".asking section.question")
    yes, no, more = [card.locator(".options .row button").nth(at) for at in range(3)]
    await expect(yes).to_be_enabled()
    await page.keyboard.press("Control+Enter")
    await page.keyboard.press("q")
    await expect(card).to_be_focused()
    for key in ("a", "y", "Enter", "Shift+Enter"):
        await page.keyboard.press(key)
    await more.press("Control+Enter")  # is the key of that button
    await page.keyboard.press("q")
    await expect(card).to_be_focused()
    await expect(no).to_be_enabled()
    await page.keyboard.press("Control+Enter")
    await expect(card).to_have_count(0)
    await expect(page.locator(".said").last).to_contain_text('"optionId": "go"')
    await turn
