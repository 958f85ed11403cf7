"""Sessions as a person names them: left out, by a beginning of several, and as the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.faces.cli.command_line import Exit
from tests.cli.conversation import remember
from tests.cli.place import Place
from tests.raw_entries import ended, prompt

pytestmark = pytest.mark.slow


@pytest.fixture
def home(place: Place, journal: Path) -> Place:
    """A place with three sessions, two of which begin with `a`."""
    for session in ("a-pear", "a-plum", "b-apple"):
        remember(journal, session, prompt(f"about {session}"), ended(), title=f"of {session}")
    return place


@pytest.mark.parametrize(
    ("command", "does", "then"),
    [
        ("show", "shows it", "about b-apple"),
        ("diff", "shows its changes", "no changed files"),
        ("export", "exports it", "about b-apple"),
    ],
)
def test_without_an_id_the_person_chooses(home: Place, command: str, does: str, then: str) -> None:
    with home.on_terminal(command) as one:
        one.until(f"Enter {does}", "3 of 3")
        one.type("apple", "1 of 3", "▸ Sc of b-apple")
        one.type("\r", then, but="Enter")
        one.type("q")  # of the pager, if it is one that waits
        assert one.ended() == 0


def test_of_a_beginning_that_fits_several_the_person_chooses(home: Place) -> None:
    with home.on_terminal("show", "a-p") as one:
        one.until("of a-pear", "of a-plum", "2 of 2", but="b-apple")
        one.type("plum\r", "about a-plum", but="Enter")
        assert one.ended("q") == 0


def test_words_of_a_title_filter_the_list_or_lead_to_the_only_session(home: Place) -> None:
    with home.on_terminal("show", "of a-p") as one:
        one.until("▸ of a-p", "2 of 3", but="of b-apple")
        one.type("\r", "about a-p", but="Enter")
        assert one.ended("q") == 0
    with home.on_terminal("show", "plum") as one:
        one.until("about a-plum", but="Enter")
        assert one.ended("q") == 0


@pytest.mark.parametrize("words", ["delete --yes", "archive", "pin"])
def test_words_of_a_title_change_no_session(home: Place, words: str) -> None:
    with home.on_terminal("session", *words.split(), "plum") as one:
        one.until("no session id begins with 'plum'", "these words: a-plum")
        assert one.ended() == Exit.NO_SESSION
    assert len(home.run("list", "--json").stdout.splitlines()) == 3


def test_who_leaves_the_list_has_done_nothing(home: Place) -> None:
    with home.on_terminal("continue", "--from", "last") as one:
        one.until("3 of 3")
        assert one.ended("\x1b") == 0
    assert len(home.run("list", "--json").stdout.splitlines()) == 3


def test_in_a_pipe_nobody_is_asked(home: Place) -> None:
    for words in (["show"], ["diff"], ["export"], ["continue"], ["continue", "--from", "last"]):
        done = home.run(*words)
        assert (done.returncode, done.stdout) == (Exit.USAGE, ""), words
    done = home.run("show", "a-p")
    assert done.returncode == Exit.NO_SESSION
    assert "fits 2 sessions" in done.stderr


def test_the_newest_session_of_the_folder_has_names(home: Place, journal: Path) -> None:
    remember(journal, "here", prompt("about here"), ended(), cwd=str(Path.cwd()))
    remember(journal, "later", prompt("elsewhere"), ended(), cwd="/")
    for name in ("-", "@last"):
        assert "about here" in home.run("show", name).stdout
        assert "is not running" in home.run("agent", "stop", name).stderr
        assert '"here"' in home.run("export", name, "--format", "jsonl").stdout.splitlines()[0]
    assert "turn 1, around" in home.run("show", "@last@1").stdout
    assert "is now newest" in home.run("session", "rename", "-", "newest").stdout
    assert home.run("session", "archive", "@last").stdout == "Archived 1 session.\n"
    done = home.run("show", "-")
    assert (done.returncode, "no session in" in done.stderr) == (Exit.NO_SESSION, True)
