"""Notices: offered with the first question, opened, and withheld while somebody is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright, expect

import acphold
from acp_wire.schema import Implementation
from tests.page.conftest import ask, launched, seen, steps
from tests.web.conftest import Served
from tests.web.test_notices import Browser as PushBrowser

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser that people have: the one without windows has no notifications to allow."""
    async with async_playwright() as playwright:
        found = await launched(playwright)
        yield found
        await found.close()


async def test_a_page_says_when_there_was_input_and_when_it_is_left_whatever_its_clock_does(
    page: Page,
) -> None:
    def is_told(method: str, request: Request) -> bool:
        return request.method == method and request.url.endswith("/notices/attended")

    box = page.get_by_role("searchbox", name="Search sessions")
    async with page.expect_request(lambda it: is_told("POST", it)) as found:
        await box.click()
    said = (await found.value).post_data_json
    assert said is not None
    assert 0 <= said["secondsAgo"] < 60
    async with page.expect_request(lambda it: is_told("DELETE", it)):
        await page.evaluate("dispatchEvent(new Event('blur'))")
    async with page.expect_request(lambda it: is_told("POST", it)):
        await page.evaluate("dispatchEvent(new Event('focus'))")
    await page.clock.set_system_time("2020-01-01")
    async with page.expect_request(lambda it: is_told("POST", it)):
        await box.click()


async def test_notifications_are_offered_at_the_first_question_until_somebody_has_decided(
    device: BrowserContext, page: Page, session: acphold.RemoteSession
) -> None:
    await device.grant_permissions(["notifications"])
    turn = session.prompt(steps(ask(title="First"), ask("t2", title="Second")))
    offer = page.get_by_role("group", name="Notifications")
    await page.reload()
    await expect(page.locator(".inbox section.question")).to_contain_text("First")
    await expect(offer).to_contain_text("Get a notification when an agent asks, or is done?")
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto(f"{page.url.partition('#')[0]}#/session/{session.id}")
    go_on = page.locator(".asking").get_by_role("button", name="Go on")
    await expect(go_on).to_be_in_viewport(ratio=1)
    await expect(page.locator(".asking .offer")).to_have_count(0)  # nothing beside a question
    await page.goto(page.url.partition("#")[0] + "#/")
    await offer.get_by_role("button", name="No, thanks").click()
    await expect(offer).to_have_count(0)
    await page.goto(f"{page.url.partition('#')[0]}#/session/{session.id}")
    await go_on.click()
    second = page.locator(".asking section.question", has_text="Second")
    await expect(second).to_be_visible()
    await page.reload()
    await expect(second).to_be_visible()
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    assert await offer.count() == 0  # for good
    await page.goto(page.url.partition("#")[0] + "#/")
    # It can still be turned on elsewhere.
    await expect(page.get_by_role("button", name="Notify me on this device")).to_be_visible()
    assert await offer.count() == 0
    await page.locator(".inbox").get_by_role("button", name="Stop it").click()
    await asyncio.wait_for(turn, 60)


async def worker_of(page: Page, device: BrowserContext, served: Served) -> Push:
    """Push to the worker of a page: see `Push`."""
    await device.grant_permissions(["notifications"], origin=served.url)
    # Chromium drops messages pushed to a worker that is still being activated.
    active = "navigator.serviceWorker.ready.then((it) => it.active.state === 'activated')"
    await page.evaluate(seen(f"() => {active}"))
    tools = await device.new_cdp_session(page)
    found: list[str] = []
    tools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda it: found.extend(each["registrationId"] for each in it["registrations"]),
    )
    await tools.send("ServiceWorker.enable")
    async with asyncio.timeout(30):
        while not found:  # noqa: ASYNC110 - the event is a list here
            await asyncio.sleep(0.05)

    async def push_until(shown: list[list[str]], data: str) -> None:
        message = {"origin": served.url, "registrationId": found[0], "data": data}
        async with asyncio.timeout(60):
            while await page.evaluate(NOTICES) != shown:
                await tools.send("ServiceWorker.deliverPushMessage", message)
                await asyncio.sleep(0.5)

    return push_until


Push: TypeAlias = Callable[[list[list[str]], str], Awaitable[None]]
"""Pushes the data until these are the notices: now and then Chromium drops a message."""

NOTICES = (
    "navigator.serviceWorker.ready.then((it) => it.getNotifications())"
    ".then((all) => all.map((it) => [it.title, it.body, it.data.place]))"
)


async def test_a_notice_that_is_pushed_opens_the_question_and_is_replaced_by_the_answer(
    page: Page, device: BrowserContext, served: Served
) -> None:
    push_until = await worker_of(page, device, served)
    await push_until(
        [["T", "Run it", "#/session/s%2F1@7"]],
        '{"count":1,"title":"T","body":"Run it","isNews":true,"sessionId":"s/1","seq":7}',
    )
    several = "2 questions are waiting for you"
    await push_until(
        [[several, "b", "#/"]],
        f'{{"count":2,"title":"{several}","body":"b","isNews":true}}',
    )
    # Each push shows something; that a turn is done takes the place of no question.
    answered = ["Answered", "Nothing is waiting for you any more.", "#/"]
    await push_until(
        [answered], '{"count":0,"title":"Answered","body":"Nothing is waiting for you any more."}'
    )
    done = '{"count":1,"done":true,"title":"T","body":"done","sessionId":"s1","seq":9}'
    await push_until([["T", "done", "#/session/s1@9"], answered], done)
    # Whoever sees the page needs neither.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.evaluate(seen(f"() => {NOTICES}.then((all) => all.length === 0)"))


TAP = """async ([action]) => {
  const isPage = ({ url }) => new URL(url).pathname === "/";
  clients.openWindow = async () => {
    for (;;) {
      const found = (await clients.matchAll({ includeUncontrolled: true })).find(isPage);
      if (found) return found;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const [notification] = await registration.getNotifications();
  dispatchEvent(new NotificationEvent("notificationclick", { notification, action }));
}"""
"""A tap on the notice, or an action of it. A window is opened only for a person's: the page that is
there next is it."""


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_question_is_rejected_in_its_notice_and_no_other_is_answered_by_it(
    page: Page,
    device: BrowserContext,
    served: Served,
    is_open: bool,
    session: acphold.RemoteSession,
) -> None:
    push_until = await worker_of(page, device, served)
    turn = session.prompt(steps(ask(title="First"), ask("t2", title="Second")))

    async def asked(title: str) -> str:
        async with asyncio.timeout(30):
            while True:
                lines = map(json.loads, served.run("inbox", "--json").splitlines())
                for it in lines:
                    if it["asks"] == title:
                        return str(it["id"])
                await asyncio.sleep(0.2)

    first = await asked("First")
    told = {"count": 1, "title": "T", "body": "First", "sessionId": session.id, "reject": first}
    shown = [["T", "First", f"#/session/{session.id}"]]
    worker = device.service_workers[0]

    async def tap(action: str) -> None:
        await push_until(shown, json.dumps(told))
        await worker.evaluate(TAP, [action])

    await tap("")  # which opens it, and answers nothing
    question = page.locator(".asking section.question")
    await expect(question).to_contain_text("First")
    if is_open:
        await tap("reject")
    else:
        await page.goto(f"{served.url}/page/icon.svg")  # it is closed
        await tap("reject")
        await page.goto(f"{served.url}/#/")
    await expect(question).to_contain_text("Second")
    await expect(page.locator(".undo")).to_contain_text("Rejected: First")
    second = await asked("Second")
    assert second != first
    await page.locator(".undo").get_by_role("button", name="Close").click()
    # An old notice does nothing.
    told["body"], shown[0][1] = "once more", "once more"
    await page.goto(page.url.partition("#")[0] + "#/")
    await page.reload()  # it has no memory of the first
    await tap("reject")
    await expect(page.locator(".undo")).to_contain_text("Nothing was rejected", timeout=60_000)
    await expect(page.locator(".asking section.question")).to_contain_text("Second")
    await page.locator(".asking").get_by_role("button", name="Go on").click()
    ended = await asyncio.wait_for(turn, 60)
    assert '"stop"' in ended.text
    assert '"go"' in ended.text


async def test_a_visible_page_says_so_where_there_are_notifications(
    page: Page, device: BrowserContext, served: Served
) -> None:
    await device.grant_permissions(["notifications"], origin=served.url)
    async with page.expect_request(lambda it: it.url.endswith("/notices/attended")) as found:
        await page.reload()
    assert (await found.value).post_data == "{}"


async def test_a_turn_of_an_editor_is_waited_for_where_somebody_taps(
    page: Page, device: BrowserContext, served: Served, tmp_path: Path
) -> None:
    """No push service is to be had here: the page believes that it has subscribed."""
    await device.grant_permissions(["notifications"], origin=served.url)
    person = PushBrowser().json
    await page.add_init_script(
        f"const known = {{ unsubscribe: async () => true, toJSON: () => ({json.dumps(person)}) }};"
        "PushManager.prototype.subscribe = async () => ((localStorage.has = 'it'), known);"
        "PushManager.prototype.getSubscription = async () => (localStorage.has ? known : null);"
    )
    await page.reload()
    await page.set_viewport_size({"width": 360, "height": 740})
    editor = Implementation(name="Zed", version="1")
    async with served.session(cwd=tmp_path, client_info=editor) as session:
        turn = session.prompt(steps({"until": str(tmp_path / "go")}))
        await page.goto(f"{page.url.partition('#')[0]}#/session/{session.id}")
        tell = page.get_by_role("button", name="Tell me when it is done")
        await expect(tell).to_be_in_viewport(ratio=1)
        await tell.click()
        told = page.get_by_role("button", name="You will be told when it is done")
        await expect(told).to_have_attribute("aria-pressed", "true")
        await page.reload()  # the server knows it
        await expect(told).to_be_visible()
        await told.click()
        await expect(tell).to_be_visible()
        (tmp_path / "go").touch()
        await asyncio.wait_for(turn, 60)
        await expect(tell).to_have_count(0)
    await page.goto(f"{page.url.partition('#')[0]}#/")
    words = page.get_by_role("checkbox", name="last words when a turn is done")
    await words.click()
    await expect(words).to_be_checked()  # once the server has it
    await page.reload()
    await expect(words).to_be_checked()
