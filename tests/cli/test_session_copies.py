"""`acphold continue` in a copy: from a prompt, or with another agent."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.editor import received, scripted_agent
from tests.raw_entries import CONVERSATION, ended, prompt, said
from tests.served import guest

OTHER = scripted_agent(info={"name": "other", "version": "1"})


@pytest.fixture
def two_turns(journal: Path) -> Path:
    """A journal with a session of two turns; the second begins with entry 11 or so."""
    more = (prompt("And now?"), said("Now this."), ended())
    remember(journal, "aa-1", *CONVERSATION, *more, title="Greeting", cwd="/")
    return journal


def listed(acphold: CommandLine, *options: str) -> dict[str, Any]:
    lines = map(json.loads, acphold.run("list", "--json", *options).out.splitlines())
    return {line["sessionId"]: line for line in lines}


@pytest.mark.usefixtures("two_turns")
def test_a_fork_is_a_session_beside_the_first_that_says_where_it_came_from(
    acphold: CommandLine,
) -> None:
    done = acphold.run("continue", "aa", "--from", "last")
    assert done.code == 0
    made = done.out.strip()
    assert re.fullmatch(r"Copied “Greeting” \(2 turns\) to [0-9a-f]{6,}\n", done.err)
    shown = acphold.shown("continue", "aa", "--from", "last").plain
    assert re.fullmatch(r"Copied “Greeting” \(2 turns\) to [0-9a-f]{6,}", shown.splitlines()[0])
    row = listed(acphold)[made]
    assert row["title"] == "Greeting (fork)"
    assert row["origins"] == [{"sessionId": "aa-1", "agent": "scripted", "seq": 13}]
    shown = acphold.run("show", made).out
    assert "And now?" in shown
    assert "forked from aa-1" in shown


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize("words", [("aa", "--from", "last"), ("aa", "--", *OTHER)])
def test_a_copy_is_at_work_in_a_folder_that_is_there(
    acphold: CommandLine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = listed(acphold)
    gone = tmp_path / "gone"
    refused = acphold.run("continue", "--cwd", str(gone), *words)
    assert refused.code == 2
    assert f"the folder '{gone}' does not exist on this machine; create it" in refused.err
    assert listed(acphold) == before
    gone.mkdir()
    assert acphold.run("continue", "--cwd", str(gone), *words).code == 0
    assert str(gone) in {row["cwd"] for row in listed(acphold).values()}


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize("words", [("aa@2",), ("aa-1@10",), ("aa@2", "--from", "last")])
def test_a_place_takes_the_conversation_up_to_its_turn(
    acphold: CommandLine, words: tuple[str, ...]
) -> None:
    done = acphold.run("continue", *words)
    made = done.out.strip()
    assert "Copied “Greeting” (1 turn) to " in done.err
    assert done.err.endswith("\n  1 later turn left out\n")
    shown = acphold.run("show", made).out
    assert "Make it friendlier" in shown
    assert "And now?" not in shown


@pytest.mark.parametrize("files", [(), ("--files",)])
def test_nothing_up_to_an_entry_before_the_first_prompt_is_refused_with_the_first_one(
    acphold: CommandLine, journal: Path, files: tuple[str, ...]
) -> None:
    remember(journal, "aa-1", ("settings", b"{}"), *CONVERSATION)
    done = acphold.run("continue", "aa", "--from", "1", *files)
    assert (done.code, done.out) == (1, "")
    assert "entry 1 of session 'aa-1' is before its first prompt" in done.err
    [number] = re.findall(r"name one of its first turn, (\d+) to ", done.err)
    assert acphold.run("continue", "aa", "--from", number).code == 0


def test_a_session_in_which_nothing_was_said_is_not_forked(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "aa-1")
    done = acphold.run("continue", "aa", "--from", "last")
    assert (done.code, done.out) == (1, "")
    assert "nothing to copy" in done.err


# -- with another agent -----------------------------------------------------------------------


def test_words_that_one_session_has_name_what_is_copied(
    acphold: CommandLine, journal: Path
) -> None:
    for number, title in enumerate(("A latex table", "A latex list", "Greeting")):
        remember(journal, f"aa-{number}", *CONVERSATION, title=title, cwd="/")
    for words in (("Latex", "table"), ("greeting",)):
        done = acphold.run("continue", *words, "--from", "last")
        assert (done.code, words[-1] in done.err.casefold()) == (0, True), done.err
        acphold.run("session", "delete", done.out.strip(), "--yes")
    for words, why in ((("a", "latex"), "several sessions have"), (("a", "qux"), "no session has")):
        done = acphold.run("continue", *words, "--from", "last")
        assert (done.code, done.out) == (2, "")
        assert f"{why} these words; give the ID of one" in done.err
    assert "no session id begins with 'zz'" in acphold.run("continue", "zz", "--from", "last").err


@pytest.mark.usefixtures("two_turns")
def test_a_copy_stands_in_the_list_of_the_other_agent(acphold: CommandLine) -> None:
    done = acphold.run("continue", "aa", "--", *OTHER)
    assert done.code == 0
    made = done.out.strip()
    what, where = done.err.splitlines()
    assert what.startswith("Copied “Greeting” (2 turns) to ")
    assert where == "  it continues with other"
    row = listed(acphold, "--agent", "other")[made]
    assert row["title"] == "Greeting"
    assert row["origins"] == [{"sessionId": "aa-1", "agent": "scripted", "seq": 13}]
    assert list(listed(acphold, "--agent", "scripted")) == ["aa-1"]
    assert "handed off from scripted, aa-1@13" in acphold.run("show", made).out


async def test_the_other_agent_goes_on_with_it_and_the_first_session_stays(
    two_turns: Path, acphold: CommandLine, log: Path
) -> None:
    made = acphold.run("continue", "aa@2", "--", *OTHER).out.splitlines()[0]
    command = scripted_agent(info={"name": "other", "version": "1"}, log=str(log))
    async with guest(command, two_turns) as client:
        await client.initialize()
        assert [found["sessionId"] for found in await client.sessions()] == [made]
        await client.load(made)
        assert "Make it friendlier" in client.text("user_message_chunk")
        await client.prompt(made, "Go on")
        assert "it began with scripted" in str(client.updates())
    [asked] = received(log, "session/prompt")
    context, own = asked["params"]["prompt"]
    assert own["text"] == "Go on"
    assert "User: Make it friendlier" in context["text"]
    assert "-hi\n+hello" in context["text"]
    assert "And now?" not in context["text"]
    first = json.loads(acphold.run("list", "--json", "--agent", "scripted").out)
    assert (first["sessionId"], first["messageCount"]) == ("aa-1", 5)


@pytest.mark.usefixtures("two_turns")
def test_a_name_that_the_list_has_is_enough(acphold: CommandLine, two_turns: Path) -> None:
    unknown = acphold.run("continue", "aa", "--with", "echo (library)")
    assert (unknown.code, "no agent 'echo (library)'" in unknown.err) == (2, True)
    remember(two_turns, "bb-1", *CONVERSATION, agent="echo (library)")
    made = acphold.run("continue", "aa", "--with", "echo (library)").out.strip()
    assert listed(acphold, "--agent", "echo (library)").keys() == {made, "bb-1"}


@pytest.mark.usefixtures("two_turns")
def test_an_agent_of_the_settings_file_is_asked_by_its_name(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f"[agents.mine]\ncommand = {json.dumps(OTHER)}\nname = 'named'\n")
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    made = acphold.run("continue", "aa", "--with", "mine").out.splitlines()[0]
    assert listed(acphold, "--agent", "named").keys() == {made}


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("aa", "--with", "scripted"), 2, "already belongs to scripted; leave out --with"),
        (("aa", "--with", "x", "--", *OTHER), 2, "not both"),
        (("aa", "--from", "last", "--watch"), 2, "in a copy"),
        (("aa", "--from", "go on"), 2, "`acphold search 'go on'` prints it after the @"),
        (("aa", "--from", "0"), 2, "`acphold search WORDS` prints it"),
        (("aa", "--include"), 2, "--include works only with --files"),
        (("aa", "bb", "--from", "last"), 2, "give the ID of one"),
        (("zz", "--from", "last"), 3, "zz"),
        (("aa@99", "--from", "last"), 2, "1 to 13"),
        (
            ("aa", "--from", "99"),
            2,
            "--from 99: the entries of this session are numbered from 1 to",
        ),
        (("aa", "--", sys.executable, "-c", "raise SystemExit(4)"), 5, "ended before"),
        (("aa", "--", "no-such-agent"), 5, "no such program"),
        (("aa", "--", "cat"), 5, "the agent answered with an error: method not found: initialize"),
    ],
)
def test_what_cannot_be_handed_over_is_refused(
    acphold: CommandLine, words: tuple[str, ...], code: int, why: str
) -> None:
    done = acphold.run("continue", *words)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
    assert len(listed(acphold)) == 1
