"""`acphold demo`: every claim holds, on a terminal and off, and one that does not is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acp_wire.processes.process_tree import family
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.faces.cli.demo import differences
from tests.cli.command_line import ACPHOLD, CommandLine
from tests.raw_entries import CONVERSATION, Raw, plan, prompt, said, update
from tests.screen_terminal import terminal

CLAIMS = 10


def test_every_claim_of_the_demo_holds_no_pager_stops_it_and_your_journal_is_left_alone(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    environment = {**acphold.environment, "PAGER": "sed s/^/PAGED/"}
    words = [*ACPHOLD, "demo", "--keep", str(tmp_path / "kept")]
    with terminal(words, environment, columns=100, rows=24) as shown:
        assert shown.ended() == 0
    told = re.sub(r"\x1b\[[0-9;]*m", "", shown.raw.decode())
    assert len(re.findall(r"^ {6}✓ ", told, re.MULTILINE)) == CLAIMS
    assert "✗ Count without end" in told
    assert f"{CLAIMS} of {CLAIMS} claims hold" in shown.text
    assert b"\x1b[1;36m    you\x1b[0m" in shown.raw
    assert b"PAGED" not in shown.raw
    assert not journal.exists()
    kept = acphold.run("list", "--journal", str(tmp_path / "kept" / "journal.db"))
    assert "Make the greeting friendlier" in kept.out


def test_a_claim_that_does_not_hold_is_named(acphold: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "journal.db").write_text("no journal")
    done = acphold.run("demo", "--keep", str(tmp_path / "kept"))
    assert done.code == 1
    assert "✗" in done.out
    assert "\x1b" not in done.out
    assert "not an acphold journal" in " ".join(done.out.split())


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null"])
def test_a_folder_that_cannot_be_made_is_a_usage_error(acphold: CommandLine, folder: str) -> None:
    assert acphold.run("demo", "--keep", folder).code == 2


# -- the demo's output, and the clean-up ----------------------------------------------------

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
    assert differences(state(*SEEN), state(*SEEN, FAILED)) == []


def test_the_journal_may_know_more_of_the_last_message() -> None:
    assert differences(state(*SEEN), state(*SEEN, said("tick 3 "), FAILED)) == []


@pytest.mark.parametrize("place", range(len(SEEN)))
def test_whatever_is_missing_is_noticed(place: int) -> None:
    first_of_two = {CONVERSATION.index(plan("in_progress"))}
    back = state(*SEEN[:place], *SEEN[place + 1 :], FAILED)
    assert bool(differences(state(*SEEN), back)) == (place not in first_of_two)


# -- its processes --------------------------------------------------------------------------

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
        parent.communicate(b"\n")
    assert family(parent.pid) == set()


def test_one_that_has_ended_and_was_not_reaped_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert family(child.pid) == set()
