"""Methods of a journal that are the same in every store, and a maker of methods from functions."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from acphold.errors import LeaseLostError
from acphold.history.entries import Run, Segment
from acphold.journal.in_file import InFile
from acphold.journal.journal import Append, Journal, Lease, RowChange
from acphold.journal.transcripts import Transcripts

Kept = TypeVar("Kept")
T = TypeVar("T")
P = ParamSpec("P")


class Through(Generic[Kept]):
    """Turns functions on tables, or on records, into methods; the method `runner` runs them."""

    def __init__(self, runner: str) -> None:
        self._runner = runner

    def __call__(
        self, work: Callable[Concatenate[Kept, P], T]
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
        runner = self._runner

        async def method(its: Any, /, *args: P.args, **named: P.kwargs) -> T:
            done: T = await getattr(its, runner)(lambda kept: work(kept, *args, **named))
            return done

        return method


class StoredJournal(Journal, ABC):
    """A journal without a file; `_transcripts` reads what an import has only listed."""

    file: InFile | None = None
    _transcripts: Transcripts

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        [done] = await self.append_all([Append(lease, [*runs], change)])
        if isinstance(done, LeaseLostError):
            raise done
        return done

    async def complete(self, session_id: str) -> None:
        await self._transcripts.complete(session_id)
