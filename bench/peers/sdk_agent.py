"""An agent on the official Python SDK; a prompt says how many updates to send (`flood N`).

The last one ends in "!".
"""

# mypy: disable-error-code="abstract, override"
# Only what is measured is implemented; the SDK asks for no more at run time.

from __future__ import annotations

import asyncio
from typing import Any

import acp

TEXT = "0 the quick brown fox jumps over the lazy dog, 0123456"


class SdkAgent(acp.Agent):
    """As its documentation has it."""

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, *_: Any, **__: Any) -> acp.NewSessionResponse:
        return acp.NewSessionResponse(session_id="sdk-0123456789abcdef")

    async def prompt(self, prompt: Any, session_id: str, **_: Any) -> acp.PromptResponse:
        number = int(prompt[0].text.split()[1])
        for sent in range(1, number + 1):
            text = TEXT if sent < number else f"{TEXT}!"
            await self._client.session_update(session_id, acp.update_agent_message_text(text))
        return acp.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(SdkAgent()))
