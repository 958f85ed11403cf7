"""An agent on the official Python SDK that keeps its transcript as JSONL, as agents do.

`python sdk_loading_agent.py FILE`: `session/load` reads FILE, one update a line, and sends each.
"""

# mypy: disable-error-code="abstract, override"
# Only what is measured is implemented; the SDK asks for no more at run time.

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import acp
from acp.schema import AgentCapabilities, LoadSessionResponse, SessionNotification


class LoadingAgent(acp.Agent):
    """Loads one session."""

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=AgentCapabilities(load_session=True),
        )

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        with open(sys.argv[1], "rb") as transcript:  # noqa: ASYNC230 -- as agents do
            for line in transcript:
                told = {"sessionId": session_id, "update": json.loads(line)}
                update = SessionNotification.model_validate(told).update
                await self._client.session_update(session_id, update)
        return LoadSessionResponse()


asyncio.run(acp.run_agent(LoadingAgent()))
