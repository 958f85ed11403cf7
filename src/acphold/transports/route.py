"""The way to a server far away: its address, what we show there, and what is kept for it."""

from __future__ import annotations

import ssl
from email.message import Message
from http.cookiejar import CookieJar
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.request import Request

from acphold.errors import AcpholdError, ConnectionLostError, RemoteRefusalError
from acphold.transports.urls import endpoint_of, origin_of

REFUSALS: Final = (401, 403, 404, 421)
"""What a server says for good; all else may be said by what is between us, and pass."""


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
        """How TLS is spoken with it; None where it is not."""
        if not self._socket_url.startswith("wss"):
            return None
        return ssl.create_default_context(cafile=self._trusted)

    def refused(self, status: int) -> AcpholdError:
        """What it means that a request is answered with this status of HTTP."""
        if status in REFUSALS:
            return RemoteRefusalError(self.origin, status, paired=self.token is not None)
        return ConnectionLostError(f"{self.origin} cannot be reached: HTTP {status}")

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
