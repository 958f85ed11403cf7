"""`acphold chat` and `acphold attach` on a real terminal, and in a pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.screen_terminal import Terminal, terminal
from tests.editor import DEADLINE, scripted_agent

ACPHOLD = (sys.executable, "-m", "acphold")


class Place:
    """Folders of its own, and commands in them."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.folder = folder
        unwanted = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "ACPHOLD_SETTINGS"}
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.env = {
            **kept,
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "ACPHOLD_JOURNAL": str(journal),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }

    def on_terminal(self, *words: str, columns: int = 80) -> AbstractContextManager[Terminal]:
        return terminal([*ACPHOLD, *words], self.env, columns)

    def chat(
        self, *options: str, columns: int = 80, **agent: Any
    ) -> AbstractContextManager[Terminal]:
        return self.on_terminal("chat", *options, "--", *scripted_agent(**agent), columns=columns)

    def run(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ACPHOLD, *words],
            env=self.env,
            input=typed,
            capture_output=True,
            text=True,
            timeout=DEADLINE * 2,
            check=False,
        )


@pytest.fixture
def place(journal: Path) -> Iterator[Place]:
    # Not in the folder of the test, whose name is too long for a socket in it.
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    yield Place(folder, journal)
    shutil.rmtree(folder)


def steps(*them: dict[str, Any]) -> str:
    return json.dumps(them) + "\r"


def ask(**tool: Any) -> dict[str, Any]:
    options = [
        {"optionId": "go", "name": "Go on", "kind": "allow_once"},
        {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
    ]
    request = {"toolCall": {"toolCallId": "t1", **tool}, "options": options}
    return {"ask": ["session/request_permission", request]}


def test_a_turn_with_a_permission_by_key_and_another_day(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps(ask(title="Run it", rawInput={"command": "make all"})))
        one.until("command: make all", "[y] Go on", "[n] Stop it")
        one.type("\r")  # which is never a yes
        one.until("[y] Go on")
        one.type("y")
        one.until("Run it → Go on", '"optionId": "go"', "ready")
        one.type("\x04")
        assert one.ended() == 0
        one.until("To go on: acphold chat --resume")
    with place.chat("--continue") as other:
        other.until('"optionId": "go"', "ready")
        other.type("\x03")
        other.until("Ctrl-C again")
        other.type("\x03")
        assert other.ended() == 0


def test_ctrl_c_cancels_the_running_turn(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "begun"}, {"until": "cancel"}, {"stop": "cancelled"}))
        one.until("begun", "running")
        one.type("\x03")
        one.until("cancelled", "ready")


def test_two_terminals_hold_one_session_and_the_first_answer_counts(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "from the first"}))
        one.until("from the first", "ready")
        with place.on_terminal("attach") as other:
            other.until("Which one?")
            other.type("\r")
            other.until("from the first", "ready")
            other.type(steps(ask(title="Run it")))
            one.until("[y] Go on")
            other.until("[y] Go on")
            other.type("y")
            one.until("settled without", '"optionId": "go"', but="[y]")
            other.until('"optionId": "go"', "ready")
            other.type("\x04")
            other.until("the session goes on")
            assert other.ended() == 0
        one.type(steps({"say": "still here"}))
        one.until("still here", "ready")


def test_who_is_attached_is_told_when_the_process_goes(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "from the first"}))
        one.until("from the first", "ready")
        with place.on_terminal("attach") as other:
            other.until("Which one?")
            other.type("\r")
            other.until("from the first", "ready")
            one.type("\x04")
            assert one.ended() == 0
            other.until("has ended")
            assert other.ended() == 5


def test_a_session_that_is_not_live_is_not_attached_to(place: Place) -> None:
    said = place.run("chat", "--", *scripted_agent(), typed="hello\n")
    assert "agent: heard:" in said.stdout
    [line] = [json.loads(line) for line in place.run("list", "--json").stdout.splitlines()]
    refused = place.run("attach", line["sessionId"])
    assert refused.returncode == 1
    assert f"acphold chat --resume {line['sessionId']}" in refused.stderr


def test_in_a_pipe_each_line_is_a_prompt_and_nothing_is_allowed_unasked(place: Place) -> None:
    typed = f"{json.dumps([ask(title='Run it')])}\nsecond\n"
    done = place.run("chat", "--", *scripted_agent(), typed=typed)
    assert done.returncode == 0, done.stderr
    assert '"optionId": "stop"' in done.stdout
    assert "second" in done.stdout
    assert "\x1b" not in done.stdout


def test_what_is_typed_stays_one_prompt_over_several_lines_and_is_kept_private(
    place: Place,
) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type("one\\\rtwo\x1b\rthree")
        one.until("three")
        one.type("\r")
        one.until("one\\\\ntwo\\\\nthree".replace("\\\\", "\\"), "ready")
        one.type("\x1b[200~pasted\rlines\x1b[201~")
        one.until("lines")
        one.type("\x04\x03")
        one.until(but="lines")
    kept = place.folder / "state" / "acphold" / "prompts"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "+three" in kept.read_text()
