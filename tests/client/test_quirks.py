"""Real agents deviate from the protocol; we work with them all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.client import PermissionQuestion
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import AgentStartError, InvalidParamsError, RemoteError
from tests.client.far_agent import ALL, FarAgent, Refusal, in_session, talking
from tests.editor import scripted_agent
from tests.plugin import Until
from tests.watched_processes import lives


async def test_an_answer_of_null_is_an_empty_one() -> None:
    far = FarAgent(ALL)

    async def nothing(agent: FarAgent, params: dict[str, Any]) -> Any:
        return None

    for method in ("load", "resume", "close", "delete", "set_mode"):
        far.acts[f"session/{method}"] = nothing
    for method in ("authenticate", "logout"):
        far.acts[method] = nothing
    far.on("initialize")(initialize_with(authMethods=[{"id": "a", "name": "A"}]))
    async with talking(far) as agent:
        session = await agent.load_session("old", "/tmp")
        await agent.resume_session("old", "/tmp")
        session = await agent.new_session("/tmp")
        await session.set_mode("code")
        await session.close()
        await agent.delete_session("old")
        await agent.authenticate("a")
        await agent.logout()


def initialize_with(**members: Any) -> Any:
    """An answer to `initialize` with these members besides the usual ones."""

    async def answer(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"protocolVersion": 1, "agentCapabilities": ALL, **members}

    return answer


async def test_null_for_a_list_that_was_advertised_is_an_error_and_no_hang() -> None:
    far = FarAgent(ALL)

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return None

    async with talking(far) as agent:
        with pytest.raises(InvalidParamsError, match="sessions"):
            [info async for info in agent.sessions()]


async def test_a_tool_call_may_begin_with_an_update_or_with_its_permission_request() -> None:
    far, asked = FarAgent(), list[PermissionQuestion]()

    def decide(question: PermissionQuestion) -> bool:
        asked.append(question)
        return True

    async with in_session(far, on_permission=decide) as session:
        option = {"optionId": "y", "name": "Yes", "kind": "allow_once"}
        tool = {"toolCallId": "t", "title": "Run", "kind": "execute"}
        ask = {"sessionId": "s1", "toolCall": tool, "options": [option]}
        await far.ask("session/request_permission", **ask)
        far.update("s1", "tool_call_update", toolCallId="t", status="in_progress")
        far.update("s1", "tool_call", toolCallId="t", title="Run it", status="completed")
        await session.prompt("hello")
    assert (asked[0].tool_call.title, asked[0].tool_call.kind) == ("Run", "execute")
    [call] = [item for item in session.state.timeline if isinstance(item, ToolCall)]
    assert (call.title, call.status) == ("Run it", "completed")


async def test_an_error_without_an_id_or_with_null_belongs_to_nobody() -> None:
    far = FarAgent()
    async with talking(far) as agent:
        far.line('{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}')
        far.line('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}')
        far.line('{"jsonrpc":"2.0","id":4711,"result":{}}')
        session = await agent.new_session("/tmp")
        assert (await session.prompt("hello")).text == "heard hello"


@pytest.mark.parametrize("version", [2, 0, 65535])
async def test_an_agent_that_insists_on_another_version_is_left(version: int) -> None:
    far = FarAgent(protocolVersion=version)
    with pytest.raises(AgentStartError, match=f"speaks version {version} of the protocol, not 1"):
        async with talking(far):
            raise AssertionError
    assert far.params("initialize")["protocolVersion"] == 1
    assert far.methods() == ["initialize"]


async def test_an_agent_that_refuses_initialize_is_left_with_its_reason() -> None:
    far = FarAgent()

    @far.on("initialize")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        raise Refusal(-32603, "no licence")

    with pytest.raises(AgentStartError, match="refused `initialize`: no licence"):
        async with talking(far):
            raise AssertionError


@pytest.mark.parametrize("code", [-32002, -32602, -32603, 400, 2**40])
async def test_an_error_is_what_the_agent_says_whatever_code_it_has(code: int) -> None:
    far = FarAgent(ALL)

    @far.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        raise Refusal(code, "Session not found")

    async with talking(far) as agent:
        with pytest.raises(RemoteError, match="Session not found") as caught:
            await agent.load_session("gone", "/tmp")
    assert caught.value.code in (code, -32603)


@pytest.mark.parametrize("answer", [{}, {"stopReason": "stop_sequence"}, None, {"stopReason": 7}])
async def test_a_stop_reason_that_is_not_known_or_missing_ends_a_turn_just_as_well(
    answer: Any,
) -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return answer

    async with in_session(far) as session:
        turn = await session.prompt("hello")
        expected = "stop_sequence" if answer == {"stopReason": "stop_sequence"} else "end_turn"
        assert turn.stop_reason == expected


async def test_requests_and_notifications_of_others_are_answered_and_passed_over() -> None:
    far = FarAgent()
    async with talking(far) as agent:
        for method in ("_vendor/ask", "vendor/ask", "session/unknown"):
            assert (await far.ask(method, sessionId="s1"))["error"]["code"] == -32601
            far.send(method=f"{method}ed", params={"x": 1})
            far.send(method=f"{method}s")
        session = await agent.new_session("/tmp")
        assert (await session.prompt("hello")).text == "heard hello"


async def test_ids_of_sessions_may_be_anything() -> None:
    odd = ["0", "1", "ses_\u00e9 /?\n", "x" * 1000]
    ids = iter(odd)
    far = FarAgent()

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessionId": next(ids)}

    async with talking(far) as agent:
        for name in odd:
            session = await agent.new_session("/tmp")
            assert session.id == name
            assert (await session.prompt("hello")).text == "heard hello"


async def test_half_of_a_surrogate_pair_is_a_text_like_any_other() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        for half in ("\\ud83d", "\\ude00"):
            body = (
                '{"sessionUpdate":"agent_message_chunk",'
                f'"content":{{"type":"text","text":"{half}"}}}}'
            )
            told = f'{{"sessionId":"s1","update":{body}}}'
            agent.line(f'{{"jsonrpc":"2.0","method":"session/update","params":{told}}}')
        return {"stopReason": "end_turn"}

    async with in_session(far) as session:
        turn = session.prompt("smile")
        assert len([update async for update in turn]) == 2
        assert turn.text == "\U0001f600"


async def test_an_agent_with_a_daemon_that_outlives_it_leaves_nothing_behind(
    until: Until, pid_file: Path
) -> None:
    async with acphold.connect(*scripted_agent(deaf=True)) as agent:
        session = await agent.new_session()
        daemon = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 1000' &"
        await session.prompt(json.dumps([{"spawn": daemon}]))
        until(lambda: bool(pid_file.read_text().split()))
    until(lambda: not lives(int(pid_file.read_text())))
