"""A page that freezes and wakes at random: `python -m tests.page.soak ROUNDS [SEED]`.

Each round has a prompt: by another client while the page is frozen, or by the page a moment
before. Meanwhile its connection is cut, or the network is down, or carries nothing. Once awake, the
page must show the prompt, once; while it is not connected, it must say so. After the last round it
must show exactly the conversation of the journal, also when it is loaded anew.
"""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Final

from playwright.async_api import CDPSession, Page, async_playwright

import acphold
from tests.page.conftest import launched, opened, typed
from tests.web.network import Network, network, served_through
from tests.web.soak import main

ROUND_SECONDS: Final = 90.0
WEIGHTS: Final = {"nothing": 6, "cut": 6, "down": 4, "stall": 4, "away": 1}
SHOWN: Final = 100
"""The rounds of which the page still has to show every word; older ones scroll off its end."""


class Tab:
    """The page in a browser, with its network, and the words of each round."""

    def __init__(
        self, page: Page, tools: CDPSession, failing: Network, session: acphold.RemoteSession
    ) -> None:
        self.page = page
        self._tools = tools
        self._failing = failing
        self._session = session

    async def round(self, number: int, fault: str, *, is_own: bool) -> None:
        """Say something while the page is frozen, and wake it."""
        words = f"quick: round {number}."
        if is_own:
            await typed(self.page, words)
        await self._tools.send("Page.setWebLifecycleState", {"state": "frozen"})
        match fault:
            case "cut":
                self._failing.cut()
            case "down" | "away":
                self._failing.go_down()
            case "stall":
                self._failing.stall()
        if not is_own:
            await self._session.prompt(words)
        await self._tools.send("Page.setWebLifecycleState", {"state": "active"})
        if fault == "away":  # long enough for it to be said
            await self.page.locator(".away-bar").wait_for(timeout=ROUND_SECONDS * 1000)
        if fault == "stall":
            self._failing.cut()
            self._failing.passes.set()
        self._failing.come_up()
        await self.page.evaluate("dispatchEvent(new Event('focus'))")
        async with asyncio.timeout(ROUND_SECONDS):
            while (found := await self.shown()).count(number) < 2:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)
        assert found.count(number) == 2, f"round {number} is doubled: {found}"

    async def shown(self) -> list[int]:
        """The rounds that are on the page: each in a prompt, and in its answer."""
        text = await self.page.evaluate("document.querySelector('.sheet').textContent")
        return [int(each) for each in re.findall(r"quick: round (\d+)\.", text)]


async def soak(rounds: int, seed: int, folder: Path) -> dict[str, int]:
    """So many rounds; raises AssertionError for the first that is not as it has to be."""
    choose = random.Random(seed)
    told: dict[str, int] = {}
    async with network() as failing, async_playwright() as playwright:
        browser = await launched(playwright)
        with served_through(failing, folder) as served:
            # The other client does not go through the network that fails.
            near = f"http://127.0.0.1:{failing.to}"
            async with acphold.connect(near, token=served.token()) as agent:
                session = await agent.new_session(cwd=served.folder)
                page = await browser.new_page(viewport={"width": 360, "height": 760})
                problems: list[str] = []
                page.on("pageerror", lambda error: problems.append(str(error)))
                await page.goto(f"{served.url}/#pair={served.pair}")
                await page.get_by_role("link", name="New", exact=True).wait_for()
                await opened(page, session.id)
                tools = await page.context.new_cdp_session(page)
                tab = Tab(page, tools, failing, session)
                for number in range(rounds):
                    (fault,) = choose.choices([*WEIGHTS], [*WEIGHTS.values()])
                    told[fault] = told.get(fault, 0) + 1
                    try:
                        await tab.round(number, fault, is_own=choose.random() < 0.3)
                    except TimeoutError:
                        seen = await page.locator("body").inner_text()
                        raise AssertionError(
                            f"round {number}, {fault}: it is not shown, but {seen[-2000:]}"
                        ) from None
                    if number % 50 == 49:
                        print(f"{number + 1} rounds", flush=True)  # noqa: T201
                late = await tab.shown()
                for number in range(max(0, rounds - SHOWN), rounds):
                    assert late.count(number) == 2, f"round {number}: {late.count(number)} times"
                kept = str((await agent.load_session(session.id, cwd=served.folder)).state.timeline)
                for number in range(rounds):
                    assert kept.count(f"quick: round {number}.") == 2, f"round {number} is not kept"
                assert problems == [], problems
        await browser.close()
    return told


if __name__ == "__main__":
    main("freeze and wake", soak)
