"""Questions on the screen: choices by key, and lines that must fit a form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_wire.schema import ElicitationSchema, PermissionOption, decode
from acp_wire.schema.client_services import ElicitationPropertySchema
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import DeclarationError
from acphold.faces.screen.panels import (
    Key,
    KeyChoice,
    Pick,
    call_details,
    choices,
    field,
    permission,
    value_of,
)


def option(id_: str, kind: str) -> PermissionOption:
    return PermissionOption(option_id=id_, name=id_.title(), kind=kind)  # type: ignore[arg-type]


def call(**fields: Any) -> ToolCall:
    return ToolCall("t1", {name: json.dumps(value).encode() for name, value in fields.items()})


def form(**schema: Any) -> ElicitationPropertySchema:
    whole = json.dumps({"type": "object", "properties": {"it": schema}}).encode()
    return decode(ElicitationSchema, whole).value.properties["it"]


def test_each_kind_of_answer_has_its_key_and_a_second_one_of_a_kind_a_number() -> None:
    options = [
        option("go", "allow_once"),
        option("stop", "reject_once"),
        option("no", "reject_once"),
    ]
    choice = permission(call(title="Run it"), options)
    assert [(key.key, key.value) for key in choice.keys] == [
        ("y", "go"),
        ("n", "stop"),
        ("3", "no"),
    ]
    assert choice.answer("y") == "go"


def test_of_a_hundred_answers_each_has_a_key_of_its_own() -> None:
    choice = permission(call(), [option(f"o{number}", "allow_once") for number in range(1, 101)])
    assert len({key.key for key in choice.keys}) == 100
    assert all(choice.answer(key.key) == key.value for key in choice.keys)
    assert choice.answer("100") == "o100"


@pytest.mark.parametrize("pressed", ["\r", "\n", "enter", "c-m", " ", "", "escape"])
def test_enter_and_its_like_are_never_an_answer(pressed: str) -> None:
    assert permission(call(), [option("go", "allow_once")]).answer(pressed) is None


def test_a_key_counts_in_either_case_where_that_is_another_one_than_none() -> None:
    choice = KeyChoice(
        "?", (Key("a", "all", "all"), Key("A", "the tenth", "10"), Key("y", "yes", "1"))
    )
    assert [choice.answer(key) for key in ("a", "A", "y", "Y")] == ["all", "10", "1", "1"]


def picked(pick: Pick) -> str | None:
    return None if pick.key is None else pick.key.value


def question(instead: str = "no") -> Pick:
    keys = Key("y", "yes", "yes"), Key("n", "no", "no")
    return Pick(KeyChoice("?", keys, instead=instead))


def test_a_key_alone_on_a_line_that_was_empty_picks_an_answer_and_a_word_does_not() -> None:
    pick = question()
    pick.on_seen("")
    found = []
    for text in ("y", "ye", "yes", "ye", "y", "", "n", "N ", "N"):
        pick.on_input(text)
        found.append(picked(pick))
    assert found == ["yes", None, None, None, "yes", None, "no", None, "no"]


@pytest.mark.parametrize("instead", ["no", ""])
def test_an_answer_that_is_written_out_is_neither_a_yes_nor_a_no_nor_a_prompt(instead: str) -> None:
    pick = question(instead)
    pick.on_seen("")
    for text, key in (("yes", "y"), ("No ", "n"), ("ok", "y"), ("reject", "n")):
        pick.on_input(text)
        assert picked(pick) is None
        assert not pick.enter()
        assert pick.hint == f"{key} alone is the answer"


def test_words_below_a_question_reject_it_and_commands_do_not() -> None:
    pick = question()
    pick.on_input("nope")
    assert (pick.enter(), pick.instead) == (True, "")  # nobody has seen it yet
    pick.on_seen("nope")
    assert (pick.enter(), pick.instead) == (True, "")
    pick.on_input("")
    assert pick.hint == "y or n, then Enter; or write to the agent (rejects it)"
    pick.on_input("nope")
    assert (pick.enter(), pick.instead) == (True, "no")
    assert pick.hint == "Enter rejects, and says this to the agent"
    pick.on_input("/help")
    assert "Enter rejects" not in pick.hint


def test_words_below_a_question_without_a_no_wait_behind_it() -> None:
    pick = question(instead="")
    pick.on_seen("")
    pick.on_input("nope")
    assert (pick.enter(), pick.instead) == (True, "")
    assert pick.hint == "y or n, then Enter; or write the next prompt"


def test_what_is_typed_before_a_question_was_seen_is_not_meant_for_it() -> None:
    pick = question()
    pick.on_input("y")
    assert picked(pick) is None
    assert not pick.enter()  # and it is no prompt either
    pick.on_seen("y")
    assert picked(pick) is None
    assert pick.hint == "Enter picks: yes"
    pick.on_input("yesterday")
    assert "empty the line" in pick.hint
    pick.on_input("")
    pick.on_input("y")
    assert picked(pick) == "yes"


def test_enter_on_a_line_from_before_shows_what_it_would_answer_and_the_next_one_gives_it() -> None:
    pick = question()
    pick.on_seen("y")
    assert not pick.enter()
    assert (picked(pick), pick.hint) == ("yes", "Enter: yes")


def test_the_arrows_point_at_an_answer_once_the_question_was_seen() -> None:
    pick = question()
    pick.on_seen("")
    assert (pick.may_point, picked(pick)) == (True, None)
    pick.point(1)
    assert picked(pick) == pick.choice.keys[0].value
    pick.point(-1)
    assert picked(pick) == pick.choice.keys[-1].value
    pick.on_input("x")  # once typing goes on, the arrows point no more
    assert (pick.may_point, picked(pick)) == (False, None)


def test_no_arrow_points_at_an_answer_that_was_not_seen_or_over_a_line_that_was_begun() -> None:
    assert not question().may_point
    pick = question()
    pick.on_seen("begun")
    assert not pick.may_point


def test_a_line_of_words_is_a_prompt_while_a_question_is_open() -> None:
    pick = question()
    pick.on_seen("")
    pick.on_input("yes please")
    assert pick.enter()


def test_all_of_the_command_is_shown_however_long_it_is() -> None:
    command = "\n".join(f"line {number}" for number in range(100))
    lines = [
        line.plain for line in call_details(call(title="Run", rawInput={"command": command})).lines
    ]
    assert lines[1] == "  command: line 0"
    assert lines[-1] == "    line 99"


def told(**fields: Any) -> list[str]:
    """The lines below the title of a call that edits a file."""
    return [line.plain for line in call_details(call(title="Edit", **fields)).lines][1:]


def diff(old: str, new: str) -> list[dict[str, str]]:
    return [{"type": "diff", "path": "/a", "oldText": old, "newText": new}]


def test_beside_a_diff_each_argument_is_shown() -> None:
    given = {"old": "1", "replace_all": True, "command": "rm -rf /"}
    assert told(content=diff("1\n", "2\n"), rawInput=given) == [
        "  command: rm -rf /",
        *("  /a  as the agent says", "  - 1", "  + 2"),
        "  replace_all: true",
    ]


def test_what_a_diff_shows_whole_is_not_told_again_and_named_under_an_unknown_name() -> None:
    given = {"old": "1\n2", "new": "1\n3\n", "run": "1\n3", "content": "1\n4"}
    assert told(content=diff("1\n2\n", "1\n3\n"), rawInput=given)[4:] == [
        "  run: (all of the diff's new lines)",
        *("  content: 1", "    4"),
    ]


def test_arguments_that_nobody_can_read_are_shown_as_they_came() -> None:
    deep = b"[" * 100_000
    shown = call_details(ToolCall("t1", {"rawInput": deep, "title": b'"Run"'}))
    assert shown.lines[1].plain == f"  {deep.decode()}"


def test_arguments_play_no_tricks_on_the_terminal() -> None:
    shown = call_details(call(title="Run", rawInput={"command": "ls\x1b[8m; rm -rf /"}))
    assert shown.lines[1].plain == "  command: ls\\x1b[8m; rm -rf /"


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, " a b ", "a b"),
        ({"type": "string", "enum": ["red", "blue"]}, "2", "blue"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}, "1", "r"),
        ({"type": "boolean"}, "y", True),
        ({"type": "boolean"}, "No", False),
        ({"type": "integer", "minimum": 1}, "3", 3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "2 1", ("b", "a")),
        ({"type": "string"}, "", None),
    ],
)
def test_what_is_typed_becomes_the_value_of_the_field(
    schema: dict[str, Any], typed: str, value: object
) -> None:
    assert value_of(typed, form(**schema), required=False) == value


@pytest.mark.parametrize(
    ("schema", "typed", "why"),
    [
        ({"type": "string"}, "", "this is required"),
        ({"type": "string", "enum": ["red", "blue"]}, "3", "from 1 to 2"),
        ({"type": "string", "maxLength": 2}, "abc", "at most 2 characters"),
        ({"type": "boolean"}, "maybe", "y or n"),
        ({"type": "integer", "minimum": 1}, "0", "a whole number, at least 1"),
        ({"type": "number"}, "x", "a number"),
    ],
)
def test_what_does_not_fit_is_said(schema: dict[str, Any], typed: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        value_of(typed, form(**schema), required=True)


def test_a_field_says_what_fits_and_begins_with_its_default() -> None:
    schema = form(type="string", title="Colour", enum=["red", "blue"], default="red")
    asked_for = field("it", schema, required=False)
    assert asked_for.title == "Colour"
    assert asked_for.hints == ("1: red", "2: blue")
    assert asked_for.default == "red"
    assert choices(schema) == [("red", "red"), ("blue", "blue")]
