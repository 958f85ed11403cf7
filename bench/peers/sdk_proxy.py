"""The thinnest proxy on the official Python SDK: each call is made again on the other side.

`python sdk_proxy.py CMD ARGS...`; keeps no journal.
"""

# mypy: disable-error-code="abstract, override"
# Only what is measured is implemented; the SDK asks for no more at run time.

from __future__ import annotations

import asyncio
import sys
from typing import Any

import acp


class TowardsAgent(acp.Client):
    """What the agent talks to."""

    def __init__(self, editor_side: TowardsEditor) -> None:
        self._editor_side = editor_side

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        await self._editor_side.editor.session_update(session_id, update)


class TowardsEditor(acp.Agent):
    """What the editor talks to."""

    editor: acp.Client
    agent: acp.Agent

    def on_connect(self, conn: acp.Client) -> None:
        self.editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: Any = None,
        client_info: Any = None,
        **_: Any,
    ) -> Any:
        return await self.agent.initialize(protocol_version, client_capabilities, client_info)

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Any:
        return await self.agent.new_session(cwd=cwd, mcp_servers=mcp_servers or [])

    async def prompt(self, prompt: Any, session_id: str, **_: Any) -> Any:
        return await self.agent.prompt(prompt=prompt, session_id=session_id)


async def main() -> None:
    """Serve until the editor leaves."""
    editor_side = TowardsEditor()
    client = TowardsAgent(editor_side)
    async with acp.spawn_agent_process(
        lambda _: client, *sys.argv[1:], transport_kwargs={"stderr": None}
    ) as (agent, _):
        editor_side.agent = agent
        await acp.run_agent(editor_side)


asyncio.run(main())
