"""A server on the official Python SDK, 0.12.1 or 1.0.0rc3: an agent over HTTP and WebSocket.

    python python_server.py

It prints its port. It keeps its sessions while it runs: it lists them, and replays them at
`session/load`. Words in a prompt steer it: with `slow` it counts until it is cancelled; otherwise
it repeats the prompt, and asks for permission.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import uvicorn
from acp import PROTOCOL_VERSION
from acp.http.asgi import create_asgi_app
from acp.schema import (
    AgentCapabilities,
    AgentMessageChunk,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    TextContentBlock,
    ToolCallUpdate,
    UserMessageChunk,
)

PAUSE = 0.02
"""Seconds between two words of a slow turn."""


class Session:
    """A conversation, as updates."""

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        self.said: list[Any] = []
        self.cancelled = False


SESSIONS: dict[str, Session] = {}
"""Those of all connections."""


class Keeping:
    """The agent of one connection."""

    def __init__(self, conn: Any) -> None:
        self._client = conn

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, **_: Any) -> InitializeResponse:
        can = AgentCapabilities(
            load_session=True,
            session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
        )
        who = Implementation(name="python-server", version="1")
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION, agent_capabilities=can, agent_info=who
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        session_id = f"session-{len(SESSIONS)}"
        SESSIONS[session_id] = Session(cwd)
        return NewSessionResponse(session_id=session_id)

    async def list_sessions(self, **_: Any) -> ListSessionsResponse:
        found = [SessionInfo(session_id=id, cwd=it.cwd) for id, it in SESSIONS.items()]
        return ListSessionsResponse(sessions=found)

    async def load_session(self, session_id: str, **_: Any) -> LoadSessionResponse:
        for update in SESSIONS[session_id].said:
            await self._client.session_update(session_id=session_id, update=update)
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        SESSIONS[session_id].cancelled = True

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        session = SESSIONS[session_id]
        session.cancelled = False
        words = prompt[0].text
        session.said.append(
            UserMessageChunk(session_update="user_message_chunk", content=_text(words))
        )
        if "slow" in words:
            number = 0
            while not session.cancelled:
                await self._say(session_id, f"tick{number} ")
                number += 1
                await asyncio.sleep(PAUSE)
            return PromptResponse(stop_reason="cancelled")
        await self._say(session_id, f"You said: {words}. ")
        answer = await self._client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(tool_call_id=f"call-{len(session.said)}", title="Go on"),
            options=[
                PermissionOption(kind="allow_once", name="Yes", option_id="yes"),
                PermissionOption(kind="reject_once", name="No", option_id="no"),
            ],
        )
        await self._say(session_id, f"You chose: {getattr(answer.outcome, 'option_id', None)}.")
        return PromptResponse(stop_reason="end_turn")

    async def _say(self, session_id: str, words: str) -> None:
        chunk = AgentMessageChunk(session_update="agent_message_chunk", content=_text(words))
        SESSIONS[session_id].said.append(chunk)
        await self._client.session_update(session_id=session_id, update=chunk)


def _text(words: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=words)


async def _serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(
            create_asgi_app(cast(Any, Keeping)), log_level="warning", lifespan="on"
        )
        print(bound.getsockname()[1], flush=True)  # noqa: T201  # who started it reads that
        await uvicorn.Server(config).serve(sockets=[bound])


if __name__ == "__main__":
    asyncio.run(_serve())
