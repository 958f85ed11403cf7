"""Questions put to people and their outcomes, in the words that people see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acphold.conversation.history.decisions import AskedQuestion, Came, ClosedQuestion


def asked(method: str, **params: Any) -> AskedQuestion:
    return AskedQuestion("q", method, json.dumps(params).encode())


PERMISSION = asked(
    "session/request_permission",
    toolCall={"toolCallId": "call", "title": "Edit a file"},
    options=[
        {"optionId": "1", "name": "Yes", "kind": "allow_once"},
        {"optionId": "2", "name": "Never", "kind": "reject_always"},
    ],
)
FORM = asked(
    "elicitation/create",
    message="Who?",
    requestedSchema={
        "properties": {
            "name": {"title": "Your name"},
            "size": {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        }
    },
)


@pytest.mark.parametrize(
    ("question", "outcome", "result", "came"),
    [
        (PERMISSION, "answered", {"outcome": {"optionId": "1"}}, Came("allow_once", "Yes")),
        (PERMISSION, "answered", {"outcome": {"optionId": "2"}}, Came("reject_always", "Never")),
        (PERMISSION, "answered", {"outcome": {"optionId": "3"}}, Came("answered", "3")),
        (PERMISSION, "answered", {"outcome": {"outcome": "cancelled"}}, Came("cancelled")),
        (PERMISSION, "interrupted", {}, Came("interrupted", "why")),
        (FORM, "answered", {"action": "decline", "content": {"name": "Ada"}}, Came("decline")),
        (
            FORM,
            "answered",
            {"action": "accept", "content": {"name": "Ada", "size": "l", "age": 7}},
            Came("accept", "Your name: Ada; size: Large; age: 7"),
        ),
    ],
)
def test_what_came_of_a_question_is_told_in_its_own_words(
    question: AskedQuestion, outcome: str, result: dict[str, Any], came: Came
) -> None:
    message = None if outcome == "answered" else "why"
    closed = ClosedQuestion("q", outcome, json.dumps(result).encode(), message=message)
    assert closed.came(question) == came


def test_a_question_has_its_title_or_the_call_that_has_one() -> None:
    untitled = asked("session/request_permission", toolCall={"toolCallId": "call"})
    told = [(it.title, it.untitled_call) for it in (PERMISSION, untitled, FORM)]
    assert told == [("Edit a file", None), ("a tool call", "call"), ("Who?", None)]
    assert PERMISSION.option_names == ["Yes", "Never"]
    assert FORM.option_names == []
