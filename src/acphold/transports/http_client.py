"""HTTP with a server far away, by the way that leads there; imported late, for `httpx2` takes its
time."""

from __future__ import annotations

from importlib.util import find_spec

import httpx2

from acphold.transports.obstacles import SAID_BYTES
from acphold.transports.route import Route


def http_client(route: Route) -> httpx2.AsyncClient:
    """What asks the server; whoever makes it closes it."""
    return httpx2.AsyncClient(
        headers={**route.headers(), "User-Agent": "acphold"},
        cookies=route.cookies,
        verify=route.context() or True,
        proxy=route.proxy(),
        trust_env=False,  # what it says is in the route; a netrc of the user is for others
        http2=find_spec("h2") is not None,
        timeout=httpx2.Timeout(route.seconds, pool=None),
        limits=httpx2.Limits(max_connections=None),
    )


async def beginning(answer: httpx2.Response) -> bytes:
    """As much of an answer as is told of it: its body may have no end."""
    found = b""
    async for chunk in answer.aiter_bytes():
        found += chunk
        if len(found) > SAID_BYTES:
            break
    return found
