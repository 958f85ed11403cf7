"""Redaction takes steps that grow with the text, and beyond its budget shows nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from acphold.safety.budget import Budget
from acphold.safety.errors import OutOfStepsError
from acphold.safety.redaction.redactor import Redactor
from tests.redaction.corpus.corpus import Case, cases, is_readable
from tests.redaction.test_corpus import Said, Whole
from tests.slow_texts import SLOW

KEY = "sk-ant-api03-abCD12efGH34ijKL56mnOP78"
CASES = cases(0)


def shown(messages: tuple[str, ...], budget: Budget) -> list[str]:
    """Return the messages as they are shown, as far as the budget lasts."""
    told = [
        Said(seq, "prompt", json.dumps([{"type": "text", "text": message}]).encode())
        for seq, message in enumerate(messages, 1)
    ]
    redactor, found = Redactor("", Whole, budget), list[str]()
    try:
        redactor.look_through(told)
        for place, entry in enumerate(told):
            if (raw := redactor.redact(place, entry)) is not None:
                found.append(json.loads(raw)[0]["text"])
    except OutOfStepsError:
        pass
    return found


@given(st.sampled_from(CASES), st.floats(0, 1))
def test_no_budget_makes_a_secret_appear(case: Case, part: float) -> None:
    enough = Budget(10**9)
    whole = shown(case.messages, enough)
    found = shown(case.messages, Budget(int(part * enough.spent)))
    assert found == whole[: len(found)]
    for secret in case.secrets:
        if not any(is_readable(secret, text) for text in whole):
            assert not any(is_readable(secret, text) for text in found)


def test_a_secret_that_is_named_behind_the_last_step_is_not_shown_before_it() -> None:
    messages = ("it was Tr0ub4dor&3", "x " * 1000, 'password: "Tr0ub4dor&3"')
    enough = Budget(10**9)
    assert shown(messages, enough)[0] == "it was [removed: password]"
    for steps in range(0, enough.spent, enough.spent // 300):
        assert "Tr0ub4dor&3" not in "".join(shown(messages, Budget(steps)))


@pytest.mark.parametrize("piece", SLOW)
def test_twice_the_text_takes_about_twice_the_steps(piece: str) -> None:
    spent = []
    for size in (16_000, 32_000):
        budget = Budget(10**12)
        shown((KEY + " ", piece * (size // len(piece))), budget)
        spent.append(budget.spent)
    assert spent[1] <= 2.5 * spent[0]
    assert spent[1] <= 2_000 * 32_000


def test_many_secrets_in_a_session_take_steps_like_its_texts() -> None:
    def steps(count: int) -> int:
        budget = Budget(10**12)
        keys = (f"sk-ant-api03-{'A' * 80}{number:08d} " for number in range(count))
        found = shown(tuple(keys), budget)
        assert set(found) == {"[removed: API key] "}
        return budget.spent

    assert steps(400) <= 2.5 * steps(200)


@pytest.mark.parametrize("length", [64, 200, 1024, 5000])
def test_a_long_secret_is_removed_whole_and_so_is_the_beginning_of_it(length: int) -> None:
    secret = "abCD12-" * (length // 7)
    named = f'{{"password": "{secret}"}}' if length < 4096 else f"sk-ant-1{secret}"
    known = secret if length < 4096 else f"sk-ant-1{secret}"
    found = shown((named, f"see {known}, and", f"see {known[:-1]}"), Budget(10**12))
    assert [text for text in found if "abCD12" in text] == []


def test_a_cookie_is_known_elsewhere_without_its_name() -> None:
    cookie = "s%3AWAgdkLjrcU9Vg6CO4V9uvVz5elYoO5B5.71ODWervxGfKQbkmPgP78y2GMqwZ"
    found = shown((f"Set-Cookie: connect.sid={cookie}; Path=/", f"see {cookie}"), Budget(10**9))
    assert found == ["Set-Cookie: [removed: secret]; Path=/", "see [removed: token]"]
