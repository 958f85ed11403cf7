"""What a promise of a journal is, and how it is written down.

A promise is a function that is given a `journal` nobody has used; one that asks for `other` gets
the same as another owner has it, and one for `again` what opens it once more.
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
"""Opens a journal, each time the same one, and each time as another owner."""

SECONDS: Final = 60.0
"""What any promise may take; one that hangs is broken."""

Keep = TypeVar("Keep", bound=Callable[..., Awaitable[None]])
E = TypeVar("E", bound=BaseException)


class JournalPromise(Struct, frozen=True):
    """One thing that a journal promises; `name` says which."""

    name: str
    keep: Callable[..., Awaitable[None]]
    given: dict[str, object] = {}

    async def check(self, open_journal: OpenJournal) -> None:
        """See that it is kept; AssertionError where it is not, TimeoutError where nothing comes.

        `open_journal` opens a journal that is empty at first, and that no other promise is checked
        with; what it returns is closed here.
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
"""Everything that a journal promises, once the modules beside this one are imported."""


def promised(keep: Keep) -> Keep:
    """Note what this function is called as a promise, which it keeps or not."""
    PROMISED.append(JournalPromise(keep.__name__.replace("_", " "), keep))
    return keep


def each(names: tuple[str, ...] | str, cases: list[Any]) -> Callable[[Keep], Keep]:
    """Check what is promised below with each of these values."""

    def in_each(keep: Keep) -> Keep:
        promise = PROMISED.pop()
        for number, case in enumerate(cases, 1):
            given = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
            PROMISED.append(JournalPromise(f"{promise.name} ({number})", keep, given))
        return keep

    return in_each


class Caught:
    """What was raised, once it was."""

    value: Any = None


@contextmanager
def raises(*kinds: type[BaseException], match: str = "") -> Iterator[Caught]:
    """A block that raises one of these, with words that fit `match`; else AssertionError."""
    caught = Caught()
    try:
        yield caught
    except kinds as error:
        caught.value = error
    else:
        raise AssertionError(f"raised no {' or '.join(kind.__name__ for kind in kinds)}")
    told = str(caught.value)
    assert re.search(match, told), f"{told!r} does not say {match!r}"
