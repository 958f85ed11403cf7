"""`acphold session delete`: sessions gone for good."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION

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
