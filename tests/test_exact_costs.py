"""What a prompt costs, exactly: see `bench.exact`."""

from __future__ import annotations

import sys

import pytest

from bench.exact import PAUSE, THREAD_SECONDS, Cost, measure

BYTECODES = {
    ("hub", "prompt"): 5_756,
    ("hub", PAUSE): 6_431,
    ("hub", "prompt with ten updates"): 8_639,
    ("hub", "prompt with ten updates apart"): 22_653,
    ("hub", "load of 1,000"): 32_149,
    ("hub", "one more client"): 9_989,
    ("library", "prompt"): 5_297,
    ("library", PAUSE): 5_963,
    ("library", "prompt with ten updates"): 7_722,
    ("library", "prompt with ten updates apart"): 28_828,
    ("library", "load of 1,000"): 32_124,
    ("library", "one more client"): 9_072,
}
"""Bytecodes until the answer, on Python 3.11. Whoever changes one says in the commit why it had to
rise; one that fell is lowered here, so that it stays so."""

STEPS = {
    "prompt": (134, 156),
    PAUSE: (386, 408),
    "prompt with ten updates": (185, 200),
    "prompt with ten updates apart": (644, 666),
    "load of 1,000": (768, 768),
    "one more client": (185, 200),
}
"""Steps of SQLite's machine until the answer: of a hub, and of an agent of the library."""

EXACT = 0.01
"""Two runs differ by less, as a part; on a busy machine the loop is woken by a thread once more."""

ATTEMPTS = 4
"""Each leaves threads twice the time of the one before: on a busy machine they need it."""

OTHER_PYTHONS = 1.25
"""Bytecodes of another minor version than 3.11, as a multiple, at most."""


@pytest.mark.parametrize(("kind", "work"), BYTECODES)
def test_the_cost_of_a_prompt_is_that_of_the_table(kind: str, work: str) -> None:
    expected, steps = BYTECODES[kind, work], STEPS[work][kind == "library"]

    def is_expected(cost: Cost) -> bool:
        is_same = abs(cost.bytecodes - expected) <= EXACT * expected
        if sys.version_info[:2] != (3, 11):
            is_same = cost.bytecodes <= OTHER_PYTHONS * expected
        return is_same and abs(cost.steps - steps) <= max(1, EXACT * steps)

    costs: list[Cost] = []
    while not costs or (not is_expected(costs[-1]) and len(costs) < ATTEMPTS):
        costs.append(measure(kind, work, THREAD_SECONDS * 2 ** len(costs)))
    assert is_expected(costs[-1]), (
        f"bytecodes {[it.bytecodes for it in costs]}, the table has {expected}; "
        f"steps {[it.steps for it in costs]}, it has {steps}; dearest: {costs[-1].dearest}"
    )
