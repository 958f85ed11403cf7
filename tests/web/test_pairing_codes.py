"""A code works whoever else guesses; it ends by time, by use, or by its asker's next code."""

from __future__ import annotations

import time

import pytest

from acphold.web import bounds
from acphold.web.devices import Pairing, Worth

OWNER = Worth(("watch", "manage"))


def test_the_right_code_is_taken_behind_any_number_of_wrong_ones_and_once() -> None:
    pairing = Pairing(lambda: 0.0)
    code = pairing.new_code(OWNER)
    for number in range(5000):
        assert pairing.redeem(f"{number:010}") is None
    assert pairing.redeem(f" {code[:5].lower()}-{code[5:]} ") is OWNER
    assert pairing.redeem(code) is None


def test_the_codes_of_one_who_asks_end_those_of_nobody_else() -> None:
    pairing = Pairing(lambda: 0.0)
    code = pairing.new_code(OWNER)
    theirs = Worth(("watch",), asker="greedy")
    many = [pairing.new_code(theirs) for _ in range(bounds.CODES_OF_ONE + 3)]
    assert pairing.redeem(code) is OWNER
    taken = [pairing.redeem(it) is not None for it in many]
    assert taken == [False] * 3 + [True] * bounds.CODES_OF_ONE


def test_a_code_ends_by_itself() -> None:
    now = 0.0
    pairing = Pairing(lambda: now)
    code = pairing.new_code(OWNER)
    now = bounds.CODE_SECONDS
    assert pairing.redeem(code) is None


def test_a_code_ends_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = Pairing()
    code, other = pairing.new_code(OWNER), pairing.new_code(OWNER)
    assert pairing.redeem(other) is OWNER
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + bounds.CODE_SECONDS)
    assert pairing.redeem(code) is None
