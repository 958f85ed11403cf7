"""The page of `serve` in a real browser: how soon it shows, and what it costs while much comes.

The first screen is measured with the processor slowed to a quarter, which is about a phone. Cold is
a browser that has been paired and has read nothing; warm one that was there before.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from acphold.journal.stores import open_journal
from acphold.web.page_files import PageFiles
from bench.conversation import keep, turns
from bench.memory import MIB
from bench.run import Run
from bench.serve import Server, serving
from bench.table import Figure, Goal
from bench.wire import FOLDER

SESSION = "a-long-conversation"
SLOWED = 4
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
PHONE: Any = {"width": 390, "height": 844}
WAIT_MS = 120_000
TURN = 1000
"""Updates of a turn that floods."""

WATCHED = """
window.seen = {longest: 0, gap: 0};
new PerformanceObserver((told) => {
  for (const each of told.getEntries()) seen.longest = Math.max(seen.longest, each.duration);
}).observe({type: "longtask"});
let last = performance.now();
requestAnimationFrame(function frame(now) {
  seen.gap = Math.max(seen.gap, now - last);
  last = now;
  requestAnimationFrame(frame);
});
"""
"""The longest task, of those that are 50 ms or more; and the longest time without a frame."""


FLOODED = """(number) => {
  const entries = [...document.querySelectorAll(".sheet > .entry")];
  const prompt = entries.findLastIndex((each) => each.textContent.includes(`flood ${number}`));
  return prompt >= 0 && entries.slice(prompt).some((each) => each.textContent.includes("456!"));
}"""
"""Whether the turn of this prompt is on the screen to its last word."""

QUESTION = """(last) => {
  const text = document.querySelector(".inbox section.question")?.textContent;
  const asked = Number(/\\d{13}/.exec(text ?? "")?.[0]);
  return asked > last && [asked, Date.now()];
}"""
"""When the agent asked what is on the screen, and now; of a question behind the `last` one."""


def lacks() -> str | None:
    """Why this cannot be measured here, and what to do; None if it can."""
    return None if PageFiles().is_built else "the page is not built; `make page` builds it"


def figures(run: Run) -> Iterator[Figure]:
    """A long history; a stream; what is kept of a flood; a question."""
    numbers = run.size(1_000_000, 50_000), run.size(50_000, 2_500)
    journals = [run.fresh("journal.db") for _ in numbers]
    for journal, number in zip(journals, numbers, strict=True):
        asyncio.run(_fill(journal, number))
    with _browser() as browser, serving(journals[0]) as server:
        paired = _paired(browser, server)
        with serving(journals[1]) as other:
            served = {numbers[0]: (server, paired), numbers[1]: (other, _paired(browser, other))}
            yield from _first_screen(run, browser, served)
        with _device(browser, paired) as device:
            yield from _streaming(run, device, server)
            yield _kept(run, device, server)
            yield _asked(run, device, server)


async def _fill(path: Path, number: int) -> None:
    journal = open_journal(path)
    await keep(journal, SESSION, list(turns(number)), at_once=100, settle=True)
    await journal.aclose()


@contextmanager
def _browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        raise SystemExit("the page is measured in `chromium`, which has to be installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def _device(browser: Browser, paired: Any = None) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport=PHONE, storage_state=paired)
    context.set_default_timeout(WAIT_MS)
    yield context
    context.close()


def _paired(browser: Browser, server: Server) -> Any:
    """The storage of a device that was paired."""
    with _device(browser) as device:
        page = device.new_page()
        page.goto(f"{server.url}/#pair={server.pair}")
        page.get_by_role("link", name="New", exact=True).wait_for()
        return device.storage_state()


def _first_screen(
    run: Run, browser: Browser, served: dict[int, tuple[Server, Any]]
) -> Iterator[Figure]:
    """From the address to the end of the conversation on the screen: of a long one, beside that of
    a shorter one."""
    cold: dict[int, list[float]] = {number: [] for number in served}
    warm: dict[int, list[float]] = {number: [] for number in served}
    for _ in range(run.rounds):
        for number, (server, paired) in served.items():
            with _device(browser, paired) as device:
                cold[number].append(_shown(device, server))
                _shown(device, server)  # the service worker has all from now on
                warm[number].append(_shown(device, server))
    long, short = served
    for name, shown, goal in (("cold", cold, 1000), ("warm", warm, 300)):
        told = f"first screen at {long:,} updates, a quarter of the speed, {name}"
        yield Figure(told, "ms", shown[long], f"at {short:,}", shown[short], (Goal(goal),), False)


def _shown(device: BrowserContext, server: Server) -> float:
    page = device.new_page()
    tools = device.new_cdp_session(page)
    tools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
    page.goto(f"{server.url}/#/session/{SESSION}", wait_until="commit")
    taken: float = _seen(
        page, "() => document.querySelector('.sheet > .entry') && performance.now()"
    )
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.close()
    return taken


def _seen(page: Page, look: str, of: float = 0) -> Any:
    """What a function finds, once it finds something; it looks at each frame.

    A text that is looked at anew each time would be a script that the page's policy refuses.
    """
    return page.evaluate(
        f"""(of) => new Promise((resolve, reject) => {{
          setTimeout(() => reject(new Error("waited in vain")), {WAIT_MS});
          const look = {look};
          (function frame() {{
            const found = look(of);
            if (found) resolve(found);
            else requestAnimationFrame(frame);
          }})();
        }})""",
        of,
    )


def _begun(device: BrowserContext, server: Server) -> Page:
    """A new session on the screen."""
    page = device.new_page()
    page.goto(f"{server.url}/#/new")
    page.get_by_label("Folder on the server").fill(FOLDER)
    page.get_by_role("button", name="Start").click()
    page.get_by_role("textbox", name="Prompt").wait_for()
    return page


def _prompt(page: Page, words: str) -> None:
    page.get_by_role("textbox", name="Prompt").fill(words)
    page.get_by_role("button", name="Send", exact=True).click()


def _streaming(run: Run, device: BrowserContext, server: Server) -> Iterator[Figure]:
    """What a thousand updates a second leave of the page's time."""
    longest, gaps = [], []
    page = _begun(device, server)
    page.evaluate(WATCHED)
    for _ in range(run.rounds):
        page.evaluate("seen.longest = seen.gap = 0")
        _prompt(page, f"paced {run.size(10_000, 2_000)}")
        page.locator("button.stop").wait_for()
        page.locator("button.stop").wait_for(state="detached")
        seen = page.evaluate("seen")
        longest.append(seen["longest"])
        gaps.append(seen["gap"])
    page.close()
    told = "1,000 updates a second"
    yield Figure(f"{told}: longest task of 50 ms or more", "ms", longest, goals=(Goal(50),))
    yield Figure(f"{told}: longest time without a frame", "ms", gaps)


def _kept(run: Run, device: BrowserContext, server: Server) -> Figure:
    """What the page keeps of a flood, beside what it kept of half of it."""
    page = _begun(device, server)
    tools = device.new_cdp_session(page)
    number = run.size(100_000, 20_000)
    kept, turn = [], 0
    for _ in range(2):
        for _ in range(number // 2 // TURN):
            turn += 1
            _prompt(page, f"flood {TURN + turn}")
            _seen(page, FLOODED, TURN + turn)
        tools.send("HeapProfiler.collectGarbage")
        kept.append(tools.send("Runtime.getHeapUsage")["usedSize"] / MIB)
    page.close()
    return Figure(
        f"memory of a page that is open for {number:,} updates",
        "MiB",
        kept[1:],
        "of half as many",
        kept[:1],
        (Goal(64),),
    )


def _asked(run: Run, device: BrowserContext, server: Server) -> Figure:
    """From the agent's question to the page that lists what waits."""
    page = _begun(device, server)
    inbox = device.new_page()
    inbox.goto(f"{server.url}/#/")
    inbox.get_by_role("link", name="New", exact=True).wait_for()
    _prompt(page, f"ask {run.rounds}")
    taken, last = [], 0.0
    for _ in range(run.rounds):
        asked, shown = _seen(inbox, QUESTION, last)
        taken.append(shown - asked)
        last = asked
        inbox.get_by_role("button", name="Go on").click()
    page.close()
    inbox.close()
    return Figure("a question, until it is seen on another page", "ms", taken, goals=(Goal(300),))
