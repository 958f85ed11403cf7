"""The page belongs to one user: beside other servers of its host, and after other pairings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

import acphold
from acp_check.model_endpoint import serving as running
from tests.page.conftest import opened, row_of, seen, steps
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

SIGN_IN = "Pair this device"


@dataclass
class Neighbour:
    """A server of somebody else's at another port of this host."""

    url: str = ""
    sets: list[str] = field(default_factory=list)
    came: list[str] = field(default_factory=list)

    @property
    def values(self) -> set[str]:
        """The values of all cookies it was sent."""
        pairs = [it.partition("=") for line in self.came for it in line.split("; ")]
        return {value for _, _, value in pairs if value}


@contextmanager
def neighbour() -> Iterator[Neighbour]:
    found = Neighbour()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.came.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            for cookie in found.sets:
                self.send_header("Set-Cookie", cookie)
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>dev server</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://localhost:{server.server_port}/"
    with running(server, "dev server"):
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def other_device(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    context.set_default_timeout(30_000)
    yield context
    await context.close()


def code(served: Served, *words: str) -> str:
    """A code that pairs one more device."""
    told: str = json.loads(served.run("access", "pair", "--json", *words))["pair"]
    return told


async def paired_as(device: BrowserContext, served: Served, *words: str) -> Page:
    """A page of this device, paired."""
    page = await device.new_page()
    await page.goto(f"{served.url}/#pair={code(served, *words)}")
    await page.get_by_role("link", name="New", exact=True).wait_for()
    return page


async def test_another_port_of_this_host_gets_nothing_that_opens_anything(
    device: BrowserContext, served: Served
) -> None:
    page = await paired_as(device, served)
    with neighbour() as dev:
        await page.goto(dev.url)
        assert dev.values, "cookies know no ports"
        reads = (
            "async (url) => (await fetch(url, {credentials: 'include', mode: 'no-cors'})).status"
        )
        assert await page.evaluate(reads, f"{served.url}/sessions") == 0
    port = served.url.rpartition(":")[2]
    ways: list[dict[str, str]] = []
    for value in dev.values:
        ways.append({"Authorization": f"Bearer {value}"})
        for name in ("acphold", f"acphold-{port}"):
            cookie = {"Cookie": f"{name}={value}"}
            ways += [cookie, {**cookie, "Authorization": f"Bearer {value}"}]
            ways.append({**cookie, "Acphold-Page": value, "Sec-Fetch-Site": "same-origin"})
    async with httpx2.AsyncClient(base_url=served.url) as http:
        for headers in ways:
            answers = [
                await http.get("/sessions", headers=headers),
                await http.post("/codes", json={}, headers=headers),
            ]
            assert [it.status_code for it in answers] == [401, 401], headers


async def test_a_cookie_that_another_port_has_planted_makes_the_page_nobody_else_s(
    device: BrowserContext,
    other_device: BrowserContext,
    served: Served,
    agent: acphold.RemoteAgent,
) -> None:
    session = await agent.new_session(cwd=served.folder)
    await session.prompt(steps({"say": "Mine."}))
    page = await paired_as(device, served)
    await expect(row_of(page, session)).to_be_visible()
    await paired_as(other_device, served, "--user", "eve")
    [hers] = await other_device.cookies()
    with neighbour() as dev:
        tab = await device.new_page()
        # Beside ours, where it is sent first.
        dev.sets = [f"{hers['name']}={hers['value']}; Path=/sessions; HttpOnly"]
        await tab.goto(dev.url)
        await page.reload()
        await expect(row_of(page, session)).to_be_visible()
        # In the place of ours.
        dev.sets = [f"{hers['name']}={hers['value']}; Path=/; HttpOnly"]
        await tab.goto(dev.url)
        await page.reload()
        await expect(page.get_by_role("heading", name=SIGN_IN)).to_be_visible()
        await expect(page.get_by_role("alert")).to_contain_text("Another page on this host")
    # It is in the same way that it comes back: by a code.
    await page.get_by_role("textbox", name="Code").fill(code(served))
    await page.get_by_role("button", name="Pair").click()
    await expect(row_of(page, session)).to_be_visible()


async def test_two_servers_of_one_host_work_side_by_side(
    device: BrowserContext, served: Served, tmp_path: Path
) -> None:
    one = await paired_as(device, served)
    with serving(tmp_path) as second:
        two = await paired_as(device, second, "--user", "zoe")
        for page, owner in ((one, "@"), (two, "zoe"), (one, "@")):
            await page.reload()
            await expect(page.locator(".whose b")).to_contain_text(owner)
            await page.get_by_role("link", name="New", exact=True).wait_for()
            await expect(page.locator(".away-bar")).to_have_count(0)
        # Each is connected, not only shown from stored data.
        for page in (one, two):
            assert await page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
            await page.evaluate(seen(f"async () => {IS_OPEN}"))


IS_OPEN = """(await fetch('/browser', {headers: {
  'Acphold-Page': JSON.parse(localStorage['acphold device']).page,
}})).ok"""


KEPT = """async () => {
  const found = [];
  for (const name of await caches.keys()) {
    if (name.startsWith("page ")) continue;  // its own files
    const cache = await caches.open(name);
    for (const key of await cache.keys()) {
      found.push(key.url, await (await cache.match(key, {ignoreVary: true})).text());
    }
  }
  return found.join("\\n");
}"""


async def test_what_one_user_has_read_is_not_there_for_the_next_one(
    device: BrowserContext, served: Served
) -> None:
    token = served.token("--user", "alice")
    async with acphold.connect(served.url, token=token) as alice:
        session = await alice.new_session(cwd=served.folder)
        await session.prompt(steps({"say": "The secret of alice."}))
    page = await paired_as(device, served, "--user", "alice")
    await opened(page, session.id)
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    await page.reload()
    await expect(page.locator(".said").last).to_contain_text("The secret of alice.")
    await page.evaluate(seen(f"async () => (await ({KEPT})()).includes('/entries')"))
    address = f"/sessions/{session.id}/entries?limit=40&brief=true"  # as the page asks
    asked = f"""async () => (await fetch('{address}', {{headers: {{
      'Acphold-Page': JSON.parse(localStorage['acphold device'] ?? '{{"page": ""}}').page,
    }}}})).text()"""
    assert "secret of alice" in await page.evaluate(asked)

    # A file is only for the user who requested it.
    await page.get_by_role("button", name="More").click()
    async with page.expect_download() as download:
        await page.get_by_text("Export", exact=True).click()
    file = await (await download.value).path()
    assert "The secret of alice." in file.read_text()
    assert "/export" not in await page.evaluate(KEPT)

    await page.goto(f"{served.url}/?new#pair={code(served, '--user', 'bob')}")
    dialog = page.get_by_role("dialog", name="Pair this device again?")
    await expect(dialog).to_contain_text("alice")
    await dialog.get_by_role("button", name="Pair again").click()
    await page.get_by_role("link", name="New", exact=True).wait_for()
    assert "secret of alice" not in await page.evaluate(asked)
    assert "secret of alice" not in await page.evaluate(KEPT)
    await expect(page.locator(".whose b")).to_have_text("bob")
    await page.goto(f"{served.url}/#/session/{session.id}")
    await expect(page.get_by_text("Session not found")).to_be_visible()
    await device.set_offline(True)
    await page.reload()
    await expect(page.locator(".whose b")).to_have_text("bob")
    assert await page.get_by_text("The secret of alice.").count() == 0
    assert "secret of alice" not in await page.evaluate(KEPT)
    await device.set_offline(False)


async def test_of_a_session_that_somebody_shares_only_what_one_may_do_is_offered(
    device: BrowserContext, served: Served
) -> None:
    async with served.session() as session:
        await session.prompt(steps({"say": "Ours."}))
    page = await paired_as(device, served, "--user", "carol")
    await expect(page.get_by_role("link", name="Usage")).to_have_count(0)
    prompt, delete = page.get_by_label("Prompt", exact=True), page.get_by_text("Delete", exact=True)
    for may in ((), ("--prompt",)):
        served.run("access", "share", session.id, "--with", "carol", *may)
        await page.goto(f"{served.url}/#/session/{session.id}")
        await page.reload()
        await expect(page.locator(".said")).to_have_text("Ours.")
        await expect(page.get_by_text("You can only watch")).to_have_count(0 if may else 1)
        await expect(prompt).to_have_count(1 if may else 0)
        await page.get_by_role("button", name="More").click()
        await expect(page.get_by_text("Export", exact=True)).to_be_visible()
        await expect(delete).to_have_count(0)


async def test_an_address_with_a_code_makes_no_page_somebody_else_s_unasked(
    device: BrowserContext, served: Served
) -> None:
    page = await paired_as(device, served, "--user", "alice")
    await page.goto("about:blank")
    await page.goto(f"{served.url}/#pair={code(served, '--user', 'eve')}")
    dialog = page.get_by_role("dialog", name="Pair this device again?")
    await expect(dialog).to_contain_text("alice")
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="New", exact=True).wait_for()
    await expect(page.locator(".whose b")).to_have_text("alice")
    await expect(dialog).to_have_count(0)


STORED = """async () => {
  const database = await new Promise((resolve, reject) => {
    const asking = indexedDB.open("acphold", 1);
    asking.onsuccess = () => resolve(asking.result);
    asking.onerror = () => reject(asking.error);
  });
  const found = [];
  for (const name of database.objectStoreNames) {
    const all = database.transaction(name).objectStore(name).getAll();
    found.push(...await new Promise((resolve) => (all.onsuccess = () => resolve(all.result))));
  }
  database.close();
  return JSON.stringify([found, {...localStorage}]);
}"""


async def test_a_pairing_link_opened_in_a_tab_that_waits_for_one_pairs_it(
    other_device: BrowserContext, served: Served
) -> None:
    page = await other_device.new_page()
    await page.goto(f"{served.url}/#/")
    await expect(page.get_by_role("heading", name=SIGN_IN)).to_be_visible()
    await page.evaluate("(link) => { location.href = link }", f"/#pair={code(served)}")
    await page.get_by_role("link", name="New", exact=True).wait_for()
    assert "pair=" not in page.url


async def test_who_signs_out_leaves_nothing_on_the_device(
    device: BrowserContext, served: Served, agent: acphold.RemoteAgent
) -> None:
    session = await agent.new_session(cwd=served.folder)
    await session.prompt(steps({"say": "For the owner alone."}))
    page = await paired_as(device, served)
    await opened(page, session.id)
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    await page.reload()
    await page.get_by_role("textbox", name="Prompt", exact=True).fill("what I have begun to write")
    await page.evaluate(seen(f"async () => (await ({STORED})()).includes('begun to write')"))
    await page.evaluate(seen(f"async () => (await ({KEPT})()).includes('/entries')"))
    second = await device.new_page()
    await second.goto(f"{served.url}/#/")
    await expect(second.get_by_role("button", name="Sign out")).to_be_visible()
    tokens = await page.evaluate("localStorage['acphold device']")
    await second.get_by_role("button", name="Sign out").click()
    dialog = second.get_by_role("dialog", name="Sign out of")
    await dialog.get_by_role("button", name="Sign out").click()
    for each in (second, page):  # and the other tab, which shows nothing any more
        await expect(each.get_by_role("heading", name=SIGN_IN)).to_be_visible()
        assert await each.get_by_text("For the owner alone.").count() == 0
    left = await page.evaluate(STORED) + await page.evaluate(KEPT)
    for words in ("begun to write", "/entries", "For the owner alone", json.loads(tokens)["page"]):
        assert words not in left
    assert await device.cookies() == []
    listed = served.run("access", "list", "--json").splitlines()
    states = {it["id"]: (it["kind"], it["state"]) for it in map(json.loads, listed)}
    assert states[json.loads(tokens)["id"]] == ("browser", "revoked")
