"""`acphold fork`: a conversation up to some turn, in a session of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import CONVERSATION, ended, prompt, remember, said


@pytest.fixture
def two_turns(journal: Path) -> Path:
    """A journal with a session of two turns; the second begins with entry 11 or so."""
    more = (prompt("And now?"), said("Now this."), ended())
    remember(journal, "aa-1", *CONVERSATION, *more, title="Greeting")
    return journal


def listed(acphold: CommandLine) -> dict[str, Any]:
    lines = map(json.loads, acphold.run("list", "--json").out.splitlines())
    return {line["sessionId"]: line for line in lines}


@pytest.mark.usefixtures("two_turns")
def test_a_fork_is_a_session_beside_the_first_that_says_where_it_came_from(
    acphold: CommandLine,
) -> None:
    done = acphold.run("fork", "aa")
    assert done.code == 0
    made = done.out.strip()
    what, where = done.err.splitlines()
    assert what == "  2 turns of Greeting"
    assert "in the list of scripted" in where
    row = listed(acphold)[made]
    assert row["title"] == "Greeting (fork)"
    assert row["origins"] == [{"sessionId": "aa-1", "agent": "scripted", "seq": 13}]
    shown = acphold.run("show", made).out
    assert "And now?" in shown
    assert "forked from aa-1" in shown


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize("words", [("fork", "aa"), ("handoff", "aa", "--name", "other")])
def test_a_copy_is_at_work_in_a_folder_that_is_there(
    acphold: CommandLine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = listed(acphold)
    gone = tmp_path / "gone"
    refused = acphold.run(*words, "--cwd", str(gone))
    assert refused.code == 2
    assert f"the folder '{gone}' does not exist on this machine; create it" in refused.err
    assert listed(acphold) == before
    gone.mkdir()
    assert acphold.run(*words, "--cwd", str(gone)).code == 0
    assert str(gone) in {row["cwd"] for row in listed(acphold).values()}


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize("words", [("aa@2",), ("aa-1@10",)])
def test_a_place_takes_the_conversation_up_to_its_turn(
    acphold: CommandLine, words: tuple[str, ...]
) -> None:
    done = acphold.run("fork", *words)
    made = done.out.strip()
    assert done.err.splitlines()[0] == "  1 turn of Greeting; 1 later turn left out"
    shown = acphold.run("show", made).out
    assert "Make it friendlier" in shown
    assert "And now?" not in shown


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("aa@99",), 2, "1 to 13"),
        (("zz",), 3, "zz"),
    ],
)
def test_a_place_that_is_none_is_refused(
    acphold: CommandLine, words: tuple[str, ...], code: int, why: str
) -> None:
    done = acphold.run("fork", *words)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
    assert len(listed(acphold)) == 1


@pytest.mark.usefixtures("two_turns")
def test_on_a_terminal_the_id_and_what_is_in_it_stand_together(acphold: CommandLine) -> None:
    made, what, where = acphold.on_terminal("fork", "aa").out.splitlines()
    assert made in listed(acphold)
    assert what == "  2 turns of Greeting"
    assert "in the list of scripted" in where


def test_a_session_in_which_nothing_was_said_is_not_forked(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "aa-1")
    done = acphold.run("fork", "aa")
    assert (done.code, done.out) == (1, "")
    assert "nothing to copy" in done.err
