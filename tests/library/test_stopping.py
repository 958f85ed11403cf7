from __future__ import annotations

import asyncio

import pytest

from acphold.errors import CapabilityError, DeclarationError
from acphold.library.stopping import MaxTokens, Refusal, ending, told_by


def test_a_coroutine_that_returns_nothing_has_said_everything() -> None:
    assert ending(None) == "end_turn"
    assert ending("max_tokens") == "max_tokens"


@pytest.mark.parametrize("returned", ["cancelled", "done", 0, True])
def test_other_endings_are_refused(returned: object) -> None:
    with pytest.raises(DeclarationError, match="a turn ends with one of"):
        ending(returned)


def test_a_group_says_what_its_members_say_on_purpose() -> None:
    refusal, error = Refusal(), CapabilityError("no forms")
    assert told_by(refusal) is refusal
    assert told_by(ExceptionGroup("", [ExceptionGroup("", [refusal]), MaxTokens()])) is refusal
    assert told_by(BaseExceptionGroup("", [asyncio.CancelledError(), error])) is error


def test_a_group_with_something_that_went_wrong_says_nothing() -> None:
    assert told_by(ExceptionGroup("", [Refusal(), ValueError()])) is None
    assert told_by(ValueError()) is None
