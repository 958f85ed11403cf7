"""The page in a real browser, in front of a real `acphold serve` and an agent behind it."""

from __future__ import annotations

import gzip
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium, BrowserContext, Page, expect, sync_playwright

from acphold.web.page_files import BUILT
from tests.interop.browser import browser_path
from tests.page.conftest import seen
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

AGENT = (sys.executable, str(Path(__file__).with_name("programs") / "page_agent.py"))

# Nothing is asked of the network but the page.
OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
MOST_KB = 60


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=[*OPTIONS])
        yield browser
        browser.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "rows").mkdir()
    with serving(tmp_path, agent=AGENT) as found:
        # Started again, it has to be where it was.
        found.words[found.words.index("127.0.0.1:0")] = f"127.0.0.1:{found.url.rpartition(':')[2]}"
        yield found


@pytest.fixture
def context(chromium: Chromium) -> Iterator[BrowserContext]:
    """A device with a small screen."""
    made = chromium.new_context(viewport={"width": 390, "height": 844})
    made.set_default_timeout(30_000)
    yield made
    made.close()


@pytest.fixture
def complaints() -> list[str]:
    """Violations of the page's own policy, and errors of its script."""
    return []


@pytest.fixture
def page(context: BrowserContext, served: Served, complaints: list[str]) -> Page:
    """The page, paired by the code in its address."""
    made = context.new_page()
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on(
        "console",
        lambda told: complaints.append(told.text) if "Content Security" in told.text else None,
    )
    made.goto(f"{served.url}/#pair={served.pair}")
    expect(made.get_by_text("No sessions yet.")).to_be_visible()
    return made


def prompt(page: Page, words: str) -> None:
    page.get_by_role("textbox", name="Prompt", exact=True).fill(words)
    page.get_by_role("button", name="Send", exact=True).click()


def begin(page: Page, served: Served, folder: Path, words: str) -> None:
    """Begin a session with a prompt."""
    page.goto(f"{served.url}/#/new")
    page.get_by_label("Folder on the server").fill(str(folder))
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile("#/session/"))
    prompt(page, words)


def test_the_page_is_small_and_has_the_licences_of_what_it_bundles() -> None:
    assert len(gzip.compress((BUILT / "index.html").read_bytes(), 9)) <= MOST_KB * 1000
    licences = (BUILT / "licences.txt").read_text()
    for name in ("preact", "htm", "marked", "diff", "highlight.js", "@preact/signals"):
        assert f"\n{name} " in f"\n{licences}"


def test_a_device_pairs_and_reads_what_streams(
    page: Page, served: Served, tmp_path: Path, complaints: list[str]
) -> None:
    assert "pair" not in page.url
    begin(page, served, tmp_path / "rows", "Which disagree?")
    expect(page.get_by_role("cell", name="when.py")).to_be_visible()
    expect(page.locator("pre .hl-keyword")).to_have_text("def")
    page.reload()
    expect(page.locator("article.prompt")).to_contain_text("Which disagree?")
    expect(page.get_by_role("cell", name="when.py")).to_be_visible()
    assert complaints == []


def test_a_server_that_is_killed_is_told_of_and_what_is_sent_meanwhile_arrives_once(
    page: Page, served: Served, tmp_path: Path
) -> None:
    begin(page, served, tmp_path / "rows", "Which disagree?")
    expect(page.get_by_role("cell", name="when.py")).to_be_visible()
    served.process.kill()
    served.process.wait()
    expect(page.locator(".away-bar")).to_contain_text("Offline since")
    prompt(page, "And now?")
    expect(page.locator(".sending")).to_contain_text("Saved on this device")
    served.start_again()
    expect(page.locator(".away-bar")).to_have_count(0, timeout=60_000)
    expect(page.locator(".sending")).to_have_count(0)
    expect(page.locator("article.prompt", has_text="And now?")).to_have_count(1)
    expect(page.get_by_role("cell", name="when.py")).to_have_count(2)


def test_what_was_read_is_shown_while_the_server_does_not_answer(
    page: Page, served: Served, tmp_path: Path
) -> None:
    begin(page, served, tmp_path / "rows", "Which disagree?")
    expect(page.get_by_role("cell", name="when.py")).to_be_visible()
    page.reload()
    page.evaluate(seen("() => navigator.serviceWorker.controller"))
    page.reload()  # read by the service worker
    expect(page.get_by_role("cell", name="when.py")).to_be_visible()
    page.evaluate(
        seen(
            "async () => {"
            " const [read] = (await caches.keys()).filter((name) => name.startsWith('read '));"
            " return read && (await (await caches.open(read)).keys()).length > 1; }"
        )
    )
    served.process.send_signal(signal.SIGSTOP)
    try:
        page.reload()
        expect(page.get_by_role("cell", name="when.py")).to_be_visible()
        prompt(page, "And now?")
        expect(page.locator(".sending")).to_contain_text("Saved on this device")
    finally:
        served.process.send_signal(signal.SIGCONT)
    expect(page.get_by_role("cell", name="when.py")).to_have_count(2)
    expect(page.locator("article.prompt", has_text="And now?")).to_have_count(1)


def test_a_page_that_begins_to_act_in_the_middle_of_a_turn_shows_nothing_twice(
    page: Page, served: Served, tmp_path: Path, context: BrowserContext
) -> None:
    end = tmp_path / "end"
    begin(page, served, tmp_path / "rows", f"flood until {end}")
    expect(page.get_by_role("log").get_by_text("word9 ")).to_be_visible()
    other = context.new_page()  # it only reads, until somebody writes there
    other.goto(page.url)
    said = other.locator(".of-said")
    expect(said).to_be_visible()
    prompt(other, "Which disagree?")
    expect(other.locator(".queue ol")).to_contain_text("Which disagree?")
    end.touch()
    expect(said.get_by_role("cell", name="when.py")).to_have_count(1)
    text = (said.first.text_content() or "").removeprefix("Show earlier text")
    words = text.partition("That")[0].split()
    assert words[-1] == f"word{len(words) - 1 + int(words[0][4:])}"


def test_a_long_session_opens_at_its_end_and_finds_what_was_said_at_its_beginning(
    page: Page, served: Served, tmp_path: Path
) -> None:
    begin(page, served, tmp_path / "rows", "Where is the needle?")
    expect(page.get_by_role("cell", name="when.py")).to_be_visible()
    prompt(page, "flood 2000")
    expect(page.get_by_text("That was all.", exact=True)).to_be_visible(timeout=60_000)
    page.reload()
    expect(page.get_by_text("That was all.", exact=True)).to_be_in_viewport()
    page.get_by_label("More").click()
    page.get_by_role("button", name="Find", exact=True).click()
    page.get_by_label("Find in this session").fill("needle")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Where is the needle?").last).to_be_in_viewport(timeout=60_000)
