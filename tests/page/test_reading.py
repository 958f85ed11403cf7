"""Looking at a conversation starts nothing; writing, choosing and answering do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.editor import Editor, introduced, received, scripted_agent
from tests.owners import lone_command
from tests.page.conftest import OPENED, ask, choose_mode, opened, row_of, typed, watch
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

COUNT = 6

COMMANDS = [{"name": "review", "description": "Look at what was changed"}]


def scribe(**options: Any) -> list[str]:
    """The agent, in the editor's process or in that of the server."""
    return scripted_agent(info={"name": "scribe", "version": "1"}, opened=OPENED, **options)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server whose agent writes down what it is told, and with it that it runs."""
    settings = tmp_path / "settings.toml"
    command = json.dumps(scribe(log=str(tmp_path / "agent.log")))
    settings.write_text(f"[agents.scribe]\ncommand = {command}\n")
    with serving(tmp_path, agent=(), variables={"ACPHOLD_SETTINGS": str(settings)}) as found:
        yield found


@pytest.fixture
def page_of(device: BrowserContext, served: Served, wrong: list[str]) -> Any:
    async def paired() -> Page:
        page = await device.new_page()
        watch(page, wrong)
        await page.goto(f"{served.url}/#pair={served.pair}")
        await page.get_by_role("link", name="New", exact=True).wait_for()
        return page

    return paired


def agent_was_told(served: Served, method: str) -> int:
    """The number of times that the server's own agent was told this; each start is an
    `initialize`."""
    log = served.folder / "agent.log"
    return len(received(log, method)) if log.exists() else 0


def in_editor(served: Served) -> Any:
    """An editor on this machine, with the agent in a process of its own."""
    return introduced(lone_command(scribe()), journal=served.env["ACPHOLD_JOURNAL"], env=served.env)


async def held(editor: Editor, words: str, folder: Path) -> str:
    """A conversation that was held in an editor, with the commands that its agent has."""
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS}
    filler = [{"say": f"Line {number} of it."} for number in range(60)]
    return await editor.talk({"update": commands}, *filler, {"say": words}, cwd=folder)


async def test_browsing_conversations_starts_no_agent_and_writing_in_one_starts_one(
    page_of: Any, served: Served
) -> None:
    async with in_editor(served) as editor:
        ids = [await held(editor, f"Said in {at}.", served.folder) for at in range(COUNT)]
        await editor.leave()
    page = await page_of()
    for at, id_ in enumerate(ids):
        await opened(page, id_)
        await expect(page.locator(".said").last).to_contain_text(f"Said in {at}.")
        await expect(page.locator(".choices button")).to_have_text("Ask first")  # as last known
    await expect(page.locator(".bar .name p")).to_contain_text("scribe")
    assert agent_was_told(served, "initialize") == 0

    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await area.press_sequentially("/rev")  # commands are those last known, too
    await expect(page.get_by_label("Suggestions")).to_contain_text("/review")
    await area.fill("")
    await typed(page, "go on")
    answer = page.locator(".said", has_text="heard: ").last
    await expect(answer).to_contain_text("go on")
    await expect(page.locator(".prompt", has_text="go on")).to_have_count(1)
    await expect(page.locator(".end, .ending")).not_to_have_count(0)
    assert await page.locator(".said", has_text="heard: ").count() == 1
    assert agent_was_told(served, "initialize") == 1
    assert agent_was_told(served, "session/prompt") == 1
    await page.reload()
    await expect(page.locator(".said", has_text="heard: ")).to_have_count(1)


async def test_choosing_a_mode_starts_the_agent_and_the_choice_is_made(
    page_of: Any, served: Served
) -> None:
    async with in_editor(served) as editor:
        id_ = await held(editor, "Said before.", served.folder)
        await editor.leave()
    page = await page_of()
    await opened(page, id_)
    await choose_mode(page, "code")
    await typed(page, "go on")
    await expect(page.locator(".said").last).to_contain_text("go on")
    assert agent_was_told(served, "session/set_mode") >= 1
    assert agent_was_told(served, "initialize") == 1


async def test_a_conversation_that_is_live_in_an_editor_is_followed_and_answered_without_an_agent(
    page_of: Any, served: Served
) -> None:
    async with in_editor(served) as editor:
        id_ = await held(editor, "Said before.", served.folder)
        editor.answers["session/request_permission"] = lambda _: asyncio.Event().wait()
        page = await page_of()
        await opened(page, id_)
        await expect(page.locator(".said").last).to_contain_text("Said before.")
        asking = editor.begin_prompt(id_, {"say": "While one looks."}, ask(title="May I?"))
        await expect(page.locator(".said", has_text="While one looks.")).to_have_count(1)
        card = page.locator(".asking section.question")
        await expect(card).to_contain_text("May I?")
        await card.get_by_role("button", name="Go on").click()
        await asking
        await expect(page.locator(".said").last).to_contain_text("selected")
        assert agent_was_told(served, "initialize") == 0
        await editor.leave()


async def test_who_begins_to_write_while_something_is_asked_is_asked_it_once(
    page_of: Any, served: Served
) -> None:
    async with in_editor(served) as editor:
        id_ = await held(editor, "Said before.", served.folder)
        editor.answers["session/request_permission"] = lambda _: asyncio.Event().wait()
        page = await page_of()
        await page.set_viewport_size({"width": 1000, "height": 800})
        await opened(page, id_)
        area = page.get_by_role("textbox", name="Prompt", exact=True)
        await area.evaluate("(it) => it.focus()")
        asking = editor.begin_prompt(
            id_, {"until": str(served.folder / "asked")}, ask(title="May I?")
        )
        await area.fill(json.dumps([{"say": "And now this."}]))  # which opens the session to act
        (served.folder / "asked").touch()
        card = page.locator(".asking section.question")
        await expect(card).to_contain_text("May I?")
        await area.press("Enter")
        await expect(page.locator(".queue ol, ul.sending")).to_contain_text("And now this.")
        await expect(card).to_have_count(1)
        await card.get_by_role("button", name="Go on").click()
        await asking
        await expect(page.locator(".said", has_text="And now this.")).to_have_count(1)
        await expect(page.locator(".decision")).to_have_count(1)
        await editor.leave()


async def test_what_another_program_adds_to_a_conversation_is_shown_to_who_looks_at_it(
    page_of: Any, served: Served
) -> None:
    async with in_editor(served) as editor:
        id_ = await held(editor, "Said before.", served.folder)
        await editor.leave()
    page = await page_of()
    await opened(page, id_)
    await expect(page.locator(".said").last).to_contain_text("Said before.")
    async with in_editor(served) as editor:
        await editor.load(id_, served.folder)
        await editor.prompt(id_, {"say": "Said since."})
        await editor.leave()
    await expect(page.locator(".said", has_text="Said since.")).to_have_count(1)
    await page.goto(f"{served.url}/#/")
    await expect(row_of(page, type("Row", (), {"id": id_})())).to_be_visible()
    assert agent_was_told(served, "initialize") == 0
