"""An HTTP client for a remote server, over its route; imported late, for `httpx2` is slow to
import."""

from __future__ import annotations

import httpx2

from acphold.transports.obstacles import SAID_BYTES
from acphold.transports.route import Route


def http_client(route: Route, *, http2: bool = False) -> httpx2.AsyncClient:
    """Return a client for the server; the caller closes it. It speaks HTTP/2 if it may and the
    server does."""
    return httpx2.AsyncClient(
        headers={**route.headers(), "User-Agent": "acphold"},
        cookies=route.cookies,
        verify=route.context() or True,
        http2=http2,
        proxy=route.proxy(),
        trust_env=False,  # the route has its values; a netrc of the user is for others
        timeout=httpx2.Timeout(route.seconds, pool=None),
        limits=httpx2.Limits(max_connections=None),
    )


async def beginning(answer: httpx2.Response) -> bytes:
    """Return as much of an answer as is reported of it: its body may have no end."""
    found = b""
    async for chunk in answer.aiter_bytes():
        found += chunk
        if len(found) > SAID_BYTES:
            break
    return found
