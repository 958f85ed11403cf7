"""The session of a browser: two halves, of which neither opens anything alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.entries import iso, now_ms
from acphold.journal import bounds as journal_bounds
from acphold.journal.access import SCOPES, AccessToken
from acphold.web.gate import cookie_name
from tests.web.in_process import ORIGIN, Answer, Site, answered, site

SECURE = "https://desk.example"
PLAIN = "http://desk.example:81"


class Browser(Struct, kw_only=True):
    """A browser at an origin: the page's half, and its cookies, of that host."""

    web: Site
    origin: str = ORIGIN
    page: str = ""
    cookies: dict[str, str] = {}
    told: Any = None

    async def ask(self, url: str, method: str = "GET", *, site: str = "same-origin") -> Answer:
        return await self.send(url, method, b"", {"sec-fetch-site": site})

    async def send(self, url: str, method: str, body: bytes, more: dict[str, str]) -> Answer:
        """A request as it is sent; an empty header is left out."""
        headers = {
            "host": urlsplit(self.origin).netloc,
            "authorization": "",
            "acphold-page": self.page,
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            **more,
        }
        answer = await self.web.get(url, method=method, body=body, **headers)
        if (found := answer.headers.get("set-cookie")) is not None:
            name, _, value = found.partition(";")[0].partition("=")
            self.cookies = {**self.cookies, name: value}
        return answer

    async def pair(self, *, as_user: str | None = None, name: str = "phone") -> Answer:
        token = await self.web.new_token(*SCOPES)
        said = b"{}" if as_user is None else f'{{"user": "{as_user}"}}'.encode()
        json = {"content-type": "application/json", "host": urlsplit(self.origin).netloc}
        made = await self.web.get("/codes", token, method="POST", body=said, **json)
        code = made.json["code"]
        body = f'{{"code": "{code}", "name": "{name}"}}'.encode()
        headers = {"content-type": "application/json", "origin": self.origin}
        answer = await self.send("/browser", "POST", body, headers)
        if answer.status == 200:
            self.told = answer.json
            self.page = self.told["page"]
        return answer

    @property
    def cookie(self) -> str:
        return self.cookies[cookie_name(self.origin)]

    async def kept(self) -> AccessToken:
        """Its token, as the journal keeps it."""
        tokens = await self.web.journal.access.tokens()
        return next(it for it in tokens if it.id == self.told["id"])


@pytest_asyncio.fixture
async def web(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, ORIGIN, SECURE, PLAIN) as found:
        yield found


@pytest_asyncio.fixture
async def browser(web: Site) -> Browser:
    found = Browser(web=web)
    assert (await found.pair()).status == 200
    return found


async def test_both_halves_together_open_what_neither_opens_alone(browser: Browser) -> None:
    assert (await browser.ask("/sessions")).status == 200
    page, cookies = browser.page, browser.cookies
    browser.page = ""
    assert (await browser.ask("/sessions")).status == 401
    browser.page, browser.cookies = page, {}
    assert (await browser.ask("/sessions")).status == 401
    browser.cookies = cookies
    assert (await browser.ask("/sessions")).status == 200


@pytest.mark.parametrize("half", ["page", "cookie"])
async def test_neither_half_is_a_token(browser: Browser, half: str) -> None:
    text = getattr(browser, half)
    assert (await browser.web.get("/sessions", text)).status == 401
    both = await browser.send("/sessions", "GET", b"", {"authorization": f"Bearer {text}"})
    assert both.status == 401
    for offered in ([f"acphold-token.{text}"], ["acphold", f"acphold-token.{text}"]):
        assert await upgraded(browser, offered, {"origin": ORIGIN}) == 401


async def upgraded(browser: Browser, offered: list[str], headers: dict[str, str]) -> int:
    """The status of the answer to a WebSocket request; 404 means let in, as no agent is there."""
    scope = browser.web.scope("/acp/none", "", "GET", {"authorization": "", **headers})
    cookie = f"{cookie_name(ORIGIN)}={browser.cookie}".encode()
    scope["headers"].append((b"cookie", cookie))
    more: dict[str, Any] = {"type": "websocket", "subprotocols": offered}
    more["extensions"] = {"websocket.http.response": {}}
    return (await answered(browser.web.app, {**scope, **more})).status


async def test_a_websocket_has_the_page_s_half_among_its_subprotocols(browser: Browser) -> None:
    offered = ["acphold", f"acphold-page.{browser.page}"]
    assert await upgraded(browser, offered, {"origin": ORIGIN}) == 404
    assert await upgraded(browser, ["acphold"], {"origin": ORIGIN}) == 401
    assert await upgraded(browser, offered, {}) == 401  # which no browser sends
    assert await upgraded(browser, offered, {"origin": "http://localhost:3000"}) == 403


async def test_nobody_but_our_page_in_a_browser_uses_it(browser: Browser) -> None:
    for name in ("same-site", "cross-site", "none"):
        assert (await browser.ask("/sessions", site=name)).status == 401
    assert (await browser.send("/sessions", "GET", b"", {})).status == 401  # as a program asks
    other = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}
    assert (await browser.send("/sessions", "GET", b"", other)).status == 403


async def test_a_cookie_that_another_port_has_set_changes_nothing_or_is_refused(
    browser: Browser,
) -> None:
    mine, other = browser.cookie, Browser(web=browser.web)
    await other.pair(as_user="eve")
    name = cookie_name(ORIGIN)
    planted = f"{name}={other.cookie}"
    # Beside ours, before it and behind it, as with another path.
    for both in (f"{planted}; {name}={mine}", f"{name}={mine}; {planted}", f"{planted};" * 9):
        told = await browser.send(
            "/browser", "GET", b"", {"cookie": both, "sec-fetch-site": "same-origin"}
        )
        if mine in both:
            assert (told.status, told.json["user"], told.json["id"]) == (
                200,
                None,
                browser.told["id"],
            )
        else:
            assert told.status == 401
            assert "another page on this host" in told.json["error"]
    # In the place of ours: whose page it is does not change, it is refused.
    browser.cookies = other.cookies
    assert (await browser.ask("/sessions")).status == 401
    # And a stranger who guesses learns no more than others.
    browser.page = browser.page[:-1]
    assert "another page" not in (await browser.ask("/sessions")).json["error"]


async def test_two_servers_of_one_host_have_a_cookie_each(web: Site, tmp_path: Path) -> None:
    origin = "http://localhost:8261"
    (tmp_path / "two").mkdir()
    async with site(tmp_path / "two", origin) as second:
        one, two = Browser(web=web), Browser(web=second, origin=origin)
        await one.pair()
        two.cookies = one.cookies  # it is one browser
        await two.pair()
        one.cookies = two.cookies
        assert len(one.cookies) == 2
        for each in (one, two):
            assert (await each.ask("/sessions")).status == 200


async def test_the_page_s_half_is_of_its_origin_alone(browser: Browser) -> None:
    browser.cookies = {cookie_name(SECURE): browser.cookie}
    browser.origin = SECURE
    assert (await browser.ask("/sessions")).status == 401


async def test_over_https_no_other_page_can_set_the_cookie(web: Site) -> None:
    secure = Browser(web=web, origin=SECURE)
    head = (await secure.pair()).headers["set-cookie"]
    assert head.startswith("__Host-acphold-443=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(head.split("; "))
    plain = Browser(web=web)
    head = (await plain.pair()).headers["set-cookie"]
    assert head.startswith("acphold-8260=")
    assert "Secure" not in head


async def test_where_a_browser_does_not_say_which_page_asks_both_halves_are_enough(
    web: Site,
) -> None:
    plain = Browser(web=web, origin=PLAIN)
    assert (await plain.pair()).status == 200
    assert (await plain.send("/sessions", "GET", b"", {})).status == 200
    assert (await plain.ask("/sessions", site="same-site")).status == 401
    plain.cookies = {}
    assert (await plain.send("/sessions", "GET", b"", {})).status == 401


async def test_it_is_told_whose_page_it_is(web: Site) -> None:
    hers = Browser(web=web)
    await hers.pair(as_user="alice", name="Chrome on Linux")
    told = (await hers.ask("/browser")).json
    assert (told["user"], told["name"]) == ("alice", "Chrome on Linux")
    assert told["scopes"] == ["watch", "prompt", "answer", "manage", "rules", "files"]
    assert told["id"] == hers.told["id"]
    assert "page" not in told


async def test_who_uses_it_keeps_it_and_who_stays_away_signs_in_again(browser: Browser) -> None:
    kept = await browser.kept()
    assert kept.ends_at == (kept.used_at or kept.created_at) + journal_bounds.BROWSER_MS
    month = replace(
        kept, id="0" * 8, created_at=kept.created_at - journal_bounds.BROWSER_MS, used_at=None
    )
    assert not month.is_good(now_ms())
    assert replace(month, used_at=now_ms() - 1000).is_good(now_ms())
    # The cookie lasts as long, counted from the last use.
    again = await browser.ask("/browser")
    assert again.headers["set-cookie"].endswith(f"; Max-Age={journal_bounds.BROWSER_MS // 1000}")
    assert browser.cookie in again.headers["set-cookie"]


async def test_a_use_under_a_clock_that_was_ahead_is_corrected_by_the_next(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.TOKENS_SECONDS", 0)  # read anew each time
    ahead = now_ms() + 10 * journal_bounds.BROWSER_MS
    access = browser.web.journal.access
    await access.keep_token(replace(await browser.kept(), used_at=ahead))
    assert (await browser.ask("/sessions")).status == 200
    used_at = (await browser.kept()).used_at
    assert used_at is not None
    assert used_at <= now_ms()


async def test_signing_out_ends_it_whatever_the_cookie_is(browser: Browser) -> None:
    left = await browser.ask("/browser", "DELETE")
    assert (left.status, "Max-Age=0" in left.headers["set-cookie"]) == (200, True)
    assert (await browser.kept()).revoked_at is not None
    assert (await browser.ask("/sessions")).status == 401
    other = Browser(web=browser.web)
    await other.pair()
    other.cookies = {}
    await other.ask("/browser", "DELETE")
    assert (await other.kept()).revoked_at is not None


async def test_whoever_has_the_page_s_half_is_told_when_it_ended_and_nobody_else(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.web.bounds.TOKENS_SECONDS", 0)  # read anew each time
    kept: Any = await browser.kept()
    at = kept.created_at + 60_000
    for end, how in (
        ({"used_at": at - 2 * journal_bounds.BROWSER_MS}, "expired"),
        ({"revoked_at": at}, "revoked"),
    ):
        await browser.web.journal.access.keep_token(replace(kept, **end))
        ended = iso(at - journal_bounds.BROWSER_MS if how == "expired" else at)
        told = (await browser.ask("/browser")).json["error"]
        assert how in told
        assert ended[:10] in told
        assert f"{ended[11:16]} UTC" in told
    browser.page = browser.page[:-1]
    assert (await browser.ask("/browser")).json["error"].startswith("a token is required")


async def test_nobody_else_signs_it_out(browser: Browser) -> None:
    page = browser.page
    for half in ("", browser.cookie, page[:-1]):
        browser.page = half
        await browser.ask("/browser", "DELETE")
    browser.page = page
    await browser.ask("/browser", "DELETE", site="same-site")
    assert (await browser.kept()).revoked_at is None


async def test_who_pairs_a_browser_anew_ends_what_it_had(browser: Browser) -> None:
    before = await browser.kept()
    await browser.pair(as_user="bob")
    assert (await browser.ask("/browser")).json["user"] == "bob"
    tokens = {it.id: it for it in await browser.web.journal.access.tokens()}
    assert tokens[before.id].revoked_at is not None


async def test_the_journal_has_digests_of_it_alone(browser: Browser, tmp_path: Path) -> None:
    kept = await browser.kept()
    for half in (browser.page, browser.cookie):
        secret = half.split("_", 2)[2].encode()
        assert secret not in kept.digest
        for name in ("journal.db", "journal.db-wal"):
            assert secret not in (tmp_path / name).read_bytes()
