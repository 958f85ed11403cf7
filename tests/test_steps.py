"""Readers of what others wrote take steps that grow with its length, and end with their budget."""

from __future__ import annotations

import pytest

from acphold.conversation.history.title_rules import TOO_LONG, title_by_rule
from acphold.conversation.reports.line_changes import CLOSE_STEPS, hunks
from acphold.journal.hits import STEPS, excerpt, patterns_of, terms
from acphold.safety.budget import Budget
from acphold.safety.errors import OutOfStepsError
from tests.slow_texts import SLOW


def title(text: str, budget: Budget) -> None:
    title_by_rule(text, budget)


def diff(text: str, budget: Budget) -> None:
    lines = text.splitlines()
    list(hunks([*lines, "a"], ["b", *lines, "c"], 0, budget))


@pytest.mark.parametrize("piece", SLOW)
@pytest.mark.parametrize("read", [title, diff])
def test_twice_the_text_takes_about_twice_the_steps(read: object, piece: str) -> None:
    assert callable(read)
    spent = []
    for size in (16_000, 32_000):
        budget = Budget(10**12 if read is title else CLOSE_STEPS)
        read(piece * (size // len(piece)), budget)
        spent.append(budget.spent)
    assert spent[1] <= 2.5 * spent[0] + 100_000


def test_a_prompt_that_takes_too_many_steps_has_a_title_that_says_so() -> None:
    said = "Use sk-ant-api03-abCD12efGH34ijKL56mnOP78 to mend the lamp"
    enough = Budget(10**9)
    assert title_by_rule(said, enough) == "Use [removed: API key] to mend the lamp"
    for steps in range(0, enough.spent, 50):
        assert title_by_rule(said, Budget(steps)) == TOO_LONG


def test_a_diff_without_steps_shows_all_lines_as_changed() -> None:
    (lines,) = hunks([*"xyxy"], [*"yxyx"], 0, Budget(0))
    assert lines == ["@@ -1,4 +1,4 @@", "-x", "-y", "-x", "-y", "+y", "+x", "+y", "+x"]


def test_of_a_text_without_end_a_search_looks_at_the_beginning() -> None:
    patterns = patterns_of(terms("lamp"))
    assert excerpt("x " * STEPS + "lamp", patterns).terms == 0
    assert excerpt("x " * 1000 + "lamp " + "x " * STEPS, patterns).terms == 1


def test_what_is_given_up_ends_at_its_next_step() -> None:
    class GivenUpError(Exception):
        pass

    def checkpoint() -> None:
        if budget.spent > 1000:
            raise GivenUpError

    budget = Budget(10**12, checkpoint=checkpoint)
    with pytest.raises(GivenUpError):
        title_by_rule("password=a " * 100_000, budget)
    assert budget.spent < 50_000_000
    with pytest.raises(OutOfStepsError):
        Budget(3).spend(4)
