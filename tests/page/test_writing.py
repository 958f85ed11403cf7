"""Writing and choosing on the page, and the display of it until it is done."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import FilePayload, Page, expect

import acphold
from tests.page.conftest import choose_mode, note, noted, opened, steps, typed
from tests.page.test_conversations import call, picture
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

COMMANDS = [
    {"name": "review", "description": "Look at what has changed"},
    {"name": "test", "description": "Run the tests"},
]


def heard(served: Served, method: str, session_id: str) -> list[Any]:
    """Params of the agent's received messages of this method, for this session."""
    lines = (served.folder / "log.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    return [
        each["params"]
        for each in told
        if each.get("method") == method and each["params"].get("sessionId") == session_id
    ]


async def test_a_prompt_has_commands_files_of_the_session_and_those_of_the_device(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "reader.py").write_text("pass\n")
    session = await agent.new_session(cwd=tmp_path)
    offer = {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS}
    spoken_of = call("r", "Read it", "read", locations=[{"path": str(tmp_path / "spoken.py")}])
    await session.prompt(steps({"update": offer}, spoken_of))
    await opened(page, session.id)
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    offered = page.locator("ul.suggestions button")
    await area.fill("/re")
    await expect(offered).to_have_count(1)
    await offered.click()
    await expect(area).to_have_value("/review ")
    await area.press_sequentially("and @spok")
    await offered.first.click()
    await expect(area).to_have_value("/review and @spoken.py ")
    text = FilePayload(name="notes.md", mimeType="text/markdown", buffer=b"Written here.")
    photo = FilePayload(name="a.png", mimeType="image/png", buffer=b64decode(picture(9, 9)))
    binary = FilePayload(name="a.bin", mimeType="application/x", buffer=b"\xff\xfe\x00")
    files = page.locator("input[type=file]")
    await files.set_input_files([text, photo, binary])
    await expect(page.get_by_role("alert")).to_have_text("a.bin is not a text file.")
    await expect(page.locator("ul.attached li")).to_have_count(2)
    await area.press("Enter")
    await expect(page.locator(".said", has_text="heard:")).to_be_visible()
    (*_, told) = heard(served, "session/prompt", session.id)
    kinds = {block["type"]: block for block in told["prompt"]}
    assert kinds["resource"]["resource"]["text"] == "Written here."
    assert kinds["image"]["mimeType"] == "image/png"
    assert kinds["resource_link"]["uri"] == (tmp_path / "spoken.py").as_uri()
    assert kinds["text"]["text"] == "/review and @spoken.py"
    await expect(page.locator("article.prompt").last.locator("img")).to_be_visible()
    # A picture from a camera is made smaller before it is sent.
    large = FilePayload(name="b.png", mimeType="image/png", buffer=b64decode(picture(3000, 1500)))
    await files.set_input_files(large)
    await expect(page.locator("ul.attached li")).to_have_count(1)
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("article.prompt")).to_have_count(3)
    shown = page.locator("article.prompt").last.locator("img")
    await expect(shown).to_be_visible()
    await shown.evaluate("(it) => it.decode()")
    assert await shown.evaluate("(it) => [it.naturalWidth, it.naturalHeight]") == [1568, 784]


async def test_a_draft_and_a_choice_stay_where_they_were_made(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    one, other = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await opened(page, one.id)
    await area.fill("half a thought")
    await area.press("Shift+Enter")
    await area.press_sequentially("and more")
    await choose_mode(page, "code")
    for is_anew in (False, True):  # it is kept once it can be read again
        await opened(page, other.id)
        await expect(area).to_have_value("")
        await expect(page.locator(".choices button")).to_have_text("Ask first")
        if is_anew:
            await page.reload()
        await opened(page, one.id)
        await expect(area).to_have_value("half a thought\nand more")
        await expect(page.locator(".choices button")).to_have_text("Write")
    assert heard(served, "session/set_mode", one.id)[-1]["modeId"] == "code"
    await area.press("Enter")
    await expect(page.locator("article.prompt")).to_contain_text("half a thought")
    await expect(area).to_have_value("")
    await page.reload()
    await opened(page, one.id)
    await expect(area).to_have_value("")


async def test_stop_ends_a_turn_whether_the_agent_heeds_it_or_not_and_gives_back_what_waited(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await agent.new_session(cwd=tmp_path)
    await opened(page, session.id)
    stop = page.get_by_role("button", name="Stop")
    for number, (how, said) in enumerate((("cancel", "works"), ("cancel ignored", "works on"))):
        await typed(page, steps({"say": said}, {"until": how}))
        await expect(page.locator(".said").last).to_have_text(said)
        # A prompt written meanwhile waits for its turn.
        await typed(page, f"next behind {how}")
        waits = page.locator("ul.sending")
        await expect(waits).to_contain_text("waiting for the current turn")
        await note(page, ".composer [role=status], button.stop:disabled")
        await stop.click()
        if how == "cancel ignored":  # it has a moment; then it is answered for
            await noted(page, "^Stopping")
            await noted(page, "^Stop$")
        # Those that wait are stopped with it.
        await expect(page.locator(".ending.cancelled")).to_have_count(2 * number + 2)
        await expect(stop).to_have_count(0)
        await expect(waits).to_have_count(0)
        written = page.get_by_role("textbox", name="Prompt", exact=True)
        await expect(written).to_have_value(f"next behind {how}")
    await page.reload()
    await expect(written).to_have_value("next behind cancel ignored")
    await typed(page, steps({"say": "It goes on."}))
    await expect(page.locator(".said", has_text=re.compile("^It goes on.$"))).to_be_visible()


async def test_what_waited_behind_a_stopped_turn_is_given_back_to_whoever_has_left_meanwhile(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, served: Served
) -> None:
    session = await agent.new_session(cwd=tmp_path)
    await opened(page, session.id)
    await typed(page, steps({"say": "works"}, {"until": "cancel ignored"}))
    await expect(page.locator(".said")).to_have_text("works")
    waits = page.locator("ul.sending li")
    for number, words in enumerate(("the first that waits", "the second that waits")):
        await typed(page, words)
        await expect(waits.nth(number)).to_contain_text("waiting for the current turn")
    await page.get_by_role("button", name="Stop").click()
    await page.goto(page.url.partition("#")[0] + "#/")
    row = page.locator(f"a.session[href='#/session/{session.id}']")
    await expect(row).not_to_have_class(re.compile("running"))
    await page.reload()
    await opened(page, session.id)
    written = page.get_by_role("textbox", name="Prompt", exact=True)
    await expect(written).to_have_value("the first that waits\n\nthe second that waits")
    await page.reload()
    await expect(written).to_have_value("the first that waits\n\nthe second that waits")
    told = [
        block["text"]
        for it in heard(served, "session/prompt", session.id)
        for block in it["prompt"]
    ]
    assert not any("that waits" in text for text in told)
