"""Alerts for waiting questions and the ends of long turns, by the test's clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from acp_wire.rpc.requests import Answer
from acphold.errors import AgentExitedError, RemoteError
from acphold.live.agents.interface import Updates
from acphold.live.hub.alerts import Alert, AlertRules, Alerts, LookUp
from tests.hub.shared import PERMISSION, Onlooker, Person, Shared, full, shared
from tests.hub.test_waiting_prompts import add, change
from tests.watched_processes import until

DEADLINE = 30

RULES = AlertRules(("on-waiting", "x"), 20, ("on-turn-end",), 60)


class Clock:
    """An event loop's clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[Due] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Due:
        self.due.append(Due(self, self.now + delay, callback))
        return self.due[-1]

    def pass_by(self, seconds: float) -> None:
        """Let this time go by, and make the calls that are due."""
        self.now += seconds
        for due in [due for due in self.due if due.at <= self.now]:
            due.cancel()
            due.callback()


class Due:
    """A scheduled call, which can be cancelled."""

    def __init__(self, clock: Clock, at: float, callback: Callable[[], object]) -> None:
        self.at = at
        self.callback = callback
        self._clock = clock

    def cancel(self) -> None:
        if self in self._clock.due:
            self._clock.due.remove(self)


class Told(Alerts):
    """The alerts of a hub, as they are told."""

    def __init__(self) -> None:
        self.current = RULES
        self.told: list[tuple[tuple[str, ...], Alert]] = []
        self.look_up: LookUp | None = None
        self.passing = Clock()

    @property
    def clock(self) -> Any:
        return self.passing

    def rules(self) -> AlertRules:
        return self.current

    def tell(self, command: tuple[str, ...], alert: Alert, look_up: LookUp | None = None) -> None:
        self.told.append((command, alert))
        self.look_up = look_up


class Stage:
    """A session with a running turn, the client that prompted, and the alerts of the hub."""

    def __init__(self, house: Shared, client: Onlooker, session: str, alerts: Told) -> None:
        self.house = house
        self.client = client
        self.session = session
        self.person = Person(client)
        self.alerts = alerts
        self.clock = alerts.passing
        self.told = alerts.told

    def ask(self, title: str | None = "Run make") -> asyncio.Task[Any]:
        """The agent asks for a permission."""
        params = {
            "sessionId": self.session,
            "toolCall": {"toolCallId": "t"}
            if title is None
            else {"toolCallId": "t", "title": title},
            "options": [
                {"optionId": "y", "name": "Allow", "kind": "allow_once"},
                {"optionId": "n", "name": "Reject", "kind": "reject_once"},
            ],
        }
        return asyncio.create_task(self.house.agent.ask_client(PERMISSION, **params))

    async def open(self, count: int = 1) -> None:
        """Wait until so many questions wait."""
        await until(lambda: len(self.clock.due) >= count)

    async def asked(self, title: str | None = "Run make") -> asyncio.Task[Any]:
        """A question that waits."""
        question = self.ask(title)
        await self.open()
        return question

    async def end(self, answer: Answer = b'{"stopReason":"end_turn"}') -> None:
        """End the turn, for everybody."""
        await self.house.agent.end(self.session, answer)

    @property
    def events(self) -> list[str]:
        return [alert.event for _, alert in self.told]


@pytest.fixture
async def on(journal: Path) -> AsyncIterator[Stage]:
    """See `Stage`; the title of its session is its first prompt."""
    alerts = Told()
    async with shared(journal, alerts=alerts) as house, asyncio.timeout(DEADLINE):
        client, session = await house.opened()
        await house.begun(client, session, "Mend it")
        yield Stage(house, client, session, alerts)


# -- questions --------------------------------------------------------------------------------


async def test_a_question_that_stays_open_is_told_once_whoever_is_attached(on: Stage) -> None:
    question = await on.asked("Run rm -rf build")
    on.clock.pass_by(19)
    assert on.told == []
    on.clock.pass_by(1)
    on.clock.pass_by(1000)
    [(command, alert)] = on.told
    assert command == RULES.on_waiting
    assert on.alerts.look_up is None
    assert alert == Alert(
        "waiting",
        on.session,
        "puppet",
        "/",
        "Mend it",
        20,
        "Run rm -rf build",
        ("Allow", "Reject"),
        seq=alert.seq,
    )
    assert alert.seq > 0
    on.person.answer.set_result({"outcome": {"outcome": "selected", "optionId": "y"}})
    await question


@pytest.mark.parametrize("known", [True, False])
async def test_a_question_about_a_tool_call_that_was_told_before_has_its_title(
    known: bool, monkeypatch: pytest.MonkeyPatch, on: Stage
) -> None:
    if known:
        call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Edit main.py"}
        raw = json.dumps(call).encode()
        await on.house.agent.listener.hear(Updates(on.session, "update", [raw]))
    question = await on.asked(None)
    on.clock.pass_by(20)
    assert on.alerts.look_up is not None
    assert await on.alerts.look_up() == ("Edit main.py" if known else "a tool call")
    monkeypatch.setattr(on.house.journal, "read", full)
    assert await on.alerts.look_up() == "a tool call"
    question.cancel()


async def test_a_question_that_is_answered_in_time_is_not_told(on: Stage) -> None:
    question = await on.asked()
    on.person.answer.set_result({"outcome": {"outcome": "selected", "optionId": "y"}})
    await question
    assert on.clock.due == []
    on.clock.pass_by(1000)
    assert on.told == []


async def test_a_question_is_told_with_nobody_attached_too(on: Stage) -> None:
    on.house.agent.heeds_cancel = False
    for attachment in tuple(on.house.hub.conversation(on.session).session.attachments):
        on.house.hub.conversation(on.session).detach(attachment)
    question = await on.asked()
    on.clock.pass_by(20)
    assert on.events == ["waiting"]
    question.cancel()


async def test_further_questions_are_part_of_the_one_that_was_told(on: Stage) -> None:
    first, second = on.ask("one"), on.ask("two")
    await on.open(2)
    on.clock.pass_by(20)
    assert on.events == ["waiting"]
    on.person.answer.set_result({"outcome": {"outcome": "selected", "optionId": "y"}})
    await asyncio.gather(first, second)
    on.person.answer = asyncio.get_running_loop().create_future()
    third = await on.asked("three")
    on.clock.pass_by(20)
    assert [alert.question for _, alert in on.told][1:] == ["three"]
    third.cancel()


async def test_a_question_that_ends_with_its_turn_is_not_told(on: Stage) -> None:
    question = await on.asked()
    on.client.tell("session/cancel", {"sessionId": on.session})
    await question
    on.clock.pass_by(1000)
    assert "waiting" not in on.events


async def test_rules_may_change_while_a_question_waits(on: Stage) -> None:
    question = await on.asked()
    on.alerts.current = AlertRules()
    on.clock.pass_by(20)
    assert on.told == []
    question.cancel()


# -- turns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b'{"stopReason":"end_turn"}', "completed"),
        (b'{"stopReason":"max_tokens"}', "limited"),
        (b'{"stopReason":"refusal"}', "refused"),
        (AgentExitedError("the agent ended", "exit status 1", ""), "failed"),
    ],
)
async def test_the_end_of_a_long_turn_is_told(answer: Answer, outcome: str, on: Stage) -> None:
    on.clock.pass_by(60)
    await on.end(answer)
    [(command, alert)] = on.told
    assert command == RULES.on_turn_end
    assert alert == Alert("turn_end", on.session, "puppet", "/", "Mend it", 60, outcome=outcome)


async def test_the_end_of_a_turn_that_was_cancelled_is_not_told(on: Stage) -> None:
    on.clock.pass_by(100)
    on.client.tell("session/cancel", {"sessionId": on.session})
    await on.house.agent.cancelled.wait()
    await on.house.hub.conversation(on.session).turns.aclose()
    assert on.told == []


async def test_the_end_of_a_short_turn_is_not_told_and_it_begins_when_the_agent_gets_it(
    on: Stage,
) -> None:
    waiting = on.client.begin_prompt(on.session, "And then this")
    on.clock.pass_by(100)
    await on.end()
    await on.house.agent.prompted(on.session)
    on.clock.pass_by(59)
    await on.end()
    await waiting
    assert [alert.seconds for _, alert in on.told] == [100]


async def test_nothing_is_told_without_commands(on: Stage) -> None:
    on.alerts.current = AlertRules()
    question = on.ask()
    await on.person.asked.wait()
    assert on.clock.due == []
    on.clock.pass_by(1000)
    question.cancel()
    await on.end()
    assert on.told == []


# -- prompts that are held -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"stopReason":"refusal"}', "refused"),
        (b'{"stopReason":"max_tokens"}', "limited"),
        (RemoteError(-32603, "no credit"), "failed"),
    ],
)
async def test_prompts_that_a_turn_holds_are_told_of_once(
    answer: Answer, why: str, on: Stage
) -> None:
    await add(on.client, on.session, "second", "third")
    await on.end(answer)
    on.clock.pass_by(19)
    assert on.told == []
    on.clock.pass_by(1)
    title = "Mend it"
    told = Alert("held", on.session, "puppet", "/", title, 20, queued=2, held=why)
    assert on.told == [(RULES.on_waiting, told)]
    await on.house.begun(on.client, on.session, "by hand")  # waiting prompts stay held
    await on.end()
    on.clock.pass_by(1000)
    assert on.events.count("held") == 1
    await change(on.client, on.session, "go")
    await on.house.agent.prompted(on.session)
    await on.end(answer)
    on.clock.pass_by(20)
    assert on.events == ["held", "held"], "it is another hold"
    assert on.told[-1][1].queued == 1


async def test_prompts_that_go_on_in_time_are_not_told_of(on: Stage) -> None:
    await add(on.client, on.session, "second")
    await on.end(b'{"stopReason":"refusal"}')
    on.clock.pass_by(19)
    await change(on.client, on.session, "go")
    await on.house.agent.prompted(on.session)
    on.clock.pass_by(30)
    assert on.told == []


@pytest.mark.parametrize("stays", [True, False])
async def test_a_hold_by_a_person_who_is_there_is_not_told_of(stays: bool, on: Stage) -> None:
    await add(on.client, on.session, "second")
    on.client.tell("session/cancel", {"sessionId": on.session})
    await on.open()
    if not stays:
        await on.client.leave()
        await on.house.gone(on.client)
    on.clock.pass_by(20)
    assert on.events == ([] if stays else ["held"])
    on.told.clear()
    if stays:
        await change(on.client, on.session, "hold")
        await on.house.begun(on.client, on.session, "by hand")
        await on.end()
        on.clock.pass_by(20)
        assert on.told == []
