"""A session, as the client in memory holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from acphold.schema import (
    CANCEL,
    CLOSE_SESSION,
    DELETE_SESSION,
    PROMPT,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    CancelNotification,
    CloseSessionRequest,
    DeleteSessionRequest,
    PromptRequest,
    SetSessionConfigOptionRequest,
    SetSessionModeRequest,
    TextContent,
)
from acphold.testing.told import Result, Told

if TYPE_CHECKING:
    from acphold.schema import ContentBlock, SessionConfigOption, SessionModeState
    from acphold.testing.client import Client


class ClientSession:
    """A session as the client holds it.

    `modes` and `options` are what the agent answered when it was opened; `replayed` is what a load
    replayed.
    """

    def __init__(
        self,
        client: Client,
        session_id: str,
        cwd: str,
        *,
        modes: SessionModeState | None,
        options: tuple[SessionConfigOption, ...] | None,
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.modes = modes
        self.options = options or ()
        self.replayed = client.told(session_id)
        self._client = client

    @property
    def told(self) -> Told:
        """All updates this client was sent of the session so far, replayed ones included."""
        return self._client.told(self.id)

    async def prompt(self, *content: str | ContentBlock) -> Result:
        """Run a turn to its end; RemoteError when it failed."""
        before = len(self.told.raws)
        blocks = tuple(TextContent(text=it) if isinstance(it, str) else it for it in content)
        answer = await self._client.ask(PROMPT, PromptRequest(session_id=self.id, prompt=blocks))
        told = self._client.told(self.id, since=before)
        return Result(told.updates, told.raws, answer.stop_reason)

    def begin(self, *content: str | ContentBlock) -> asyncio.Task[Result]:
        """Start a turn; `cancel` it, or await the task for its result."""
        return asyncio.create_task(self.prompt(*content), name="prompt")

    async def cancel(self) -> None:
        """Cancel the turn that runs."""
        await self._client.peer.notify(CANCEL, CancelNotification(session_id=self.id))

    async def until(self, holds: Callable[[Told], object]) -> Told:
        """Wait until what was told fits, looked at with each update."""
        return await self._client.until(lambda: self.told if holds(self.told) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this, in this session at any time."""
        await self.until(lambda told: text in told.text)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode; RemoteError for an unknown one."""
        request = SetSessionModeRequest(session_id=self.id, mode_id=mode_id)
        await self._client.ask(SET_SESSION_MODE, request)

    async def set_option(
        self, option_id: str, value: str | bool
    ) -> tuple[SessionConfigOption, ...]:
        """Change a config option; all of them as they stand then."""
        request = (
            SetSessionConfigOptionRequest(
                session_id=self.id, config_id=option_id, value=value, type="boolean"
            )
            if isinstance(value, bool)
            else SetSessionConfigOptionRequest(session_id=self.id, config_id=option_id, value=value)
        )
        answer = await self._client.ask(SET_SESSION_CONFIG_OPTION, request)
        return answer.config_options

    async def close(self) -> None:
        """Close it; it can be loaded again."""
        await self._client.ask(CLOSE_SESSION, CloseSessionRequest(session_id=self.id))

    async def delete(self) -> None:
        """Delete it for good."""
        await self._client.ask(DELETE_SESSION, DeleteSessionRequest(session_id=self.id))
