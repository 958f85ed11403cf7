"""The way to a server: its addresses, and the cookies that are kept for it."""

from __future__ import annotations

import pytest

from acp_wire.errors import ConnectionLostError, RemoteRefusalError, SettingsError
from acp_wire.transports.known_servers import transport_of
from acp_wire.transports.route import Route, explanation


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
        assert isinstance(route("https://desk").refusal_error(status, {}, b""), ConnectionLostError)
    for status in (401, 403, 404, 421):
        assert isinstance(route("https://desk").refusal_error(status, {}, b""), RemoteRefusalError)


JSON = {"content-type": "application/json; charset=utf-8"}


def test_a_refusal_says_who_was_asked_what_they_said_and_what_to_do() -> None:
    made = route("https://desk.example/acp/x?key=secret")
    for told in (b'{"error": "no\\nsuch \\u001bkey"}', b'{"error": {"message": "no such key"}}'):
        refused = made.refusal_error(401, JSON, told)
        assert "https://desk.example/acp/x: it requires a token" in str(refused)
        assert '(HTTP 401: "no such key")' in str(refused)
        assert "ACPHOLD_TOKEN" in str(refused)
        assert "secret" not in str(refused)
    made.token = "x"
    assert "does not accept our token" in str(made.refusal_error(401, JSON, b"{}"))
    missing = str(made.refusal_error(404, {"content-type": "text/plain"}, b"Not Found"))
    assert "no agent at that address" in missing
    assert '(HTTP 404: "Not Found")' in missing


def test_only_acphold_serve_is_said_to_pair() -> None:
    ours = {"www-authenticate": 'Bearer realm="acphold serve"'}
    for head, pairs in ((ours, True), ({"www-authenticate": "Bearer"}, False), ({}, False)):
        for token in (None, "x"):
            made = route("https://desk")
            made.token = token
            assert ("prints there" in str(made.refusal_error(401, head, b""))) is pairs


def test_what_a_server_says_of_a_refusal_is_bounded() -> None:
    for kind, body in (
        ("text/html", b"<h1>no</h1>"),
        ("application/json", b'{"error": 3}'),
        ("application/json", b"[" * 4000),
        ("application/json", b'"' + b"x" * 5000 + b'"'),
        ("application/json", b"\xff"),
    ):
        assert explanation({"content-type": kind}, body) == ""
    long = explanation({"content-type": "text/plain"}, b"x" * 100_000)
    assert len(long) == 200


def test_no_token_goes_where_others_can_read_it() -> None:
    for url in ("http://desk.example:8260", "ws://192.0.2.1/acp"):
        way = route(url)  # which may be one of others, that wants none
        with pytest.raises(SettingsError, match=r"is not encrypted.*https.*ssh -L"):
            way.token = "secret"
        with pytest.raises(SettingsError, match="is not encrypted"):
            Route(url, seconds=1, limit=1, token="secret")
    for url in (
        "https://desk.example",
        "http://localhost:8260",
        "ws://127.0.0.1:1",
        "http://[::1]",
    ):
        route(url).token = "secret"
