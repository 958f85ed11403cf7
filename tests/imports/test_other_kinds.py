"""Clocks that go back, and prompts at one time, in the form of every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.imports import reader
from tests.imports.every_reader import READERS, Said, found, write
from tests.imports.told import Story

BEGUN = 1_767_322_800_000


def told(name: str, home: Path, turns: list[Said]) -> list[str]:
    write(name, home, turns)
    (source,) = found(name, home)
    return [words for _, words in Story(reader(name), source).said()]


@pytest.mark.parametrize("name", READERS)
def test_a_clock_that_goes_back_changes_no_order(tmp_path: Path, name: str) -> None:
    times = (60_000, 120_000, 5_000, 180_000)
    turns = [Said(n, BEGUN + at, f"Q{n}", f"A{n}") for n, at in enumerate(times)]
    assert told(name, tmp_path, turns) == ["Q0", "A0", "Q1", "A1", "Q2", "A2", "Q3", "A3"]


@pytest.mark.parametrize("name", READERS)
def test_equal_prompts_at_one_time_are_all_told(tmp_path: Path, name: str) -> None:
    turns = [Said(n, BEGUN, "continue", "Done.") for n in range(1, 6)]
    assert told(name, tmp_path, turns) == ["continue", "Done."] * 5
