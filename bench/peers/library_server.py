"""An agent on acphold, served by uvicorn as its guide has it; it prints its port.

`python library_server.py JOURNAL TOKEN`. Whoever brings the token is one person, with sessions of
their own. A prompt says what to send, as for `sdk_server.py`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Mapping
from secrets import compare_digest
from typing import Any

import uvicorn

import acphold

TEXT = "the quick brown fox jumps over the lazy dog, 0123456"
JOURNAL, TOKEN = sys.argv[1:]

agent = acphold.Agent("bench", version="1")


@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    how, number = turn.text.split()
    for left in reversed(range(int(number))):
        if how == "paced":
            await asyncio.sleep(0.001)
        await turn.say(f"{time.monotonic_ns()} {TEXT}{'' if left else '!'}")


async def who(scope: Mapping[str, Any]) -> acphold.Principal | None:
    """Whose token came with a request."""
    given = dict(scope["headers"]).get(b"authorization", b"").removeprefix(b"Bearer ")
    if compare_digest(given, TOKEN.encode()):
        return acphold.Principal(name="bench", tenant="bench")
    return None


async def serve() -> None:
    """Until it is told to end."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        # As uvicorn has it where it binds by itself: each message goes at once.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app = agent.server(journal=JOURNAL, share=False).asgi(who)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        print(bound.getsockname()[1], flush=True)
        await server.serve(sockets=[bound])


asyncio.run(serve())
