"""The outcomes of an import, counted and reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from acphold.cli.terminal_text import counted, on_one_line, size
from acphold.errors import AcpholdError, IllegibleNameError, TranscriptError
from acphold.imports import OUTCOMES, Source, TakenSource


class Tally:
    """The outcomes of one agent's sources."""

    def __init__(self, told: Collection[str] = ()) -> None:
        """`told` are failures that were reported before: they are not reported again."""
        self.outcomes: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.missed_bytes: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.compressed = 0
        self._failures: dict[str, None] = {}
        self._told = frozenset(told)

    def next(self) -> Tally:
        """Return a new tally for the next look at the same sources."""
        return Tally({*self._told, *self._failures})

    @property
    def found(self) -> int:
        """The number of conversations; files without any message do not count."""
        return self.outcomes.total() - self.outcomes["empty"] + len(self._failures)

    @property
    def has_news(self) -> bool:
        """True if something was imported, or could not be."""
        news = ("new", "apart", "grown")
        return any(self.outcomes[word] for word in news) or bool(self._failures)

    @contextmanager
    def counting(self, source: Source) -> Iterator[Callable[..., None]]:
        """Yield a function that takes the outcome of the source; counts an unreadable source."""
        try:
            yield self._count
        except (OSError, TranscriptError, IllegibleNameError) as error:
            self.failed(error, source.paths[0])

    def _count(self, taken: TakenSource) -> None:
        self.outcomes[taken.outcome] += 1
        self.missed.update(taken.missed)
        self.missed_bytes.update(taken.missed_bytes)
        self.removed.update(taken.removed)

    def failed(self, error: OSError | AcpholdError, path: str) -> None:
        """Count a source that could not be read."""
        where, why = path, str(error)
        if isinstance(error, OSError):
            where, why = str(error.filename or path), error.strerror or why
        failure = f"{on_one_line(where)}: {on_one_line(why)}"
        if failure not in self._told:
            self._failures[failure] = None

    def json(self) -> dict[str, object]:
        return {
            "found": self.found,
            **{word: self.outcomes[word] for word in OUTCOMES},
            "failed": len(self._failures),
            "compressed": self.compressed,
            "failures": list(self._failures),
            "missed": dict(self.missed),
            "missedBytes": dict(self.missed_bytes),
            "removed": dict(self.removed),
        }

    def line(self, *, dry: bool) -> str:
        told = [
            f"{meaning} {self.outcomes[word]:,}"
            for word, meaning in OUTCOMES.items()
            if self.outcomes[word]
        ]
        if self._failures:
            told.append(f"unreadable {len(self._failures):,}")
        what = counted(self.found, "conversation")
        packed = f"   ({self.compressed:,} compressed)" if self.compressed else ""
        return f"{what:>22}   {'would be ' if dry else ''}{', '.join(told)}{packed}"

    def messages(self) -> list[str]:
        """Return lines about unreadable, unknown and removed content."""
        messages = [f"cannot read {failure}" for failure in self._failures]
        if self.missed:
            most = [f"{what} ({count:,})" for what, count in self.missed.most_common(5)]
            more = f" and {len(self.missed) - 5} more kinds" if len(self.missed) > 5 else ""
            how_much = size(self.missed_bytes.total())
            messages.append(f"passed over {on_one_line(', '.join(most))}{more}: {how_much}")
        if self.removed:
            kinds = [f"{kind} {count:,}" for kind, count in self.removed.most_common()]
            messages.append(f"taken out: {on_one_line(', '.join(kinds))}")
        return messages
