"""A question whose scene takes too many steps is asked without a yes."""

from __future__ import annotations

import json

import pytest

from acp_wire.schema import PermissionOption
from acp_wire.schema.updates import PermissionOptionKind
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.permissions import (
    STEPS,
    TOO_LONG,
    _steps,
    in_a_line,
    is_too_long,
    permission,
)
from acphold.conversation.presentation.present_diffs import PresentDiff
from acphold.faces.screen import panels
from tests.slow_texts import SLOW

KINDS: tuple[PermissionOptionKind, ...] = (
    "allow_once",
    "allow_always",
    "reject_once",
    "reject_always",
)
OPTIONS = [{"optionId": kind, "kind": kind, "name": kind} for kind in KINDS]
PARAMS = json.dumps({"options": OPTIONS}).encode()


def call_of(old: str, new: str) -> dict[str, bytes]:
    diff = {"type": "diff", "path": "/w/a", "oldText": old, "newText": new}
    fields = {"title": new[:5000], "kind": "edit", "content": [diff], "rawInput": {"new": new}}
    return {name: json.dumps(value).encode() for name, value in fields.items()}


def test_a_question_with_a_diff_of_200_000_short_lines_can_only_be_rejected() -> None:
    call = call_of("a\n" * 200_000, "b\n" * 200_000)
    tool = ToolCall("c", call)
    shown = permission(call, PARAMS)
    assert [each.kind for each in shown.options] == ["reject_once", "reject_always"]
    assert [len(block.whole) <= 200 for block in shown.blocks] == [True, True]
    assert shown.blocks[-1].text == TOO_LONG
    assert in_a_line("Edit", call) == "Edit"
    options = [PermissionOption(kind, kind, kind) for kind in KINDS]
    assert [key.value for key in panels.permission(tool, options).keys] == list(KINDS[2:])
    assert TOO_LONG in str([*map(str, panels.call_details(tool).lines)])


def test_a_whole_file_of_5_000_lines_is_shown_with_all_answers() -> None:
    lines = [f"    value_{number} = compute(number, {number})\n" for number in range(5_000)]
    call = call_of("".join(lines), "".join([*lines[:2_500], "# here\n", *lines[2_500:]]))
    shown = permission(call, PARAMS)
    assert len(shown.options) == 4
    assert any(block.added == 1 for block in shown.blocks)


@pytest.mark.parametrize("piece", SLOW)
def test_twice_the_text_takes_about_twice_the_steps(piece: str) -> None:
    once, twice = (
        _steps(ToolCall("c", call_of(text, text + "x")), {})
        for text in (piece * (size // len(piece)) for size in (20_000, 40_000))
    )
    assert twice <= 2.5 * once


def test_what_is_too_long_with_the_file_as_it_is_is_told_so_beside_it() -> None:
    call = call_of("a", "b")
    present = {0: PresentDiff("a" * STEPS, "b")}
    assert not is_too_long(ToolCall("c", call))
    assert permission(call, PARAMS, present).blocks[-1].text == TOO_LONG
