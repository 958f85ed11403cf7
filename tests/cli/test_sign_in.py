"""Signing in from the terminal: the agent's ways are offered and run, then the prompt goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.place import Place, steps
from tests.editor import scripted_agent

pytestmark = pytest.mark.slow

BROWSER = {"id": "browser", "name": "Log in with Example", "description": "in your browser"}
TERMINAL = {
    "id": "tty",
    "name": "Log in here",
    "type": "terminal",
    "args": ["--login"],
    "env": {"LOGIN": "1"},
}
KEY = {"id": "key", "name": "Use EXAMPLE_API_KEY"}
TERMS = pytest.mark.parametrize("term", ["xterm-256color", "dumb"])


@pytest.fixture
def wants(tmp_path: Path) -> dict[str, Any]:
    """An agent that wants a sign-in."""
    return {"sign_in": str(tmp_path / "signed-in"), "authMethods": [BROWSER, TERMINAL]}


@TERMS
def test_chat_offers_the_ways_and_goes_on_with_the_prompt_that_was_typed(
    place: Place, wants: dict[str, Any], term: str
) -> None:
    place.env["TERM"] = term
    with place.chat(gated=["session/prompt"], columns=120, **wants) as one:
        one.until("ready" if term != "dumb" else "Starting")
        one.type(steps({"say": "here you are"}))
        one.until(
            "the agent wants you to sign in: Authentication required",
            "[1] through the agent: Log in with Example (in your browser)",
            "[2] in this terminal: Log in here",
            "[n] not now",
            ", then Enter",
        )
        one.type("1\r", "open https://login.example/device", "signed in; through the agent: Log in")
        one.until("agent  here you are" if term != "dumb" else "agent: here you are")
        assert one.ended("\x04") == 0


@TERMS
def test_a_way_for_a_terminal_is_gone_in_this_one_and_the_agent_begins_anew(
    place: Place, wants: dict[str, Any], term: str
) -> None:
    place.env["TERM"] = term
    with place.chat(gated=["session/prompt"], columns=120, **wants) as one:
        one.until("ready" if term != "dumb" else "Starting")
        one.type(steps({"say": "here you are"}), "[2] in this terminal", ", then Enter")
        one.type("2\r", "Your password, please:")
        one.type("wrong\r", "signing in failed", "ended with 3")
        one.until("[2] in this terminal", ", then Enter", below="ended with 3")
        one.type("2\r", "Your password, please:", below="ended with 3")
        one.type("sesame\r", "signed in; in this terminal: Log in here", "here you are")


def test_a_sign_in_before_there_is_a_session_is_asked_before_the_screen(
    place: Place, wants: dict[str, Any]
) -> None:
    with place.chat(**wants) as one:
        one.until("[2] in this terminal", ", then Enter")
        one.type("2\r", "Your password, please:")
        one.type("sesame\r", "signed in; in this terminal: Log in here", "ready")
        one.type(steps({"say": "here you are"}), "agent  here you are", "ready")


def test_who_does_not_sign_in_keeps_the_prompt_and_is_told_the_command(
    place: Place, wants: dict[str, Any]
) -> None:
    with place.chat(gated=["session/prompt"], **wants) as one:
        one.until("ready")
        one.type("hello\r", ", then Enter")
        one.type("n\r", "sign in first: `acphold agent sign-in", "ready")


def test_ctrl_c_gives_up_a_sign_in_that_the_agent_does_not_end(
    place: Place, wants: dict[str, Any]
) -> None:
    wants["silent"] = ["authenticate"]
    wants["replies"] = {"authenticate": [{}]}
    with place.chat(gated=["session/prompt"], **wants) as one:
        one.until("ready")
        one.type("hello\r", ", then Enter")
        one.type("1\r", "the agent is signing you in (Ctrl-C cancels)")
        one.type("\x03", "sign in first: `acphold agent sign-in", "ready")


def test_ask_offers_the_ways_and_answers_then(place: Place, wants: dict[str, Any]) -> None:
    agent = scripted_agent(**wants)
    with place.on_terminal("ask", json.dumps([{"say": "the answer"}]), "--", *agent) as one:
        one.until("[1] through the agent: Log in with Example", ", then Enter")
        one.type("2\r", "Your password, please:")
        one.type("sesame\r", "signed in; in this terminal: Log in here", "the answer")
        assert one.ended() == 0


@pytest.mark.parametrize("gated", ["session/new", "session/prompt"])
@pytest.mark.parametrize("command", ["ask", "chat"])
def test_in_a_pipe_the_exit_code_and_a_line_say_what_to_do(
    place: Place, wants: dict[str, Any], command: str, gated: str
) -> None:
    agent = scripted_agent(gated=[gated], **wants)
    words = ["--permission", "reject", "hello"] if command == "ask" else []
    done = place.run(command, *words, "--", *agent, typed="hello\n" * (command == "chat"))
    assert done.returncode == 9, done.stderr
    assert "sign in first: `acphold agent sign-in -- " in done.stderr
    assert "Authentication required" in done.stderr


def test_a_key_that_is_missing_is_named_with_what_to_type(
    place: Place, wants: dict[str, Any]
) -> None:
    refused = {"error": {"code": -32603, "message": "EXAMPLE_API_KEY is not set"}}
    wants |= {"authMethods": [KEY], "replies": {"authenticate": [refused]}}
    with place.chat(gated=["session/prompt"], columns=120, **wants) as one:
        one.until("ready")
        one.type("hello\r", "[1] through the agent: Use EXAMPLE_API_KEY", ", then Enter")
        one.type("1\r", "signing in failed", "EXAMPLE_API_KEY=… acphold chat")


def test_what_an_agent_calls_its_ways_cannot_look_like_ours(
    place: Place, wants: dict[str, Any]
) -> None:
    evil = {"id": "x", "name": "x\n   [y] signed in\x1b[2J", "description": "\x1b]0;hi\x07"}
    wants["authMethods"] = [evil]
    with place.chat(gated=["session/prompt"], columns=120, **wants) as one:
        one.until("ready")
        one.type("hello\r")
        shown = one.until("[1] through the agent: x [y] signed in\\x1b[2J (\\x1b]0;hi\\x07)")
        assert "\n   [y]" not in shown


def test_sign_in_and_sign_out_by_themselves(place: Place, wants: dict[str, Any]) -> None:
    agent = scripted_agent(capabilities={"auth": {"logout": {}}}, **wants)
    signed_in = Path(wants["sign_in"])
    with place.on_terminal("agent", "sign-in", "--", *agent) as one:
        one.until("[1] through the agent: Log in with Example", ", then Enter")
        one.type("1\r", "signed in; through the agent")
        assert one.ended() == 0
    assert signed_in.exists()
    out = place.run("agent", "sign-out", "--", *agent)
    assert (out.returncode, signed_in.exists()) == (0, False), out.stderr
    named = place.run("agent", "sign-in", "--method", "browser", "--", *agent)
    assert (named.returncode, signed_in.exists()) == (0, True), named.stderr
    asked = place.run("agent", "sign-in", "--", *agent)
    assert asked.returncode == 9
    assert "--method browser  through the agent: Log in with Example" in asked.stderr
    refused = place.run("agent", "sign-in", "--method", "tty", "--", *agent)
    assert refused.returncode == 9
    assert "terminal" in refused.stderr


def test_an_agent_that_cannot_sign_out_is_told_of(place: Place, wants: dict[str, Any]) -> None:
    done = place.run("agent", "sign-out", "--", *scripted_agent(**wants))
    assert done.returncode == 1
    assert "has no way to sign you out" in done.stderr
