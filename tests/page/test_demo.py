"""`acphold serve demo`: whoever has no account can try the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, "demo", agent=()) as found:
        yield found


async def test_its_first_session_begins_in_the_scratch_repository_and_really_edits_and_runs(
    page: Page, served: Served
) -> None:
    hello = served.folder / "state" / "acphold" / "demo" / "greeting" / "hello.py"
    await page.goto(page.url.partition("#")[0] + "#/new")
    await page.get_by_label("First prompt").fill("Make it friendlier")
    await page.get_by_role("button", name="Start and send").click()
    card = page.locator("section.question")
    await expect(card).to_contain_text("Hello, dear")
    before = hello.read_text()
    await card.get_by_role("button", name="Allow once").click()
    await expect(card).to_contain_text("python3 hello.py")
    assert hello.read_text() != before
    await card.get_by_role("button", name="Allow once").click()
    await expect(page.locator("main p").get_by_text("the program prints")).to_be_visible()
    await expect(page.get_by_text("Hello, dear world!").last).to_be_visible()
