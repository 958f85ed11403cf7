"""Commands of `acphold chat` itself: none of them reaches the agent."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.place import Place, steps
from tests.editor import scripted_agent

pytestmark = pytest.mark.slow

COMMANDS = {
    "sessionUpdate": "available_commands_update",
    "availableCommands": [
        {"name": "review", "description": "look at it " * 20},
        {"name": "model", "description": "of the agent"},
    ],
}


def prompts(log: Path) -> list[str]:
    """The prompts that the agent received."""
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    asked = [it["params"]["prompt"] for it in messages if it.get("method") == "session/prompt"]
    return [blocks[0]["text"] for blocks in asked]


@pytest.mark.parametrize(("term", "word"), [("xterm-256color", "/quit"), ("dumb", "exit")])
def test_quit_leaves_and_is_no_prompt(place: Place, tmp_path: Path, word: str, term: str) -> None:
    place.env["TERM"] = term
    with place.chat(log=str(tmp_path / "log")) as one:
        one.until("ready")
        one.type(f"{word}\r")
        assert one.ended() == 0
    assert prompts(tmp_path / "log") == []


def test_help_comes_by_a_key_on_an_empty_line(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type("?", "help  /help", "/queue", "!COMMAND", "//NAME", "ready")
        one.type("why?", "▸  why?")


def test_new_begins_another_session_and_the_one_before_can_be_gone_on_with(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "in the first"}), "agent  in the first", "ready")
        one.type("/new\r", "To continue: acphold", "ready")
        one.type("/new\r", "Starting", "ready", below="To continue")
        one.type(steps({"say": "in the second"}))
        one.until("agent  in the second", "ready", below="To continue")
        assert one.ended("\x04") == 0
    assert len(place.run("list", "--json").stdout.splitlines()) == 2


def test_the_menu_of_commands_has_ours_and_the_agents_as_wide_and_tall_as_there_is_room(
    place: Place, tmp_path: Path
) -> None:
    with place.chat(log=str(tmp_path / "log"), columns=120) as one:
        one.until("ready")
        one.type(steps({"update": COMMANDS}), "you", "ready")
        one.type("/")
        shown = one.until("/help", "/quit", "/review", "//model", "/queue")
        assert max(len(line) for line in shown.splitlines()) > 110
        one.type("/model x\r", "agent  heard", "ready")
        one.type("\x15/model\r", "no models to choose from")
    assert prompts(tmp_path / "log")[1:] == ["/model x"]


def test_a_shell_command_runs_in_the_folder_and_the_agent_does_not_see_it(
    place: Place, tmp_path: Path
) -> None:
    place.env["SHELL"] = "/bin/sh"
    with place.chat("--cwd", str(tmp_path), log=str(tmp_path / "log")) as one:
        one.until("ready")
        one.type("!echo here: $(basename $PWD); read word; echo read $word; exit 3\r")
        one.until(f"here: {tmp_path.name}")
        one.type("hello\r", "read hello", "exit code 3", "ready")
    assert prompts(tmp_path / "log") == []


def test_the_session_is_exported_into_a_file(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "out.md"
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "kept words"}), "agent  kept words", "ready")
        one.type(f"/export {file}\r", "acphold  ", "out.md", "ready", below="kept words")
    assert "kept words" in file.read_text()


def test_the_session_is_copied_also_without_its_last_turn(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        for words in ("first", "second"):
            one.type(steps({"say": words}), f"agent  {words}", "ready")
        one.type("/fork before\r")
        one.until("acphold  ", "(1 turn) to", "1 later turn left out", "ready", below="second")
        one.type("/fork\r", "(2 turns) to", "goes on in the copy", "ready")
        one.type("/fork nowhere\r", "/fork before without its last turn", "ready")


def test_the_prompt_is_written_in_the_persons_editor(place: Place, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "of the editor" >> "$1"\n')
    editor.chmod(0o755)
    place.env["VISUAL"] = place.env["EDITOR"] = str(editor)
    with place.chat(log=str(tmp_path / "log")) as one:
        one.until("ready")
        one.type("begun, ", "▸  begun,")
        one.type("\x18\x05", "of the editor", "ready")
        one.type("\r", "agent  heard", "ready")
    assert "of the editor" in prompts(tmp_path / "log")[0]


def test_ctrl_r_finds_an_earlier_prompt(place: Place, tmp_path: Path) -> None:
    with place.chat(log=str(tmp_path / "log")) as one:
        one.until("ready")
        for words in ("the first of all", "another one"):
            one.type(f"{words}\r", words, "ready", below="agent" if words == "another one" else "")
        one.until("ready")
        one.type("\x12first", "find", "first")
        one.type("\r", "▸  the first of all")
        one.type("\r", "you  the first of all", "agent", "ready", below="another one")
    assert prompts(tmp_path / "log") == ["the first of all", "another one", "the first of all"]


def with_mine(place: Place) -> Place:
    """The settings have the agent `mine`."""
    settings = place.folder / "settings.toml"
    agent = json.dumps(scripted_agent(info={"name": "mine", "version": "1"}))
    settings.write_text(f"[agents.mine]\ncommand = {agent}\n")
    place.env["ACPHOLD_SETTINGS"] = str(settings)
    return place


def test_ctrl_d_leaves_at_once_and_the_turn_goes_on(place: Place, tmp_path: Path) -> None:
    go = tmp_path / "go"
    try:
        with with_mine(place).on_terminal("chat", "mine") as one:
            one.until("ready")
            one.type(steps({"say": "begun"}, {"until": str(go)}, {"say": ", and done"}))
            one.until("agent  begun", "running", "Ctrl-D leaves")
            one.type("\x04", "The turn continues in the background. To continue: acphold")
            assert one.ended() == 0
        [row] = [json.loads(it) for it in place.run("list", "--json").stdout.splitlines()]
        [live] = place.run("list", "--live", "--json").stdout.splitlines()
        assert json.loads(live)["messageCount"] == row["messageCount"] == 2
        with place.on_terminal("continue", row["sessionId"]) as other:
            other.until("agent  begun", "running")
            go.touch()
            other.until("begun, and done", "ready")
    finally:
        place.run("agent", "stop", "--all", "--yes")


def test_from_an_attached_session_new_and_resume_go_to_another_one(place: Place) -> None:
    with with_mine(place).on_terminal("chat", "mine") as one:
        one.until("ready")
        one.type(steps({"say": "in the first"}), "agent  in the first", "ready")
        [row] = [json.loads(it) for it in place.run("list", "--json").stdout.splitlines()]
        first = row["sessionId"]
        with place.on_terminal("chat", "demo", "--resume", first) as other:
            other.until("agent  in the first", "ready")
            other.type("/new\r", "Detached; the session continues", "Starting mine", "ready")
            other.type(steps({"say": "in the second"}))
            other.until("agent  in the second", "ready", below="Detached")
            other.type(f"/resume {first}\r", "agent  in the first", "ready", below="in the second")
            assert other.ended("\x04") == 0
        assert one.ended("\x04") == 0
    assert len(place.run("list", "--json").stdout.splitlines()) == 2
    place.run("agent", "stop", "--all", "--yes")


def test_a_live_session_does_not_move_to_another_folder_and_that_is_said(
    place: Place, tmp_path: Path
) -> None:
    with with_mine(place).on_terminal("chat", "mine") as one:
        one.until("ready")
        one.type(steps({"say": "here"}), "agent  here", "ready")
        [row] = [json.loads(it) for it in place.run("list", "--json").stdout.splitlines()]
        done = place.run("continue", row["sessionId"], "--cwd", str(tmp_path))
        assert done.returncode == 2
        assert "this session is running in" in done.stderr
        assert "cannot move" in done.stderr
    place.run("agent", "stop", "--all", "--yes")


RAISING = """
import acphold

agent = acphold.Agent("raising", version="1")

@agent.prompt
async def answer(turn):
    raise RuntimeError("only the log knows this")
"""


def test_the_log_that_has_an_incident_of_the_daemon_is_named(place: Place) -> None:
    (program := place.folder / "raising.py").write_text(RAISING)
    settings = place.folder / "settings.toml"
    command = json.dumps([sys.executable, "-m", "acphold", "agent", "run", str(program)])
    settings.write_text(f"[agents.mine]\ncommand = {command}\n")
    place.env["ACPHOLD_SETTINGS"] = str(settings)
    try:
        with place.on_terminal("chat", "mine", columns=200) as one:
            one.until("ready")
            one.type("hello\r")
            # In what the agent printed, or in the log if that has not come here yet.
            one.until("failed: ", "its traceback")
            done = place.run("ask", "hello", "--continue")
            named = re.search(r"incident [0-9a-f]{8}\); its traceback is in (\S+)", done.stderr)
            assert named is not None, done.stderr
            assert "only the log knows this" in Path(named[1]).read_text()
    finally:
        place.run("agent", "stop", "--all", "--yes")
