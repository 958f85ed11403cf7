"""The page of a real `acphold serve`, in a real browser, with the scripted agent behind it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

import acphold
from tests.editor import scripted_agent
from tests.web.conftest import Served, serving

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""A browser of root's, that asks nothing of the network."""

OPTIONS = [
    {"optionId": "go", "name": "Go on", "kind": "allow_once"},
    {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
]


def steps(*them: dict[str, Any]) -> str:
    """A prompt that has the agent do this."""
    return json.dumps(them)


def seen(look: str) -> str:
    """A script that is over when a function of JavaScript finds something.

    What Playwright waits for itself it evaluates as a text, which the page's policy refuses.
    """
    return f"""() => new Promise((resolve, reject) => {{
      setTimeout(() => reject(new Error("waited in vain")), 60_000);
      const look = {look};
      (async function again() {{
        if (await look()) resolve(true);
        else requestAnimationFrame(again);
      }})();
    }})"""


def ask(call: str = "t1", **tool: Any) -> dict[str, Any]:
    """A step: the agent asks whether it may."""
    request = {"toolCall": {"toolCallId": call, **tool}, "options": OPTIONS}
    return {"ask": ["session/request_permission", request]}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of this test's own."""
    with serving(tmp_path, agent=tuple(scripted_agent())) as found:
        yield found


@pytest_asyncio.fixture
async def agent(served: Served) -> AsyncIterator[acphold.RemoteAgent]:
    """Another client of it, that leaves what is asked to others."""

    async def leave_it(_: acphold.PermissionQuestion) -> None:
        await asyncio.Event().wait()

    async with acphold.connect(
        served.url, token=served.token(), on_permission=leave_it
    ) as connected:
        yield connected


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    found = shutil.which("chromium")
    assert found, "the page is tried in Debian's `chromium`, which has to be installed"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture
async def device(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A phone, or what is as small as one."""
    context = await browser.new_context(viewport={"width": 360, "height": 760})
    context.set_default_timeout(30_000)
    yield context
    await context.close()


@pytest_asyncio.fixture
async def page(device: BrowserContext, served: Served) -> AsyncIterator[Page]:
    """The page on it, paired; whatever it complains of, or runs that is not its own, fails."""
    found = await device.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on(
        "console",
        lambda told: wrong.append(told.text) if "Content Security Policy" in told.text else None,
    )
    found.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
    await found.goto(f"{served.url}/#pair={served.pair}")
    await found.get_by_role("link", name="New", exact=True).wait_for()
    yield found
    assert wrong == []
