"""The way from one snapshot of a session to the next: in a turn, or between two.

    begin 1 ──────▶ end 1 ──────▶ begin 2 ──────▶ end 2
             turn 1       between          turn 2

A snapshot that was refused or late makes a step that nobody can tell to be in one turn alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from acphold.history.turn_spans import TurnSpan
from acphold.journal.snapshots import TurnSnapshot


class Step(Struct, frozen=True):
    """From a snapshot to the next one of the same folder.

    `turns` are the numbers of those turns in which it may lie; none if it lies between two. It
    `is_sure` if all of it lies in that turn, or between.
    """

    before: TurnSnapshot
    after: TurnSnapshot
    turns: tuple[int, ...]
    between: tuple[int, int]
    is_sure: bool

    @property
    def words(self) -> str:
        """The time of the step, in words: "turn 2", "between turns 1 and 2"."""
        first, last = self.between
        if not self.turns:
            return f"between turns {first} and {last}"
        if self.is_sure:
            return f"turn {self.turns[0]}"
        if len(self.turns) == 1:
            after = (self.after.edge, self.after.state)
            around = ["before"] if self.before.edge == "end" else []
            around += ["after"] if after not in (("end", "whole"), ("begin", "late")) else []
            return f"turn {self.turns[0]}, or {' or '.join(around)} it"
        return f"turns {self.turns[0]} to {self.turns[-1]}, or between them"


class Numbered(Struct, frozen=True):
    """A snapshot and the number of its turn."""

    turn: int
    snapshot: TurnSnapshot


def numbered(rows: Sequence[TurnSnapshot], spans: Sequence[TurnSpan]) -> list[Numbered]:
    """Return snapshots with the numbers of their turns, in order; a row names the last entry
    before the prompt: it is of the first turn that begins behind it."""
    firsts = [span.first for span in spans]
    found = [(bisect_right(firsts, one.turn), one) for one in sorted(rows, key=lambda it: it.order)]
    return [Numbered(spans[at].number, one) for at, one in found if at < len(spans)]


def steps(rows: Sequence[Numbered], count: int) -> list[Step]:
    """Return the steps between the kept snapshots of one folder and one store; the session has so
    many turns."""
    return [_step(*pair, count) for pair in pairwise(it for it in rows if it.snapshot.is_kept)]


def _step(one: Numbered, two: Numbered, count: int) -> Step:
    before, after = one.snapshot, two.snapshot
    ends = (one.turn, two.turn)
    # A late snapshot was taken when the agent was at work again already.
    is_late = after.state == "late"
    if (before.edge, after.edge) == ("begin", "end") and one.turn == two.turn:
        last = min(one.turn + is_late, count)
        return Step(before, after, tuple(range(one.turn, last + 1)), ends, after.state == "whole")
    if (before.edge, after.edge) == ("end", "begin") and one.turn + 1 == two.turn:
        turns = (two.turn,) if is_late else ()
        return Step(before, after, turns, ends, not is_late)
    first = one.turn if before.edge == "begin" else one.turn + 1
    last = two.turn if after.edge == "end" or is_late else two.turn - 1
    return Step(before, after, tuple(range(first, last + 1)), ends, False)
