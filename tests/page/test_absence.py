"""What a person sees when the server has gone, and when their device may not come any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.editor import scripted_agent
from tests.page.soak import soak
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of this test's own."""
    with serving(tmp_path, agent=tuple(scripted_agent())) as found:
        yield found


async def test_a_server_that_was_killed_is_said_and_comes_back_by_itself(
    page: Page, served: Served
) -> None:
    served.process.kill()
    await expect(page.locator(".away-bar")).to_contain_text("Not connected since", timeout=60_000)
    # Where it was, as a service is started again.
    port = served.url.rpartition(":")[2].strip("/")
    served.words = [word.replace("127.0.0.1:0", f"127.0.0.1:{port}") for word in served.words]
    served.start_again()
    await expect(page.locator(".away-bar")).to_have_count(0, timeout=60_000)


async def test_a_device_whose_token_is_revoked_is_told_to_pair_again(
    page: Page, served: Served
) -> None:
    tokens = served.run("token", "list").splitlines()[1:]
    (device,) = [line.split()[0] for line in tokens if "Chrome on" in line]
    served.run("token", "revoke", device)
    await expect(page.get_by_role("heading", name="Pair this device")).to_be_visible(timeout=60_000)
    assert await page.locator("a.session").count() == 0


async def test_a_page_that_freezes_and_wakes_has_lost_and_doubled_nothing(tmp_path: Path) -> None:
    told = await soak(24, 2, tmp_path)
    assert sum(told.values()) == 24
