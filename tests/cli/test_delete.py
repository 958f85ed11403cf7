"""`acphold session delete`: sessions gone for good."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path

import pytest

from acphold.faces.screen.typed import prompt_history
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, ended, prompt

NO_ZZ = (
    "acphold: no session id begins with 'zz'; `acphold list --all --archived` shows all sessions\n"
)


@pytest.fixture
def two(journal: Path) -> Path:
    """A journal with two sessions."""
    remember(journal, "aa-1", *CONVERSATION, title="Greeting")
    remember(journal, "bb-2", *CONVERSATION)
    return journal


def ids(acphold: CommandLine) -> list[str]:
    lines = acphold.run("list", "--json").out.splitlines()
    return sorted(json.loads(line)["sessionId"] for line in lines)


@pytest.mark.usefixtures("two")
def test_a_deleted_session_is_neither_listed_nor_shown(acphold: CommandLine) -> None:
    assert acphold.run("session", "delete", "aa", "--yes").out == "Deleted 1 session.\n"
    assert ids(acphold) == ["bb-2"]
    assert acphold.run("show", "aa-1").code == 3


@pytest.mark.usefixtures("two")
def test_a_turn_is_forgotten_once_a_person_is_sure(acphold: CommandLine) -> None:
    refused = acphold.run("session", "forget", "aa", "1")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    shown = acphold.run("show", "aa-1").out
    for wrong, why in {
        ("aa", "9"): "has no turn 9: it has 1 turn",
        ("aa", "moon"): "moon: a turn is named by a number, or as ID@SEQ",
        ("aa",): "ID@SEQ",
        ("aa@1", "1"): "ID@SEQ",
        ("aa@99",): "numbered from 1 to",
    }.items():
        failed = acphold.run("session", "forget", *wrong, "--yes")
        assert (failed.code, why in failed.err) == (2, True), failed.err
    assert acphold.run("show", "aa-1").out == shown
    done = acphold.run("session", "forget", "aa", "1", "--yes")
    assert done.out == "Forgot turn 1 in 1 session.\n"
    assert acphold.run("show", "aa-1").out != shown


def test_a_turn_is_named_by_an_entry_of_it_and_shown_as_it_was_said(
    acphold: CommandLine, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = "first line\nmy password is SEKRET77, please"
    turns = [(prompt(said), ended()) for said in ("hello", words, "bye")]
    remember(journal, "cc-3", *chain.from_iterable(turns))
    history = prompt_history()
    for typed in ("hello", words, f"/later {words}", f"/later 02:00 {words}", "by"):
        history.store_string(typed)
    refused = acphold.on_terminal("session", "forget", "cc-3@4", typed=b"n\n").out
    assert "> first line" in refused
    assert "> my password is SEKRET77, please" in refused
    done = acphold.run("session", "forget", "cc-3@4", "--yes")
    assert done.out == "Forgot turn 2 in 1 session.\n"
    assert "Other files of agents" in done.err
    assert "SEKRET77" not in acphold.run("show", "cc-3", "--json").out
    assert [*prompt_history().load_history_strings()] == ["by", "hello"]
    assert b"SEKRET77" not in Path(str(history.filename)).read_bytes()
    others = ["/tag good bye", "/bye", "by", "hello"]
    for typed in (*reversed(others[:2]), "/now bye"):
        history.store_string(typed)
    last = acphold.run("session", "forget", "cc-3@last", "--yes")
    assert last.out == "Forgot turn 2 in 1 session.\n"
    assert [*prompt_history().load_history_strings()] == others


def test_prompts_that_wait_with_words_of_a_forgotten_turn_are_named(
    acphold: CommandLine, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    prompt_history().store_string("then use sk-SEKRET77xyz there")
    prompt_history().store_string("my token is long")
    remember(journal, "dd-4", prompt("my token: sk-SEKRET77xyz."), ended())
    for words in ("other", "use sk-SEKRET77xyz now", "my token: sk-SEKRET77xyz."):
        assert acphold.run("queue", "dd-4", "add", words).code == 0
    logs = Path(f"{journal}-state")
    logs.mkdir(exist_ok=True)
    for name, words in (("one", "nothing"), ("two", "I got sk-SEKRET77xyz")):
        (logs / f"daemon-{name}.log").write_text(words)
    os.mkfifo(logs / "pipe.log")
    acphold.run("journal", "backup", f"{journal}-kept")
    assert acphold.run("journal", "restore", f"{journal}-kept").code == 0
    (logs / "gone.log.1").symlink_to(logs / "gone")
    said = acphold.run("session", "forget", "dd-4", "1", "--yes").err
    assert [f"`acphold queue dd-4 drop {n}`" in said for n in (1, 2, 3)] == [False, True, True]
    assert ("daemon-one.log" in said, "daemon-two.log" in said) == (False, True)
    assert "pipe.log; it cannot be read: it is a pipe, not a file" in said
    assert "gone.log" not in said
    former = [line for line in said.splitlines() if f"{journal.name}-before-" in line]
    assert [line.startswith("The journal before a restore may have it: ") for line in former] == [
        True
    ]
    assert [*prompt_history().load_history_strings()] == ["my token is long"]
    waiting = acphold.run("queue", "dd-4").out
    assert ("other" in waiting, waiting.count("SEKRET77")) == (True, 2)


@pytest.mark.usefixtures("two")
def test_without_a_terminal_to_ask_on_it_wants_yes(acphold: CommandLine) -> None:
    done = acphold.run("session", "delete", "aa-1")
    assert done.code == 2
    assert "--yes" in done.err
    assert len(ids(acphold)) == 2


@pytest.mark.usefixtures("two")
def test_on_a_terminal_it_asks(acphold: CommandLine) -> None:
    refused = acphold.on_terminal("session", "delete", "aa-1", typed=b"n\n")
    assert (refused.code, "Delete 1 session?" in refused.out) == (1, True)
    assert "Greeting" in refused.out
    assert len(ids(acphold)) == 2
    told = acphold.shown("session", "delete", "aa-1", "--yes").out.splitlines()
    assert told[-2] == "Deleted 1 session."
    assert "`acphold import --session aa-1` brings" in told[-1]


@pytest.mark.usefixtures("two")
def test_of_several_sessions_none_is_named_alone_to_bring_back(acphold: CommandLine) -> None:
    told = acphold.shown("session", "delete", *ids(acphold), "--yes").out.splitlines()
    assert "`acphold import --session ID` brings" in told[-1]


@pytest.mark.usefixtures("two")
def test_one_id_that_fits_nothing_keeps_them_all(acphold: CommandLine) -> None:
    assert acphold.run("session", "delete", "--yes", "aa-1", "zz").code == 3
    assert len(ids(acphold)) == 2
    unsure = acphold.run(
        "session", "delete", "zz"
    )  # no question about a session that does not exist
    assert (unsure.code, unsure.err) == (3, NO_ZZ)


@pytest.mark.usefixtures("two")
def test_ctrl_c_at_the_question_deletes_nothing(acphold: CommandLine) -> None:
    done = acphold.on_terminal("session", "delete", "aa-1", interrupted_at=b"Delete 1 session?")
    assert done.code == 130
    assert "Delete 1 session?" in done.out
    assert "Deleted" not in done.out
    assert len(ids(acphold)) == 2
