"""The definition of a journal's promise, a way to write one down, and contents for its sessions.

A promise is a function that gets a new `journal`; one with a parameter `other` also gets the same
journal as another owner, and one with `again` a function that opens it once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from inspect import isawaitable, signature
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from acphold.conversation.history.entries import PastEntry
from acphold.journal.journal import Journal, Lease
from acphold.journal.rows import NewSession, RowChange
from tests.conversations import chunk, encode

OpenJournal: TypeAlias = Callable[[], Journal | Awaitable[Journal]]
"""Opens a journal, always the same one, and each time as another owner."""

SECONDS: Final = 60.0
"""The longest that a promise may take; one that hangs is broken."""

Keep = TypeVar("Keep", bound=Callable[..., Awaitable[None]])


class JournalPromise(Struct, frozen=True):
    """One promise of a journal; `name` identifies it."""

    name: str
    keep: Callable[..., Awaitable[None]]

    async def check(self, open_journal: OpenJournal) -> None:
        """Check the promise; raises AssertionError if it is broken, TimeoutError if it hangs.

        `open_journal` opens a journal that is empty at first and used for no other promise; the
        opened journals are closed here.
        """

        async def again() -> Journal:
            opened = open_journal()
            journal = await opened if isawaitable(opened) else opened
            stack.push_async_callback(journal.aclose)
            return journal

        async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
            wanted = signature(self.keep).parameters
            given: dict[str, object] = {"journal": await again()}
            if "other" in wanted:
                given["other"] = await again()
            if "again" in wanted:
                given["again"] = again
            await self.keep(**{name: given[name] for name in wanted})


PROMISED: Final[list[JournalPromise]] = []
"""All promises of a journal, once the modules beside this one are imported."""


def promised(keep: Keep) -> Keep:
    """Register this function as a promise."""
    PROMISED.append(JournalPromise(keep.__name__.replace("_", " "), keep))
    return keep


Pieces = list[tuple[str, list[bytes]]]


def turn(prompt: str, *updates: object) -> Pieces:
    """Return a whole turn, each update appended by itself."""
    return [
        ("prompt", [encode([{"type": "text", "text": prompt}])]),
        *[("update", [encode(update)]) for update in updates],
        ("turn_end", [b'{"stopReason":"end_turn"}']),
    ]


async def append(journal: Journal, lease: Lease, pieces: Pieces) -> int:
    """Append all; return the number of the last entry."""
    for kind, raws in pieces:
        await journal.append(lease, [(kind, raws)])
    return lease.next_seq - 1


async def begun(journal: Journal, session_id: str = "s1", agent: str = "a") -> Lease:
    """Make a new session."""
    return await journal.create(NewSession(session_id, agent, "/w"))


def past(pieces: Pieces) -> list[PastEntry]:
    """Return these as past entries, a second apart."""
    raws = [(kind, raw) for kind, raws in pieces for raw in raws]
    return [PastEntry(kind, 1000 * n, raw) for n, (kind, raw) in enumerate(raws, 1)]


def used(total: int, **more: int) -> dict[str, Any]:
    """Return the `usage` of an answer."""
    return {"usage": {"inputTokens": total - 10, "outputTokens": 10, "totalTokens": total, **more}}


def cost(amount: float, currency: str = "USD") -> tuple[str, bytes]:
    """Return a `usage_update`."""
    paid = {"amount": amount, "currency": currency}
    update = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": paid}
    return "update", encode(update)


async def put(
    journal: Journal,
    session_id: str,
    updated_at: int,
    *,
    agent: str = "a",
    cwd: str = "/w",
    prompted: bool = True,
) -> None:
    """Put a session into the list."""
    lease = await journal.create(NewSession(session_id, agent, cwd, created_at=updated_at))
    await journal.change(lease, RowChange(prompted=prompted))


async def said(
    journal: Journal, session_id: str, *values: object, agent: str = "a", cwd: str = "/w"
) -> None:
    """Make a settled session with these updates, after a prompt if one is a list."""
    lease = await journal.create(NewSession(session_id, agent, cwd))
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, [(kind, [encode(value)])])
    await journal.settle(lease, lease.next_seq - 1)


async def found(journal: Journal, words: str) -> list[tuple[str, int]]:
    """Return the places of the words."""
    return [(hit.session_id, hit.seq) for hit in await journal.index.search(words)]


async def told(journal: Journal, session_id: str, *times: int) -> None:
    """Make an imported session: an entry at each of these times (ms)."""
    lease = await journal.create(NewSession(session_id, "a", "/w"))
    raws = [encode(chunk("agent_message", f"word{n}", messageId=str(n))) for n in range(len(times))]
    past = [PastEntry("update", at, raw) for at, raw in zip(times, raws, strict=True)]
    await journal.take_in(lease, past)


async def running(journal: Journal, session_id: str, *values: object, cwd: str = "/w") -> None:
    """Make a session with an unsettled last turn, as if its process had been killed."""
    lease = await journal.create(NewSession(session_id, "a", cwd))
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, [(kind, [encode(value)])], RowChange(prompted=True))


def text(words: str) -> list[object]:
    return [{"type": "text", "text": words}]
