"""The page of a real `acphold serve`, in a real browser, with the scripted agent behind it.

There is one browser for all tests of a worker, and one server and one other client for those of a
module. Each test has a session, and a device, of its own. A test that kills the server, or counts
devices, has its own `served`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    Dialog,
    Locator,
    Page,
    Playwright,
    StorageState,
    ViewportSize,
    async_playwright,
    expect,
)

import acphold
from tests.editor import scripted_agent
from tests.npm import installed
from tests.web.conftest import Served, serving

expect.set_options(timeout=30_000)  # on a busy machine things take their time

AXE = "axe-core@4.14.1"

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

OPENED = {
    "modes": {
        "currentModeId": "ask",
        "availableModes": [{"id": "ask", "name": "Ask first"}, {"id": "code", "name": "Write"}],
    }
}
"""The agent's answer to session/new."""


def options(model: str, *, is_thorough: bool) -> dict[str, Any]:
    """The options of the other agent, with their current values."""
    models = [{"value": "small", "name": "Small one"}, {"value": "large", "name": "Large one"}]
    choice = {"id": "model", "name": "Model", "type": "select", "currentValue": model}
    switch = {"id": "care", "name": "Thorough", "type": "boolean", "currentValue": is_thorough}
    return {"configOptions": [{**choice, "options": models}, switch]}


STEERED = [{"outcome": "injected"}, {"outcome": "promptRequired", "reason": "noRunningTurn"}]
"""The agent's answers to words into its turn: it takes the first and refuses the second."""

INPUT = {"promptCapabilities": {"image": True, "embeddedContext": True}}

OPTIONS = [
    {"optionId": "go", "name": "Go on", "kind": "allow_once"},
    {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
]


PROMPTS = count(1)


def steps(*them: dict[str, Any]) -> str:
    """A prompt that has the agent do this; in words of its own, as many alike are a program's."""
    first, *others = them
    return json.dumps([{**first, "prompt": next(PROMPTS)}, *others])


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


async def note(page: Page, selector: str) -> None:
    """From now on, keep each text that the selected element shows, however briefly: see `noted`."""
    await page.evaluate(
        """(selector) => {
          globalThis.noted = [];
          const look = () => noted.push(
            ...[...document.querySelectorAll(selector)].map((it) => it.textContent)
          );
          look();
          new MutationObserver(look).observe(document.body, {
            attributes: true, characterData: true, childList: true, subtree: true,
          });
        }""",
        selector,
    )


async def noted(page: Page, words: str) -> None:
    """Wait until one of the texts kept since `note` matches this expression."""
    await page.evaluate(seen(f"() => noted.some((it) => /{words}/.test(it))"))


def row_of(page: Page, session: acphold.RemoteSession) -> Locator:
    """The session in the list."""
    return page.locator(f"a.session[href='#/session/{session.id}']")


def ask(call: str = "t1", **tool: Any) -> dict[str, Any]:
    """A step: the agent asks whether it may."""
    request = {"toolCall": {"toolCallId": call, **tool}, "options": OPTIONS}
    return {"ask": ["session/request_permission", request]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for the tests of a module."""
    folder = tmp_path_factory.mktemp("served")
    command = scripted_agent(
        capabilities=INPUT,
        opened=OPENED,
        log=str(folder / "log.jsonl"),
        meta={"steering": {"supported": True}},
        replies={"_session/steering": STEERED},
    )
    changes = [options("large", is_thorough=False), options("large", is_thorough=True)]
    other = scripted_agent(
        info={"name": "@makers/other", "version": "1"},
        opened=options("small", is_thorough=False),
        replies={"session/set_config_option": changes},
    )
    refusal = {"error": {"code": -32603, "message": "out of order"}}
    broken = scripted_agent(
        info={"name": "broken", "version": "1"}, replies={"session/new": [refusal]}
    )
    wait = f"until [ -e '{folder}/slow may go' ]; do sleep 0.05; done; exec \"$@\""
    slow = ["sh", "-c", wait, "slow", *scripted_agent(info={"name": "slow", "version": "1"})]
    settings = folder / "settings.toml"
    settings.write_text(
        f"[agents.scripted]\ncommand = {json.dumps(command)}\ncancel_grace = 2\n"
        f"[agents.other]\ncommand = {json.dumps(other)}\n"
        f"[agents.broken]\ncommand = {json.dumps(broken)}\n"
        f"[agents.slow]\ncommand = {json.dumps(slow)}\n"
    )
    with serving(folder, agent=(), variables={"ACPHOLD_SETTINGS": str(settings)}) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def agent(served: Served) -> AsyncIterator[acphold.RemoteAgent]:
    """Another client of it, which leaves questions to others."""

    async def leave_it(_: acphold.PermissionQuestion) -> None:
        await asyncio.Event().wait()

    async with acphold.connect(
        served.url, token=served.token(), on_permission=leave_it
    ) as connected:
        yield connected


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One for all modules of a worker: its start takes as long as a test.

    Debian's browser without its windows, if it is there: with the same engine, a new device and its
    page take a fifth of the CPU time. `tests.interop.test_page` has the browser of people.
    """
    shell = shutil.which("chromium-headless-shell")
    async with async_playwright() as playwright:
        browser = await launched(playwright, program=shell)
        yield browser
        await browser.close()


async def launched(playwright: Playwright, *flags: str, program: str | None = None) -> Browser:
    """A browser, with these flags as well; this program instead of `chromium`, if one is named."""
    found = program or shutil.which("chromium")
    assert found, "the page is tried in Debian's `chromium`, which has to be installed"
    return await playwright.chromium.launch(executable_path=found, args=[*FLAGS, *flags])


@pytest_asyncio.fixture(loop_scope="session")
async def device(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A phone, or another screen as small as one.

    Nothing moves on it: the mark of a running turn takes 7 % of a core for each page.
    """
    small: ViewportSize = {"width": 360, "height": 760}
    context = await browser.new_context(viewport=small, reduced_motion="reduce")
    context.set_default_timeout(30_000)
    yield context
    await context.close()


@pytest.fixture(scope="module")
def paired() -> dict[str, StorageState]:
    """Storage of a paired device, by the address of the server."""
    return {}


@pytest_asyncio.fixture(loop_scope="session")
async def page(
    device: BrowserContext,
    served: Served,
    paired: dict[str, StorageState],
    wrong: list[str],
) -> AsyncIterator[Page]:
    """The page on it, paired; whatever it complains of, or runs that is not its own, fails."""
    found = await device.new_page()
    watch(found, wrong)
    if served.url in paired:
        await as_paired(found, served.url, paired[served.url])
        await found.goto(f"{served.url}/#/")
    else:
        await found.goto(f"{served.url}/#pair={served.pair}")
    await found.get_by_role("link", name="New", exact=True).wait_for()
    paired[served.url] = await device.storage_state()
    yield found
    assert wrong == []


@pytest_asyncio.fixture(loop_scope="session")
async def routed(
    page: Page, browser: Browser, served: Served, paired: dict[str, StorageState]
) -> AsyncIterator[Page]:
    """Another tab of the paired device, without a worker: its requests can all be routed."""
    state = paired[served.url]
    device = await browser.new_context(storage_state=state, service_workers="block")
    yield await device.new_page()
    await device.close()


@pytest_asyncio.fixture(loop_scope="session")
async def session(agent: acphold.RemoteAgent, tmp_path: Path) -> acphold.RemoteSession:
    """A session of the other client, in the folder of the test."""
    return await agent.new_session(cwd=tmp_path)


async def did(page: Page, session: acphold.RemoteSession, *them: dict[str, Any]) -> None:
    """The agent has done this in the session, which is on the screen."""
    await session.prompt(steps(*them))
    await opened(page, session.id)


async def as_paired(page: Page, url: str, state: StorageState) -> None:
    """Make its device one that was paired before."""
    await page.context.add_cookies(cast("Any", state["cookies"]))
    await page.goto(f"{url}/page/icon.svg")  # of its origin, and without its scripts
    [kept] = [it["localStorage"] for it in state["origins"] if it["origin"] == url]
    await page.evaluate("(kept) => kept.forEach((it) => localStorage[it.name] = it.value)", kept)


@pytest.fixture
def wrong() -> list[str]:
    """Errors of a page."""
    return []


def watch(page: Page, wrong: list[str]) -> None:
    """Note the page's errors, and each dialog of the browser: the page has its own dialogs."""

    async def answer(dialog: Dialog) -> None:
        wrong.append(f"a dialog: {dialog.message}")
        await dialog.dismiss()

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda told: wrong.append(told.text) if "Content Security Policy" in told.text else None,
    )
    page.on("dialog", answer)


READY = {"": "section.question", "session": ".asking section.question", "new": "main form"}
"""For each place, the element that appears once it is shown, while a session asks."""


async def shown(page: Page, place: str) -> None:
    """Go to a place of the page, in which a session asks."""
    await page.goto(page.url.partition("#")[0] + place)
    await page.locator(READY[place.split("/")[1]]).first.wait_for()


async def fits(page: Page) -> bool:
    """True if nothing on it is wider than the screen."""
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    return bool(await page.evaluate(wide))


async def violations(page: Page) -> list[tuple[str, list[str]]]:
    """Violations that axe finds. It runs in a world of its own: the page's policy refuses it."""
    tools = await page.context.new_cdp_session(page)
    tree = await tools.send("Page.getFrameTree")
    frame = {"frameId": tree["frameTree"]["frame"]["id"]}
    world = await tools.send("Page.createIsolatedWorld", frame)
    source = (installed(AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    rules = "{rules: {'target-size': {enabled: true}}}"  # which axe leaves out by itself
    run = f"axe.run({rules}).then((it) => JSON.stringify(it.violations))"
    for script in (source, run):
        done = await tools.send(
            "Runtime.evaluate",
            {
                "expression": script,
                "contextId": world["executionContextId"],
                "awaitPromise": True,
            },
        )
        assert "exceptionDetails" not in done, done
    await tools.detach()
    found = json.loads(done["result"]["value"])
    return [(it["id"], [node["html"] for node in it["nodes"]]) for it in found]


async def choose(page: Page, what: str) -> None:
    """An entry of the session's menu."""
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_text(what, exact=True).click()


async def opened(page: Page, session_id: str) -> None:
    """The conversation is on the screen, and may be written in, or asks."""
    await page.goto(f"{page.url.partition('#')[0]}#/session/{session_id}")
    await page.locator(".composer textarea").wait_for(state="attached")


async def options_of(page: Page) -> Locator:
    """The sheet with the modes and options of the session, which is opened."""
    await page.locator(".choices button").click()
    return page.get_by_role("dialog", name="Options")


async def choose_mode(page: Page, mode: str) -> None:
    sheet = await options_of(page)
    await sheet.get_by_label("Mode").select_option(mode)
    await expect(sheet.get_by_label("Mode")).to_be_enabled()
    await sheet.get_by_role("button", name="Done").click()


async def put_off(card: Locator) -> None:
    """Answer the question later."""
    await card.get_by_role("button", name="More answers").click()
    await card.get_by_role("button", name="Later").click()


async def typed(page: Page, words: str) -> None:
    """Write a prompt, and send it."""
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await area.fill(words)
    await area.press("Enter")
