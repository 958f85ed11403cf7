"""The updates of a prompt, or of a watched session, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, overload

from acphold.client.turn_feed import FeedStage, TurnFeed, typed
from acphold.errors import AcpholdError
from acphold.history.timeline import Message, ToolCall, shortened

if TYPE_CHECKING:
    from typing import Self

    from acphold.client.inbox import Inbox
    from acphold.history.raw_update import Role
    from acphold.history.timeline import Item
    from acphold.schema import Update


class RemoteTurn:
    """One turn; made by `RemoteSession.prompt`. Iterate over it for its updates:

        async for update in session.prompt("hello"):
            ...

    or await it, which skips the updates and returns the turn itself. Either way raises the error
    that ended the turn in place of an answer, after the last update: RemoteError,
    AuthRequiredError, AgentExitedError, ConnectionLostError, AgentTimeoutError.

    If the awaiting task is cancelled, by `asyncio.timeout` for instance, the turn is cancelled:
    when the `await` is left, the agent has ended it, or has had its time to. If you iterate and
    stop reading, you may read on later. Until then the turn goes on; when a megabyte is unread, the
    agent has to wait, unless this program waits for something else from it.
    """

    def __init__(self, feed: TurnFeed) -> None:
        self._feed = feed

    def __repr__(self) -> str:
        how = self.stop_reason or ("failed" if self.is_over else "running")
        return f"<RemoteTurn {how}: {shortened(self.text)!r}>"

    @property
    def stop_reason(self) -> str | None:
        """`end_turn`, `max_tokens`, `max_turn_requests`, `refusal` or `cancelled`, or a newer one.

        None until the agent has answered, and if it answered with an error.
        """
        return self._feed.stop_reason

    @property
    def has_begun(self) -> bool:
        """True once the agent works on it: turns of other clients may run before."""
        return self._feed.has_begun

    @property
    def is_over(self) -> bool:
        """True if the turn has ended; there may be unread updates."""
        return self._feed.is_over

    @property
    def items(self) -> tuple[Item, ...]:
        """Its part of the session's timeline so far: messages, tool calls, and its end."""
        return self._feed.items

    @property
    def text(self) -> str:
        """The agent's words in it so far."""
        return self._said("agent")

    @property
    def thoughts(self) -> str:
        """The agent's thoughts in it so far."""
        return self._said("thought")

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it, each as it stands."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))

    def _said(self, role: Role) -> str:
        said = [item for item in self.items if isinstance(item, Message)]
        return "".join(message.text for message in said if message.role == role)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        feed = self._feed
        if feed.stage is FeedStage.WAITING:
            await feed.sent()
        raw = await feed.inbox.take()
        if raw is not None:
            return typed(raw)
        if feed.error is not None:
            raise feed.error
        raise StopAsyncIteration

    async def take_all(self) -> list[bytes]:
        """Return the updates that are there, at least one, as JSON; [] at the end.

        Faster than one by one. Raises as the iterator does.
        """
        feed = self._feed
        await feed.sent()
        raws = await feed.inbox.take_all()
        if not raws and feed.error is not None:
            raise feed.error
        return raws

    def __await__(self) -> Generator[object, None, Self]:
        return self._over().__await__()

    async def _over(self) -> Self:
        try:
            while await self.take_all():
                pass
        except asyncio.CancelledError:
            # Wait for its end, which is limited in time: until then the next prompt would be
            # refused.
            self._feed.stop()
            with suppress(AcpholdError):
                while await self.take_all():
                    pass
            raise
        return self


class UpdateStream:
    """Every update of a session as it comes, in turns and between them; see
    `RemoteSession.updates`.

    It ends when the session is closed, and raises the agent's error if that has gone.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._error: AcpholdError | None = None

    def __aiter__(self) -> UpdateStream:
        return self

    async def __anext__(self) -> Update:
        raw = await self._inbox.take()
        if raw is not None:
            return typed(raw)
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def take_all(self) -> list[bytes]:
        """Return the updates that are there, at least one, as JSON; [] at the end."""
        raws = await self._inbox.take_all()
        if not raws and self._error is not None:
            raise self._error
        return raws

    def end(self, error: AcpholdError | None = None) -> None:
        """End it; unread updates can still be read."""
        if self._error is None:
            self._error = error
        self._inbox.end()


class Replay(Sequence["Update"]):
    """The updates that `session/load` replayed, in order; decoded when accessed."""

    def __init__(self, raws: Sequence[bytes] = ()) -> None:
        self._raws = list(raws)

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, place: int) -> Update: ...
    @overload
    def __getitem__(self, place: slice) -> Replay: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Replay(self._raws[place])
        return typed(self._raws[place])

    def __iter__(self) -> Iterator[Update]:
        return map(typed, self._raws)
