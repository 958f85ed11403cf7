"""Middleware runs around each step of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.testing import connect
from tests.library.conftest import mcp_server
from tests.library.test_turn import agent_that, opened


def watched(agent: acphold.Agent) -> list[str]:
    """Add a middleware to this agent; returns the list of its calls, in order."""
    seen: list[str] = []

    @agent.middleware
    async def watch(step: acphold.Step) -> AsyncIterator[None]:
        seen.append(f"{step.kind} {step.name}")
        try:
            yield
            seen.append(f"{step.kind} over: {step.result}")
        except BaseException as exc:
            seen.append(f"{step.kind} raised {type(exc).__name__}")
            raise

    return seen


async def test_it_is_around_a_turn_a_command_a_tool_and_a_wait_for_permission() -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look", name="look") as call:
            await turn.ask_permission("May I?", tool=call)
            await turn.ask_permission("May I?", tool=call)  # decided for always: nobody is asked

    agent = agent_that(work)

    @agent.command("tidy", "Tidies up")
    async def tidy(turn: acphold.Turn, words: str) -> Any:
        return "refusal"

    seen = watched(agent)
    async with opened(agent, on_permission="allow_always") as (_, session):
        await session.prompt("go")
        await session.prompt("/tidy up")
    allowed = acphold.Decision(True, "allow_always")
    assert seen == [
        f"turn {agent.name}",
        "tool look",
        "permission May I?",
        f"permission over: {allowed}",
        "tool over: None",
        "turn over: end_turn",
        f"turn {agent.name}",
        "command tidy",
        "command over: refusal",
        "turn over: refusal",
    ]


async def test_it_is_around_what_is_asked_of_an_mcp_server(work: Path) -> None:
    async def ask(turn: acphold.Turn) -> None:
        server = turn.mcp["test"]
        await server.tools()  # listing the tools is no step
        await turn.mcp.call("test", "echo", {"text": "hello"})
        await server.read_resource("note://a")
        await server.get_prompt("greet", {"who": "you"})

    agent = agent_that(ask)
    seen = watched(agent)
    async with opened(agent, work, mcp_servers=[mcp_server()]) as (_, session):
        await session.prompt("go")
    steps = ("mcp", "tool")  # a call is shown as one of a tool
    assert [words for words in seen if words.startswith(steps) and " over: " not in words] == [
        "tool echo",
        "mcp test/echo",
        "mcp_resource test/note://a",
        "mcp_prompt test/greet",
    ]
    assert sum(words.startswith("mcp") for words in seen) == 6
    assert any(words.startswith("mcp over: CallResult") for words in seen)


async def test_a_server_is_asked_nothing_behind_the_turn(work: Path) -> None:
    kept: list[acphold.TurnServer] = []

    async def keep(turn: acphold.Turn) -> None:
        kept.append(turn.mcp["test"])

    agent = agent_that(keep)
    async with opened(agent, work, mcp_servers=[mcp_server()]) as (_, session):
        await session.prompt("go")
        with pytest.raises(acphold.DeclarationError, match="over"):
            await kept[0].call("echo", {"text": "hello"})


async def test_it_is_around_the_waits_for_a_form_and_a_page() -> None:
    async def ask(turn: acphold.Turn) -> None:
        async with turn.tool("Look", name="look") as call:
            await turn.ask_form("Who?", {"name": {"type": "string"}}, tool=call)
        await turn.ask_page("Sign in", "https://example.com")

    agent = agent_that(ask)
    seen = watched(agent)

    async def fill_in(question: acphold.FormQuestion) -> dict[str, str]:
        return {"name": "Ada"}

    async def decline(question: acphold.PageQuestion) -> bool:
        return False

    async with connect(agent, on_form=fill_in, on_page=decline) as client:
        await (await client.new_session()).prompt("go")
    assert seen[2:4] == ["form Who?", "form over: <FormAnswer accepted: {'name': 'Ada'}>"]
    assert seen[5:7] == ["page Sign in", "page over: <Visit declined>"]


async def test_the_first_that_is_declared_is_outermost() -> None:
    seen: list[str] = []

    async def work(turn: acphold.Turn) -> None:
        seen.append("work")

    agent = agent_that(work)
    for name in ("one", "two"):

        def make(name: str = name) -> None:
            @agent.middleware
            async def around(step: acphold.Step) -> AsyncIterator[None]:
                seen.append(name)
                yield
                seen.append(f"{name} over")

        make()
    async with connect(agent) as client:
        await (await client.new_session()).prompt("go")
    assert seen == ["one", "two", "work", "two over", "one over"]


async def test_an_error_passes_though_a_middleware_catches_it() -> None:
    caught: list[BaseException] = []

    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look"):
            raise ValueError("no such thing")

    agent = agent_that(work)

    @agent.middleware
    async def keep(step: acphold.Step) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as exc:
            caught.append(exc)

    async with opened(agent) as (_, session):
        with pytest.raises(ValueError, match="no such thing"):
            await session.prompt("go")
    assert len(caught) == 2


async def test_a_middleware_may_refuse_a_step() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say("never")

    agent = agent_that(work)

    @agent.middleware
    async def refuse(step: acphold.Step) -> AsyncIterator[None]:
        if step.turn.text == "go":
            raise acphold.Refusal
        yield

    async with opened(agent) as (_, session):
        answer = await session.prompt("go")
        assert (answer.stop_reason, session.received.text) == ("refusal", "")


async def test_a_cancellation_passes_what_is_around_the_wait_that_it_ends() -> None:
    waits = asyncio.Event()

    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look"):
            waits.set()
            await asyncio.Event().wait()

    agent = agent_that(work)
    seen = watched(agent)
    async with opened(agent) as (_, session):
        turn = session.prompt("go")
        async with asyncio.timeout(10):
            await waits.wait()
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
    assert seen[2:] == ["tool raised CancelledError", "turn raised CancelledError"]


async def test_a_context_manager_is_middleware_too() -> None:
    steps: list[acphold.Step] = []

    def note(step: acphold.Step) -> AbstractAsyncContextManager[None]:
        steps.append(step)
        return nullcontext()

    async def work(turn: acphold.Turn) -> None: ...

    agent = agent_that(work)
    agent.middleware(note)
    async with connect(agent) as client:
        await (await client.new_session()).prompt("go")
    assert [(step.kind, step.turn.text, step.tool) for step in steps] == [("turn", "go", None)]


def test_what_can_be_entered_in_no_way_is_refused() -> None:
    agent = acphold.Agent("a", version="1")

    async def without_yield(step: acphold.Step) -> None: ...

    def without_async(step: acphold.Step) -> Iterator[None]:
        yield

    for middleware in ("tracing", without_yield, without_async):
        with pytest.raises(acphold.DeclarationError, match="is not middleware"):
            agent.middleware(middleware)  # type: ignore[type-var]
