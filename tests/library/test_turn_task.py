"""Cancelling and failing a turn, whatever the author's code does."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import acphold
from acp_wire.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
)
from acphold.library.turn_task import meaning, stop_reason
from acphold.testing import connect
from tests.editor import DEADLINE
from tests.library.test_commands import until_it_prints
from tests.library.test_turn import Work, agent_that, one_turn, opened


class ClientGoneError(Exception):
    """Raised by HTTP libraries when their request is aborted."""


async def waits(turn: acphold.Turn) -> None:
    await turn.say("waiting")
    await asyncio.Event().wait()


async def translates(turn: acphold.Turn) -> None:
    try:
        await waits(turn)
    except asyncio.CancelledError:
        raise ClientGoneError("aborted") from None


async def swallows(turn: acphold.Turn) -> None:
    try:
        await waits(turn)
    except asyncio.CancelledError:
        await turn.say(", stopped")


async def refuses(turn: acphold.Turn) -> None:
    try:
        await waits(turn)
    except asyncio.CancelledError:
        raise acphold.Refusal from None


async def in_a_group(turn: acphold.Turn) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(translates(turn))


async def exits(turn: acphold.Turn) -> None:
    try:
        await waits(turn)
    finally:
        raise SystemExit(3)


@pytest.mark.parametrize("work", [waits, translates, swallows, refuses, in_a_group, exits])
async def test_a_cancelled_turn_answers_cancelled_whatever_the_code_raises(work: Work) -> None:
    async with opened(agent_that(work)) as (_, session):
        turn = session.prompt("go")
        await session.until_said("waiting")
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        turn = session.prompt("again")
        await session.until(lambda told: told.text.count("waiting") == 2)
        session.cancel()
        assert (await turn).stop_reason == "cancelled"


async def test_the_last_updates_come_before_the_answer() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Wait") as call:
            try:
                await waits(turn)
            finally:
                await call.content("tidied up")

    async with opened(agent_that(work)) as (_, session):
        turn = session.prompt("go")
        await session.until_said("waiting")
        session.cancel()
        result = await turn
    [call] = result.tool_calls
    assert call.status == "failed"
    assert b"tidied up" in call.content[0]


async def test_a_turn_is_cancelled_before_its_first_step() -> None:
    async with opened(agent_that(waits)) as (_, session):
        turn = session.prompt("go")
        await asyncio.sleep(0)
        session.cancel()
        assert (await turn).stop_reason == "cancelled"


async def test_a_pending_permission_is_closed_by_a_cancellation() -> None:
    after: list[str] = []

    async def work(turn: acphold.Turn) -> None:
        after.append("asked")
        await turn.ask_permission("May I?")
        after.append("answered")

    async with opened(agent_that(work), on_permission=[]) as (client, session):
        turn = session.prompt("go")
        await client.until(lambda: client.permissions or None)
        session.cancel()
        result = await turn
    assert result.stop_reason == "cancelled"
    assert after == ["asked"]
    assert [call.status for call in result.tool_calls] == ["failed"]


@pytest.mark.parametrize("in_task", [False, True])
async def test_a_permission_that_the_client_cancels_cancels_the_turn(in_task: bool) -> None:
    async def work(turn: acphold.Turn) -> None:
        if not in_task:
            await turn.ask_permission("May I?")
        else:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(turn.ask_permission("May I?"))
                tasks.create_task(asyncio.Event().wait())
        await turn.say("went on")

    result = await one_turn(work, on_permission=lambda _: None)
    assert (result.stop_reason, result.text) == ("cancelled", "")


async def test_what_a_task_left_waiting_asks_is_closed_with_the_turn() -> None:
    left: list[asyncio.Task[acphold.Decision]] = []
    is_asked = asyncio.Event()

    async def work(turn: acphold.Turn) -> None:
        left.append(asyncio.create_task(turn.ask_permission("Still there?")))
        await is_asked.wait()

    async def never(question: acphold.PermissionQuestion) -> bool:
        is_asked.set()
        await asyncio.Event().wait()
        return True

    async with connect(agent_that(work), on_permission=never) as client:
        result = await (await client.new_session()).prompt("go")
        await asyncio.wait(left)
        assert left[0].cancelled()
    assert result.stop_reason == "end_turn"


async def test_what_a_task_would_ask_after_the_turns_end_is_refused() -> None:
    left: list[asyncio.Task[acphold.Decision]] = []

    async def work(turn: acphold.Turn) -> None:
        left.append(asyncio.create_task(turn.ask_permission("Still there?")))
        await asyncio.sleep(0)  # it has begun, and its request names its subject

    async with connect(agent_that(work), on_permission=[]) as client:
        await (await client.new_session()).prompt("go")
        await asyncio.wait(left, timeout=DEADLINE)
        with pytest.raises((acphold.AcpError, asyncio.CancelledError)):
            await left[0]


async def test_a_command_that_runs_is_ended_with_the_turn(work: Path) -> None:
    pids: list[int] = []

    async def run(turn: acphold.Turn) -> None:
        started = await turn.terminal("/bin/sh", "-c", "echo $$; sleep 600")
        pids.append(int(await until_it_prints(started)))
        if turn.text == "wait":
            await waits(turn)

    async with opened(agent_that(run), work) as (_, session):
        await session.prompt("end")
        turn = session.prompt("wait")
        await session.until_said("waiting")
        session.cancel()
        await turn
        assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_an_exception_is_answered_with_an_opaque_id_and_the_session_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(turn: acphold.Turn) -> None:
        if turn.text == "fail":
            async with turn.tool("Fail"):
                raise ValueError("the password is hunter2")
        if turn.text == "fail outside":
            raise ValueError("the password is hunter2")
        await turn.say("alive")

    async with opened(agent_that(work), raise_agent_exceptions=False) as (_, session):
        with pytest.raises(acphold.RemoteError, match="internal error") as error:
            await session.prompt("fail outside")
        assert (error.value.code, b"hunter2" in error.value.raw) == (-32603, False)
        [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
        incident = record.getMessage().split()[-1]
        assert incident.encode() in error.value.raw
        assert record.exc_info is not None
        assert "hunter2" in str(record.exc_info[1])
        with pytest.raises(acphold.RemoteError, match="internal error"):
            await session.prompt("fail")
        [call] = session.received.tool_calls
        assert call.status == "failed"
        assert b"hunter2" in call.content[0], "the tool tells the person what went wrong"
        assert (await session.prompt("go on")).text == "alive"


class OutcomeError(BaseException):
    """Raised by some test libraries, so that no `except Exception` catches it."""


ANY = [
    SystemExit(2),
    KeyError("x"),
    asyncio.CancelledError("mine"),
    KeyboardInterrupt(),
    GeneratorExit(),
    OutcomeError(),
    BaseExceptionGroup("", [OutcomeError()]),
    BaseExceptionGroup("", [acphold.AcpError("told"), KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", ANY, ids=repr)
async def test_a_turn_that_ends_with_any_exception_is_answered(error: BaseException) -> None:
    async def work(turn: acphold.Turn) -> None:
        if turn.text == "fail":
            raise error
        await turn.say("alive")

    async with opened(agent_that(work), raise_agent_exceptions=False) as (_, session):
        with pytest.raises(acphold.RemoteError, match="internal error"):
            await session.prompt("fail")
        assert (await session.prompt("go on")).text == "alive"


@pytest.mark.parametrize("error", ANY, ids=repr)
async def test_a_hook_or_method_that_ends_with_any_exception_is_answered(
    error: BaseException,
) -> None:
    agent = agent_that(lambda turn: turn.say("alive"))

    @agent.method("_fail")
    async def fail(params: object) -> None:
        raise error

    @agent.on_close
    async def close(session: acphold.Session) -> None:
        raise error

    async with opened(agent, raise_agent_exceptions=False) as (client, session):
        with pytest.raises(acphold.RemoteError, match="internal error"):
            await client.call("_fail", {})
        assert (await session.prompt("begin")).text == "alive"
        await session.close()
        session = await client.load_session(session.id)
        assert (await session.prompt("go on")).text == "alive"


async def test_an_error_that_is_raised_on_purpose_carries_its_message_and_logs_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(turn: acphold.Turn) -> None:
        raise acphold.AcpError("the quota of this month is used up")

    async with opened(agent_that(work)) as (_, session):
        with pytest.raises(acphold.RemoteError, match="the quota of this month is used up"):
            await session.prompt("go")
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.fullmatch(
        rf"a turn failed: the quota of this month is used up \({__file__}:\d+\)",
        record.getMessage(),
    )
    assert record.exc_info is None


async def test_a_turn_that_does_not_heed_its_cancellation_is_answered_for() -> None:
    async def work(turn: acphold.Turn) -> None:
        if turn.text == "go on":
            await turn.say("alive")
            return
        await turn.say("deaf")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await turn.say("!")

    async with opened(agent_that(work), cancel_grace=0.2) as (_, session):
        turn = session.prompt("hang")
        await session.until_said("deaf")
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        result = await session.prompt("go on")
        assert result.text == "alive"
        # Let it end, for the test.
        for task in asyncio.all_tasks():
            if task.get_name() == "turn":
                task.cancel()


@pytest.mark.parametrize("returned", ["cancelled", "done", 0, True])
def test_other_endings_are_refused(returned: object) -> None:
    with pytest.raises(acphold.DeclarationError, match="a turn ends with one of"):
        stop_reason(returned)


def test_a_group_says_what_its_members_say_on_purpose() -> None:
    refusal, error = acphold.Refusal(), acphold.CapabilityError("no forms")
    assert meaning(refusal) is refusal
    assert (
        meaning(ExceptionGroup("", [ExceptionGroup("", [refusal]), acphold.MaxTokens()])) is refusal
    )
    assert meaning(BaseExceptionGroup("", [asyncio.CancelledError(), error])) is error


def test_a_group_with_something_that_went_wrong_says_nothing() -> None:
    assert meaning(ExceptionGroup("", [acphold.Refusal(), ValueError()])) is None
    assert meaning(ValueError()) is None


class Deaf:
    """A turn that ignores cancellation; `goes_on` lets it go on, and `refused` holds its error."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.ended = asyncio.Event()
        self.refused: list[BaseException] = []

    async def work(self, turn: acphold.Turn) -> None:
        if turn.text != "deaf":
            await turn.say(f"{turn.text}.")
            await asyncio.wait_for(self.ended.wait(), 10)
            return
        call = turn.tool("Outlive")
        await call.start()
        unseen = turn.tool("Never announced")
        await turn.say("deaf")
        while not self.goes_on.is_set():
            with suppress(asyncio.CancelledError):
                await self.goes_on.wait()
        for say in (
            lambda: turn.say("late"),
            lambda: turn.think("late"),
            lambda: turn.plan(["late"]),
            lambda: call.content("late"),
            lambda: call.rename("late"),
            lambda: unseen.announce(),
            lambda: turn.ask_permission("late?"),
        ):
            try:
                await say()
            except (acphold.DeclarationError, asyncio.CancelledError) as exc:
                self.refused.append(exc)
        self.ended.set()


@pytest.mark.parametrize("reload", [False, True])
async def test_what_a_turn_says_after_its_end_is_refused_and_in_no_later_turn(
    reload: bool,
) -> None:
    deaf = Deaf()
    async with opened(agent_that(deaf.work), cancel_grace=0.1) as (client, session):
        turn = session.prompt("deaf")
        await session.until_said("deaf")
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        if reload:
            await session.close()
            session = await client.load_session(session.id)
        later = session.prompt("later")
        await session.until_said("later.")
        deaf.goes_on.set()
        result = await later
        again = await client.load_session(session.id)
    assert {type(exc) for exc in deaf.refused} == {acphold.DeclarationError}
    assert len(deaf.refused) == 7
    assert (result.text, result.tool_calls) == ("later.", ())
    assert b'"late"' not in b"".join(again.received.raws)


async def test_what_is_said_in_a_session_that_was_closed_is_refused() -> None:
    held: list[acphold.Session] = []

    async def work(turn: acphold.Turn) -> None:
        held.append(turn.session)

    agent = agent_that(work)
    agent.mode("ask")
    async with opened(agent) as (client, session):
        await session.prompt("go")
        await session.close()
        session = await client.load_session(session.id)
        with pytest.raises(acphold.DeclarationError, match="closed"):
            await held[0].notice("late")
        with pytest.raises(acphold.DeclarationError, match="closed"):
            held[0].store["late"] = True
        assert session.received.of("notice") == []


async def refused_form(turn: acphold.Turn) -> None:
    await turn.ask_form("Who?", {"name": {"type": "string"}})


async def missing_file(turn: acphold.Turn) -> None:
    await turn.files.read("missing.txt")


async def unknown_method(turn: acphold.Turn) -> None:
    await turn.session.call("_nobody/knows")


async def odd_permission(turn: acphold.Turn) -> None:
    await turn.ask_permission("May I?")


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (refused_form, "the form is too long for me"),
        (missing_file, "missing.txt"),
        (unknown_method, "_nobody/knows"),
        (odd_permission, "the client's answer to session/request_permission cannot be read"),
    ],
)
async def test_what_went_wrong_in_a_turn_is_its_failure_and_no_error_of_the_prompts_own(
    work: Work, why: str
) -> None:
    async def odd(params: dict[str, Any]) -> dict[str, Any]:
        return {"outcome": {"outcome": 5}}

    async def refuse(params: dict[str, Any]) -> None:
        raise acphold.RemoteError(-32602, "the form is too long for me")

    answers = {"elicitation/create": refuse, "session/request_permission": odd}
    capabilities = ClientCapabilities(
        elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities())
    )
    async with opened(agent_that(work), handlers=answers, capabilities=capabilities) as (
        _,
        session,
    ):
        with pytest.raises(acphold.RemoteError, match=why) as error:
            await session.prompt("go")
    assert error.value.code == -32603


async def test_a_hook_that_fails_on_purpose_is_no_error_of_the_requests_own() -> None:
    agent = agent_that(lambda turn: turn.say("never"))

    @agent.on_new
    async def begin(session: acphold.Session) -> None:
        await session.files.read("missing.txt")

    async with connect(agent) as client:
        with pytest.raises(acphold.RemoteError, match=r"missing\.txt") as error:
            await client.new_session()
    assert error.value.code == -32603
