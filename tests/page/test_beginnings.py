"""Starting a session on the page, on one screen of a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

import acphold
from tests.page.conftest import steps, violations
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


TO_ROOT = "/".join([".."] * (len(Path.home().parts) - 1))
"""From the home."""


async def test_prompt_folder_and_agent_are_on_one_screen_and_begin_a_session(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    folders = [tmp_path / name for name in ("orchard", "meadow")]
    for folder in folders:
        folder.mkdir()
        await (await agent.new_session(cwd=folder)).prompt(steps({"say": "Here."}))
    await page.get_by_role("link", name="New", exact=True).click()
    await expect(page.get_by_label("First prompt")).to_be_focused()  # typed words are no shortcuts
    words = page.get_by_label("First prompt")
    latest = page.get_by_role("group", name="Recent folders")
    orchard = latest.get_by_role("button", name="orchard")
    begin = page.get_by_role("button", name="Start")
    for each in (words, orchard, page.get_by_label("Agent"), begin):
        await expect(each).to_be_in_viewport(ratio=1)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await violations(page) == []
    await words.fill(steps({"say": "Apples."}))
    await orchard.click()
    await expect(page.get_by_label("Folder on the server")).to_have_value(str(folders[0]))
    await expect(orchard).to_have_attribute("aria-pressed", "true")
    await begin.click()
    await page.wait_for_url(re.compile("#/session/"))
    await expect(page.locator(".said")).to_have_text("Apples.")
    await expect(page.locator(".bar .name p")).to_contain_text("orchard")
    # It is sent: nothing of it is left for the next one.
    await page.goto(page.url.partition("#")[0] + "#/new")
    await expect(words).to_have_value("")


async def test_a_folder_is_found_by_a_part_of_its_name_and_below_the_home(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    names = ["blog", *(f"field{number}" for number in range(6))]
    for name in names:
        (folder := tmp_path / name).mkdir()
        await (await agent.new_session(cwd=folder)).prompt(steps({"say": "Here."}))
    await page.get_by_role("link", name="New", exact=True).click()
    latest = page.get_by_role("group", name="Recent folders")
    blog = latest.get_by_role("button", name="blog")
    await expect(latest.get_by_role("button", name="field5")).to_be_visible()
    await expect(blog).to_have_count(0)
    await latest.get_by_role("button", name=re.compile(r"^\d+ more$")).click()
    await expect(blog).to_be_visible()
    field = page.get_by_label("Folder on the server")
    await field.fill("BLO")
    await expect(latest.get_by_role("button")).to_have_count(1)
    says = await field.evaluate("it => !it.checkValidity() && it.title")
    assert says.startswith("A whole path")
    await blog.click()
    await expect(field).to_have_value(str(tmp_path / "blog"))
    # A ~ is the home of the server.
    await field.fill(f"~/{TO_ROOT}{tmp_path}/blog")
    await page.get_by_role("button", name="Start").click()
    await page.wait_for_url(re.compile("#/session/"))
    await expect(page.locator(".bar .name p")).to_contain_text("blog")


async def test_a_title_stands_above_its_column_however_wide_the_screen_is(page: Page) -> None:
    for place, below in (("new", "form label"), ("usage", "nav, section, p"), ("rules", "p")):
        await page.goto(page.url.partition("#")[0] + f"#/{place}")
        column = f"main > :is({below}), main form"
        for width in (1440, 2200):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.locator(column).first.wait_for()
            # In one step: what says that the page waits is replaced as soon as it need not.
            text = """column => ["main h1", column].map(it => document.querySelector(it))
                .map(it => it.getBoundingClientRect().x
                    + parseFloat(getComputedStyle(it).paddingLeft))"""
            left = await page.evaluate(text, column)
            assert abs(left[0] - left[1]) <= 1, (place, width, left)


async def test_what_is_typed_while_a_session_starts_is_for_its_agent(
    page: Page, served: Served, tmp_path: Path
) -> None:
    await page.goto(page.url.partition("#")[0] + "#/new")
    await page.get_by_label("Folder on the server").fill(str(tmp_path))
    await page.get_by_label("First prompt").fill(steps({"say": "Here."}))
    await page.get_by_label("Agent").select_option("slow")
    await page.get_by_role("button", name="Start and send").click()
    await page.keyboard.type("then say n", delay=5)
    await page.keyboard.press("Enter")  # which starts no other one
    (served.folder / "slow may go").touch()
    composer = page.get_by_role("textbox", name="Prompt", exact=True)
    await expect(composer).to_be_focused()
    await page.keyboard.type("o or jump")
    await expect(composer).to_have_value("then say no or jump")
    await page.goto(page.url.partition("#")[0] + "#/new")
    await expect(page.get_by_label("First prompt")).to_have_value("")


async def test_what_was_typed_stays_when_a_session_cannot_be_started_or_the_page_is_loaded_again(
    page: Page, tmp_path: Path
) -> None:
    await page.goto(page.url.partition("#")[0] + "#/new")
    words = page.get_by_label("First prompt")
    folder = page.get_by_label("Folder on the server")
    await words.fill("Count the pears")
    await folder.fill(str(tmp_path))
    await page.get_by_label("Agent").select_option("broken")
    await page.get_by_role("button", name="Start").click()
    problem = page.get_by_role("alert")
    await expect(problem).to_contain_text("The session could not be started.")
    await expect(problem).to_contain_text("out of order")
    await expect(words).to_have_value("Count the pears")
    await expect(folder).to_have_value(str(tmp_path))
    await expect(page.get_by_label("Agent")).to_have_value("broken")
    await page.reload()
    await expect(words).to_have_value("Count the pears")
    await folder.fill(str(tmp_path))
    await words.press("Enter")
    await page.wait_for_url(re.compile("#/session/"))
    await expect(page.locator("article.prompt")).to_contain_text("Count the pears")
