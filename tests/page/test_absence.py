"""The page while the server is down, the device is revoked, or the page itself was asleep."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest
from playwright.async_api import Browser, Page, Request, Route, WebSocketRoute, expect

import acphold
from acphold.web.page_files import BUILT
from tests.editor import scripted_agent
from tests.failures.test_sleep import asleep
from tests.page.conftest import opened, seen, steps, typed
from tests.page.soak import soak
from tests.web.conftest import Served, serving
from tests.web.network import network, served_through

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


LISTED = """async (id) => {
  for (;;) {
    const kept = await caches.match("/sessions?said=true", { ignoreVary: true });
    if ((await kept?.text())?.includes(id)) return;
    await new Promise(requestAnimationFrame);
  }
}"""
"""Over once the list that is kept on the device has this session."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of this test's own."""
    with serving(tmp_path, agent=tuple(scripted_agent())) as found:
        yield found


def start_at_its_port(served: Served) -> None:
    """Start it again, as a service is."""
    port = served.url.rpartition(":")[2].strip("/")
    served.words = [word.replace("127.0.0.1:0", f"127.0.0.1:{port}") for word in served.words]
    served.start_again()


async def test_a_page_whose_machine_slept_with_the_server_goes_on_by_itself(
    page: Page, served: Served, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with served.session(cwd=tmp_path) as session:
        await opened(page, session.id)
        await typed(page, steps({"say": "On it."}, {"until": str(go)}, {"say": " Done."}))
        await expect(page.locator(".said")).to_have_text("On it.")
    here = psutil.Process().children(recursive=True)
    browser = [it.pid for it in here if "chrom" in " ".join(it.cmdline()[:1])]
    assert browser
    async with asleep(*browser, served.process.pid, served.daemon.pid):
        go.touch()
        await asyncio.sleep(60)
    await expect(page.locator("article.said")).to_have_text("On it. Done.", timeout=60_000)
    await typed(page, steps({"say": "Good morning."}))
    await expect(page.locator("article.said").last).to_have_text("Good morning.")


async def test_a_turn_that_the_servers_death_cut_off_is_told_once(
    page: Page, served: Served, tmp_path: Path
) -> None:
    async with served.session(cwd=tmp_path) as session:
        await opened(page, session.id)
        await typed(page, steps({"say": "On it."}, {"until": str(tmp_path / "never")}))
        await expect(page.locator(".said")).to_have_text("On it.")
    served.process.kill()
    await expect(page.locator(".away-bar")).to_contain_text("Offline since", timeout=60_000)
    start_at_its_port(served)
    await expect(page.get_by_text("Interrupted", exact=True)).to_be_visible(timeout=60_000)
    await typed(page, "quick: again.")  # its answer comes after that of the first prompt
    await expect(page.locator("article.said")).to_have_count(2)
    await expect(page.locator(".sending li")).to_have_count(0)


async def test_a_page_that_is_opened_while_the_server_is_away_shows_the_list_as_it_was(
    page: Page, served: Served, tmp_path: Path
) -> None:
    async with served.session(cwd=tmp_path) as session:
        await session.prompt("quick: kept.")
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    await page.reload()
    row = page.locator(f"a.session[href='#/session/{session.id}']")
    await row.wait_for()
    await page.evaluate(LISTED, session.id)
    served.process.terminate()
    await asyncio.to_thread(served.process.wait, 60)
    await page.reload()
    await expect(row).to_be_visible()
    await expect(page.locator(".away-bar")).to_be_visible()
    await page.evaluate(
        "caches.keys().then((all) => Promise.all("
        "all.filter((it) => it.startsWith('read')).map((it) => caches.delete(it))))"
    )
    await page.reload()
    await expect(page.get_by_text("Your sessions appear here when")).to_be_visible()
    await expect(page.get_by_text("Loading sessions")).to_have_count(0)


async def test_a_device_whose_token_is_revoked_is_told_so_and_to_pair_again(
    page: Page, served: Served
) -> None:
    tokens = served.run("access", "list").splitlines()[1:]
    (device,) = [line.split()[0] for line in tokens if "Chrome on" in line]
    served.run("access", "revoke", device)
    await expect(page.get_by_role("heading", name="Pair this device")).to_be_visible(timeout=60_000)
    assert await page.locator("a.session").count() == 0
    told = page.get_by_role("alert")
    when = r"\d{4}-\d\d-\d\d at \d\d:\d\d UTC"
    revoked = re.compile(rf"^Access of this device was revoked on {when}\.$")
    await expect(told).to_have_text(revoked)
    await page.evaluate(
        seen("async () => !(await caches.keys()).some((it) => it.startsWith('read'))")
    )
    await page.reload()
    await expect(told).to_have_text(revoked)


async def test_a_page_that_freezes_and_wakes_has_lost_and_doubled_nothing(tmp_path: Path) -> None:
    told = await soak(24, 2, tmp_path)
    assert sum(told.values()) == 24


async def test_a_tab_frozen_for_minutes_says_since_when_and_goes_on_behind_what_it_had(
    browser: Browser, tmp_path: Path
) -> None:
    async with network() as failing:
        with served_through(failing, tmp_path, "server.HEARTBEAT_SECONDS = 4") as served:
            near = f"http://127.0.0.1:{failing.to}"  # past the failing network
            async with acphold.connect(near, token=served.token()) as agent:
                session = await agent.new_session(cwd=tmp_path)
                await session.prompt("quick: before.")
                page = await browser.new_page(viewport={"width": 360, "height": 760})
                await page.clock.install()
                await page.goto(f"{served.url}/#pair={served.pair}")
                await page.get_by_role("link", name="New", exact=True).wait_for()
                await opened(page, session.id)
                await expect(page.locator(".said")).to_contain_text("quick: before.")
                await clients_of(served, session.id, 2)
                # The device sleeps: nothing runs on it, and the server hears nothing of it.
                failing.stall()
                began = datetime.now().astimezone()
                await page.clock.set_system_time(began + timedelta(minutes=6))
                tools = await page.context.new_cdp_session(page)
                await tools.send("Page.setWebLifecycleState", {"state": "frozen"})
                await clients_of(served, session.id, 1)
                for number in range(3):
                    await session.prompt(f"quick: round {number}.")
                # It wakes, and the network is there a moment after it.
                failing.go_down()
                failing.passes.set()
                asked: list[str] = []
                page.on("request", lambda request: asked.append(request.url))
                await tools.send("Page.setWebLifecycleState", {"state": "active"})
                await page.evaluate("dispatchEvent(new Event('focus'))")
                away = page.locator(".away-bar")
                await expect(away).to_contain_text(re.compile(r"Offline since .* \((5|6) min\)"))
                failing.come_up()
                await expect(away).to_have_count(0)
                sheet = page.locator(".sheet")
                await expect(sheet.locator("article.prompt")).to_have_count(4)
                await expect(sheet.locator(".said").last).to_contain_text("quick: round 2.")
                for each in ("before", "round 0", "round 1"):  # earlier messages are drawn later
                    twice = re.compile(rf"quick: {each}\..*quick: {each}\.", re.DOTALL)
                    await expect(sheet).to_contain_text(twice)
                text = await sheet.inner_text()
                counts = [
                    text.count(f"quick: {each}.") for each in ("before", "round 0", "round 1")
                ]
                assert counts == [2, 2, 2]
                assert not [url for url in asked if "/entries" in url]
                await page.close()


async def clients_of(served: Served, session_id: str, number: int) -> None:
    """Wait until so many have the session open."""
    async with asyncio.timeout(60):
        while True:
            listed = await asyncio.to_thread(served.run, "list", "--json")
            rows = {row["sessionId"]: row for row in map(json.loads, listed.splitlines())}
            if (rows[session_id]["live"] or {}).get("clients") == number:
                return


async def test_a_newer_page_takes_the_place_of_one_that_nobody_has_touched(
    browser: Browser, tmp_path: Path
) -> None:
    files = tmp_path / "built"
    shutil.copytree(BUILT, files)
    altered = (
        f"from pathlib import Path; files = server.PageFiles; "
        f"server.PageFiles = lambda: files(Path({str(files)!r}))"
    )
    with serving(tmp_path, agent=tuple(scripted_agent()), altered=altered) as served:
        device = await browser.new_context(viewport={"width": 360, "height": 760})
        left, touched = [await device.new_page() for _ in range(2)]
        await left.goto(f"{served.url}/#pair={served.pair}")
        await left.get_by_role("link", name="New", exact=True).wait_for()
        await left.evaluate("navigator.serviceWorker.ready.then(() => true)")
        await touched.goto(f"{served.url}/#/new")
        await touched.get_by_label("Folder on the server").click()
        await touched.keyboard.type("/srv/half")
        # A newer one: a page and a worker that are others.
        newer = 'name="build" content="newer"'
        index, worker = files / "index.html", files / "worker.js"
        index.write_text(index.read_text().replace("<head>", f"<head><meta {newer}>", 1))
        worker.write_text(f"{worker.read_text()}\n// newer\n")
        worker.write_text(re.sub(r"page [0-9a-f]{12}", "page newer", worker.read_text()))
        port = served.url.rpartition(":")[2].strip("/")
        served.words = [word.replace("127.0.0.1:0", f"127.0.0.1:{port}") for word in served.words]
        served.start_again()
        # The stored page is shown while the newer one is fetched; then that takes its place, by
        # itself. To look into the page would be to touch it.
        loads = asyncio.Queue[Page]()
        left.on("load", loads.put_nowait)
        await left.reload()
        for _ in range(2):
            await asyncio.wait_for(loads.get(), 60)
        await expect(left.locator(f"meta[{newer.replace(' ', '][')}]")).to_have_count(1)
        await expect(left.get_by_role("link", name="New", exact=True)).to_be_visible()
        await expect(touched.get_by_label("Folder on the server")).to_have_value("/srv/half")
        await touched.reload()
        await expect(touched.locator(f"meta[{newer.replace(' ', '][')}]")).to_have_count(1)
        await device.close()


async def test_a_page_whose_script_a_newer_one_has_replaced_is_loaded_again(
    browser: Browser, served: Served
) -> None:
    page = await browser.new_page(service_workers="block")  # requests of a worker are not routed
    loads: list[str] = []
    again = asyncio.Event()

    def note(request: Request) -> None:
        if request.is_navigation_request():
            loads.append(request.url)
            if len(loads) == 4:
                again.set()

    page.on("request", note)

    async def lacking(route: Route) -> None:
        if len(loads) == 2:
            await route.continue_()
        else:
            await route.fulfill(status=404)

    await page.route(re.compile("/page/main-"), lacking)
    await page.goto(f"{served.url}/#pair={served.pair}")
    await page.get_by_role("link", name="New", exact=True).wait_for()
    assert len(loads) == 2
    # Where it is nowhere, that is done once.
    await page.reload(wait_until="commit")
    await asyncio.wait_for(again.wait(), 60)
    await page.wait_for_load_state("load")
    await page.evaluate("new Promise((done) => setTimeout(done, 500))")
    assert len(loads) == 4
    await page.close()


async def test_a_conversation_that_cannot_be_read_again_says_so_and_the_next_connection_takes_it_up(
    browser: Browser, served: Served
) -> None:
    """Its position is refused, as of a journal that went back, and then the network fails."""
    page = await browser.new_page(service_workers="block")  # requests of a worker are not routed
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    routes: list[WebSocketRoute] = []
    refused: list[str] = []
    is_refusing = False

    def routed(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        routes.append(route)

        def sent(message: str | bytes) -> None:
            asked = json.loads(message)
            if is_refusing and asked.get("method") == "session/resume":
                refused.append(asked["id"])
                error = {"code": -32602, "message": "no such position"}
                route.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
            else:
                server.send(message)

        route.on_message(sent)

    await page.route_web_socket(re.compile(r"/acp"), routed)
    await page.goto(f"{served.url}/#pair={served.pair}")
    await page.get_by_role("link", name="New", exact=True).wait_for()
    async with served.session() as session:
        await session.prompt("quick: before.")
        await opened(page, session.id)
        await page.route(re.compile(r"/entries"), lambda route: route.abort())
        is_refusing = True
        await routes[-1].close()
        await expect(page.get_by_role("alert")).to_contain_text("Failed to fetch")
        assert refused != []
        is_refusing = False
        await page.unroute_all()
        await routes[-1].close()
        await session.prompt("quick: behind.")
        await expect(page.locator("article.prompt", has_text="behind.")).to_be_visible()
    assert failures == []
    await page.close()


async def test_what_is_said_while_the_end_is_read_again_follows_it(
    browser: Browser, served: Served
) -> None:
    """The session was put in order since, so what is above does not fit what is shown."""
    page = await browser.new_page(service_workers="block")  # requests of a worker are not routed
    reading, released = asyncio.Event(), asyncio.Event()
    reads = 0

    async def read(route: Route) -> None:
        nonlocal reads
        if "before=" in route.request.url:
            await route.fulfill(status=409, json={"error": "the history has changed"})
            return
        reads += 1
        site = {"sec-fetch-site": "same-origin"}  # which a browser adds later
        answer = await route.fetch(headers={**route.request.headers, **site})
        told = await answer.json()
        if reads == 1:
            told["before"] = told["entries"][-1]["seq"]
        else:
            reading.set()
            await released.wait()
        await route.fulfill(json=told)

    await page.route(re.compile(r"/entries"), read)
    await page.goto(f"{served.url}/#pair={served.pair}")
    await page.get_by_role("link", name="New", exact=True).wait_for()
    async with served.session() as session:
        await session.prompt("quick: before.")
        await opened(page, session.id)
        await reading.wait()
        await session.prompt("quick: while it is read.")
        released.set()
        await expect(page.locator("article.prompt")).to_contain_text(["before.", "while it"])
        await session.prompt("quick: behind.")
        await expect(page.locator("article.prompt")).to_have_count(3)
        await expect(page.locator("article.said")).to_have_count(3)
    await page.close()
