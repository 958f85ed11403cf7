"""Permission requests as a person sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.permissions import (
    folders_outside,
    in_a_line,
    offer,
    permission,
    without_repetition,
)

CASES = json.loads(Path(__file__).with_name("permissions.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_a_request_says_this_and_nothing_twice(case: dict[str, Any]) -> None:
    call = {name: json.dumps(value).encode() for name, value in case["call"].items()}
    title, given, places = without_repetition(ToolCall("", call))
    assert {
        "title": title,
        "arguments": json.loads(msgspec.json.encode(given)),
        "content": places,
        "outside": list(folders_outside(ToolCall("", call))),
    } == {"outside": [], **case["says"]}


def test_what_an_answer_does_is_said_by_us_whatever_the_agent_calls_it() -> None:
    told = [
        offer("a", "allow_always", "No, reject"),
        offer("b", "reject_once", "No"),
        offer("c", "allow_twice", "Yes\u202e"),
        offer("d", "reject_always", "Never"),
    ]
    assert [str(each) for each in told] == [
        "allow always: No, reject",
        "reject",
        "of the unknown kind allow_twice: Yes\\u202e",
        "reject always: Never",
    ]


DEPTHS = (200, *range(800, 1010), 1200)
"""Between these, a decoder still accepts values that an encoder refuses."""


def test_arguments_of_any_depth_are_shown() -> None:
    for depth in DEPTHS:
        nested = b"[" * depth + b"1" + b"]" * depth
        call = {"title": b'"Deep"', "rawInput": b'{"a":' + nested + b"}"}
        params = b'{"toolCall":{"toolCallId":"t1"},"options":[]}'
        assert permission(call, params).blocks[1].text


UNREADABLE = [b"1e999", b'"\xff"', *(b"[" * depth + b"]" * depth for depth in DEPTHS)]


@pytest.mark.parametrize("name", [b"x", b"\xff"])
def test_beside_what_cannot_be_read_a_command_stands_whole_and_no_title_stands_as_it(
    name: bytes,
) -> None:
    command = "rm -rf " + "build " * 900
    for value in UNREADABLE:
        given = b'{"command":"%b","%b":%b}' % (command.encode(), name, value)
        call = {"title": b'"git status"', "kind": b'"execute"', "rawInput": given}
        [run] = [it for it in permission(call, b"{}").blocks if it.kind == "command"]
        assert command in run.text


def test_what_would_run_may_have_no_name() -> None:
    call = {"title": b'"List"', "kind": b'"execute"', "rawInput": b'["rm","-rf","build"]'}
    told = [(it.kind, it.text) for it in permission(call, b"{}").blocks]
    assert told == [("command", "rm -rf build"), ("text", "List")]


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
    hidden = "echo \u2764\ufe0f"
    assert in_a_line(hidden, {"rawInput": msgspec.json.encode([hidden])}) == "echo \u2764\\ufe0f"


def told(**call: Any) -> list[tuple[str, str, str]]:
    fields = {name: json.dumps(value).encode() for name, value in call.items()}
    blocks = permission(fields, b'{"options":[]}').blocks
    return [(block.kind, block.name, block.text) for block in blocks]


def test_a_command_keeps_each_backtick_but_those_of_markdown_around_it() -> None:
    assert told(title="echo `id`", kind="execute") == [("command", "", "echo `id`")]
    assert told(title="`make all`", kind="execute") == [("command", "", "make all")]


def test_a_place_is_shown_even_if_another_path_ends_like_it() -> None:
    diff = {"type": "diff", "path": "/srv/etc/passwd", "newText": "x"}
    places = [{"path": "/etc/passwd"}, {"path": "/srv/etc/passwd"}]
    assert told(title="Edit", content=[diff], locations=places)[2:] == [
        ("path", "location", "/etc/passwd")
    ]


def test_an_edit_without_a_change_says_so_beside_all_that_is_known() -> None:
    place, said = [{"path": "/srv/hello.py"}], ("text", "", "The agent does not show the change.")
    title = ("text", "", "Edit hello.py")
    assert told(title="Edit hello.py", kind="edit") == [title, said]
    assert told(
        title="Edit hello.py", kind="edit", rawInput={"path": "hello.py"}, locations=place
    ) == [title, ("path", "path", "hello.py"), ("path", "location", "/srv/hello.py"), said]
    text = {"content": "print()"}
    assert said not in told(title="Edit hello.py", kind="edit", rawInput=text)
    diff = {"type": "diff", "path": "/srv/hello.py", "newText": "x"}
    assert said not in told(title="Edit hello.py", kind="edit", content=[diff])
    assert said not in told(title="Read hello.py", kind="read")


def test_a_path_is_without_detours_and_stands_beside_that_as_it_was_given() -> None:
    given = "/srv/src/" + "./" * 260 + "../.github/x.yml"
    assert told(title="Edit", rawInput={"file_path": given})[1:] == [
        ("path", "file_path", "/srv/.github/x.yml"),
        ("argument", "given as", given),
    ]
