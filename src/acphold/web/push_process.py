"""The process that sends Web Push messages: encryption and HTTP cost nobody else anything there.

On its stdin it gets a line of JSON for each message (Order), on its stdout it says what became of
it (Outcome), in any order. It ends with its stdin.

An address to send to comes from a browser, so it may be anybody's: it is looked up once, and only
if all that it leads to is of the public network, one of these is connected to. Nothing is followed,
and nothing of an answer is read but its status.
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
"""Messages that are on their way at the same time."""

PORT: Final = 443


def is_public(address: str) -> bool:
    """Whether an address is of the public network."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global and not found.is_multicast


async def send(
    order: Order,
    may: Callable[[str], bool] = is_public,
    port: int = PORT,
    verify: ssl.SSLContext | bool = True,
) -> Outcome:
    """Send one; never raises for what others do. `may` says which addresses are connected to,
    `verify` has the certificates to trust in the place of the usual."""
    host = urlsplit(order.to.endpoint).hostname or ""
    try:
        async with asyncio.timeout(SECONDS):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(it[4][0]) for it in found]
            if not addresses or not all(map(may, addresses)):
                return Outcome(order.id, 0, f"{host} is none of the public network")
            # The very address that was looked at: a name may lead elsewhere the next time.
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
    """Serve until nobody asks any more."""
    # A Ctrl-C on the terminal is for who asks; we end with our stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_run())


if __name__ == "__main__":
    main()
