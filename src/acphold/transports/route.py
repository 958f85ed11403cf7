"""The way to a server far away: its address, what we show there, and what is kept for it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from email.message import Message
from http.cookiejar import CookieJar
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import Request, getproxies, proxy_bypass

from acphold.errors import AcpholdError, ConnectionLostError, SettingsError
from acphold.transports.obstacles import refusal
from acphold.transports.urls import endpoint_of, is_loopback, origin_of


class Route:
    """See the module. `seconds` is the time for the server to answer, `limit` the longest message,
    in bytes; `trusted` is a file of certificates, beside the usual; `token` may be changed.

    Cookies are kept from one connection to the next: they may lead back to where our session is
    (ACP RFD, Streamable HTTP & WebSocket transport).
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float,
        limit: int,
        token: str | None = None,
        trusted: str | None = None,
    ) -> None:
        self.origin = origin_of(url)
        self.seconds = seconds
        self.limit = limit
        self.token = token
        self.cookies = CookieJar()
        self._socket_url = endpoint_of(url)
        self._trusted = trusted

    @property
    def socket_url(self) -> str:
        """Where the WebSocket is."""
        return self._socket_url

    @property
    def http_url(self) -> str:
        """The same for HTTP."""
        return self._socket_url.replace("ws", "http", 1)

    def headers(self) -> dict[str, str]:
        """By which the server knows us."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def context(self) -> ssl.SSLContext | None:
        """How TLS is spoken with it; None where it is not. SettingsError for a file that is none.

        What `SSL_CERT_FILE` names takes the place of the machine's certificates, as OpenSSL has it.
        """
        if not self._socket_url.startswith("wss"):
            return None
        context = ssl.create_default_context()
        if self._trusted is not None:
            try:
                context.load_verify_locations(cafile=self._trusted)
            except (OSError, ssl.SSLError) as exc:
                told = f"{self._trusted}: no certificates can be read in it ({exc})"
                raise SettingsError(told) from None
        return context

    def proxy(self) -> str | None:
        """The proxy that the environment names for it; None for none. SettingsError for one that
        is not to be used.

        This machine is never behind one: what a proxy calls `localhost` is its own.
        """
        parts = urlsplit(self.http_url)
        if is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc):
            return None
        proxies = getproxies()
        found = proxies.get(parts.scheme) or proxies.get("all")
        if not found:
            return None
        scheme, mark, _ = found.partition("://")
        if mark and scheme.startswith("socks") and find_spec("python_socks") is None:
            raise SettingsError("a SOCKS proxy needs `python-socks` and `socksio`: install them")
        return found if mark else f"http://{found}"

    def refused(
        self, status: int, headers: Mapping[str, str], body: bytes, asked: str = ""
    ) -> AcpholdError:
        """What it means that a request is answered so; it was for `asked`, or to connect."""
        where = (asked or self.http_url).partition("?")[0]
        refused = refusal(where, status, headers, body, has_token=self.token is not None)
        return refused or ConnectionLostError(f"{self.origin} cannot be reached: HTTP {status}")

    # -- cookies of a connection that is no HTTP any more --------------------------------------

    def cookie(self) -> str | None:
        """What is to be sent as `Cookie`."""
        asked = Request(self.http_url)
        self.cookies.add_cookie_header(asked)
        return asked.get_header("Cookie")

    def keep(self, given: list[str]) -> None:
        """Keep what came as `Set-Cookie`."""
        headers = Message()
        for each in given:
            headers["Set-Cookie"] = each
        response: Any = SimpleNamespace(info=lambda: headers)
        self.cookies.extract_cookies(cast(Any, response), Request(self.http_url))
