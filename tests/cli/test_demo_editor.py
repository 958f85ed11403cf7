"""The demo's editor: what was seen and what is back, and which processes run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from acphold.cli.demo_editor import family, left_open, lost, running
from acphold.history import Entry
from acphold.history.fold import SessionState, fold
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


CHILD = "print(1, flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_a_family_is_a_process_and_its_descendants_as_long_as_they_run() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        found = family(parent.pid)
        assert len(found) == 2
        assert parent.pid in found
        assert found < family(os.getpid())
        assert running(found) == found
        parent.communicate(b"\n")
    assert running(found) == set()


def test_one_that_has_ended_and_was_not_reaped_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert running({child.pid}) == set()
        assert family(child.pid) == set()
