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
    page: Page, tmp_path: Path, served: Served, session: acphold.RemoteSession
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "reader.py").write_text("pass\n")
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


AT_ONCE = """new MutationObserver((_, watch) => {
  const area = document.querySelector(".composer textarea");
  if (!area) return;
  watch.disconnect();
  area.value = "typed at once";
  area.dispatchEvent(new Event("input", { bubbles: true }));
}).observe(document, { childList: true, subtree: true });"""
"""Words are typed in the same moment in which there is a place for them."""

LATE_DRAFTS = """const open = IDBFactory.prototype.open;
const released = new Promise((release) => (globalThis.release = release));
IDBFactory.prototype.open = function (...named) {
  const late = {};
  void released.then(() => {
    const asking = open.apply(this, named);
    asking.onupgradeneeded = () => late.onupgradeneeded?.();
    asking.onsuccess = () => ((late.result = asking.result), late.onsuccess());
  });
  return late;
};"""
"""What is kept on the device can be read, and written, from `release()` on."""

FRAMES = """async () => {
  for (let frames = 9; frames--; ) await new Promise(requestAnimationFrame);
}"""
"""All that follows from what is drawn is done."""

DRAFTS = """() => new Promise((done) => {
  const asking = indexedDB.open("acphold");
  asking.onsuccess = () => {
    const all = asking.result.transaction("drafts").objectStore("drafts").getAll();
    all.onsuccess = () => done(all.result);
  };
})"""
"""The drafts that are kept on the device."""


async def test_words_typed_in_the_moment_that_a_session_opens_stay_and_are_sent(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/session/{session.id}")
    for script in (AT_ONCE, LATE_DRAFTS):
        await page.add_init_script(script)
    await page.reload()
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await expect(area).to_have_value("typed at once")
    await page.evaluate(FRAMES)
    await area.press("Enter")
    await page.evaluate("release()")
    await expect(page.locator("article.prompt")).to_contain_text("typed at once")
    await expect(area).to_have_value("")


@pytest.mark.parametrize("place", ["session", "new"])
async def test_a_draft_that_is_read_late_stands_in_front_of_what_was_typed_meanwhile(
    page: Page, place: str, session: acphold.RemoteSession
) -> None:
    name = {"session": "Prompt", "new": "First prompt"}[place]
    area = page.get_by_role("textbox", name=name, exact=True)
    where = {"session": f"#/session/{session.id}", "new": "#/new"}[place]
    await page.goto(page.url.partition("#")[0] + where)
    await area.fill("half a thought")
    await page.wait_for_function(f"async () => (await ({DRAFTS})()).length > 0")
    await page.reload()
    await expect(area).to_have_value("half a thought")
    await page.add_init_script(LATE_DRAFTS)
    await page.reload()
    await area.fill("and more")
    await page.evaluate("release()")
    await expect(area).to_have_value("half a thought\n\nand more")
    assert await page.evaluate(DRAFTS) == ["half a thought\n\nand more"]


async def test_stop_ends_a_turn_whether_the_agent_heeds_it_or_not_and_holds_what_waits(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    stop = page.get_by_role("button", name="Stop")
    for number, (how, said) in enumerate((("cancel", "works"), ("cancel ignored", "works on"))):
        await typed(page, steps({"say": said}, {"until": how}))
        await expect(page.locator(".said").last).to_have_text(said)
        await typed(page, f"next behind {how}")
        waits = page.locator(".queue ol li")
        await expect(waits).to_contain_text(f"next behind {how}")
        await note(page, ".composer [role=status], button.stop:disabled")
        await stop.click()
        if how == "cancel ignored":  # it has a moment; then it is answered for
            await noted(page, "^Stopping")
            await noted(page, "^Stop$")
        await expect(page.locator(".ending.cancelled")).to_have_count(number + 1)
        await expect(stop).to_have_count(0)
        await expect(page.locator(".queue [role=status]")).to_have_text("paused: stopped")
        await expect(waits).to_contain_text(f"next behind {how}")
        await page.reload()
        await expect(waits).to_contain_text(f"next behind {how}")
        await page.get_by_role("button", name="Resume", exact=True).click()
        await expect(page.locator(".said").last).to_contain_text(f"next behind {how}")


async def test_what_was_written_offline_is_given_back_by_a_stop_of_the_turn_of_another_before_it(
    page: Page, served: Served, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await page.context.set_offline(True)
    await page.get_by_text("Offline since").wait_for()
    await typed(page, "written offline")
    waits = page.locator("ul.sending li")
    await expect(waits).to_contain_text("will be sent when you are online")
    turn = session.prompt(steps({"say": "works"}, {"until": "cancel ignored"}))
    await page.context.set_offline(False)
    await expect(waits).to_contain_text("waiting for the current turn")
    await expect(page.locator(".said")).to_have_text("works")
    await page.get_by_role("button", name="Stop").click()
    await page.goto(page.url.partition("#")[0] + "#/")
    row = page.locator(f"a.session[href='#/session/{session.id}']")
    await expect(row).not_to_have_class(re.compile("running"))
    await turn
    await page.reload()
    await opened(page, session.id)
    written = page.get_by_role("textbox", name="Prompt", exact=True)
    for _ in range(2):
        await expect(written).to_have_value("written offline")
        await page.reload()
    told = [
        block["text"]
        for it in heard(served, "session/prompt", session.id)
        for block in it["prompt"]
    ]
    assert "written offline" not in told
