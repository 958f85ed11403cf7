"""The steps between snapshots, and the turns in which each may lie."""

from __future__ import annotations

from typing import Literal

import pytest

from acphold.conversation.history.entries import TurnSpan
from acphold.journal.seams import Numbered, SnapshotState, TurnSnapshot
from acphold.live.origins.kept_changes import _gaps, steps


def row(turn: int, edge: Literal["begin", "end"], at: int, state: SnapshotState) -> Numbered:
    taken = TurnSnapshot(turn=turn, edge=edge, root="/", at=at, state=state, tree=f"{at}")
    return Numbered(turn, taken)


@pytest.mark.parametrize(("last", "turns"), [("whole", (1, 2, 3)), ("late", (1, 2, 3, 4))])
def test_a_late_snapshot_that_turns_share_may_have_the_changes_of_all_of_them(
    last: SnapshotState, turns: tuple[int, ...]
) -> None:
    shared = [row(1, "end", 2, "late")]
    shared += [row(turn, edge, 2, "late") for turn in (2, 3) for edge in ("begin", "end")]
    shared[-1:] = [row(3, "end", 2, last), row(4, "begin", 2, last)]
    first, *others = steps([row(1, "begin", 1, "late"), *shared, row(4, "end", 3, "whole")], 4)
    assert first.turns == turns
    assert others[-1].turns == (4,)


def test_of_one_turn_it_is_said_what_was_not_kept_of_it_alone() -> None:
    spans = [TurnSpan(1, 1, 2), TurnSpan(2, 3, 4)]
    assert [*_gaps([], spans, None)] == ["turns 1-2: no files were kept"]
    assert [*_gaps([], spans, 2)] == ["turn 2: no files were kept"]
