"""The prompts that wait in a session: an acphold at the other end keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from acphold.agents.capabilities import QUEUE_METHOD
from acphold.client.session_feed import SessionFeed, ToldQueue
from acphold.errors import CapabilityError
from acphold.history.prompt_queue import PromptQueue, QueueChange
from acphold.schema import ContentBlock, decode, encode
from acphold.schema.splice import splice

if TYPE_CHECKING:
    from acphold.client.prompt_content import Content
    from acphold.client.uplink import Uplink


class RemoteQueue:
    """The prompts that wait in a session: `RemoteSession.queue`.

    acphold keeps them in its journal and begins one after the other, with or without a client. It
    holds them behind a turn that did not end as it should, and when another process has opened the
    session anew. All methods raise CapabilityError for an agent that acphold does not stand in
    front of, and RemoteError if the change does not fit: what has begun can no longer be changed.
    """

    def __init__(
        self,
        feed: SessionFeed,
        uplink: Uplink,
        blocks: Callable[..., tuple[ContentBlock, ...]],
    ) -> None:
        self._feed = feed
        self._uplink = uplink
        self._blocks = blocks

    def __repr__(self) -> str:
        held = f", held: {self.state.held}" if self.state.held else ""
        return f"<RemoteQueue of {self._feed.id!r}: {len(self.state.waiting)} wait{held}>"

    @property
    def is_kept(self) -> bool:
        """True if there is an acphold at the other end that keeps it."""
        return self._uplink.keeps_queue

    @property
    def state(self) -> PromptQueue:
        """The queue now: the prompts that wait, in order, the one whose turn runs, and the reason
        for holding it. Empty if nobody keeps one."""
        return self._feed.queue

    async def add(self, *content: Content, at: int | None = None, before: str = "") -> str:
        """Add a prompt, with content as for `RemoteSession.prompt`; return its id.

        It begins when its turn comes, but not before the moment `at`, in ms since the epoch. It
        comes last, or in front of the prompt with the id `before`.
        """
        return await self._change(
            QueueChange("add", prompt=self._prompt(content), at=at, before=before)
        )

    async def edit(self, prompt_id: str, *content: Content) -> None:
        """Replace the content of a prompt; its place stays."""
        await self._change(QueueChange("edit", prompt_id, self._prompt(content)))

    async def reschedule(self, prompt_id: str, at: int | None) -> None:
        """Have a prompt begin not before a moment, in ms since the epoch; None for when its turn
        comes."""
        await self._change(QueueChange("edit", prompt_id, at=at))

    async def move(self, prompt_id: str, before: str = "") -> None:
        """Put a prompt in front of the one with the id `before`; by default, last."""
        await self._change(QueueChange("move", prompt_id, before=before))

    async def drop(self, prompt_id: str) -> None:
        """Take a prompt out of the queue: it never begins."""
        await self._change(QueueChange("drop", prompt_id))

    async def hold(self) -> None:
        """Begin nothing more until `go`; a running turn goes on."""
        await self._change(QueueChange("hold"))

    async def go(self) -> None:
        """Go on with what waits, whatever it was held for."""
        await self._change(QueueChange("go"))

    async def set(self, *, goes_on: bool | None = None, restarts: bool | None = None) -> None:
        """Say whether it goes on behind a turn that failed or was refused, and whether it goes on
        when another process opens the session; None leaves that as it is."""
        await self._change(
            QueueChange(
                "set",
                goes_on=UNSET if goes_on is None else goes_on,
                restarts=UNSET if restarts is None else restarts,
            )
        )

    async def content(self, prompt_id: str) -> tuple[ContentBlock, ...]:
        """Return the content of a prompt that waits."""
        return (await self._ask(read=encode(prompt_id))).prompt

    def _prompt(self, content: tuple[Content, ...]) -> Raw:
        return Raw(encode(self._blocks(*content)))

    async def _change(self, change: QueueChange) -> str:
        return (await self._ask(change=encode(change))).id

    async def _ask(self, **asked: bytes) -> ToldQueue:
        await self._uplink.ready()
        if not self.is_kept:
            raise CapabilityError(
                f"{self._uplink.name} keeps no queue of prompts: that takes an acphold in front of "
                "it, as by `acphold wrap` or with durable=True"
            )
        params = splice(b"{}", {"sessionId": encode(self._feed.id), **asked})
        answer = await self._uplink.ask_raw(QUEUE_METHOD, params, on_result=self._feed.hear_queue)
        return decode(ToldQueue, answer).value
