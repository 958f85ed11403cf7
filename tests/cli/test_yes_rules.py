"""A yes made standing in the terminal: by the next key, and never in the way of the next line."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.cli.place import Place, ask, steps
from tests.cli.test_inbox import asking
from tests.editor import scripted_agent, under_name
from tests.screen_terminal import Terminal

pytestmark = pytest.mark.slow

CLAUDE = {"info": {"name": "@agentclientprotocol/claude-agent-acp", "version": "1"}}
OFFER = "Allow it from now on?"


def claude(place: Place) -> AbstractContextManager[Terminal]:
    """A chat with an agent that was started as Claude's program."""
    program = under_name("claude-agent-acp", place.folder, scripted_agent(**CLAUDE))
    return place.on_terminal("chat", "--", *program, columns=120)


def run(command: str, call: str) -> dict[str, Any]:
    return ask(
        toolCallId=call,
        title=command,
        kind="execute",
        name="Bash",
        rawInput={"command": command},
    )


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_the_next_key_after_a_yes_makes_it_standing(term: str, place: Place) -> None:
    place.env["TERM"] = term
    with claude(place) as one:
        one.until("Starting" if term == "dumb" else "ready")
        one.type(steps(run("pytest -q", "c1")), ", then Enter")
        one.type("y\r")
        one.until(
            OFFER,
            "[s] Always allow claude to run `pytest -q` in ",
            " for 30 days: exactly this command",
            "[e] the same, whichever agent asks",
            "[w] Always allow claude to run `pytest` with any arguments in ",
            " for 30 days: runs this folder's code",
        )
        one.until("or write to the agent", below=OFFER)
        one.type("s\r")
        one.until("Always allow claude to run `pytest -q` in ", "To revoke it: acphold rules rm 1")
        one.type(steps(run("pytest -q", "c2")))
        one.until("allowed by your rule 1", "" if term == "dumb" else "ready")
        one.type("\x04")  # which a running turn would ask to have twice
        assert one.ended() == 0
    assert "1 Always allow claude to run `pytest -q` in " in place.here("rules").out


def test_any_other_line_is_a_prompt_and_the_offer_goes(place: Place) -> None:
    with claude(place) as one:
        asking(one, run("make check", "c1"))
        one.type("y\r", OFFER, "or write to the agent")
        one.type("so what now\r", "agent  heard", "ready", but=OFFER)
        asking(one, run("make check", "c2"))
        one.type("y\r", OFFER, "or write to the agent")
        asking(one, run("make clean", "c3"))  # the next question takes its place
        one.until("Allow this", but=OFFER)
        one.type("\x03", "ready")
        assert one.ended("\x04") == 0
    assert place.here("rules").out.startswith("No rules.")


def test_a_yes_in_the_inbox_is_made_standing_for_every_agent(place: Place) -> None:
    with claude(place) as chat:
        for call, key in (("c1", "\r"), ("c2", "e\r")):
            asking(chat, run("make check", call))
            with place.on_terminal("inbox", columns=120) as inbox:
                inbox.until(", then Enter")
                inbox.type("y\r", OFFER, "anything else continues")
                inbox.type(key)
                assert inbox.ended() == 0
            chat.until("ready")
        chat.type(steps(run("make check", "c3")), "allowed by your rule 1")
        chat.type("\x04")
    assert "Always allow every agent to run `make check` in " in place.here("rules").out


def test_an_agent_that_only_calls_itself_claude_gets_no_answer_by_a_rule(place: Place) -> None:
    with place.chat(columns=120, **CLAUDE) as one:
        one.until("ready")
        assert place.here("rules", "add", "run make check").code == 0
        asking(one, run("make check", "c1"))
        one.type("n\r", "ready")
        assert one.ended("\x04") == 0
