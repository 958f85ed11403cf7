"""The way to a server: its addresses, and the cookies that are kept for it."""

from __future__ import annotations

import pytest

from acphold.errors import ConnectionLostError, RemoteRefusalError
from acphold.transports.route import Route
from acphold.transports.urls import transport_of


def route(url: str) -> Route:
    return Route(url, seconds=1, limit=1024)


def test_one_url_leads_to_the_websocket_and_to_http() -> None:
    for url in ("https://desk:1/acp/x?a=b", "wss://desk:1/acp/x?a=b"):
        assert route(url).socket_url == "wss://desk:1/acp/x?a=b"
        assert route(url).http_url == "https://desk:1/acp/x?a=b"


def test_the_transport_that_is_named_is_no_part_of_what_the_server_is_asked() -> None:
    assert transport_of("https://desk/acp?transport=http&token=x#pair=Y") == (
        "https://desk/acp?token=x#pair=Y",
        "http",
    )
    assert transport_of("https://desk/acp") == ("https://desk/acp", None)
    with pytest.raises(ValueError, match="pigeon"):
        transport_of("https://desk/acp?transport=pigeon")


def test_cookies_of_one_connection_are_shown_at_the_next() -> None:
    made = route("https://desk.example/acp")
    assert made.cookie() is None
    made.keep(["place=here; Path=/; Secure", "old=x; Max-Age=0", "other=y; Path=/elsewhere"])
    assert made.cookie() == "place=here"


def test_what_may_pass_is_no_refusal() -> None:
    for status in (302, 407, 429, 500, 502, 503, 511):
        assert isinstance(route("https://desk").refused(status), ConnectionLostError)
    for status in (401, 403, 404, 421):
        assert isinstance(route("https://desk").refused(status), RemoteRefusalError)
