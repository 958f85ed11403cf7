"""The page reports whether somebody is there, so that notices can be withheld."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Request

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


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
