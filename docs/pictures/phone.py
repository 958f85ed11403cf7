"""The page: a film of it on a phone, where a tap answers an agent, and a picture of it on a desk.

They are of a real run: `acphold serve`, a browser, and another client that prompts. Only the finger
is drawn.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Locator, Page, async_playwright

import acphold
from docs.pictures.small_agent import TESTED
from docs.pictures.webp import Shot, animated
from tests.page.conftest import launched
from tests.web.conftest import Served, serving

HERE = Path(__file__).parent
WIDTH, HEIGHT, SCALE = 360, 640, 2
SECONDS = 60.0
"""What any one thing may take."""

SAMPLE_SECONDS = 0.15
"""Between two frames while something changes."""

FIRST = "Why is the retry test flaky?"
SECOND = "Mend it, run the tests and commit"


class PhoneCamera:
    """Films a page; `words` are those of the scenes, which every run gives."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.shots: list[Shot] = []
        self.words: list[str] = []

    async def take(self, seconds: float, finger: tuple[float, float] | None = None) -> None:
        """What is there now stays for so long."""
        png = await self.page.screenshot(caret="hide")
        if self.shots and finger is None and png == self.shots[-1].png:
            png, was, finger = self.shots.pop()
            seconds += was
        self.shots.append(Shot(png, seconds, finger))

    async def scene(self, seconds: float, *words: str) -> None:
        """Film until the page shows all of these words; then it stays for so long."""
        end = time.monotonic() + SECONDS
        shown = await self.shown()
        while not all(word in shown for word in words):
            assert time.monotonic() < end, f"never showed {words}:\n{shown}"
            await self.take(SAMPLE_SECONDS)
            await asyncio.sleep(SAMPLE_SECONDS)
            shown = await self.shown()
        await asyncio.sleep(0.3)  # what slides in has come to rest
        self.words.append(await self.shown())
        await self.take(seconds)

    async def shown(self) -> str:
        """Return what a person reads on it."""
        text = await self.page.locator("body").inner_text()
        return "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))

    async def tap(self, place: Locator) -> None:
        """Tap it, as is seen."""
        box = await place.bounding_box()
        assert box is not None
        await self.take(0.6, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
        await place.tap()


def filmed() -> tuple[bytes, list[str], bytes]:
    """Return the film, the words of its scenes, and the picture (PNG)."""
    with TemporaryDirectory() as folder:
        settings = Path(folder, "settings.toml")
        agent = [sys.executable, str(HERE / "small_agent.py")]
        settings.write_text(f"[agents.coder]\ncommand = {json.dumps(agent)}\n", encoding="utf-8")
        variables = {"ACPHOLD_SETTINGS": str(settings), "LOGNAME": "you"}
        with serving(Path(folder), agent=(), variables=variables) as served:
            return asyncio.run(_filmed(served))


async def _filmed(served: Served) -> tuple[bytes, list[str], bytes]:
    async with async_playwright() as playwright:
        browser = await launched(playwright)
        phone = await browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=SCALE,
            has_touch=True,
            is_mobile=True,
            color_scheme="light",
            locale="en-GB",
        )
        camera = PhoneCamera(await phone.new_page())
        picture = await _played(camera, served)
        await browser.close()
    return animated(camera.shots, camera.words, SCALE), camera.words, picture


async def _played(camera: PhoneCamera, served: Served) -> bytes:
    """An editor prompts; its agent asks; the phone answers, and looks on. Then the agent asks in
    another session, and a desk shows both."""

    async def leave_it(_: acphold.PermissionQuestion) -> None:
        await asyncio.Event().wait()

    page = camera.page
    async with acphold.connect(served.url, token=served.token(), on_permission=leave_it) as editor:
        sessions = []
        for name, words in (("clock", "Name the release"), ("retry", FIRST)):
            project = served.folder / name
            project.mkdir()
            sessions.append(await editor.new_session(cwd=project))
            await sessions[-1].prompt(words)
        other, session = sessions
        await page.goto(f"{served.url}/#pair={served.pair}")
        await page.get_by_text(FIRST).wait_for()
        await camera.scene(1.2, FIRST, "Notify me")
        turn = session.prompt(SECOND)
        question = page.locator(".inbox section.question")
        await question.wait_for()
        await camera.scene(3.0, "asks", "git commit", "Notify me")
        await camera.tap(question.get_by_role("button", name="Allow once"))
        await question.wait_for(state="detached")
        await camera.scene(1.0, FIRST)
        await camera.tap(page.locator(f"a.session[href='#/session/{session.id}']"))
        await page.get_by_role("textbox", name="Prompt").wait_for()
        await camera.scene(1.2, "the tests and commit", "Allowed")
        (project / TESTED).touch()
        await camera.scene(3.5, "It is committed.")
        await turn
        asking = other.prompt(SECOND)
        desk = await _desk(page, session.id)
        other.cancel()
        await asking
    return desk


async def _desk(phone: Page, session_id: str) -> bytes:
    """Return a picture of a wide page: what waits, the list, and a session with its diff open."""
    browser = phone.context.browser
    assert browser is not None
    context = await browser.new_context(
        viewport={"width": 1280, "height": 800},
        device_scale_factor=1.5,
        storage_state=await phone.context.storage_state(),
        color_scheme="light",
        locale="en-GB",
    )
    page = await context.new_page()
    await page.goto(f"{phone.url.partition('#')[0]}#/session/{session_id}")
    await page.locator(".inbox .brief a").wait_for()
    edit = page.get_by_text("retry.py", exact=True).first
    await edit.click()
    await page.get_by_text("began = clock()").first.wait_for()
    await edit.scroll_into_view_if_needed()
    await asyncio.sleep(0.5)
    return await page.screenshot(caret="hide")
