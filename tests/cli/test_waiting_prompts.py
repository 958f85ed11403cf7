"""The queued prompts, on the terminal of `acphold chat`: they are in the session, and stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.place import Place, steps
from tests.cli.test_local_commands import prompts

pytestmark = pytest.mark.slow

UP = "\x1b[A"


def until_told(go: Path, said: str = "begun") -> str:
    """A prompt whose turn ends once the file is there."""
    return steps({"say": said}, {"until": str(go)})


def test_prompts_that_are_typed_while_a_turn_runs_are_shown_and_begin_in_their_order(
    place: Place, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with place.chat(log=str(tmp_path / "log")) as one:
        one.until("ready")
        one.type(until_told(go), "agent  begun", "running")
        one.type("second\r", "1 queued prompt")
        one.type("third\r")
        one.until("next  2 queued prompts\n         1  second\n         2  third\n      ▸")
        go.touch()
        one.until("you  second", "you  third", "ready", but="queued prompts")
    assert prompts(tmp_path / "log")[1:] == ["second", "third"]


def test_what_waits_survives_leaving_and_is_held_for_the_next_process(
    place: Place, tmp_path: Path
) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(until_told(tmp_path / "never"), "agent  begun", "running")
        one.type("for tomorrow\r", "1 queued prompt")
        one.type("\x04")
        one.until("The turn continues in the background. 1 queued prompt. To continue: acphold")
        assert one.ended() == 0
    place.run("agent", "stop", "--all", "--yes")
    with place.chat("--continue", log=str(tmp_path / "log")) as other:
        other.until("1 queued prompt; paused: ", "1  for tomorrow", "ready")
        assert prompts(tmp_path / "log") == []
        other.type("/queue resume\r", "you  for tomorrow", "ready", but="1 queued prompt")


def test_up_takes_the_last_one_back_and_then_goes_to_earlier_prompts(
    place: Place, tmp_path: Path
) -> None:
    with place.chat(log=str(tmp_path / "log")) as one:
        one.until("ready")
        one.type(until_told(tmp_path / "never"), "agent  begun", "running")
        for text in ("first", "second"):
            one.type(f"{text}\r")
        one.until("2 queued prompts")
        one.type(UP, "▸  second", "2  being edited · second", "Enter puts it back")
        one.type("\x15\r")
        one.until("2  second", but="being edited")
        one.type(UP, "▸  second", "2  being edited · second")
        one.type(", better\r", "2  second, better")
        one.type("/later third\r", "3 queued prompts", "3  third")
        one.type("/queue next 3\r", "1  third")
        one.type("/queue drop 2\r")
        one.until("2 queued prompts", "1  third\n         2  second, better", "taken back: first")
        one.type("/queue\r")
        one.until("queue  2 queued prompts\n         1  third\n         2  second, better")
    assert len(prompts(tmp_path / "log")) == 1


def test_a_prompt_with_a_picture_that_cannot_be_typed_again_stays(
    place: Place, tmp_path: Path
) -> None:
    (shot := tmp_path / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    takes = {"promptCapabilities": {"image": True}}
    with place.chat("--cwd", str(tmp_path), capabilities=takes) as one:
        one.until("ready")
        one.type(until_told(tmp_path / "never"), "agent  begun", "running")
        one.type("look at @shot.png \r", "1  look at @shot.png [image]")
        one.type(UP, "▸  look at @shot.png", "1  being edited")
        one.type("\r", "1  look at", but="being edited")
        shot.unlink()
        one.type(UP, "prompt 1 has pictures and cannot be edited", "1  look at @shot.png [image]")


def test_a_terminal_that_only_prints_says_what_waits(place: Place, tmp_path: Path) -> None:
    place.env["TERM"] = "dumb"
    go = tmp_path / "go"
    with place.chat() as one:
        one.until("Starting")
        one.type(until_told(go), "you: [")
        one.type("second\r", "1 queued prompt\n  1  second")
        one.type("/queue pause\r", "1 queued prompt; paused (/queue resume)\n  1  second")
        one.type("/queue resume\r")
        go.touch()
        one.until("you: second", "heard")


def test_a_prompt_for_a_moment_waits_alone_and_who_attaches_sees_it(
    place: Place, tmp_path: Path
) -> None:
    with place.chat(log=str(tmp_path / "log")) as one:
        one.until("ready")
        one.type("/later 2099-01-02 02:00 write the summary\r")
        one.until(
            "next  1 queued prompt\n         1  2099-01-02 02:00 · write the summary\n", "ready"
        )
        one.type("/later 2001-01-02 02:00 too late\r")
        one.until("that time has passed", "▸  /later 2001-01-02 02:00 too late")
        one.type("\x15/later 02:00\r", "/later [02:00] TEXT: ")
        [row] = [json.loads(it) for it in place.here("queue", "--json").out.splitlines()]
        with place.on_terminal("continue", row["sessionId"]) as other:
            other.until("1  2099-01-02 02:00 · write the summary", "ready")
        one.type("first this\r", "you  first this", "1 queued prompt", "ready")
        assert prompts(tmp_path / "log") == ["first this"]
        one.type("\x03")  # without a turn it holds what would begin by itself
        one.until("1 queued prompt; paused: stopped", "Ctrl-C again leaves")
        assert one.ended("\x03") == 0


def test_on_a_narrow_terminal_one_still_reads_how_to_go_on(place: Place) -> None:
    with place.chat(columns=34) as one:
        one.until("ready")
        one.type("/later 2099-01-02 02:00 " + "words " * 20 + "\r")
        one.until("next  1 queued prompt\n         1  2099-01-02 02:00 · w…\n")
        one.type("/queue pause\r")
        one.until("next  1 queued prompt; paused\n         (/queue resume)\n         1  2099")


def test_words_for_now_stand_in_the_running_turn_in_both_terminals(
    place: Place, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    meta = {"steering": {"supported": True}}
    replies = {"_session/steering": [{"outcome": "injected"}]}
    with place.chat(replies=replies, meta=meta) as one:
        one.until("ready")
        one.type(steps({"say": "begun"}, {"until": str(go)}, {"say": "in French"}))
        one.until("agent  begun", "running")
        [row] = [json.loads(it) for it in place.here("list", "--json").out.splitlines()]
        with place.on_terminal("continue", row["sessionId"]) as other:
            other.until("agent  begun", "running")
            one.type("/now French, please\r", "you  French, please")
            other.until("you  French, please")
            go.touch()
            one.until("you  French, please\n\n  agent  in French", "ready", but="queued prompt")
            other.until("you  French, please\n\n  agent  in French", "ready")
