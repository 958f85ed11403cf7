"""`holdfast agent` as an editor starts it, with a stand-in for the model's service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents.model.service import answering, saying
from tests.editor import Editor, editor
from tests.interop.model_endpoint import ModelEndpoint

KEY = "sk-not-to-be-seen-anywhere"


def started(
    journal: Path, url: str, *options: str, name: str = "openai-chat:stand-in", key: str = KEY
) -> AbstractAsyncContextManager[Editor]:
    """An editor, and the agent on a model behind `url`."""
    command = [sys.executable, "-m", "holdfast", "agent", "--model", name, *options]
    environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    return editor(command, journal=journal, env=environment)


@asynccontextmanager
async def answered(journal: Path, body: bytes, status: int, *options: str) -> AsyncIterator[Editor]:
    """The same with a service that always answers this."""
    with answering(body, status) as url:
        async with started(journal, url, *options) as client:
            await client.initialize()
            yield client


def written(journal: Path) -> bytes:
    return b"".join(path.read_bytes() for path in journal.parent.glob(f"{journal.name}*"))


@pytest.mark.parametrize("name", ["openai-chat:stand-in", "openai:stand-in"])
async def test_after_kill_9_the_model_gets_its_own_messages_again(
    journal: Path, tmp_path: Path, model: ModelEndpoint, name: str
) -> None:
    (tmp_path / "a.txt").write_text("the text of the file\n")
    async with started(journal, model.url, name=name) as first:
        await first.initialize()
        session_id = await first.new(tmp_path)
        await first.prompt(session_id, "USE_TOOL:read FILE=a.txt")
        await first.until_text("DONE: the tool said: the text of the file")
        await first.kill()
    before = len(model.requests)
    async with started(journal, model.url, name=name) as second:
        await second.initialize()
        await second.load(session_id, tmp_path)
        assert "DONE: the tool said" in second.text()
        await second.prompt(session_id, "and now?")
        await second.until_text("ECHO: and now?")
        assert await second.leave() == 0
    asked = next(raw for raw in model.requests[before:] if "and now?" in raw)
    place = -1
    for piece in (
        "USE_TOOL:read",
        'a.txt\\"}',
        "the text of the file",
        "DONE: the",
        "and now?",
    ):
        place = asked.find(piece, place + 1)
        assert place >= 0, f"{piece!r} is not in its place in {asked}"


async def test_a_kill_in_the_middle_of_an_answer_leaves_what_was_seen(
    journal: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    async with started(journal, model.url) as first:
        await first.initialize()
        session_id = await first.new(tmp_path)
        first.begin_prompt(session_id, "SLOW")
        await first.until_text("tick2 ")
        await first.kill()
    async with started(journal, model.url) as second:
        await second.initialize()
        await second.load(session_id, tmp_path)
        seen = second.text()
        assert "tick0 tick1 tick2 " in seen
        await second.prompt(session_id, "go on")
    asked = next(raw for raw in model.requests if "go on" in raw)
    said = [message["content"] for message in json.loads(asked)["messages"]]
    assert said[-3:] == ["SLOW", seen, "go on"]


async def test_a_cancelled_answer_stops_at_once(
    journal: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    async with started(journal, model.url) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        turn = client.begin_prompt(session_id, "SLOW")
        await client.until_text("tick1 ")
        client.tell("session/cancel", {"sessionId": session_id})
        assert (await turn)["stopReason"] == "cancelled"
        assert "tick100" not in client.text()


async def test_commands_run_in_the_terminal_of_the_client(
    journal: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    def answer(result: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda params: result

    async with started(journal, model.url) as client:
        client.answers |= {
            "terminal/create": answer({"terminalId": "t1"}),
            "terminal/wait_for_exit": answer({"exitCode": 0}),
            "terminal/output": answer({"output": "from the client", "truncated": False}),
            "terminal/release": answer({}),
        }
        await client.initialize(terminal=True)
        await client.prompt(await client.new(tmp_path), "USE_TOOL:shell CMD=ls")
        await client.until_text("DONE: the tool said: from the client\n(exit code 0)")
        calls = [it for it in client.messages if "id" in it and "method" in it]
    asked = [it["method"] for it in calls]
    created = calls[asked.index("terminal/create")]["params"]
    assert created["command"] == "/bin/sh"
    assert created["args"] == ["-c", "ls"]
    assert created["cwd"] == str(tmp_path)
    assert asked[0] == "session/request_permission"
    assert asked[-1] == "terminal/release"
    contents = [update.get("content") for update in client.updates() if update.get("content")]
    assert [{"type": "terminal", "terminalId": "t1"}] in contents


async def test_the_key_is_nowhere(journal: Path, tmp_path: Path) -> None:
    body = json.dumps({"error": {"message": "Incorrect API key provided: THE-KEY."}}).encode()
    async with answered(journal, body, 401, "--log-level", "debug") as client:
        error = await client.refused(
            "session/prompt",
            {
                "sessionId": await client.new(tmp_path),
                "prompt": [{"type": "text", "text": "hi"}],
            },
        )
        await client.leave()
        await client.ended()
        lines = b"".join(client.lines)
        stderr = client.stderr
    assert "the service answered 401 Unauthorized: Incorrect API key" in error.message
    assert "check the API key" in error.message
    assert error.data["status"] == 401
    for seen in (lines, stderr, written(journal), error.message.encode()):
        assert KEY.encode() not in seen


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_tokens"), ("content_filter", "refusal")]
)
async def test_the_end_of_an_answer_is_the_end_of_the_turn(
    journal: Path, tmp_path: Path, finish: str, reason: str
) -> None:
    async with answered(journal, saying("Half an ans", finish), 200) as client:
        result = await client.prompt(await client.new(tmp_path), "hi")
        assert result["stopReason"] == reason
        assert client.text() == "Half an ans"


async def test_known_models_have_a_context_and_a_price(journal: Path, tmp_path: Path) -> None:
    body = saying("Hello", "stop", model="gpt-4o")
    with answering(body) as url:
        async with started(journal, url, name="openai-chat:gpt-4o") as client:
            await client.initialize()
            await client.prompt(await client.new(tmp_path), "hi")
            [usage] = [
                update for update in client.updates() if update["sessionUpdate"] == "usage_update"
            ]
    assert (usage["used"], usage["size"]) == (1000, 128_000)
    assert usage["cost"]["currency"] == "USD"
    assert 0 < usage["cost"]["amount"] < 1


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("openai-chat:x", "", "OPENAI_API_KEY"),
        ("nonsense", KEY, "nonsense cannot be used: Unknown model: nonsense"),
        ("groq:x", KEY, "groq"),
    ],
)
async def test_a_model_that_cannot_be_used_says_why(
    journal: Path, tmp_path: Path, name: str, key: str, words: str
) -> None:
    async with started(journal, "http://127.0.0.1:1", name=name, key=key) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
        error = await client.refused("session/prompt", prompt)
    assert words in error.message


async def test_a_service_that_is_not_there_is_named(journal: Path, tmp_path: Path) -> None:
    async with started(journal, "http://127.0.0.1:1/v1") as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
        error = await client.refused("session/prompt", prompt)
    assert "openai-chat:stand-in: no answer: Connection error" in error.message


def test_options_that_cannot_be_used_are_named() -> None:
    command = [sys.executable, "-m", "holdfast", "agent", "--model", "x:y", "--mcp-timeout", "soon"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "--mcp-timeout" in done.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'pydantic_ai': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from holdfast.cli.main import cli\n"
        "cli(['agent', '--model', 'openai:x'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr == "holdfast: holdfast agent needs pydantic-ai: pip install 'holdfast[model]'\n"
    )
