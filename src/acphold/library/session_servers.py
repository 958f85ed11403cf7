"""The MCP servers of a session.

What needs MCP is imported once a session names a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from acphold.library.client_side import UNANSWERED
from acphold.schema import CREATE_ELICITATION, encode

if TYPE_CHECKING:
    from acphold.library.client_side import ClientSide
    from acphold.mcp import Channel, Prompt, Server, Servers


class SessionServers:
    """The servers that a client named for one session: connected at once, closed with it.

    `on_prompts` is told of all their prompts whenever they change, and `on_failure` the name of a
    server that cannot be used, and why.
    """

    def __init__(
        self,
        client: ClientSide,
        roots: tuple[str, ...],
        servers: tuple[Server, ...],
        *,
        name: str,
        version: str,
        timeout: float,
        channel: Channel,
        on_prompts: Callable[[tuple[Prompt, ...]], None],
        on_failure: Callable[[str, str], None],
    ) -> None:
        from acphold.mcp import OurSide, Servers

        self._client = client
        self._on_prompts = on_prompts
        self._offering: asyncio.Task[None] | None = None
        forms = client.capabilities.elicitation
        self.pool: Servers = Servers(
            servers,
            OurSide(
                cwd=roots[0],
                roots=roots,
                name=name,
                version=version,
                elicitation=None if forms is None or forms.form is None else self._elicit,
                deadline=timeout,
                channel=channel,
            ),
            on_failure=on_failure,
            on_change=self._changed,
        )

    def start(self) -> None:
        """Connect to all of them; returns at once."""
        self.pool.start()
        self._changed("", "prompts")

    async def aclose(self) -> None:
        """End all of them, and what they started."""
        if self._offering is not None:
            self._offering.cancel()
        await self.pool.aclose()

    def _changed(self, name: str, what: str) -> None:
        if what != "prompts":
            return
        if self._offering is not None:
            self._offering.cancel()
        self._offering = asyncio.create_task(self._offer(), name="mcp prompts")

    async def _offer(self) -> None:
        self._on_prompts(await self.pool.prompts())

    async def _elicit(self, server: str, params: dict[str, object]) -> dict[str, object]:
        """Pass a server's question on to the person, who is told who asks."""
        asked = {
            "sessionId": self._client.session_id,
            "mode": params.get("mode", "form"),
            **{name: value for name, value in params.items() if name != "_meta"},
            "message": f"{server}: {params.get('message', '')}",
        }
        try:
            raw = await self._client.ask_raw(CREATE_ELICITATION.name, encode(asked))
        except UNANSWERED:
            return {"action": "cancel"}
        return msgspec.json.decode(raw, type=dict[str, object])
