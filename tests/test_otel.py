"""The spans of a turn, with the SDK of OpenTelemetry and its exporter into memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import acphold
import acphold.otel
from acphold.testing import connect
from tests.library.conftest import mcp_server
from tests.library.test_turn import agent_that


class Traced:
    """The exported spans, by name."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def __getitem__(self, name: str) -> ReadableSpan:
        [found] = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return found

    @property
    def names(self) -> list[str]:
        """The spans, in the order of their ends."""
        return [span.name for span in self._exporter.get_finished_spans()]

    def attributes(self, name: str) -> Mapping[str, object]:
        """The attributes of a span."""
        return dict(self[name].attributes or {})

    def parent(self, name: str) -> str | None:
        """The span that another lies in."""
        ids = {
            span.context.span_id: span.name
            for span in self._exporter.get_finished_spans()
            if span.context is not None
        }
        parent = self[name].parent
        return None if parent is None else ids.get(parent.span_id)


@pytest.fixture
def traced() -> Iterator[Traced]:
    """A tracer provider of this test alone."""
    made = Traced()
    yield made
    made.provider.shutdown()


async def test_steps_are_spans_by_the_conventions_and_say_nothing_of_what_was_said(
    traced: Traced,
) -> None:
    async def work(turn: acphold.Turn) -> None:
        with traced.provider.get_tracer("a model").start_as_current_span("chat gpt"):
            await asyncio.sleep(0)
        async with turn.tool("Read secret.txt", kind="read", name="look", input={"a": "secret"}):
            await turn.ask_permission("May I read the secret?")

    agent = agent_that(work)
    agent.middleware(acphold.otel.spans(traced.provider))
    async with connect(agent, permission="allow") as client:
        session = await client.new_session()
        await session.prompt("a secret")
    turn = f"invoke_agent {agent.name}"
    assert traced.names == ["chat gpt", "ask_permission", "execute_tool look", turn]
    assert traced.parent("chat gpt") == turn
    assert traced.parent("ask_permission") == "execute_tool look"
    assert traced.parent("execute_tool look") == turn
    assert traced.parent(turn) is None
    assert traced.attributes(turn) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent.name,
        "gen_ai.conversation.id": session.id,
        "acphold.stop_reason": "end_turn",
    }
    tool = traced.attributes("execute_tool look")
    assert tool["gen_ai.operation.name"] == "execute_tool"
    assert tool["gen_ai.tool.name"] == "look"
    assert tool["gen_ai.tool.call.id"] == session.received.tool_calls[0].tool_call_id
    assert traced.attributes("ask_permission")["acphold.permission.allowed"] is True
    for name in traced.names:
        assert "secret" not in f"{traced[name].to_json()}"
        assert traced[name].status.status_code is StatusCode.UNSET


async def test_a_call_of_an_mcp_server_is_a_span_of_its_client(
    traced: Traced, tmp_path: Path
) -> None:
    async def call(turn: acphold.Turn) -> None:
        await turn.mcp.call("test", "echo", {"text": "hello"})

    agent = agent_that(call)
    agent.middleware(acphold.otel.spans(traced.provider))
    async with connect(agent) as client:
        session = await client.new_session(str(tmp_path), mcp_servers=[mcp_server()])
        await session.prompt("go")
    span = traced["tools/call echo"]
    assert span.kind is SpanKind.CLIENT
    assert traced.parent("tools/call echo") == "execute_tool echo"
    told = traced.attributes("tools/call echo")
    assert told["mcp.method.name"] == "tools/call"
    assert told["acphold.mcp.server"] == "test"


async def test_what_is_asked_of_a_server_and_of_a_person_are_spans(
    traced: Traced, tmp_path: Path
) -> None:
    async def ask(turn: acphold.Turn) -> None:
        server = turn.mcp["test"]
        await server.call("fail", {"text": "a secret"})
        await server.read_resource("note://secret")
        await server.get_prompt("greet", {"who": "a secret"})
        await turn.ask_form("A secret?", {"it": {"type": "string"}})
        await turn.ask_page("The secret", "https://example.com/secret")

    agent = agent_that(ask)
    agent.middleware(acphold.otel.spans(traced.provider))

    async def fill_in(question: acphold.FormQuestion) -> dict[str, str]:
        return {"it": "a secret"}

    async def decline(question: acphold.PageQuestion) -> bool:
        return False

    async with connect(agent, on_form=fill_in, on_page=decline) as client:
        session = await client.new_session(str(tmp_path), mcp_servers=[mcp_server()])
        await session.prompt("go")
    turn = f"invoke_agent {agent.name}"
    asked = ["tools/call fail", "resources/read", "prompts/get greet", "ask_form", "ask_page"]
    assert traced.names == [*asked, turn]
    assert {traced.parent(name) for name in asked} == {turn}
    assert [traced[name].kind for name in asked] == [SpanKind.CLIENT] * 3 + [SpanKind.INTERNAL] * 2
    assert traced.attributes("tools/call fail")["error.type"] == "tool_error"
    assert traced.attributes("resources/read")["mcp.method.name"] == "resources/read"
    assert traced.attributes("prompts/get greet")["gen_ai.prompt.name"] == "greet"
    assert traced.attributes("ask_form")["acphold.outcome"] == "accepted"
    assert traced.attributes("ask_page")["acphold.outcome"] == "declined"
    for name in traced.names:
        assert "secret" not in f"{traced[name].to_json()}"


async def test_what_fails_is_marked_without_its_words(traced: Traced) -> None:
    async def work(turn: acphold.Turn) -> None:
        async with turn.tool("Look", kind="read"):
            raise ValueError("a secret")

    agent = agent_that(work)
    agent.middleware(acphold.otel.spans(traced.provider))
    async with connect(agent) as client:
        session = await client.new_session()
        with pytest.raises(ValueError, match="a secret"):
            await session.prompt("go")
    for name in ("execute_tool read", f"invoke_agent {agent.name}"):
        assert traced[name].status.status_code is StatusCode.ERROR
        assert traced.attributes(name)["error.type"] == "ValueError"
        assert "a secret" not in f"{traced[name].to_json()}"


async def test_a_cancelled_turn_and_a_refusal_are_no_errors(traced: Traced) -> None:
    waits = asyncio.Event()

    async def work(turn: acphold.Turn) -> None:
        if turn.text == "refuse":
            raise acphold.Refusal
        waits.set()
        await asyncio.Event().wait()

    agent = agent_that(work)
    agent.middleware(acphold.otel.spans(traced.provider))
    async with connect(agent) as client:
        for words in ("refuse", "wait"):
            session = await client.new_session()
            turn = session.prompt(words)
            if words == "wait":
                async with asyncio.timeout(10):
                    await waits.wait()
                session.cancel()
            await turn
    ended = traced._exporter.get_finished_spans()
    reasons = [(span.attributes or {})["acphold.stop_reason"] for span in ended]
    assert reasons == ["refusal", "cancelled"]
    assert {span.status.status_code for span in ended} == {StatusCode.UNSET}
