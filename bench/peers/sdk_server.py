"""A server on the official Python SDK, as its documentation has it; it prints its port.

A prompt says what to send, as for `scripted_agent`: `flood N` updates at once, of which the last
ends in "!", or `paced N`, one each millisecond with the time it was sent.
"""

# mypy: disable-error-code="abstract, override"
# Only what is measured is implemented; the SDK asks for no more at run time.

from __future__ import annotations

import asyncio
import socket
import time
from itertools import count
from typing import Any, cast

import acp
import uvicorn
from acp.http.asgi import create_asgi_app

TEXT = "the quick brown fox jumps over the lazy dog, 0123456"
NUMBERS = count()


class SdkAgent(acp.Agent):
    """What answers one connection."""

    def __init__(self, client: acp.Client) -> None:
        self._client = client

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, *_: Any, **__: Any) -> acp.NewSessionResponse:
        return acp.NewSessionResponse(session_id=f"sdk-{next(NUMBERS)}")

    async def prompt(self, prompt: Any, session_id: str, **_: Any) -> acp.PromptResponse:
        how, number = prompt[0].text.split()
        for left in reversed(range(int(number))):
            if how == "paced":
                await asyncio.sleep(0.001)
            text = f"{time.monotonic_ns()} {TEXT}{'' if left else '!'}"
            await self._client.session_update(session_id, acp.update_agent_message_text(text))
        return acp.PromptResponse(stop_reason="end_turn")


async def serve() -> None:
    """Until it is told to end."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        # As uvicorn has it where it binds by itself: each message goes at once.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app = create_asgi_app(cast(Any, SdkAgent))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        print(bound.getsockname()[1], flush=True)
        await server.serve(sockets=[bound])


asyncio.run(serve())
