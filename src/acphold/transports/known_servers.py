"""The servers that this user has paired with: their tokens, in a file that nobody else may read.

    {"https://desk.example:8260": {"token": "acphold_…"}, …}

`acphold serve` puts its own address there, so that commands on the same machine need no pairing.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from acphold.errors import SettingsError
from acphold.transports.runtime_folder import state_folder
from acphold.transports.urls import is_url, origin_of

FILE: Final = "servers.json"

LARGEST: Final = 1 << 20
"""Most bytes of the file; one server takes a hundred."""


class KnownServer(Struct, frozen=True):
    """The entry of one server."""

    token: str
    ca: str | None = None
    """The file of certificates to trust for it, beside the usual."""


def ca_for(url: str) -> str | None:
    """Return the file of certificates for the server at a URL; None if the usual will do."""
    found = _read(_path()).get(origin_of(url))
    return None if found is None else found.ca


def token_for(url: str) -> str | None:
    """Return the token for the server at a URL; None if we have not paired with it."""
    found = _read(_path()).get(origin_of(url))
    return None if found is None else found.token


def local_tokens() -> list[str]:
    """Return the tokens for servers of this machine, the last one first."""
    found = reversed(_read(_path()).items())
    return [it.token for origin, it in found if urlsplit(origin).hostname == "localhost"]


def names() -> list[str]:
    """Return the names of the servers that we have paired with: `desk.example`, or with the
    port."""
    origins = [*_read(_path())]
    hosts = [urlsplit(origin).hostname or origin for origin in origins]
    return [
        host if hosts.count(host) == 1 else urlsplit(origin).netloc
        for origin, host in zip(origins, hosts, strict=True)
    ]


def url_of(name: str) -> str:
    """Return the URL of a server that we have paired with, by its host, with or without the port,
    or the first word of that; a URL is returned as it is. SettingsError if none or several
    match."""
    if is_url(name):
        return name
    origins = [*_read(_path())]
    found = [
        origin
        for origin in origins
        for parts in (urlsplit(origin),)
        if name.lower() in (parts.netloc, parts.hostname, (parts.hostname or "").partition(".")[0])
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"{name!r} may be any of {', '.join(found)}")
    known = f"we have paired with {', '.join(origins)}" if origins else "we have paired with none"
    raise SettingsError(
        f"no server is known by {name!r}: {known}; give its URL, with the code that `acphold "
        "serve` prints there the first time"
    )


def remember(url: str, token: str | None, ca: str | None = None) -> None:
    """Keep the token for this server and the file of certificates to trust, or forget it; raises
    SettingsError if that fails."""
    path = _path()
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        # With two writers at once, the second reads the first one's result.
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            servers = _read(path)
            if token is None:
                servers.pop(origin_of(url), None)
            else:
                servers[origin_of(url)] = KnownServer(token, ca)
            _write(path, servers)
        finally:
            os.close(lock)
    except OSError as exc:
        raise SettingsError(f"{path}: the token cannot be kept: {exc.strerror}") from None


def _write(path: str, servers: dict[str, KnownServer]) -> None:
    known = {
        origin: {"token": it.token} | ({} if it.ca is None else {"ca": it.ca})
        for origin, it in servers.items()
    }
    text = json.dumps(known, indent=1)
    new = f"{path}.{os.getpid()}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


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
