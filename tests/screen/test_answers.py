"""A rule that a person has chosen, and questions that come while it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from acp_wire.schema import (
    ElicitationSchema,
    PermissionOption,
    RequestPermissionRequest,
    StringPropertySchema,
)
from acphold.client import FormQuestion, PermissionQuestion
from acphold.conversation.history.decisions import Came
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.reports.transcript import DecidedQuestion
from acphold.errors import ConnectionLostError
from acphold.faces.screen.answers import AskedCalls, EditMode, PersonAnswers
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.panels import Field, KeyChoice
from acphold.live.reading.rule_offers import RuleOffer
from acphold.safety.standing.decision import read_rule
from tests.screen.test_chat import Keys
from tests.screen.test_flow import taken

DEADLINE = 20


class Maker(AskedCalls):
    """Makes a rule when it is let; offers one, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def offers(self, session_id: str, call: str) -> Sequence[RuleOffer]:
        if self.fails:
            raise ConnectionLostError("away")
        return [RuleOffer((read_rule("run make"),))] if call == "a" else []

    async def make(self, session_id: str, call: str, offer: RuleOffer, *, all_agents: bool) -> str:
        self.begun.set()
        await self.may.wait()
        return f"Allowed from now on: {offer.text}"


def question(call: str) -> PermissionQuestion:
    option = PermissionOption(option_id="yes", name="Yes", kind="allow_once")
    about = ToolCall(call, {"title": b'"make"'})
    return PermissionQuestion("s", about, (option,), cast(RequestPermissionRequest, None))


async def test_a_chosen_rule_is_made_although_the_agent_asks_again() -> None:
    flow, maker = Flow(), Maker()
    answers = PersonAnswers(flow, maker)
    answers.face = Keys("y", "s", "y")
    async with asyncio.timeout(DEADLINE):
        await answers.on_permission(question("a"))
        await maker.begun.wait()
        assert await answers.on_permission(question("b")) == "yes"
        closing = asyncio.create_task(answers.aclose())
        maker.may.set()
        await closing
    assert "Allowed from now on: run make" in str(taken(flow))


@pytest.mark.parametrize(("kind", "has_mode"), [("edit", True), ("edit", False), ("execute", True)])
async def test_the_card_of_an_edit_offers_the_mode_in_which_the_agent_accepts_edits(
    kind: str, has_mode: bool
) -> None:
    entered = asyncio.Event()

    async def enter() -> None:
        entered.set()

    flow = Flow()
    answers = PersonAnswers(flow, AskedCalls())
    answers.edit_mode = lambda: EditMode("Accept Edits", enter) if has_mode else None
    is_offered = has_mode and kind == "edit"
    answers.face = face = Keys("e" if is_offered else "y")
    asked = question("a")
    about = ToolCall("a", {"title": b'"a.py"', "kind": f'"{kind}"'.encode()})
    async with asyncio.timeout(DEADLINE):
        assert await answers.on_permission(replace(asked, tool_call=about)) == "yes"
        await answers.aclose()
    words = "allow once, and let the agent accept edits from now on, in its mode Accept Edits"
    assert (words in str(face.menus)) is is_offered
    assert entered.is_set() is is_offered
    assert ("accepts edits from now on" in str(taken(flow))) is is_offered


class Nobody(Keys):
    """A face at which nobody presses a key."""

    def __init__(self) -> None:
        super().__init__()
        self.has_asked = asyncio.Event()

    async def choose(self, choice: KeyChoice) -> str | None:
        self.has_asked.set()
        await asyncio.Event().wait()
        return None


class Elsewhere(AskedCalls):
    """Knows how a question was answered, after a moment; or fails."""

    def __init__(self, *found: DecidedQuestion | None) -> None:
        self.found = list(found)

    async def outcome(self, session_id: str, call: str) -> DecidedQuestion | None:
        if not self.found:
            raise ConnectionLostError("away")
        return self.found.pop(0)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            [None, DecidedQuestion("", Came("allow_once"), "acphold-page")],
            "allowed once on the page: ",
        ),
        ([DecidedQuestion("", Came("reject_once"), "zed")], "rejected (in zed): "),
        (
            [DecidedQuestion("", Came("allow_once"), "rule 1", is_by_rule=True)],
            "once (by rule 1): ",
        ),
        ([DecidedQuestion("Go", Came("cancelled"))], "not answered: "),
        ([], "settled without an answer from here: "),
    ],
)
async def test_a_question_that_was_answered_elsewhere_says_how_and_where(
    found: list[DecidedQuestion | None], told: str
) -> None:
    flow = Flow()
    answers = PersonAnswers(flow, Elsewhere(*found))
    answers.face = face = Nobody()
    async with asyncio.timeout(DEADLINE):
        asking = asyncio.create_task(answers.on_permission(question("a")))
        await face.has_asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await answers.aclose()
    stopped = " (stopped)" if told.startswith("not answered") else ""
    assert f"{told}make{stopped}'" in str(taken(flow))


async def test_a_question_that_the_person_leaves_open_is_not_called_settled() -> None:
    flow = Flow()
    answers = PersonAnswers(flow, Elsewhere())
    answers.face = face = Nobody()
    async with asyncio.timeout(DEADLINE):
        asking = asyncio.create_task(answers.on_permission(question("a")))
        await face.has_asked.wait()
        await answers.aclose()
        asking.cancel()
        await asyncio.wait([asking])
        await answers.aclose()
    assert "settled" not in str(taken(flow))


async def test_nobody_is_told_of_a_rule_that_nobody_wanted() -> None:
    flow = Flow()
    answers = PersonAnswers(flow, Maker(fails=True))
    answers.face = Keys("y")
    async with asyncio.timeout(DEADLINE):
        await answers.on_permission(question("a"))
        await answers.wait_for_offer()
    assert "The rule was not added" not in str(taken(flow))


class Form(Keys):
    """A face on which these lines are typed into fields, and these keys pressed."""

    def __init__(self, keys: str, *lines: str) -> None:
        super().__init__(*keys)
        self.lines = list(lines)

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        return self.lines.pop(0)


@pytest.mark.parametrize(
    ("keys", "filled"), [("fs", {"name": "Ann"}), ("fcs", {"name": "Bob"}), ("fd", None)]
)
async def test_a_form_is_shown_before_it_is_sent_and_can_be_changed(
    keys: str, filled: dict[str, str] | None
) -> None:
    form = ElicitationSchema(properties={"name": StringPropertySchema()})
    answers = PersonAnswers(Flow(), AskedCalls())
    answers.face = face = Form(keys, "Ann", "Bob")
    async with asyncio.timeout(DEADLINE):
        assert await answers.on_form(FormQuestion("Who?", form)) == filled
    assert "Send this? name: Ann" in face.menus[1].title
