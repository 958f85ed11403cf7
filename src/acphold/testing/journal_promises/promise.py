"""The definition of a journal's promise, and a way to write one down.

A promise is a function that gets a new `journal`; one with a parameter `other` also gets the same
journal as another owner, and one with `again` a function that opens it once more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from inspect import isawaitable, signature
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from acphold.journal import Journal

OpenJournal: TypeAlias = Callable[[], Journal | Awaitable[Journal]]
"""Opens a journal, always the same one, and each time as another owner."""

SECONDS: Final = 60.0
"""Longest time for any promise, in seconds; one that hangs is broken."""

Keep = TypeVar("Keep", bound=Callable[..., Awaitable[None]])
E = TypeVar("E", bound=BaseException)


class JournalPromise(Struct, frozen=True):
    """One promise of a journal; `name` identifies it."""

    name: str
    keep: Callable[..., Awaitable[None]]
    given: dict[str, object] = {}

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
            given = {"journal": await again(), **self.given}
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


def each(names: tuple[str, ...] | str, cases: list[Any]) -> Callable[[Keep], Keep]:
    """Check the promise below with each of these values."""

    def in_each(keep: Keep) -> Keep:
        promise = PROMISED.pop()
        for number, case in enumerate(cases, 1):
            given = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
            PROMISED.append(JournalPromise(f"{promise.name} ({number})", keep, given))
        return keep

    return in_each


class Caught:
    """Holds a raised exception."""

    value: Any = None


@contextmanager
def raises(*kinds: type[BaseException], match: str = "") -> Iterator[Caught]:
    """Expect the block to raise one of these, matching `match`; else AssertionError."""
    caught = Caught()
    try:
        yield caught
    except kinds as error:
        caught.value = error
    else:
        raise AssertionError(f"raised no {' or '.join(kind.__name__ for kind in kinds)}")
    told = str(caught.value)
    assert re.search(match, told), f"{told!r} does not say {match!r}"
