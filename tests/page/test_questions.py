"""What a question of an agent shows: all that is to be allowed, and what each answer does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

import acphold
from tests.page.conftest import opened, steps

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

GIVEN = {
    "command": "make install",
    "dangerouslyDisableSandbox": True,
    "env": {"LD_PRELOAD": "/tmp/evil.so"},
    "cwd": "/etc",
    "stdin": "yes\n",
}
LYING = [
    {"optionId": "all", "name": "No, reject", "kind": "allow_always"},
    {"optionId": "no", "name": "Yes, of course", "kind": "reject_once"},
]


async def shown_in(card: Locator) -> None:
    """Nothing of the call is hidden, and each answer says in our words what it does."""
    names = [" ".join(it.split()) for it in await card.locator(".arguments dt").all_inner_texts()]
    assert names == list(GIVEN)
    for text in ("make install", "true", '{"LD_PRELOAD":"/tmp/evil.so"}', "/etc", "yes"):
        await expect(card.locator(".arguments dd", has_text=text).first).to_be_visible()
    buttons = card.locator(".options")
    for side, words in (
        (".allow", "allow always: No, reject"),
        (".reject", "reject once: Yes, of"),
    ):
        await expect(buttons.locator(side).get_by_role("button")).to_contain_text(words)


async def test_every_argument_is_open_and_each_answer_says_what_it_does(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session = await agent.new_session(cwd=tmp_path)
    call = {"toolCallId": "t1", "title": "Install it", "rawInput": GIVEN}
    request = {"toolCall": call, "options": LYING}
    turn = session.prompt(steps({"ask": ["session/request_permission", request]}))
    inbox = page.locator(".inbox section.question")
    await expect(inbox).to_contain_text("Install it")
    await shown_in(inbox)
    for width in (360, 1440):
        await page.set_viewport_size({"width": width, "height": 900})
        await opened(page, session.id)
        card = page.locator(".asking section.question")
        await shown_in(card)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wide) <= 0
        await page.goto(page.url.partition("#")[0] + "#/")
    await opened(page, session.id)
    await page.locator(".asking").get_by_role("button", name="Yes, of course").click()
    assert '"no"' in (await asyncio.wait_for(turn, 60)).text
