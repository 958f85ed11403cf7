"""A part of the tests at each commit."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import compress
from pathlib import Path

from tests.samples import choose

WIRE = Path(__file__).parents[1]

NAMES = [
    *(f"test_a.py::test_one_of_many[{case}]" for case in range(7)),
    *(f"test_a.py::test_with_two_cases[{case}]" for case in ("x[1]", "y")),
    *(f"test_b.py::test_alone_{number}" for number in range(300)),
]

NINE = """
import os, pytest

@pytest.mark.parametrize("case", range(9))
def test_of_nine(case):
    assert case < 6 or "PASSES" in os.environ

@pytest.mark.skipif(os.name == "nt", reason="a file has no owner")
def test_that_may_be_skipped():
    pass
"""


def chosen(number: int) -> list[str]:
    return [*compress(NAMES, choose(NAMES, 3, number))]


def test_each_test_has_its_turn_once_in_three_numbers_in_a_row() -> None:
    tried = [name for number in (7, 8, 9) for name in chosen(number)]
    assert sorted(tried) == sorted(NAMES)


def test_of_a_test_with_many_cases_some_have_their_turn_at_each_number() -> None:
    for number in range(3):
        assert 2 <= sum("one_of_many" in name for name in chosen(number)) <= 3


def test_about_as_many_have_their_turn_at_each_number() -> None:
    assert all(80 <= len(chosen(number)) <= 125 for number in range(3))


def test_a_test_that_failed_last_or_may_be_skipped_is_run_each_time(tmp_path: Path) -> None:
    (tmp_path / "test_nine.py").write_text(NINE)

    def tried(**env: str) -> str:
        told = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "tests.plugin"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(WIRE), **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return told.stdout.splitlines()[-1]

    assert tried(ONE_IN="1").startswith("3 failed, 7 passed")
    # One of the three that failed is among the three that have their turn.
    assert tried(ONE_IN="3", PASSES="yes").startswith("6 passed, 4 deselected")
    assert tried(ONE_IN="3", PASSES="yes").startswith("4 passed, 6 deselected")
