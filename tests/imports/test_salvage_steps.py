"""What is damaged takes steps that grow with its length, and a budget ends them."""

from __future__ import annotations

import pytest

from acphold.imports.salvage import (
    OBJECT_STEPS,
    STEPS_PER_BYTE,
    LineSalvage,
    RecordLine,
    RowForm,
    salvage_document,
)
from acphold.imports.values import Missed
from acphold.safety.budget import Budget
from tests.slow_texts import SLOW

ROWS = ('{"uuid":1,"of":"s1"}', '{"uuid":1}', '"}', '{"a":{},', '{"uuid":"')


@pytest.mark.parametrize("of", ["", "of"])
@pytest.mark.parametrize("piece", [*SLOW, *ROWS])
def test_twice_the_damage_takes_about_twice_the_steps(piece: str, of: str) -> None:
    lines, documents = list[int](), list[int]()
    for size in (10_000, 20_000):
        raw = (piece * (size // len(piece))).encode() + b"\n"
        salvage = LineSalvage("/s1", RowForm(frozenset({"uuid"}), of), Missed())
        list(salvage.take(RecordLine(0, raw), b'{"of":"s1"}', 1 << 20))
        lines.append(salvage.budget.spent)
        budget = Budget(10**9)
        salvage_document(b"[" + raw, budget)
        documents.append(budget.spent)
    for one, twice in (lines, documents):
        assert twice <= 2.5 * one + OBJECT_STEPS


def test_of_four_million_objects_in_a_line_as_many_are_taken_as_there_are_steps_for() -> None:
    raw = b"{}" * 2_000_000
    salvage = LineSalvage("/s1", RowForm(frozenset()), missed := Missed())
    taken = list(salvage.take(RecordLine(0, raw), b"", 1 << 23))
    assert 0 < len(taken) <= STEPS_PER_BYTE * len(raw) / OBJECT_STEPS + 10_000
    assert missed.sizes == {"lines that are not JSON objects": len(raw) - 2 * len(taken)}


def test_of_a_damaged_document_as_many_items_are_taken_as_there_are_steps_for() -> None:
    raw = b"[" + b"{}," * 5 + b"{"
    assert salvage_document(raw, Budget(3 * (OBJECT_STEPS + 2))) == ([{}] * 3, 7)
