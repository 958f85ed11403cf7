"""Declarations of an agent, as clients use them: modes, options, commands, sign-in, hooks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.schema import (
    AUTHENTICATE,
    LOGOUT,
    SET_SESSION_MODE,
    AuthenticateRequest,
    ClientCapabilities,
    LogoutRequest,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SetSessionModeRequest,
)
from acp_wire.transports.streams import memory_pair
from acphold.library.agent import definition_of
from acphold.testing import WatchedSession, connect
from tests.editor import DEADLINE
from tests.library.test_turn import agent_that, opened
from tests.served import Guest


def choosing() -> acphold.Agent:
    """An agent with modes and options; a prompt `mode X` or `NAME VALUE` changes one."""

    async def work(turn: acphold.Turn) -> None:
        if turn.text.startswith("mode "):
            await turn.session.set_mode(turn.text.removeprefix("mode "))
        elif turn.text:
            name, value = turn.text.split()
            chosen = value == "yes" if value in ("yes", "no") else value
            await turn.session.set_option(name, chosen)
        await turn.say(f"{turn.session.mode} {dict(turn.session.config_options)}")

    agent = agent_that(work)
    agent.mode("ask", "Ask", "Asks first")
    agent.mode("code")
    agent.option("model", default="small", values=["small", "large"], category="model")
    agent.option("verbose", default=False)
    return agent


def values(session: WatchedSession) -> dict[str, Any]:
    """Option id to value, as the answer that opened the session has them."""
    return {known(option).id: known(option).current_value for option in session.config_options}


def known(option: SessionConfigOption) -> SessionConfigSelect | SessionConfigBoolean:
    """An option of a type we know."""
    assert isinstance(option, SessionConfigSelect | SessionConfigBoolean)
    return option


async def test_modes_and_options_are_in_the_answer_to_new() -> None:
    async with opened(choosing()) as (_, session):
        assert session.mode == "ask"
        assert [(mode.id, mode.name) for mode in session.modes] == [
            ("ask", "Ask"),
            ("code", "Code"),
        ]
        assert values(session) == {"mode": "ask", "model": "small", "verbose": False}


async def test_a_client_without_boolean_options_is_not_shown_them() -> None:
    async with opened(choosing(), capabilities=ClientCapabilities()) as (_, session):
        assert values(session) == {"mode": "ask", "model": "small"}
        assert (await session.prompt("verbose yes")).text.endswith("'verbose': True}")


async def test_a_mode_and_its_option_are_one_choice_whoever_makes_it() -> None:
    async with opened(choosing()) as (_, session):
        await session.set_mode("code")
        assert (await session.prompt("")).text.startswith("code {'mode': 'code'")
        options = await session.set_option("mode", "ask")
        assert known(options[0]).current_value == "ask"
        assert (await session.prompt("")).text.startswith("ask {'mode': 'ask'")
        result = await session.prompt("mode code")
        assert [
            update["currentModeId"] for update in result.received.of("current_mode_update")
        ] == ["code"]
        shown = result.received.of("config_option_update")[-1]["configOptions"]
        assert shown[0]["currentValue"] == "code"
        result = await session.prompt("model large")
        assert result.received.of("current_mode_update") == []
        assert len(result.received.of("config_option_update")) == 1


async def test_what_was_chosen_is_remembered_over_restarts() -> None:
    async with opened(choosing()) as (client, session):
        await session.set_mode("code")
        await session.set_option("verbose", value=True)
        await session.prompt("model large")
        for kill in (False, True):
            await client.restart(kill=kill)
            session = await client.load_session(session.id)
            assert session.mode == "code"
            assert values(session) == {"mode": "code", "model": "large", "verbose": True}
            result = await session.prompt("")
            assert result.text == "code {'mode': 'code', 'model': 'large', 'verbose': True}"


async def test_what_cannot_be_chosen_is_refused() -> None:
    async with opened(choosing()) as (client, session):
        with pytest.raises(acphold.RemoteError, match=r"^modeId: .* has no mode 'x'"):
            await client.ask(SET_SESSION_MODE, SetSessionModeRequest(session.id, "x"))
        with pytest.raises(acphold.RemoteError, match="'x'"):
            await session.set_mode("x")
        with pytest.raises(acphold.RemoteError, match=r"^value: .* cannot be 'x'"):
            await session.set_option("model", "x")
        with pytest.raises(acphold.RemoteError, match="cannot be 'true'"):
            await session.set_option("verbose", "true")
        with pytest.raises(acphold.RemoteError, match=r"^configId: .* has no option 'x'"):
            await session.set_option("x", value=True)


async def test_commands_are_shown_when_a_session_opens_and_answered_by_their_handlers() -> None:
    agent = agent_that(lambda turn: turn.say(f"prompt: {turn.command} {turn.text}"))
    agent.command("plan", "Make a plan", hint="what for")

    @agent.command("count", "Count words")
    async def count(turn: acphold.Turn, words: str) -> None:
        await turn.say(str(len(words.split())))

    async with opened(agent) as (client, session):
        assert (await session.prompt("/count one two")).text == "2"
        result = await session.prompt("/plan a trip")
        assert result.text == "prompt: ('plan', 'a trip') /plan a trip"
        assert (await session.prompt("/unknown")).text == "prompt: None /unknown"
        [shown] = session.received.of("available_commands_update")
        assert [command["name"] for command in shown["availableCommands"]] == ["plan", "count"]
        await client.restart()
        session = await client.load_session(session.id)
        assert len(session.received.of("available_commands_update")) == 1
        await session.prompt("/count")
        assert len(session.received.of("available_commands_update")) == 1, "shown already"


def guarded() -> tuple[acphold.Agent, list[str]]:
    """An agent that wants a sign-in, and a record of its calls."""
    happened: list[str] = []
    agent = agent_that(lambda turn: turn.say("in"))

    @agent.auth("login", "Log in", "With a browser")
    async def log_in(visitor: acphold.Visitor) -> None:
        happened.append("in")
        if len(happened) == 1:
            raise acphold.AuthRequiredError("wrong password")

    @agent.on_logout
    async def log_out(visitor: acphold.Visitor) -> None:
        happened.append("out")

    return agent, happened


async def test_sessions_wait_for_a_sign_in_and_end_with_a_logout() -> None:
    agent, happened = guarded()
    async with connect(agent) as client:
        [method] = client.initialized.auth_methods
        assert (method.id, method.name) == ("login", "Log in")
        with pytest.raises(acphold.AuthRequiredError, match="sign in first") as refused:
            await client.new_session()
        assert refused.value.code == -32000
        with pytest.raises(acphold.RemoteError, match="wrong password"):
            await client.ask(AUTHENTICATE, AuthenticateRequest(method_id="login"))
        with pytest.raises(acphold.AuthRequiredError):
            await client.new_session()
        with pytest.raises(acphold.RemoteError, match="no sign-in method 'x'"):
            await client.ask(AUTHENTICATE, AuthenticateRequest(method_id="x"))
        await client.ask(AUTHENTICATE, AuthenticateRequest(method_id="login"))
        session = await client.new_session()
        assert (await session.prompt("go")).text == "in"
        await client.ask(LOGOUT, LogoutRequest())
        with pytest.raises(acphold.AuthRequiredError, match="sign in first"):
            await client.new_session()
        assert happened == ["in", "in", "out"]


async def test_someone_who_is_signed_in_already_is_not_asked() -> None:
    agent, happened = guarded()

    @agent.signed_in
    async def signed_in(visitor: acphold.Visitor) -> bool:
        return True

    async with connect(agent) as client:
        await client.new_session()
    assert happened == []


async def test_a_turn_may_find_that_the_sign_in_is_over() -> None:
    async def work(turn: acphold.Turn) -> None:
        raise acphold.AuthRequiredError("the token has expired")

    agent = agent_that(work)

    @agent.auth("login", "Log in")
    async def log_in(visitor: acphold.Visitor) -> None:
        pass

    async with connect(agent) as client:
        await client.ask(AUTHENTICATE, AuthenticateRequest(method_id="login"))
        session = await client.new_session()
        with pytest.raises(acphold.AuthRequiredError, match="the token has expired") as error:
            await session.prompt("go")
        assert error.value.code == -32000
        with pytest.raises(acphold.AuthRequiredError, match="sign in first"):
            await client.new_session()


async def test_hooks_are_told_of_sessions_and_keep_state_with_them() -> None:
    happened: list[str] = []

    async def work(turn: acphold.Turn) -> None:
        await turn.say(f"{turn.session.scratch} {dict(turn.session.store)}")

    agent = agent_that(work)

    @agent.on_new
    async def made(session: acphold.Session) -> None:
        happened.append("new")
        session.scratch["visits"] = 1
        session.store["name"] = "Ada"
        await session.notice("Welcome")

    @agent.on_load
    async def loaded(session: acphold.Session) -> None:
        history = await session.history()
        happened.append(f"load {session.store['name']} {len(history.timeline)}")
        session.store.append("loads", len(happened))
        await session.notice("Welcome back")

    @agent.on_close
    async def closed(session: acphold.Session) -> None:
        happened.append("close")

    async with opened(agent) as (client, session):
        assert (await session.prompt("go")).text == "{'visits': 1} {'name': 'Ada'}"
        assert [notice["title"] for notice in session.received.of("notice")] == ["Welcome"]
        assert agent.session(session.id).id == session.id
        await session.close()
        session = await client.load_session(session.id)
        result = await session.prompt("go")
        assert result.text == "{} {'name': 'Ada', 'loads': [3]}"
        assert [notice["title"] for notice in session.received.of("notice")] == ["Welcome back"]
    assert happened == ["new", "close", "load Ada 3", "close"]


async def test_what_on_load_raises_refuses_the_session_and_is_told_by_its_incident(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = choosing()
    breaks = ["a bug of the author"]

    @agent.on_load
    async def loaded(session: acphold.Session) -> None:
        if breaks:
            raise RuntimeError(breaks[0])

    async with opened(agent, raise_agent_exceptions=False) as (client, session):
        await session.prompt("mode code")
        await session.close()
        for _ in range(2):
            with pytest.raises(acphold.RemoteError, match="internal error") as refused:
                await client.load_session(session.id)
            incident = json.loads(refused.value.raw)["data"]["incident"]
            assert "a bug of the author" not in str(refused.value)
            [said] = [it for it in caplog.records if incident in it.getMessage() and it.exc_info]
            assert "a bug of the author" in str(said.exc_info)
        assert "protocolVersion" not in caplog.text
        breaks.clear()
        session = await client.load_session(session.id)
        await session.prompt("mode code")


async def test_a_hook_that_fails_refuses_the_session_and_says_only_an_id() -> None:
    agent = agent_that(lambda turn: turn.say("never"))

    @agent.on_new
    async def made(session: acphold.Session) -> None:
        raise ValueError("hunter2")

    async with connect(agent, raise_agent_exceptions=False) as client:
        with pytest.raises(acphold.RemoteError, match="internal error") as error:
            await client.new_session()
        assert b"hunter2" not in error.value.raw
        assert [info async for info in client.sessions()] == []
    assert definition_of(agent).sessions == {}


async def test_extension_methods_and_notifications_go_both_ways() -> None:
    heard: list[Any] = []
    hears = asyncio.Event()

    async def work(turn: acphold.Turn) -> None:
        await turn.session.notify("_test/told", {"n": 1})
        answer = await turn.session.call("_test/asked", {"n": 2})
        await turn.say(str(answer))

    agent = agent_that(work)

    @agent.method("_test/add")
    async def add(params: dict[str, int]) -> int:
        return params["a"] + params["b"]

    @agent.method("_test/fail")
    async def fail(params: Any) -> Any:
        return object()

    @agent.notification("_test/note")
    async def note(params: Any) -> None:
        heard.append(params)
        hears.set()
        raise ValueError("in the log only")

    async def asked(params: dict[str, Any]) -> dict[str, Any]:
        return {"got": params["n"]}

    async with connect(
        agent, handlers={"_test/asked": asked}, raise_agent_exceptions=False
    ) as client:
        assert await client.call("_test/add", {"a": 1, "b": 2}) == 3
        with pytest.raises(acphold.RemoteError, match="internal error"):
            await client.call("_test/fail", {})
        with pytest.raises(acphold.RemoteError, match="method not found"):
            await client.call("_test/unknown", {})
        client.notify("_test/note", {"x": 1})
        await asyncio.wait_for(hears.wait(), 10)
        session = await client.new_session()
        assert (await session.prompt("mode code")).text == "{'got': 2}"
        assert client.notifications == [("_test/told", {"n": 1, "sessionId": session.id})]
    assert heard == [{"x": 1}]


async def test_what_a_client_is_asked_comes_behind_what_was_said_before(tmp_path: Path) -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say("1")
        await turn.session.call("_test/asked")
        await turn.say("2")
        await turn.files.read("a file")
        await turn.say("3")

    here, there = memory_pair()
    serving = asyncio.create_task(agent_that(work).serve(there, journal=tmp_path / "journal.db"))
    client = Guest(here, serving)
    client.answers |= {
        "_test/asked": lambda _: {},
        "fs/read_text_file": lambda _: {"content": ""},
    }
    reading = asyncio.create_task(client.read())
    await client.initialize(fs={"readTextFile": True})
    await client.talk("go", cwd=tmp_path)
    asked = [message["method"] for message in client.messages if "method" in message]
    first = asked.index("_test/asked")
    assert asked[first - 1 : first + 4] == [
        "session/update",
        "_test/asked",
        "session/update",
        "fs/read_text_file",
        "session/update",
    ]
    await client.leave()
    await reading


async def test_a_slow_notification_handler_holds_nobody_up() -> None:
    agent = agent_that(lambda turn: turn.say("answered"))

    @agent.notification("_test/slow")
    async def slow(params: Any) -> None:
        await asyncio.Event().wait()

    async with connect(agent) as client:
        client.notify("_test/slow", {})
        assert (await (await client.new_session()).prompt("go")).text == "answered"


async def test_a_session_goes_on_after_the_process_was_killed_in_a_turn() -> None:
    async def work(turn: acphold.Turn) -> None:
        if turn.text == "hang":
            await turn.say("half")
            async with turn.tool("Endless"):
                await asyncio.Event().wait()
        history = await turn.history()
        await turn.say(f"{history.turn} {history.turns}")

    async with opened(agent_that(work)) as (client, session):
        turn = session.prompt("hang")
        await session.until(lambda told: told.tool_calls)
        await client.restart(kill=True)
        with pytest.raises(acphold.AcpError):
            await turn
        session = await client.load_session(session.id)
        assert session.received.text == "half"
        assert [call.status for call in session.received.tool_calls] == ["failed"]
        assert session.state.turn == "interrupted"
        assert (await session.prompt("go on")).text == "interrupted 1"


async def test_an_agent_that_serves_one_client_stops_when_it_is_told_to(tmp_path: Path) -> None:
    async def work(turn: acphold.Turn) -> None: ...

    near, there = memory_pair()
    stop = asyncio.Event()
    agent = agent_that(work)
    serving = asyncio.create_task(agent.serve(there, journal=tmp_path / "journal.db", stop=stop))
    await asyncio.sleep(0)
    assert not serving.done()
    stop.set()
    async with asyncio.timeout(DEADLINE):
        await serving
    await near.aclose()
