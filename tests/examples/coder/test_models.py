"""Models by name, over HTTP as a vendor speaks it: missing facts, the end of a turn, its cost."""

from __future__ import annotations

import pytest

from acphold.errors import RemoteError
from acphold.testing import connect
from agent import coder
from tests.examples.coder.service import answering, saying


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that the vendors of these tests read."""
    for name in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "CODER_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "gpt-5",
            "gpt-5 cannot be used: a name is vendor:model, such as openai:gpt-5; unknown: gpt-5",
        ),
        ("nonsense:x", "a name is vendor:model, such as openai:gpt-5; unknown: nonsense:x"),
        (
            "openai:x",
            "openai:x cannot be used: set OPENAI_API_KEY in the environment of this agent",
        ),
        ("deepseek:x", "set DEEPSEEK_API_KEY in the environment of this agent"),
        ("groq:x", 'its vendor is missing, pip install "pydantic-ai-slim[groq]"'),
    ],
)
async def test_a_model_that_cannot_be_used_says_what_is_missing(name: str, words: str) -> None:
    async with connect(coder(name)) as client:
        with pytest.raises(RemoteError) as told:
            await (await client.new_session()).prompt("hi")
    assert words in str(told.value)


async def test_an_agent_without_a_model_says_how_to_name_one() -> None:
    async with connect(coder()) as client:
        with pytest.raises(RemoteError, match="no model: use `--model openai:gpt-5`, or set CODER"):
            await (await client.new_session()).prompt("hi")


async def test_a_service_that_is_not_there_is_named_by_its_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:password@127.0.0.1:1/v1")
    async with connect(coder("openai-chat:stand-in")) as client:
        with pytest.raises(RemoteError) as told:
            await (await client.new_session()).prompt("hi")
    assert str(told.value).startswith("stand-in: no answer from http://127.0.0.1:1/v1/, is the URL")


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_tokens"), ("content_filter", "refusal")]
)
async def test_the_end_of_an_answer_is_the_end_of_the_turn(
    monkeypatch: pytest.MonkeyPatch, finish: str, reason: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with answering(saying("Half an ans", finish)) as service:
        monkeypatch.setenv("OPENAI_BASE_URL", service.url)
        async with connect(coder("openai-chat:stand-in")) as client:
            result = await (await client.new_session()).prompt("hi")
    assert (result.stop_reason, result.text) == (reason, "Half an ans")


async def test_known_models_have_a_context_and_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with answering(saying("Hello", model="gpt-4o")) as service:
        monkeypatch.setenv("OPENAI_BASE_URL", service.url)
        async with connect(coder("openai-chat:gpt-4o")) as client:
            session = await client.new_session()
            [first] = (await session.prompt("hi")).received.of("usage_update")
            [second] = (await session.prompt("hi")).received.of("usage_update")
    assert (first["used"], first["size"]) == (1000, 128_000)
    assert first["cost"]["currency"] == "USD"
    assert 0 < first["cost"]["amount"] < 1
    assert second["cost"]["amount"] == pytest.approx(2 * first["cost"]["amount"])
