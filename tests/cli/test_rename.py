"""`acphold session rename` and `archive`: the list as a person wants it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import ConnectionLostError
from acphold.faces.cli import session_commands
from acphold.journal.rows import MOST_TAGS
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION

YEAR_2026 = 1_767_225_600_000


@pytest.fixture
def three(journal: Path) -> Path:
    """A journal with three sessions."""
    for number, name in enumerate(("aa-1", "bb-2", "cc-3")):
        remember(journal, name, *CONVERSATION, title=f"Title {name}", at=YEAR_2026 + number)
    return journal


def listed(acphold: CommandLine, *options: str) -> dict[str, Any]:
    lines = map(json.loads, acphold.run("list", "--json", *options).out.splitlines())
    return {line["sessionId"]: line for line in lines}


@pytest.mark.usefixtures("three")
def test_tags_find_sessions_and_pins_mark_them(acphold: CommandLine) -> None:
    done = acphold.run("session", "tag", "aa", "#Later", "v2")
    assert (done.code, done.out) == (0, "Title aa-1\n  #later #v2\n")
    assert list(listed(acphold, "#later")) == ["aa-1"]
    assert acphold.run("session", "tag", "aa", "--remove", "later").out.endswith("  #v2\n")
    assert listed(acphold)["aa-1"]["tags"] == ["v2"]
    refused = acphold.run("session", "tag", "aa", "two/%words")
    assert (refused.code, "no tag" in refused.err) == (2, True)
    assert acphold.run("session", "pin", "aa", "bb").out == "Pinned 2 sessions.\n"
    assert {name for name, it in listed(acphold).items() if it["pinned"]} == {"aa-1", "bb-2"}
    shown = acphold.shown("list", columns=80).plain
    assert "★ Title aa-1" in shown
    assert "  #v2 Done." in shown
    acphold.run("session", "pin", "aa", "--undo")
    assert {name for name, it in listed(acphold).items() if it["pinned"]} == {"bb-2"}


def test_several_sessions_get_the_same_tags(acphold: CommandLine, journal: Path) -> None:
    for name in ("facade-1", "decade-2"):
        remember(journal, name, *CONVERSATION, title=f"Title {name}")
    done = acphold.run("session", "tag", "facade", "decade", "later", "#facade")
    both = "Title facade-1\n  #facade #later\nTitle decade-2\n  #facade #later\n"
    assert (done.code, done.out) == (0, both)


def test_sessions_that_cannot_be_tagged_keep_no_other_from_its_tags(
    acphold: CommandLine, journal: Path
) -> None:
    for name in ("facade-1", "decade-2", "accede-3"):
        remember(journal, name, *CONVERSATION, title=f"Title {name}")
    full = [f"#t{number}" for number in range(MOST_TAGS)]
    assert acphold.run("session", "tag", "decade", *full).code == 0
    done = acphold.run("session", "tag", "facade", "nobody", "decade", "accede", "later")
    assert (done.code, done.out) == (
        1,
        "Title facade-1\n  #later\nTitle accede-3\n  #later\n",
    )
    first, second = done.err.splitlines()
    assert "'nobody'" in first
    assert f"decade: a session has at most {MOST_TAGS} tags" in second


@pytest.mark.usefixtures("three")
def test_a_session_has_the_title_that_it_was_given_and_stands_where_it_stood(
    acphold: CommandLine,
) -> None:
    done = acphold.run("session", "rename", "aa", "Mend", "the", "gate")
    assert (done.code, done.out) == (0, "Title aa-1\n  is now Mend the gate\n")
    assert listed(acphold)["aa-1"]["title"] == "Mend the gate"
    assert list(listed(acphold)) == ["cc-3", "bb-2", "aa-1"]
    assert acphold.run("show", "aa").out.splitlines()[0] == "Mend the gate"


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("words", [(" ",), ("…", "?!")])
def test_a_title_without_a_word_is_refused(acphold: CommandLine, words: tuple[str, ...]) -> None:
    done = acphold.run("session", "rename", "aa", *words)
    assert (done.code, done.out) == (2, "")
    assert "letter" in done.err
    assert listed(acphold)["aa-1"]["title"] == "Title aa-1"


@pytest.mark.usefixtures("three")
def test_a_title_cannot_play_tricks_when_it_is_told(acphold: CommandLine) -> None:
    done = acphold.run("session", "rename", "aa", "\x1b[31mred")
    assert "\x1b" not in done.out


@pytest.mark.usefixtures("three")
def test_an_archived_session_is_listed_on_demand_and_shown_as_ever(acphold: CommandLine) -> None:
    assert acphold.run("session", "archive", "aa", "cc").out == "Archived 2 sessions.\n"
    assert list(listed(acphold)) == ["bb-2"]
    assert list(listed(acphold, "--archived")) == ["cc-3", "aa-1"]
    everything = listed(acphold, "--all", "--archived")
    assert [line["archived"] for line in everything.values()] == [True, False, True]
    assert "(archived) Title cc-3" in acphold.run("list", "--archived").out
    assert acphold.run("show", "aa").code == 0
    assert (
        acphold.run("session", "archive", "--undo", "aa").out == "Restored 1 session to the list.\n"
    )
    assert list(listed(acphold)) == ["bb-2", "aa-1"]


@pytest.mark.usefixtures("three")
def test_what_was_archived_is_known_to_undo_while_its_owner_is_still_told(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = session_commands._change

    async def interrupted(*given: Any) -> None:
        await change(*given)
        raise ConnectionLostError("it takes too long")

    with monkeypatch.context() as hanging:
        hanging.setattr(session_commands, "_change", interrupted)
        assert acphold.run("session", "archive", "aa", "bb").code != 0
    assert list(listed(acphold)) == ["cc-3"]
    acphold.run("session", "archive", "--undo", "@last")
    assert list(listed(acphold)) == ["cc-3", "bb-2", "aa-1"]


def test_a_list_of_the_sessions_that_may_be_meant_says_what_is_done_with_the_chosen_one(
    acphold: CommandLine, journal: Path
) -> None:
    for name in ("aa-1", "ab-2"):
        remember(journal, name, *CONVERSATION, title=name)
    acphold.on_terminal("session", "archive", "--undo", "a", interrupted_at=b"restores it")
    assert len(listed(acphold)) == 2


def test_undoing_the_newest_restores_what_was_archived_last_wherever_it_was(
    acphold: CommandLine, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("aa-1", "bb-2", "cc-3")):
        at = YEAR_2026 + number
        remember(journal, name, *CONVERSATION, title=name, cwd=str(Path.cwd()), at=at)
    assert "no archived session" in acphold.run("session", "archive", "--undo", "-").err
    assert acphold.run("session", "archive", "-").code == 0
    assert acphold.run("session", "archive", "aa", "bb").code == 0
    monkeypatch.chdir(tmp_path)
    for some, titles in (("2 sessions", "  aa-1\n  bb-2\n"), ("1 session", "  cc-3\n")):
        done = acphold.run("session", "archive", "--undo", "-")
        assert done.out == f"Restored {some} to the list.\n{titles}"
    assert list(listed(acphold)) == ["cc-3", "bb-2", "aa-1"]


@pytest.mark.usefixtures("three")
def test_archiving_what_is_archived_is_no_error(acphold: CommandLine) -> None:
    told = [
        acphold.run("session", "archive", *undo, "aa", "bb")
        for undo in ((), (), ("--undo",), ("--undo",))
    ]
    assert [done.code for done in told] == [0, 0, 0, 0]
    assert "".join(done.out for done in told).splitlines() == [
        "Archived 2 sessions.",
        "2 sessions were already archived.",
        "Restored 2 sessions to the list.",
        "2 sessions were not archived.",
    ]
    assert len(listed(acphold)) == 3


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("undo", [(), ("--undo",)])
def test_one_id_that_fits_nothing_leaves_them_all(
    acphold: CommandLine, undo: tuple[str, ...]
) -> None:
    assert acphold.run("session", "archive", *undo, "aa", "zz").code == 3
    assert len(listed(acphold)) == 3
    assert acphold.run("session", "rename", "zz", "Title").code == 3


@pytest.mark.usefixtures("three")
def test_a_list_in_which_all_is_archived_says_so(acphold: CommandLine) -> None:
    acphold.run("session", "archive", "aa", "bb", "cc")
    done = acphold.run("list")
    assert (done.code, done.out) == (0, "")
    assert "`--archived` shows them" in done.err
    assert "No sessions in" in acphold.run("list", "--cwd", "/nowhere").err


@pytest.mark.usefixtures("three")
def test_the_newest_of_a_folder_without_sessions_is_refused(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = acphold.shown("continue", "-")
    assert done.code == 3
    assert "there is no session in" in " ".join(done.plain.split())
