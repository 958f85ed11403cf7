"""The screen of `acphold chat` while an agent works: redrawing, the bell, opening details."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.place import Place, ask, steps

pytestmark = pytest.mark.slow


def call(tool_call_id: str, text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    told = {"toolCallId": tool_call_id, "status": "completed", "content": content, **fields}
    return {"update": {"sessionUpdate": "tool_call", **told}}


def test_what_is_typed_before_the_screen_is_there_is_not_lost(place: Place) -> None:
    with place.chat() as one:
        one.type(steps({"say": "typed early"}).rstrip(), "ready")
        one.type("\r", "agent  typed early", "ready")


def test_the_status_counts_seconds_and_a_question_rings_and_is_in_the_title(
    place: Place, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "begun"}, {"until": str(go)}, ask(title="Run it")))
        one.until("running 1 s")
        one.until("running 2 s")
        assert "\x1b]2;… ".encode() in one.raw
        before = one.raw.count(b"\x07")
        go.touch()
        one.until(", then Enter")
        assert b"\x1b]2;? " in one.raw
        assert one.raw.count(b"\x07") > before + 1  # one of them ends the title
        one.type("\x1b[B", "Enter: allow once: Go on")
        one.type("\x1b[B", "Enter: reject: Stop it")
        one.type("\r", '"stop"', "ready")
        assert one.ended("\x04") == 0
    assert one.raw.rstrip().find(b"\x1b[23;2t") > 0


def test_a_tool_call_is_opened_whole_in_the_pager_and_stderr_by_a_key(place: Place) -> None:
    place.env["PAGER"] = "sed s/^/PAGED/"
    printed = "".join(f"line {number}\n" for number in range(20))
    with place.chat() as one:
        one.until("ready")
        one.type("\x0f", "no tool calls yet")
        run = call("t", printed + "\x1b[32mgreen\x1b[0m\x1b[2J", title="make", kind="execute")
        one.type(steps({"stderr": "words of \x1b[2J mine"}, run))
        one.until("● make", "… 16 lines above (Ctrl-O)", "green\\x1b[2J", "ready")
        one.type("\x0f", "PAGED", "line 12", "ready")
        one.type("\x1bOS", "words of \\x1b[2J mine", "ready")


PNG = base64.b64decode("iVBORw0KGgo=") + bytes(8)


def blocks(log: Path) -> list[dict[str, Any]]:
    """The content of the last prompt."""
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    asked = [it["params"]["prompt"] for it in messages if it.get("method") == "session/prompt"]
    last: list[dict[str, Any]] = asked[-1]
    return last


def test_a_picture_goes_whole_to_an_agent_that_takes_such_and_as_a_link_to_others(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "shot.png").write_bytes(PNG)
    takes = {"promptCapabilities": {"image": True}}
    for capabilities, kind in ((takes, "image"), ({}, "resource_link")):
        log = tmp_path / f"{kind}.log"
        agent: dict[str, Any] = {"log": str(log), "capabilities": capabilities}
        with place.chat("--cwd", str(tmp_path), **agent) as one:
            one.until("ready")
            one.type("look at @shot.png \r", "agent  heard", "ready")
        assert [block["type"] for block in blocks(log)] == ["text", kind]


def test_the_picture_of_the_clipboard_is_named_by_a_key(place: Place, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(PNG)
    program = tmp_path / "bin" / "wl-paste"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/picture\n")
    program.chmod(0o755)
    place.env["PATH"] = f"{program.parent}:{place.env['PATH']}"
    log = tmp_path / "log"
    agent: dict[str, Any] = {"capabilities": {"promptCapabilities": {"image": True}}}
    with place.chat(log=str(log), **agent) as one:
        one.until("ready")
        one.type("\x16", "▸  @", ".png")
        one.type("\r", "agent  heard", "ready")
        (tmp_path / "picture").write_bytes(b"")
        one.type("\x16", "no picture in the clipboard")
    assert blocks(log)[1]["data"] == base64.b64encode(PNG).decode()


def test_tab_completes_a_command_of_ours_and_of_the_agent_however_fast_it_is_typed(
    place: Place,
) -> None:
    known = [{"name": "review", "description": "Look it over"}]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": known}
    with place.chat(columns=60) as one:
        one.until("ready")
        one.type(steps({"update": update}, {"say": "They are told."}))
        one.until("agent  They are told.", "ready")
        one.type("/rev\t", "▸  /review")
        one.type("it all\r", "you  /review it all", "ready")
        one.type("/mo\t", "▸  /mode\n", "/model", "/mode ")
        assert one.ended("\x15/qui\t\r") == 0
