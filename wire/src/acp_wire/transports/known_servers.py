"""Remote servers: their addresses as URLs, and the tokens of those that this user has paired with.

    {"https://desk.example:8260": {"token": "acphold_…"}, …}

`acphold serve` puts its own address there, so that commands on the same machine need no pairing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode, format

from acp_wire.errors import SettingsError
from acp_wire.state_folder import state_folder, write_private

SECURE: Final = {"http": False, "https": True, "ws": False, "wss": True}

TRANSPORTS: Final = ("websocket", "http")

ONE_STREAM: Final = "acphold-one-stream"
"""The header by which acphold says, in `initialize` over HTTP and in its answer, that only the
connection's stream is needed; other servers send only some messages there."""

ENDPOINT: Final = "/acp"
"""The path where a server speaks ACP, followed by `/NAME` for one of several agents."""

REALM: Final = "acphold serve"
"""The name that `acphold serve` gives when it refuses a token: one can pair with it."""

FILE: Final = "servers.json"

LARGEST: Final = 1 << 20
"""Most bytes of the file; one server takes a hundred."""


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
    """Return a URL without its `?transport=http` or `?transport=websocket`, and the transport that
    it names; None for none. ValueError for another one."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for name, value in pairs if name == "transport"]
    if not named:
        return url, None
    if named[-1] not in TRANSPORTS:
        raise ValueError(f"{named[-1]!r} is not a transport; use {' or '.join(TRANSPORTS)}")
    rest = urlencode([(name, value) for name, value in pairs if name != "transport"])
    return parts._replace(query=rest).geturl(), named[-1]


def is_loopback(host: str) -> bool:
    """Return True if this is the machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


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
            f"{url!r} is not the address of a server; an example is `http://localhost:8260`"
        ) from None
    transport_of(url)  # it may name none that we have
    return parts, is_secure


class KnownServer(Struct, frozen=True, omit_defaults=True):
    """The entry of one server; without any, we have not paired with it."""

    token: str | None = None
    ca: str | None = None
    """The file of certificates to trust for it, beside the usual."""


class KnownServers(dict[str, KnownServer]):
    """The servers that we have paired with, by their origins, the last one last."""

    def at(self, url: str) -> KnownServer:
        """Return the entry of the server at a URL."""
        return self.get(origin_of(url), KnownServer())

    def keep(self, url: str, token: str | None, ca: str | None = None) -> None:
        """Keep the token for this server and the file of certificates to trust, or forget it;
        raises SettingsError if that fails."""
        path = _path()
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            # With two writers at once, the second reads the first one's result.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            with open(os.open(f"{path}.lock", flags, 0o600), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.clear()
                self.update(_read(path))
                if token is None:
                    self.pop(origin_of(url), None)
                else:
                    self[origin_of(url)] = KnownServer(token, ca)
                write_private(path, format(encode(self), indent=1))
        except OSError as exc:
            raise SettingsError(f"{path}: the token cannot be saved: {exc.strerror}") from None
        except UnicodeEncodeError:  # such as a folder's name, in the path of certificates
            words = url if ca is None else ca
            raise SettingsError(
                f"{path}: the token cannot be saved: {words!r} is not in UTF-8; rename it"
            ) from None


def known_servers() -> KnownServers:
    """Return the servers that we have paired with; SettingsError."""
    return KnownServers(_read(_path()))


Token: TypeAlias = "str | Callable[[], str | Awaitable[str]]"
"""A token, or a function that returns the present one."""


def _read(path: str) -> dict[str, KnownServer]:
    try:
        with open(path, "rb") as file:
            return Decoder(dict[str, KnownServer]).decode(file.read(LARGEST))
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise SettingsError(f"{path} cannot be read: {exc.strerror}") from None
    except (DecodeError, ValidationError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path} is damaged ({exc}); remove it, and pair again") from None


def _path() -> str:
    return os.path.join(state_folder(), FILE)
