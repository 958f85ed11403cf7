"""Redacted entries of a session for others to see, and a list of what was removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_wire.errors import AcpError
from acp_wire.surroundings import Surroundings
from acphold.conversation.exports.forms import Head
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.message_chunks import Messages
from acphold.conversation.presentation.visible_text import visible_json
from acphold.safety.budget import Budget
from acphold.safety.errors import OutOfStepsError, RedactionError
from acphold.safety.redaction.redactor import Redactor

STEPS: Final = 10_000_000
STEPS_PER_BYTE: Final = 10_000
"""Steps to redact a session, and for each byte of it: a hundred are usual, and a text that is made
to be slow takes a thousand."""

Read = Callable[[], AsyncIterable[Entry]]
"""Returns the entries of a session, from the start at each call."""


class Removed(Struct, frozen=True):
    """The number of removals of one kind in an entry; `seq` 0 is the session's head.

    It does not contain the removed text.
    """

    session: str
    seq: int
    kind: str
    count: int

    def line(self) -> str:
        """Return it as a line of JSON."""
        return visible_json(msgspec.json.encode(self).decode()) + "\n"


class Redaction:
    """Redacts sessions; `removed` lists the removals."""

    def __init__(self) -> None:
        self.removed: list[Removed] = []

    async def of(self, head: Head, read: Read) -> tuple[Head, AsyncIterator[Entry]]:
        """Return the redacted head and entries of a session; raises RedactionError.

        Entries that are added meanwhile are left out.
        """
        facts = msgspec.to_builtins(head)
        with _failing_closed(head.session_id):
            redactor = await redactor_of(facts, read)
            shown = msgspec.convert(redactor.value(facts), Head)

        async def entries() -> AsyncIterator[Entry]:
            with _failing_closed(head.session_id):
                async for place, entry in _first(redactor.count, read()):
                    if (raw := redactor.redact(place, entry)) is not None:
                        yield replace(entry, raw=raw)
            self.removed += [
                Removed(head.session_id, seq, kind, count)
                for (seq, kind), count in sorted(redactor.removed.items())
            ]

        return shown, entries()

    def summary(self) -> list[tuple[str, int]]:
        """Return each kind with its number of removals, most first."""
        kinds: Counter[str] = Counter()
        for removed in self.removed:
            kinds[removed.kind] += removed.count
        return kinds.most_common()


def budget_of_session() -> Budget:
    """Return the budget for a session that a person exports, or imports without its secrets."""
    return Budget(STEPS, STEPS_PER_BYTE)


async def redactor_of(facts: object, read: Read) -> Redactor:
    """Return the redactor for a session's entries and these facts about it; raises RedactionError
    and OutOfStepsError."""
    redactor = Redactor(Surroundings.here().home, Messages, budget_of_session())
    redactor.learn_value(facts)
    async for entry in read():
        redactor.look(entry)
    while not redactor.is_done():
        async for _, entry in _first(redactor.count, read()):
            redactor.look(entry)
    return redactor


async def _first(count: int, entries: AsyncIterable[Entry]) -> AsyncIterator[tuple[int, Entry]]:
    """Yield the first `count` entries, numbered from 0."""
    place = 0
    async for entry in entries:
        if place == count:
            break
        yield place, entry
        place += 1


@contextmanager
def _failing_closed(session_id: str) -> Iterator[None]:
    """Turn any failure of the search into RedactionError, so that nothing is written."""
    try:
        yield
    except (RedactionError, OutOfStepsError) as error:
        raise RedactionError(f"session {session_id!r} was left out: {error}") from None
    except (AcpError, GeneratorExit):
        raise
    except Exception as error:
        raise RedactionError(
            f"session {session_id!r} cannot be searched for secrets and was not written: "
            f"{type(error).__name__}; please report this"
        ) from error
