"""The entries of a session as others may see them, and what was taken out for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from acphold.errors import AcpholdError, RedactionError
from acphold.exports.session_head import Head
from acphold.exports.visible_text import visible_json
from acphold.journal import Entry
from acphold.redaction.redactor import Redactor, Removal, units

Read = Callable[[], AsyncIterable[Entry]]
"""Reads the entries of a session, as often as it is called."""


class Removed(Struct, frozen=True):
    """How much of a kind was taken out of an entry; `seq` 0 is the session's head.

    What it was is nowhere in it.
    """

    session: str
    seq: int
    kind: str
    count: int

    def line(self) -> str:
        """As a line of JSON."""
        return visible_json(msgspec.json.encode(self).decode()) + "\n"


class Redaction:
    """Takes out of sessions what nobody else should read; `removed` tells what that was."""

    def __init__(self) -> None:
        self.removed: list[Removed] = []

    async def of(self, head: Head, read: Read) -> tuple[Head, AsyncIterator[Entry]]:
        """The head and the entries of a session without it; raises RedactionError."""
        redactor = Redactor()
        facts = msgspec.to_builtins(head)
        with _failing_closed(head.session_id):
            redactor.learn_value(facts)
            async for unit in units(read()):
                redactor.learn(unit)
            shown = msgspec.convert(redactor.value(facts), Head)
        return shown, self._entries(redactor, head.session_id, read)

    async def _entries(
        self, redactor: Redactor, session_id: str, read: Read
    ) -> AsyncIterator[Entry]:
        with _failing_closed(session_id):
            async for unit in units(read()):
                for entry in redactor.entries(unit):
                    yield entry
        self._note(session_id, redactor.removed)

    def _note(self, session_id: str, removed: Counter[Removal]) -> None:
        self.removed += [
            Removed(session_id, seq, kind, count) for (seq, kind), count in sorted(removed.items())
        ]

    def summary(self) -> list[tuple[str, int]]:
        """Each kind, and how much of it was taken out, most first."""
        kinds: Counter[str] = Counter()
        for removed in self.removed:
            kinds[removed.kind] += removed.count
        return kinds.most_common()


@contextmanager
def _failing_closed(session_id: str) -> Iterator[None]:
    """Whatever goes wrong with looking through a session, it is not written."""
    try:
        yield
    except (AcpholdError, GeneratorExit):
        raise
    except Exception as error:
        raise RedactionError(
            f"session {session_id!r} cannot be looked through for secrets and was not written: "
            f"{type(error).__name__}; please report this"
        ) from error
