"""An agent on the official Python SDK; a prompt says how many updates to send (`flood N`).

The last one ends in "!". `stream N MS`: N updates, one every MS milliseconds. `report`: how the
program fared, see `pulse`.
"""

# mypy: disable-error-code="abstract, override"
# Only what is measured is implemented; the SDK asks for no more at run time.

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import acp
from acp.schema import AgentMessageChunk, TextContentBlock
from pulse import Pulse  # type: ignore[import-not-found]  # it lies beside this script

TEXT = "0 the quick brown fox jumps over the lazy dog, 0123456"


class SdkAgent(acp.Agent):
    """As its documentation has it."""

    def __init__(self) -> None:
        self._numbers = count()
        self._pulse = Pulse()

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, *_: Any, **__: Any) -> acp.NewSessionResponse:
        return acp.NewSessionResponse(session_id=f"sdk-{next(self._numbers):016x}")

    async def prompt(self, prompt: Any, session_id: str, **_: Any) -> acp.PromptResponse:
        how, *words = prompt[0].text.split()
        if how == "report":
            await self._say(session_id, self._pulse.report())
        elif how == "stream":
            for _number in range(int(words[0])):
                await self._say(session_id, TEXT)
                await asyncio.sleep(int(words[1]) / 1000)
        else:
            number = int(words[0])
            for sent in range(1, number + 1):
                await self._say(session_id, TEXT if sent < number else f"{TEXT}!")
        return acp.PromptResponse(stop_reason="end_turn")

    async def _say(self, session_id: str, text: str) -> None:
        content = TextContentBlock(type="text", text=text)
        update = AgentMessageChunk(session_update="agent_message_chunk", content=content)
        await self._client.session_update(session_id, update)


asyncio.run(acp.run_agent(SdkAgent()))
