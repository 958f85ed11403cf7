"""The process that sends Web Push messages, so that encryption and HTTP slow down nothing else.

It reads one line of JSON per message from stdin (Order) and writes the results to stdout (Outcome),
in any order. It ends with its stdin.

The address comes from a browser, so it may be anybody's: it is resolved once, and connected to only
if all its addresses are public. No redirect is followed, and nothing of an answer is read but its
status.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httpx2
from msgspec.json import decode, encode

from acphold.web.push_message import SECONDS, Order, Outcome, encrypted, headers

AT_ONCE: Final = 8
"""Messages sent at the same time."""

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
) -> Outcome:
    """Send one message; never raises for errors of others.

    `may` says which addresses may be connected to; `verify` has the certificates to trust instead
    of the usual ones.
    """
    host = urlsplit(order.to.endpoint).hostname or ""
    try:
        async with asyncio.timeout(SECONDS):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(it[4][0]) for it in found]
            if not addresses or not all(map(may, addresses)):
                return Outcome(order.id, 0, f"{host} is none of the public network")
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
                return Outcome(order.id, answer.status_code)
    except TimeoutError:
        return Outcome(order.id, 0, f"{host} does not answer")
    except (OSError, ValueError, httpx2.HTTPError) as exc:
        return Outcome(order.id, 0, f"{host}: {type(exc).__name__}: {exc}")


async def _run() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    free = asyncio.Semaphore(AT_ONCE)
    sending: set[asyncio.Task[None]] = set()

    async def tell(order: Order) -> None:
        try:
            told = await send(order)
        finally:
            free.release()
        sys.stdout.buffer.write(encode(told) + b"\n")
        sys.stdout.buffer.flush()

    while line := await lines.readline():
        await free.acquire()
        task = asyncio.create_task(tell(decode(line, type=Order)), name="push")
        sending.add(task)
        task.add_done_callback(sending.discard)
    if sending:
        await asyncio.wait(sending)


def main() -> None:
    """Serve until stdin ends."""
    # A Ctrl-C on the terminal is for our parent; we end with our stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_run())


if __name__ == "__main__":
    main()
