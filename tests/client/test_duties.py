"""A client answers requests of the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.client import FormQuestion, PageQuestion, PermissionQuestion
from acphold.client.answers import PermissionAnswer
from tests.client.far_agent import ALL, FarAgent, in_session, talking

OPTIONS = [
    {"optionId": "y", "name": "Yes", "kind": "allow_once"},
    {"optionId": "Y", "name": "Always", "kind": "allow_always"},
    {"optionId": "n", "name": "No", "kind": "reject_once"},
]
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "default": 18},
    },
    "required": ["name"],
}


def selected(answer: dict[str, Any]) -> str:
    """The option that was chosen, or `cancelled`."""
    outcome = answer["result"]["outcome"]
    return str(outcome.get("optionId", outcome["outcome"]))


async def ask_permission(
    far: FarAgent, tool: str = "t", asking: str = "s1", **fields: Any
) -> dict[str, Any]:
    return await far.ask(
        "session/request_permission",
        sessionId=asking,
        toolCall={"toolCallId": tool, **fields},
        options=OPTIONS,
    )


# -- permission -----------------------------------------------------------------------------


async def test_a_policy_answers_by_the_kind_that_the_agent_gave_the_tool_before() -> None:
    far = FarAgent()
    async with talking(far, permission={"read": "allow", "*": "reject"}) as agent:
        await agent.new_session("/tmp")
        far.update("s1", "tool_call", toolCallId="r", title="Read", kind="read")
        assert selected(await ask_permission(far, "r")) == "y"
        assert selected(await ask_permission(far, "r", kind="edit")) == "n"
        assert selected(await ask_permission(far, "never seen")) == "n"


async def test_without_a_policy_everything_is_rejected_with_a_reject_option() -> None:
    far = FarAgent()
    async with talking(far) as agent:
        await agent.new_session("/tmp")
        assert selected(await ask_permission(far)) == "n"


@pytest.mark.parametrize(
    ("answer", "expected"), [(True, "y"), (False, "n"), ("Y", "Y"), (None, "cancelled")]
)
async def test_a_callback_decides_and_sees_the_tool_call_as_it_stands(
    answer: PermissionAnswer, expected: str
) -> None:
    far, asked = FarAgent(), list[PermissionQuestion]()

    async def decide(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return answer

    async with talking(far, on_permission=decide) as agent:
        await agent.new_session("/tmp")
        far.update("s1", "tool_call", toolCallId="t", title="Edit", kind="edit", rawInput={"a": 1})
        assert selected(await ask_permission(far, title="Edit main.py")) == expected
    [question] = asked
    assert question.session_id == "s1"
    tool = question.tool_call
    assert (tool.title, tool.kind, tool.raw_input) == ("Edit main.py", "edit", b'{"a": 1}')
    assert [option.option_id for option in question.options] == ["y", "Y", "n"]


@pytest.mark.parametrize("asking", ["s1", "child"])
async def test_what_is_pending_is_answered_as_cancelled_after_the_cancel(asking: str) -> None:
    far, asked = FarAgent(), asyncio.Event()

    async def never(question: PermissionQuestion) -> PermissionAnswer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        for kind in ("subagent_spawned", "subagent_started"):
            agent.update("s1", kind, subagentSessionId="child", sessionId="child", title="child")
        first = await ask_permission(agent, "one", asking)
        second = await ask_permission(agent, "two", asking)  # the turn is not over yet
        agent.say("s1", f"{selected(first)} {selected(second)}")
        return {"stopReason": "cancelled"}

    async with in_session(far, on_permission=never) as session:
        turn = session.prompt("go")
        await asked.wait()
        session.cancel()
        assert (await turn).text == "cancelled cancelled"
        assert turn.stop_reason == "cancelled"
    order = [message.get("method", "answer") for message in far.got]
    assert order[-3:] == ["session/cancel", "answer", "answer"]


async def test_a_question_is_over_when_its_session_is_closed() -> None:
    far, asked = FarAgent(ALL), asyncio.Event()

    async def never(question: PermissionQuestion) -> PermissionAnswer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with talking(far, on_permission=never) as agent:
        session = await agent.new_session("/tmp")
        asking = asyncio.create_task(ask_permission(far))
        await asked.wait()
        await session.close()
        assert selected(await asking) == "cancelled"


async def test_the_next_turn_is_asked_again() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        if not agent.cancelled.is_set():
            await agent.cancelled.wait()
            return {"stopReason": "cancelled"}
        agent.say("s1", selected(await ask_permission(agent)))
        return {"stopReason": "end_turn"}

    async with in_session(far, permission="allow") as session:
        turn = session.prompt("one")
        session.cancel()
        await turn
        assert (await session.prompt("two")).text == "y"


async def test_a_question_that_the_agent_withdraws_is_taken_from_the_person() -> None:
    far, asked, gone = FarAgent(), asyncio.Event(), asyncio.Event()

    async def wait(question: PermissionQuestion) -> PermissionAnswer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    async with talking(far, on_permission=wait) as agent:
        await agent.new_session("/tmp")
        asking = asyncio.create_task(ask_permission(far))
        await asked.wait()
        far.send(method="$/cancel_request", params={"requestId": 1000})
        assert (await asking)["error"]["code"] == -32800
        await gone.wait()


async def test_a_callback_that_fails_is_told_to_the_agent_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = FarAgent()

    def fail(question: PermissionQuestion) -> PermissionAnswer:
        raise RuntimeError("secret")

    async with in_session(far, on_permission=fail) as session:
        answer = await ask_permission(far)
        assert answer["error"]["code"] == -32603
        assert "secret" not in str(answer)
        assert "secret" in caplog.text
        await session.prompt("the connection is as it was")


# -- files and terminals --------------------------------------------------------------------


async def test_files_and_terminals_are_off_unless_they_are_asked_for(tmp_path: Path) -> None:
    far = FarAgent()
    (tmp_path / "a").write_text("x")
    async with talking(far) as agent:
        await agent.new_session(tmp_path)
        for method, params in (
            ("fs/read_text_file", {"path": f"{tmp_path}/a"}),
            ("fs/write_text_file", {"path": f"{tmp_path}/a", "content": "y"}),
            ("terminal/create", {"command": "true"}),
        ):
            assert (await far.ask(method, sessionId="s1", **params))["error"]["code"] == -32601
    assert (tmp_path / "a").read_text() == "x"


async def test_files_are_served_inside_the_folders_of_the_session(tmp_path: Path) -> None:
    far = FarAgent(ALL)
    for name in ("work", "more", "other", "extra"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("one\ntwo\n")

    async def read(name: str, **more: Any) -> dict[str, Any]:
        path = f"{tmp_path}/{name}/a.txt"
        return await far.ask("fs/read_text_file", sessionId="s1", path=path, **more)

    async with talking(far, files=[tmp_path / "extra"]) as agent:
        await agent.new_session(tmp_path / "work", additional_directories=[tmp_path / "more"])
        for name in ("work", "more", "extra"):
            assert (await read(name))["result"] == {"content": "one\ntwo\n"}
        assert (await read("work", line=2, limit=1))["result"] == {"content": "two\n"}
        assert "outside" in (await read("other"))["error"]["message"]
        new = f"{tmp_path}/work/new.txt"
        written = await far.ask("fs/write_text_file", sessionId="s1", path=new, content="new")
        assert written["result"] == {}
        assert (tmp_path / "work/new.txt").read_text() == "new"
        nowhere = await far.ask("fs/read_text_file", sessionId="unknown", path=new)
        assert nowhere["error"]["code"] == -32002
    fs = far.params("initialize")["clientCapabilities"]["fs"]
    assert fs == {"readTextFile": True, "writeTextFile": True}


async def test_terminals_run_in_the_folder_of_the_session_and_end_with_it(tmp_path: Path) -> None:
    far = FarAgent(ALL)
    async with talking(far, terminals=True) as agent:
        session = await agent.new_session(tmp_path)
        made = await far.ask("terminal/create", sessionId="s1", command="pwd")
        about = {"sessionId": "s1", "terminalId": made["result"]["terminalId"]}
        ended = await far.ask("terminal/wait_for_exit", **about)
        assert ended["result"]["exitCode"] == 0
        output = await far.ask("terminal/output", **about)
        assert output["result"]["output"].strip() == str(tmp_path)
        await far.ask("terminal/create", sessionId="s1", command="sleep", args=["1000"])
        outside = await far.ask("terminal/create", sessionId="s1", command="pwd", cwd="/")
        assert "error" in outside
        await session.close()
        gone = await far.ask("terminal/output", **about)
        assert "error" in gone
    assert far.params("initialize")["clientCapabilities"]["terminal"] is True


# -- forms and pages ------------------------------------------------------------------------


async def elicit(far: FarAgent, **members: Any) -> dict[str, Any]:
    asked = {"sessionId": "s1", "mode": "form", "message": "Who?", "requestedSchema": FORM}
    return await far.ask("elicitation/create", **{**asked, **members})


async def test_a_form_is_filled_in_by_the_callback_and_gets_its_defaults() -> None:
    far, asked = FarAgent(), list[FormQuestion]()

    async def fill(question: FormQuestion) -> dict[str, Any] | None:
        asked.append(question)
        return {"name": "Ada"}

    async with talking(far, on_form=fill) as agent:
        await agent.new_session("/tmp")
        answer = await elicit(far, toolCallId="t")
        assert answer["result"] == {"action": "accept", "content": {"name": "Ada", "age": 18}}
    [question] = asked
    assert (question.message, question.session_id, question.tool_call_id) == ("Who?", "s1", "t")
    assert list(question.form.properties) == ["name", "age"]
    assert far.params("initialize")["clientCapabilities"]["elicitation"] == {"form": {}}


@pytest.mark.parametrize(("filled", "action"), [(None, "decline"), ("dismissed", "cancel")])
async def test_a_form_may_be_declined_or_left(filled: Any, action: str) -> None:
    far = FarAgent()
    async with talking(far, on_form=lambda question: filled) as agent:
        await agent.new_session("/tmp")
        assert (await elicit(far))["result"] == {"action": action}


@pytest.mark.parametrize(
    "filled", [{}, {"name": "A"}, {"name": "Ada", "age": -1}, {"name": "Ada", "x": 1}, {"name": 1}]
)
async def test_values_that_do_not_fit_are_not_sent(filled: dict[str, Any]) -> None:
    far = FarAgent()
    async with talking(far, on_form=lambda question: filled) as agent:
        await agent.new_session("/tmp")
        assert "do not fit the form" in (await elicit(far))["error"]["message"]


@pytest.mark.parametrize(
    ("agrees", "action"), [(True, "accept"), (False, "decline"), (None, "cancel")]
)
async def test_a_page_is_opened_only_by_someone_who_agrees(
    agrees: bool | None, action: str
) -> None:
    far, asked = FarAgent(), list[PageQuestion]()

    def visit(question: PageQuestion) -> bool | None:
        asked.append(question)
        return agrees

    async with talking(far, on_page=visit) as agent:
        await agent.new_session("/tmp")
        page = {"mode": "url", "url": "https://pay.example/1", "elicitationId": "e"}
        assert (await elicit(far, **page))["result"] == {"action": action}
        assert (await elicit(far))["error"]["code"] == -32601  # forms were not offered
    assert (asked[0].url, asked[0].id) == ("https://pay.example/1", "e")
    assert far.params("initialize")["clientCapabilities"]["elicitation"] == {"url": {}}


async def test_a_form_that_is_open_when_the_turn_is_cancelled_is_answered_so() -> None:
    far, asked = FarAgent(), asyncio.Event()

    async def never(question: FormQuestion) -> None:
        asked.set()
        await asyncio.Event().wait()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", (await elicit(agent))["result"]["action"])
        agent.say("s1", (await elicit(agent))["result"]["action"])
        return {"stopReason": "cancelled"}

    async with in_session(far, on_form=never) as session:
        turn = session.prompt("go")
        await asked.wait()
        session.cancel()
        assert (await turn).text == "cancelcancel"


async def test_the_notification_that_a_page_has_been_dealt_with_is_passed_on_like_others() -> None:
    far, heard = FarAgent(), list[Any]()
    async with talking(far, on_notification=lambda *told: heard.append(told)) as agent:
        await agent.new_session("/tmp")
        far.send(method="elicitation/complete", params={"elicitationId": "unknown"})
        await agent.new_session("/tmp")
    assert heard == [("elicitation/complete", {"elicitationId": "unknown"})]


class _OwnError(Exception):
    """One of the program."""


@pytest.mark.parametrize("callback", ["on_permission", "on_form", "an option that is not offered"])
async def test_what_a_callback_raises_is_raised_by_the_prompt(callback: str) -> None:
    far, answers = FarAgent(), []

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        del agent.acts["session/prompt"]
        answers.append(await (elicit(agent) if "form" in callback else ask_permission(agent)))
        await agent.until("session/cancel")
        return {"stopReason": "cancelled"}

    def fail(question: object) -> Any:
        raise _OwnError

    options: dict[str, Any] = {callback: fail}
    if callback not in ("on_permission", "on_form"):
        options = {"on_permission": lambda _: "no such option"}
    async with in_session(far, **options) as session:
        turn = session.prompt("go")
        with pytest.raises(_OwnError if callback in options else acphold.DeclarationError):
            await turn
        assert turn.stop_reason == "cancelled"
        assert (await session.prompt("again")).text == "heard again"
    assert "error" not in answers[0]
