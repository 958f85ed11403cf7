"""Asking a person for values, and to visit a page."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import acphold
from acp_wire.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
)
from acphold.testing import connect
from tests.library.test_turn import agent_that, one_turn, opened

NAME = {"name": {"type": "string", "title": "Your name"}}


async def ask(turn: acphold.Turn) -> None:
    answer = await turn.ask_form("Who?", {"properties": NAME, "required": ["name"]})
    await turn.say(f"{answer.outcome} {bool(answer)} {dict(answer)}")


async def test_a_form_brings_the_values_of_its_fields() -> None:
    asked: list[acphold.FormQuestion] = []

    def fill_in(question: acphold.FormQuestion) -> dict[str, Any]:
        asked.append(question)
        return {"name": "Ada"}

    async with opened(agent_that(ask), on_form=fill_in) as (_, session):
        assert (await session.prompt("go")).text == "accepted True {'name': 'Ada'}"
        assert (asked[0].message, asked[0].session_id) == ("Who?", session.id)


@pytest.mark.parametrize(("given", "outcome"), [(None, "declined"), ("dismissed", "dismissed")])
async def test_a_form_that_is_declined_and_one_that_is_dismissed_differ(
    given: Literal["dismissed"] | None, outcome: str
) -> None:
    result = await one_turn(ask, on_form=lambda request: given)
    assert result.text == f"{outcome} False {{}}"


async def test_a_form_without_values_that_is_accepted_is_an_answer() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say(str(bool(await turn.ask_form("Nothing?", {"a": {"type": "string"}}))))

    assert (await one_turn(work, on_form=lambda request: {})).text == "True"


def answering(values: dict[str, Any]) -> dict[str, Any]:
    """A client that shows forms and does not check the person's input."""
    return {
        "handlers": {"elicitation/create": lambda params: {"action": "accept", "content": values}},
        "capabilities": ClientCapabilities(
            elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities())
        ),
    }


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ({"type": "string"}, {}),
        ({"type": "string"}, {"it": 5}),
        ({"type": "integer", "maximum": 9}, {"it": 10}),
        ({"type": "string", "minLength": 3}, {"it": "no"}),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, {"it": "b"}),
    ],
)
async def test_values_that_do_not_fit_the_form_are_refused(
    field: dict[str, Any], values: dict[str, Any]
) -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.ask_form("Which?", {"properties": {"it": field}, "required": ["it"]})

    async with connect(agent_that(work), **answering(values)) as client:
        with pytest.raises(acphold.RemoteError, match="does not fit the form: it"):
            await (await client.new_session()).prompt("go")


@pytest.mark.parametrize(
    "fields", [{"a": {"type": "object"}}, {"a": "string"}, {"a": {"type": "array"}}]
)
async def test_a_schema_that_no_form_can_show_raises_at_the_line(fields: dict[str, Any]) -> None:
    async def work(turn: acphold.Turn) -> None:
        with pytest.raises(acphold.DeclarationError):
            await turn.ask_form("What?", fields)
        await turn.say("told")

    assert (await one_turn(work, on_form=lambda request: {})).text == "told"


async def test_without_forms_nothing_is_asked() -> None:
    async with opened(agent_that(ask)) as (client, session):
        with pytest.raises(acphold.RemoteError, match="shows no forms"):
            await session.prompt("go")
        assert client.requests == []


async def test_a_person_is_sent_to_a_page_and_the_client_told_when_it_is_done() -> None:
    async def work(turn: acphold.Turn) -> None:
        with pytest.raises(acphold.DeclarationError, match="begins with https"):
            await turn.ask_page("Sign in", "javascript:alert(1)")
        visit = await turn.ask_page("Sign in", "https://example.org/sign-in")
        await turn.say(str(visit.agreed))
        await visit.complete()

    async with connect(agent_that(work), on_page=lambda page: True) as client:
        assert (await (await client.new_session()).prompt("go")).text == "True"
        [(method, asked)] = client.requests
        await client.until(lambda: client.notifications or None)
        [(told, params)] = client.notifications
    assert (method, asked["mode"], asked["url"]) == (
        "elicitation/create",
        "url",
        "https://example.org/sign-in",
    )
    assert (told, params) == (
        "elicitation/complete",
        {"elicitationId": asked["elicitationId"]},
    )
