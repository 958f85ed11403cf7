"""The route to a remote server: its address, our token and certificates, and its cookies."""

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
from acphold.extras import require
from acphold.transports.obstacles import refusal
from acphold.transports.urls import endpoint_of, is_loopback, origin_of, require_secrecy


class Route:
    """See the module. `seconds` is the time for the server to answer, `limit` the longest message,
    in bytes; `trusted` is a file of certificates, beside the usual; `token` may be changed.

    Cookies are kept from one connection to the next: they may lead back to the machine with our
    session (ACP RFD, Streamable HTTP & WebSocket transport).
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
        require("serve", "a connection to a server")
        self.origin = origin_of(url)
        self.seconds = seconds
        self.limit = limit
        self._token: str | None = None
        self.token = token
        self.cookies = CookieJar()
        self._socket_url = endpoint_of(url)
        self._trusted = trusted

    @property
    def token(self) -> str | None:
        """The token that lets us in. Setting it raises SettingsError if others could read it on the
        way."""
        return self._token

    @token.setter
    def token(self, token: str | None) -> None:
        if token is not None:
            require_secrecy(self.origin)
        self._token = token

    @property
    def socket_url(self) -> str:
        """The URL of the WebSocket."""
        return self._socket_url

    @property
    def http_url(self) -> str:
        """The same for HTTP."""
        return self._socket_url.replace("ws", "http", 1)

    def headers(self) -> dict[str, str]:
        """Return the headers that identify us to the server."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context for it; None without TLS. SettingsError if the file has no
        certificates.

        A file in `SSL_CERT_FILE` replaces the machine's certificates, as OpenSSL has it.
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
        """Return the proxy that the environment names for it; None for none. SettingsError if it
        cannot be used.

        This machine is never behind one: a proxy's `localhost` is its own.
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
        """Return the error for a refused request; it was for `asked`, or to connect."""
        where = (asked or self.http_url).partition("?")[0]
        refused = refusal(where, status, headers, body, has_token=self.token is not None)
        return refused or ConnectionLostError(f"{self.origin} cannot be reached: HTTP {status}")

    # -- cookies of a connection that is no HTTP any more --------------------------------------

    def cookie(self) -> str | None:
        """Return the value of `Cookie` to send."""
        asked = Request(self.http_url)
        self.cookies.add_cookie_header(asked)
        return asked.get_header("Cookie")

    def keep(self, given: list[str]) -> None:
        """Keep the values of `Set-Cookie`."""
        headers = Message()
        for each in given:
            headers["Set-Cookie"] = each
        response: Any = SimpleNamespace(info=lambda: headers)
        self.cookies.extract_cookies(cast(Any, response), Request(self.http_url))
