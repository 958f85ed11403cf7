"""The route to a remote server, and the obstacles on it in words that say what to do."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from email.message import Message
from http.cookiejar import CookieJar
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import urlsplit
from urllib.request import Request, getproxies, proxy_bypass

from msgspec import DecodeError, ValidationError
from msgspec.json import decode

from acp_wire.errors import AcpError, ConnectionLostError, RemoteRefusalError, SettingsError
from acp_wire.extras import require_remote
from acp_wire.rpc import MAX_MESSAGE
from acp_wire.transports.known_servers import (
    REALM,
    endpoint_of,
    is_loopback,
    origin_of,
)

TOKEN_VARIABLE: Final = "ACPHOLD_TOKEN"
"""A token for the server that a command names, instead of the one from pairing."""

REFUSALS: Final = {
    403: "the server does not permit this",
    404: "it has no agent at that address; check the path of the URL",
    421: "it does not accept that host name; add the name there with `acphold serve --url`",
}
"""Final refusals of servers besides 401, and their meaning; any other status may come from a proxy
between us, and be temporary."""

NOT_PAIRED: Final = (
    "this machine has not paired with it; pair once, with the whole address that `acphold serve` "
    "prints there, including `#pair=CODE`"
)
REVOKED: Final = (
    f"it does not accept our token, from pairing or in {TOKEN_VARIABLE}: the token was revoked, "
    "has expired, or is another server's; pair again, with the address that `acphold serve` "
    "prints there"
)
WANTS_TOKEN: Final = (
    "it requires a token, and is not an `acphold serve` to pair with; set the token as "
    f"{TOKEN_VARIABLE} for a command, or as `token` in a program"
)
WRONG_TOKEN: Final = (
    "it does not accept our token; ask its operator for another one, and set that as "
    f"{TOKEN_VARIABLE} for a command, or as `token` in a program"
)

SAID_BYTES: Final = 4096
SAID_CHARACTERS: Final = 200
"""Most bytes read, and characters shown, of a server's explanation of a refusal."""


def why(error: BaseException) -> str:
    """Return the cause of an error of a WebSocket or of HTTP, in words."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}); to trust the "
                "certificates in FILE from now on, pair with `acphold connect --ca FILE ADDRESS`"
            )
        # If a name has several addresses, asyncio puts all its tries into one text.
        if isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(
            cause
        ):
            return "nothing listens there; is `acphold serve` running?"
        if isinstance(cause, socket.gaierror):
            return f"no machine is known by that name ({cause.strerror})"
    return str(error) or type(error).__name__


def explanation(headers: Mapping[str, str], body: bytes) -> str:
    """Return a server's explanation of a refusal, on one line; "" if there is none for people."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    text: object = ""
    if kind == "text/plain":
        text = body[:SAID_BYTES].decode(errors="replace")
    elif kind.endswith("json"):
        try:
            text = decode(body) if len(body) <= SAID_BYTES else ""
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
            return ""
        for name in ("error", "message", "detail"):  # as JSON-RPC has it, and most frameworks
            if isinstance(text, dict):
                text = text.get(name, text)
    if not isinstance(text, str):
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= SAID_CHARACTERS else f"{line[: SAID_CHARACTERS - 1]}…"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield it, and its causes, each with the members of a group."""
    found: BaseException | None = error
    while found is not None:
        yield found
        if isinstance(found, BaseExceptionGroup):
            for each in found.exceptions:
                yield from _causes(each)
        found = found.__cause__ or found.__context__


class Route:
    """See the module. `seconds` is the time for the server to answer, `limit` the longest message,
    in bytes; `trusted` is a file of certificates, beside the usual; `token` may be changed, and
    `on_request` does so before each request over HTTP.

    Cookies are kept from one connection to the next: they may lead back to the machine with our
    session (ACP RFD, Streamable HTTP & WebSocket transport).
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float,
        limit: int = MAX_MESSAGE,
        token: str | None = None,
        trusted: str | None = None,
    ) -> None:
        require_remote("a connection to a server")
        self.origin = origin_of(url)
        self.seconds = seconds
        self.limit = limit
        self._token: str | None = None
        self.token = token
        self.on_request: Callable[[], Awaitable[None]] | None = None
        self.cookies = CookieJar()
        self.socket_url = endpoint_of(url)
        """The URL of the WebSocket."""
        self._trusted = trusted

    @property
    def token(self) -> str | None:
        """The token that lets us in. Setting it raises SettingsError if others could read it on the
        way."""
        return self._token

    @token.setter
    def token(self, token: str | None) -> None:
        if token is not None:
            self.require_secrecy()
        self._token = token

    def require_secrecy(self) -> None:
        """Refuse to send a code or a token where others can read it; SettingsError."""
        parts = urlsplit(self.origin)
        host, port = parts.hostname or "", parts.port or 80
        if parts.scheme == "http" and not is_loopback(host):
            raise SettingsError(
                f"{self.origin} is not encrypted, so others on the network could read the token: "
                f"use its https address, or forward the port with `ssh -L {port}:localhost:{port} "
                f"{host}` and connect to http://localhost:{port}"
            )

    @property
    def http_url(self) -> str:
        """The same for HTTP."""
        return self.socket_url.replace("ws", "http", 1)

    def headers(self) -> dict[str, str]:
        """Return the headers that identify us to the server."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context for it; None without TLS. SettingsError if the file has no
        certificates.

        A file in `SSL_CERT_FILE` replaces the machine's certificates, as OpenSSL has it.
        """
        if not self.socket_url.startswith("wss"):
            return None
        context = ssl.create_default_context()
        if self._trusted is not None:
            try:
                context.load_verify_locations(cafile=self._trusted)
            except (OSError, ssl.SSLError) as exc:
                raise SettingsError(
                    f"{self._trusted}: no certificates can be read in this file ({exc})"
                ) from None
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
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if not proxy:
            return None
        scheme, mark, _ = proxy.partition("://")
        if mark and scheme.startswith("socks") and find_spec("python_socks") is None:
            raise SettingsError("a SOCKS proxy needs `python-socks` and `socksio`: install them")
        return proxy if mark else f"http://{proxy}"

    def lost_error(self, error: BaseException) -> ConnectionLostError:
        """Return the error for a server that an error of a WebSocket or of HTTP keeps from us."""
        return ConnectionLostError(f"{self.origin} cannot be reached: {why(error)}")

    async def refused(
        self, status: int, headers: Mapping[str, str], chunks: AsyncIterable[bytes], asked: str = ""
    ) -> AcpError:
        """Return the error for a request that is refused with this body, which may have no end."""
        body = b""
        async for chunk in chunks:
            body += chunk
            if len(body) > SAID_BYTES:
                break
        return self.refusal_error(status, headers, body, asked)

    def refusal_error(
        self, status: int, headers: Mapping[str, str], body: bytes, asked: str = ""
    ) -> AcpError:
        """Return the error for a refused request; it was for `asked`, or to connect.

        Only `acphold serve` pairs, and it names itself as the realm (RFC 9110, 11.5).
        """
        where = (asked or self.http_url).partition("?")[0]
        has_token = self.token is not None
        if status == 401 and REALM in headers.get("www-authenticate", ""):
            return RemoteRefusalError(where, status, REVOKED if has_token else NOT_PAIRED)
        if status == 401:
            meaning = WRONG_TOKEN if has_token else WANTS_TOKEN
        elif status in REFUSALS:
            meaning = REFUSALS[status]
        else:  # perhaps for the moment
            hint = "; it redirects: use the address that it leads to" if 300 <= status < 400 else ""
            return ConnectionLostError(f"{self.origin} cannot be reached: HTTP {status}{hint}")
        return RemoteRefusalError(where, status, meaning, explanation(headers, body))

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
        self.cookies.extract_cookies(cast("Any", response), Request(self.http_url))
