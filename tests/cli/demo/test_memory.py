"""Comparing what was seen with what is back: the demo must not be easy to please."""

from __future__ import annotations

import pytest

from acphold.cli.demo.memory import left_open, lost
from acphold.journal import Entry
from acphold.journal.fold import SessionState, fold
from tests.cli.conversation import CONVERSATION, Raw, plan, prompt, said, update

SEEN = (
    *CONVERSATION[:-1],
    prompt("Count"),
    update("tool_call", toolCallId="t2", title="Count", status="in_progress"),
    said("tick 1 "),
    said("tick 2 "),
)
FAILED = update("tool_call_update", toolCallId="t2", status="failed", _meta={"acphold/failed": ""})


def state(*raws: Raw) -> SessionState:
    return fold(Entry(seq, kind, 0, raw) for seq, (kind, raw) in enumerate(raws, 1))


def test_all_that_was_seen_is_back() -> None:
    back = state(*SEEN, FAILED)
    assert lost(state(*SEEN), back) == []
    assert left_open(state(*SEEN), back) == []


def test_the_journal_may_know_more_of_the_last_message() -> None:
    assert lost(state(*SEEN), state(*SEEN, said("tick 3 "), FAILED)) == []


@pytest.mark.parametrize("place", range(len(SEEN)))
def test_whatever_is_missing_is_noticed(place: int) -> None:
    first_of_two = {CONVERSATION.index(plan("in_progress"))}
    back = state(*SEEN[:place], *SEEN[place + 1 :], FAILED)
    assert bool(lost(state(*SEEN), back)) == (place not in first_of_two)


def test_a_tool_call_that_still_runs_is_noticed() -> None:
    assert left_open(state(*SEEN), state(*SEEN)) == ["t2"]
