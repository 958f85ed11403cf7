"""`acphold handoff`: a conversation that another agent goes on with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import CONVERSATION, ended, prompt, remember, said
from tests.editor import received, scripted_agent
from tests.served import guest

OTHER = scripted_agent(info={"name": "other", "version": "1"})


@pytest.fixture
def two_turns(journal: Path) -> Path:
    """A journal with a session of the agent "first"."""
    more = (prompt("And now?"), said("Now this."), ended())
    remember(journal, "aa-1", *CONVERSATION, *more, title="Greeting", agent="first", cwd="/")
    return journal


def listed(acphold: CommandLine, *options: str) -> dict[str, Any]:
    lines = map(json.loads, acphold.run("list", "--json", *options).out.splitlines())
    return {line["sessionId"]: line for line in lines}


@pytest.mark.usefixtures("two_turns")
def test_a_copy_stands_in_the_list_of_the_other_agent(acphold: CommandLine) -> None:
    done = acphold.run("handoff", "aa", "--", *OTHER)
    assert done.code == 0
    made, what, where, _ = done.out.splitlines()
    assert what == "  2 turns of Greeting"
    assert "in the list of other" in where
    row = listed(acphold, "--agent", "other")[made]
    assert row["title"] == "Greeting"
    assert row["origins"] == [{"sessionId": "aa-1", "agent": "first", "seq": 13}]
    assert list(listed(acphold, "--agent", "first")) == ["aa-1"]
    assert "handed off from first, aa-1@13" in acphold.run("show", made).out


async def test_the_other_agent_goes_on_with_it_and_the_first_session_stays(
    two_turns: Path, acphold: CommandLine, log: Path
) -> None:
    made = acphold.run("handoff", "aa@2", "--", *OTHER).out.splitlines()[0]
    command = scripted_agent(info={"name": "other", "version": "1"}, log=str(log))
    async with guest(command, two_turns) as client:
        await client.initialize()
        assert [found["sessionId"] for found in await client.sessions()] == [made]
        await client.load(made)
        assert "Make it friendlier" in client.text("user_message_chunk")
        await client.prompt(made, "Go on")
        assert "it began with first" in client.text()
    [asked] = received(log, "session/prompt")
    context, own = asked["params"]["prompt"]
    assert own["text"] == "Go on"
    assert "User: Make it friendlier" in context["text"]
    assert "-hi\n+hello" in context["text"]
    assert "And now?" not in context["text"]
    first = json.loads(acphold.run("list", "--json", "--agent", "first").out)
    assert (first["sessionId"], first["messageCount"]) == ("aa-1", 5)


@pytest.mark.usefixtures("two_turns")
def test_a_name_alone_is_enough(acphold: CommandLine) -> None:
    made = acphold.run("handoff", "aa", "--name", "echo (library)").out.splitlines()[0]
    assert listed(acphold, "--agent", "echo (library)").keys() == {made}


@pytest.mark.usefixtures("two_turns")
def test_an_agent_of_the_settings_file_is_asked_by_its_name(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f"[agents.mine]\ncommand = {json.dumps(OTHER)}\nname = 'named'\n")
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    made = acphold.run("handoff", "aa", "mine").out.splitlines()[0]
    assert listed(acphold, "--agent", "named").keys() == {made}


@pytest.mark.usefixtures("two_turns")
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("aa",), 2, "after `--`"),
        (("aa", "--name", "first"), 2, "acphold fork aa"),
        (("zz", "--name", "other"), 3, "zz"),
        (("aa", "--", sys.executable, "-c", "raise SystemExit(4)"), 5, "ended before"),
        (("aa", "--", "no-such-agent"), 5, "no such program"),
        (("aa", "--", "cat"), 5, "the agent answered with an error: method not found: initialize"),
    ],
)
def test_what_cannot_be_handed_over_is_refused(
    acphold: CommandLine, words: tuple[str, ...], code: int, why: str
) -> None:
    done = acphold.run("handoff", *words)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
    assert len(listed(acphold)) == 1
