"""Permission requests as a person sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_conversation.presentation.permissions import in_a_line, permission

CASES = json.loads(Path(__file__).with_name("permissions.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_a_request_shows_this(case: dict[str, Any]) -> None:
    call = {name: json.dumps(value).encode() for name, value in case["call"].items()}
    params = json.dumps({"toolCall": case["call"], "options": case.get("options", [])})
    shows = permission(call, params.encode())
    assert json.loads(msgspec.json.encode(shows)) == case["shows"]


def test_arguments_of_any_depth_are_shown() -> None:
    # Between these depths, a decoder still accepts values that an encoder refuses.
    for depth in range(200, 1200):
        nested = b"[" * depth + b"1" + b"]" * depth
        call = {"title": b'"Deep"', "rawInput": b'{"a":' + nested + b"}"}
        params = b'{"toolCall":{"toolCallId":"t1"},"options":[]}'
        assert permission(call, params).arguments[0].text


def test_in_a_list_and_in_a_notice_a_command_stands_for_a_title_of_it_that_was_cut_off() -> None:
    command = "find . -name '*.py' -delete && git push --force"
    for title in (f"`{command}`", f"`{command[:20]}…`", f"{command[:20]}..."):
        call = {"title": json.dumps(title).encode(), "rawInput": msgspec.json.encode([command])}
        given = {**call, "rawInput": json.dumps({"command": command}).encode()}
        assert in_a_line(title, given) == command
        assert in_a_line(title, call) == command
    assert (
        in_a_line("Clean up", {"rawInput": json.dumps({"command": command}).encode()}) == "Clean up"
    )
    assert in_a_line("", {"rawInput": b"{}"}) == ""
