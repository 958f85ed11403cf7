"""The changes of a session: every file, its diff, the prompts before it, since when one likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

import acphold
from tests.page.conftest import as_paired, fits, opened, steps, violations
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


def edit(name: str, path: Path, old: str | None, new: str) -> dict[str, Any]:
    diff = {"type": "diff", "path": str(path), "oldText": old, "newText": new}
    call = {"sessionUpdate": "tool_call", "toolCallId": name, "status": "completed"}
    return {"update": {**call, "title": f"Edit {path.name}", "kind": "edit", "content": [diff]}}


async def changed(agent: acphold.RemoteAgent, folder: Path) -> acphold.RemoteSession:
    """A session of two prompts: both changed one file, and the second made another."""
    cart, new = folder / "cart.py", folder / "deep" / "new.py"
    session = await agent.new_session(cwd=folder)
    await session.prompt(steps(edit("1", cart, None, "one\ntwo\nthree\n")))
    lines = "".join(f"line {n}\n" for n in range(3000))
    await session.prompt(
        steps(
            edit("2", cart, "one\ntwo\nthree\n", "one\n2\nthree\n"),
            edit("3", new, None, lines),
            edit("4", Path("/etc/other"), "a", "b"),
        )
    )
    return session


async def test_the_menu_leads_to_every_file_that_was_changed_and_back_leads_away(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await changed(agent, tmp_path)
    await opened(page, session.id)
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_role("link", name="Changes").click()
    files = page.locator(".files button")
    await expect(files).to_have_text(["cart.py +3", "deep/new.py +3000", "/etc/other not shown"])
    first = page.locator(".change").first
    await expect(first.locator(".after li")).to_have_count(2)
    await expect(first.locator("tr.added")).to_have_count(3)
    await expect(page.locator(".change").last).to_contain_text("outside of the session's folder")
    await page.get_by_role("link", name="Since the last prompt").click()
    await expect(files.first).to_have_text("cart.py +1 \u22121")
    await expect(first.locator(".after li")).to_have_count(1)
    await page.go_back()
    await expect(files.first).to_have_text("cart.py +3")
    await page.go_back()
    await page.get_by_role("textbox", name="Prompt", exact=True).wait_for()


async def test_a_prompt_above_a_file_leads_to_its_place_in_the_conversation(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await changed(agent, tmp_path)
    await page.goto(f"{page.url.partition('#')[0]}#/changes/{session.id}")
    await page.locator(".change").first.locator(".after a").first.click()
    await expect(page.locator(".entry.found.of-prompt")).to_be_visible()


async def test_a_long_file_is_shown_in_part_until_somebody_asks_for_all(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await changed(agent, tmp_path)
    await page.goto(f"{page.url.partition('#')[0]}#/changes/{session.id}")
    long = page.locator(".change").nth(1)
    await expect(long.locator("tr")).to_have_count(100)
    await long.get_by_role("button", name="Show all, 2900 more lines").click()
    await expect(long.locator("tr")).to_have_count(3000)
    await expect(long.locator("tr").last).to_contain_text("line 2999")
    await expect(long.get_by_role("button")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_two_columns_where_there_is_room_and_one_where_there_is_none(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, scheme: str
) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    session = await changed(agent, tmp_path)
    await page.goto(f"{page.url.partition('#')[0]}#/changes/{session.id}@1")
    first = page.locator(".change").first
    for width, columns in ((1440, 4), (720, 3), (360, 3)):
        await page.set_viewport_size({"width": width, "height": 800})
        await expect(first.locator("tr").first.locator("td")).to_have_count(columns)
        assert await fits(page), width
        assert await violations(page) == [], width


async def test_a_finger_finds_the_filters_and_the_files(
    page: Page, served: Served, agent: acphold.RemoteAgent, tmp_path: Path, device: BrowserContext
) -> None:
    session = await changed(agent, tmp_path)
    assert device.browser is not None
    phone = await device.browser.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    touched = await phone.new_page()
    await as_paired(touched, served.url, await device.storage_state())
    await touched.goto(f"{served.url}/#/changes/{session.id}")
    targets = touched.locator(".filters a, .files button")
    await expect(targets).to_have_count(5)
    assert min(await targets.evaluate_all("(all) => all.map((it) => it.offsetHeight)")) >= 44
    await phone.close()


async def test_a_turn_is_reviewed_file_by_file_with_keys_and_left_with_one(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await changed(agent, tmp_path)
    await page.goto(f"{page.url.partition('#')[0]}#/changes/{session.id}")
    files, turn = page.locator(".files button"), page.get_by_label("Turn")
    await expect(files).to_have_count(3)
    await files.nth(1).press("Enter")
    await expect(page.locator("#change-1")).to_be_focused()
    await expect(page.locator("#change-1")).to_be_in_viewport()
    await turn.select_option("2")
    await expect(files).to_have_text(["cart.py +3"])
    assert page.url.endswith("@2")
    await page.reload()
    await expect(files).to_have_text(["cart.py +3"])
    await expect(turn).to_have_value("2")
    await turn.select_option("3")
    await expect(files).to_have_count(3)
    assert await violations(page) == []
    await page.locator("main.changes").focus()
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        await page.keyboard.press(key)
        await expect(page.locator(f"#change-{at}")).to_be_focused()
        await expect(page.locator(f"#change-{at}")).to_be_in_viewport()
    await turn.select_option("")
    await expect(page.get_by_role("link", name="Whole session")).to_have_attribute(
        "aria-current", "page"
    )
    await page.locator("main.changes").focus()
    await page.keyboard.press("Escape")
    await page.get_by_role("textbox", name="Prompt", exact=True).wait_for()


async def test_a_session_that_changed_nothing_says_so(
    page: Page, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": "Nothing to do."}))
    await page.goto(f"{page.url.partition('#')[0]}#/changes/{session.id}")
    await expect(page.locator("main.changes")).to_contain_text(
        "The agent reported no changed files."
    )
    told: dict[str, Any] = {"turns": 1, "turn": None, "files": [], "more": 0, "prompts": []}
    await page.route("**/changes", lambda it: it.fulfill(json=told))
    for notes, said in (([], "No files changed."), (["not kept: x"], "No kept files changed.")):
        told |= {"kept": True, "notes": notes}
        await page.reload()
        await expect(page.locator("main.changes .empty")).to_have_text(said)
        await expect(page.locator("main.changes > .aside")).to_have_text(notes)
    await page.unroute_all()
    await page.goto(f"{page.url.partition('#')[0]}#/changes/none")
    await expect(page.get_by_role("alert")).to_have_text("there is no such session")
