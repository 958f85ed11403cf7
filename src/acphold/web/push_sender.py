"""Messages to browsers by Web Push, sent in threads: encryption and HTTP slow down nothing else.

The address comes from a browser, so it may be anybody's: it is resolved once, and connected to only
if all its addresses are public. No redirect is followed, and nothing of an answer is read but its
status.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from acphold.web.push_message import SECONDS, Order, PushOutcome, encrypted, headers
from acphold.workspace.threads import Threads

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

AT_ONCE: Final = 8
"""Messages sent at the same time."""

PATIENCE: Final = 2 * SECONDS
"""Longest time for a message, with the wait for its turn, in seconds."""

PORT: Final = 443

_WITH_IPV4_AT_THE_END: Final = (
    ipaddress.IPv6Network("::/96"),  # IPv4-compatible
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 6052)
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
)
_PRIVATE: Final = (
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # NAT64 of a network's own (RFC 8215)
    ipaddress.IPv6Network("fec0::/10"),
)


def is_public(address: str) -> bool:
    """Return True for an address of the public network, including one embedded in another."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast
    inside = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    if any(found in network for network in _WITH_IPV4_AT_THE_END):
        inside.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    if not all(is_public(str(it)) for it in inside if it is not None):
        return False
    if found.ipv4_mapped is not None:
        return True
    is_private = any(found in network for network in _PRIVATE)
    return found.is_global and not found.is_multicast and not is_private


async def send(
    order: Order,
    may: Callable[[str], bool] = is_public,
    port: int = PORT,
    verify: ssl.SSLContext | bool = True,
) -> PushOutcome:
    """Send one message; never raises for errors of others.

    Blocks while the name is looked up, so it runs in a thread: see `PushSender`. `may` says which
    addresses may be connected to; `verify` has the certificates to trust instead of the usual ones.
    """
    import httpx2  # late: only a `serve` with something to send needs it

    host = urlsplit(order.to.endpoint).hostname or ""
    try:
        async with asyncio.timeout(SECONDS):
            # Not by the loop: at its end it would wait for a name server that does not answer.
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(it[4][0]) for it in found]
            if not addresses or not all(map(may, addresses)):
                return PushOutcome(0, f"{host} is none of the public network")
            # Connect to the address that was checked: the name may resolve to another the next
            # time.
            address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
            url = httpx2.URL(order.to.endpoint).copy_with(host=address.strip("[]"), port=port)
            body = encrypted(order.to, order.payload.encode())
            said = headers(order.key, order.to.endpoint, order.subject, order.topic)
            said["Host"] = host
            async with (
                httpx2.AsyncClient(verify=verify, trust_env=False, timeout=SECONDS) as http,
                http.stream(
                    "POST", url, content=body, headers=said, extensions={"sni_hostname": host}
                ) as answer,
            ):
                return PushOutcome(answer.status_code)
    except TimeoutError:
        return PushOutcome(0, f"{host} does not answer")
    except (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL) as exc:
        return PushOutcome(0, f"{host}: {type(exc).__name__}: {exc}")


class PushSender:
    """Sends messages. A thread that hangs in a look-up keeps nobody waiting, not even the exit."""

    def __init__(self) -> None:
        self._threads = Threads(AT_ONCE)

    async def send(self, order: Order) -> PushOutcome:
        """Send one message; never raises for errors of others."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._threads.run(lambda _: asyncio.run(send(order)))
        except TimeoutError:
            return PushOutcome(0, "the push service does not answer")
        except (RuntimeError, OSError) as exc:  # no thread, or no file descriptor, is left
            return PushOutcome(0, f"notices cannot be sent: {exc}")
