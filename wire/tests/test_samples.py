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
"""


def chosen(number: int) -> list[str]:
    return [*compress(NAMES, choose(NAMES, 3, number))]


def test_each_test_is_tried_once_in_as_many_commits_on_end() -> None:
    tried = [name for number in (7, 8, 9) for name in chosen(number)]
    assert sorted(tried) == sorted(NAMES)


def test_a_test_with_many_cases_is_tried_at_each_commit() -> None:
    for number in range(3):
        assert 2 <= sum("one_of_many" in name for name in chosen(number)) <= 3


def test_each_commit_tries_about_as_many_as_another() -> None:
    assert all(80 <= len(chosen(number)) <= 125 for number in range(3))


def test_a_test_that_has_failed_is_repeated_whichever_part_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "test_nine.py").write_text(NINE)

    def tried(*options: str, **env: str) -> str:
        told = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "tests.plugin", *options],
            cwd=tmp_path,
            env={**os.environ, "ONE_IN": "3", "PYTHONPATH": str(WIRE), **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return told.stdout.splitlines()[-1]

    assert tried().startswith("1 failed, 2 passed, 6 deselected")
    assert tried("--last-failed", PASSES="yes").startswith("1 passed")
