"""Addresses of remote servers, as URLs: `https://host:port/acp/claude`."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from acphold.errors import SettingsError

SECURE: Final = {"http": False, "https": True, "ws": False, "wss": True}

TRANSPORTS: Final = ("websocket", "http")

ONE_STREAM: Final = "acphold-one-stream"
"""The header by which acphold says, in `initialize` over HTTP and in its answer, that only the
connection's stream is needed; other servers send only some messages there."""

ENDPOINT: Final = "/acp"
"""The path where a server speaks ACP, with `/NAME` behind it for one of several agents."""

MOVES: Final = "/moves/"
"""The path at which a session leaves a server, with its id behind it."""


REALM: Final = "acphold serve"
"""The name that `acphold serve` gives when it refuses a token: one can pair with it."""


def is_url(text: str) -> bool:
    """Return True if this names a server, and no command or machine."""
    scheme, mark, _ = text.partition("://")
    return bool(mark) and scheme.lower() in SECURE


def origin_of(url: str) -> str:
    """Return `https://host:port`, the name of a server; ValueError if a URL names none."""
    parts, is_secure = _parts(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = 443 if is_secure else 80
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return f"http{'s' * is_secure}://{host}{port}"


def endpoint_of(url: str) -> str:
    """Return the WebSocket's own URL: that of the default agent if the path names none;
    ValueError."""
    parts, is_secure = _parts(url)
    path = parts.path if parts.path.strip("/") else ENDPOINT
    return SplitResult("wss" if is_secure else "ws", parts.netloc, path, parts.query, "").geturl()


def transport_of(url: str) -> tuple[str, str | None]:
    """Return a URL without its `?transport=http` or `?transport=websocket`, and which of them it
    has; otherwise the transport is found out. ValueError for another one."""
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
    """Return the URL of the agent of this name, on the server at a URL; ValueError."""
    parts, _ = _parts(url)
    path = f"{ENDPOINT}/{quote(name, safe='')}"
    return SplitResult(parts.scheme, parts.netloc, path, parts.query, "").geturl()


def names_no_agent(url: str) -> bool:
    """Return True if a URL leads to a server, and to no single agent of it; ValueError."""
    parts, _ = _parts(url)
    return parts.path.rstrip("/") in ("", ENDPOINT)


def is_loopback(host: str) -> bool:
    """Return True if this is the machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def require_secrecy(url: str) -> None:
    """Refuse to send a code or a token where others can read it; SettingsError."""
    parts, is_secure = _parts(url)
    host = parts.hostname or ""
    if not is_secure and not is_loopback(host):
        port = parts.port or 80
        raise SettingsError(
            f"{origin_of(url)} is not encrypted, and everybody on the way could read the token: "
            f"use its https address, or bring the port over with `ssh -L {port}:localhost:{port} "
            f"{host}` and connect to http://localhost:{port}"
        )


def code_in(url: str) -> str | None:
    """Return the pairing code in the fragment, `#pair=CODE`; None for none."""
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
