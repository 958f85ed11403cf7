"""Figures and the table they are printed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import IO

from msgspec import Struct

WIDTHS = (54, 19, 37, 8, 19)
"""Columns: figure, ours, beside, ratio, goal."""


class Goal(Struct, frozen=True):
    """A bound for the median (in the figure's unit) or for the ratio to the peer."""

    bound: float
    ratio: bool = False
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}{'x' if self.ratio else ''}"


class Figure(Struct, frozen=True):
    """One line: our samples and, round by round, those of the peer.

    With `paired` sample i of ours was taken right beside sample i of theirs, and the ratio is the
    median of the ratios; else it is the ratio of the medians.
    """

    name: str
    unit: str
    ours: Sequence[float]
    peer: str = ""
    theirs: Sequence[float] = ()
    goals: Sequence[Goal] = ()
    paired: bool = True
    higher_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """Ours to theirs; None without a peer."""
        if not self.theirs:
            return None
        if not self.paired:
            return median(self.ours) / median(self.theirs)
        return median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def missed(self) -> list[Goal]:
        """The goals that are not met."""
        ratio = self.ratio
        return [
            goal
            for goal in self.goals
            if (value := ratio if goal.ratio else median(self.ours)) is not None
            and not goal.met(value)
        ]


class Table:
    """Prints each figure as it comes; `missed` counts those that miss a goal."""

    def __init__(self, out: IO[str]) -> None:
        self.missed = 0
        self._out = out
        self._row("figure (best / median)", "ours", "beside", "ratio", "goal", "")
        self._row(*("-" * width for width in WIDTHS), "---")

    def add(self, figure: Figure) -> None:
        """Print one figure."""
        missed = figure.missed
        self.missed += bool(missed)
        ratio = figure.ratio
        self._row(
            f"{figure.name}, {figure.unit}",
            _pair(figure.ours, best=max if figure.higher_is_better else min),
            _beside(figure),
            "" if ratio is None else f"{_number(ratio)}x",
            ", ".join(map(str, figure.goals)),
            ("MISSED" if missed else "ok") if figure.goals else "",
        )

    def end(self) -> None:
        """Say how it went."""
        print(f"\n{self.missed} missed" if self.missed else "\nall goals met", file=self._out)

    def _row(self, *cells: str) -> None:
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], WIDTHS, strict=True)]
        print("  ".join([*padded, cells[-1]]).rstrip(), file=self._out, flush=True)


def _beside(figure: Figure) -> str:
    if not figure.theirs:
        return figure.peer
    best = max if figure.higher_is_better else min
    return f"{_pair(figure.theirs, best=best)} {figure.peer}"


def _pair(samples: Sequence[float], best: Callable[[Sequence[float]], float]) -> str:
    return f"{_number(best(samples))} / {_number(median(samples))}"


def _number(value: float) -> str:
    """Three digits that mean something."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.4f}"
