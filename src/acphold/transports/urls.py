"""Addresses of servers far away, as URLs: `https://host:port/acp/claude`."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

SECURE: Final = {"http": False, "https": True, "ws": False, "wss": True}

TRANSPORTS: Final = ("websocket", "http")

ONE_STREAM: Final = "acphold-one-stream"
"""The header by which acphold says, in the answer to `initialize` over HTTP, that a client needs no
stream but the connection's; servers of others have only some of it there."""

ENDPOINT: Final = "/acp"
"""Where a server speaks ACP, with `/NAME` behind it for one of several agents."""


REALM: Final = "acphold serve"
"""By which `acphold serve` says what it is as it refuses a token: one can pair with it."""


def is_url(text: str) -> bool:
    """Whether this names a server, and no command or machine."""
    scheme, mark, _ = text.partition("://")
    return bool(mark) and scheme.lower() in SECURE


def origin_of(url: str) -> str:
    """`https://host:port`, by which a server is known; ValueError where a URL names none."""
    parts, is_secure = _parts(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = 443 if is_secure else 80
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return f"http{'s' * is_secure}://{host}{port}"


def endpoint_of(url: str) -> str:
    """The WebSocket's own URL: that of the default agent where the path names none; ValueError."""
    parts, is_secure = _parts(url)
    path = parts.path if parts.path.strip("/") else ENDPOINT
    return SplitResult("wss" if is_secure else "ws", parts.netloc, path, parts.query, "").geturl()


def transport_of(url: str) -> tuple[str, str | None]:
    """A URL without its `?transport=http` or `?transport=websocket`, and which of them it has, by
    which a person says what may else be found out; ValueError for another one."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for name, value in pairs if name == "transport"]
    if not named:
        return url, None
    if named[-1] not in TRANSPORTS:
        raise ValueError(f"{named[-1]!r} is no transport; there are {' and '.join(TRANSPORTS)}")
    rest = urlencode([(name, value) for name, value in pairs if name != "transport"])
    return parts._replace(query=rest).geturl(), named[-1]


def at_agent(url: str, name: str) -> str:
    """The URL of the agent of this name, on the server at a URL; ValueError."""
    parts, _ = _parts(url)
    path = f"{ENDPOINT}/{quote(name, safe='')}"
    return SplitResult(parts.scheme, parts.netloc, path, parts.query, "").geturl()


def names_no_agent(url: str) -> bool:
    """Whether a URL leads to a server, and to no agent of it alone; ValueError."""
    parts, _ = _parts(url)
    return parts.path.rstrip("/") in ("", ENDPOINT)


def is_loopback(host: str) -> bool:
    """Whether this is the machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def code_in(url: str) -> str | None:
    """The code to pair with that stands in the fragment, `#pair=CODE`; None for none."""
    name, _, code = urlsplit(url).fragment.partition("=")
    return code if name == "pair" and code else None


def _parts(url: str) -> tuple[SplitResult, bool]:
    try:
        parts = urlsplit(url)
        is_secure = SECURE[parts.scheme]
        if (
            not parts.hostname
            or parts.username is not None
            or (parts.port is not None and parts.port < 1)
        ):
            raise ValueError
    except (ValueError, KeyError):
        raise ValueError(
            f"{url!r} is no address of a server; one is `http://localhost:8260`"
        ) from None
    return parts, is_secure
