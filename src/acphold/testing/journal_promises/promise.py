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
from linecache import getline
from pathlib import Path
from traceback import StackSummary, walk_tb
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

        The error says which promise is broken, and what does not hold, with the values in it.

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
            try:
                await self.keep(**{name: given[name] for name in wanted})
            except AssertionError as error:
                raise AssertionError(_broken(self.name, error)) from error


def _broken(name: str, error: AssertionError) -> str:
    """Say which promise is broken, by which line, and the values that it names."""
    files = [(Path(it[0].f_code.co_filename), it) for it in walk_tb(error.__traceback__)]
    path, at = [it for it in files if it[0].parent == _HERE.parent and it[0] != _HERE][-1]
    [place] = StackSummary.extract([at])
    lines = range(at[1], (place.end_lineno or at[1]) + 1)
    code = " ".join(getline(place.filename, number).strip() for number in lines)
    told = [f"The store breaks a promise: {name}.", f"{path.name}, line {at[1]}: {code}"]
    if said := str(error).split("\n")[0]:
        told.append(f"    {said}")
    told += [
        f"    {it} = {repr(value)[:LONGEST]}"
        for it, value in at[0].f_locals.items()
        if re.search(rf"\b{it}\b", code)
    ]
    return "\n".join(told)


_HERE: Final = Path(__file__)

LONGEST: Final = 400
"""Characters of a value in the message of a broken promise, at most."""


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
