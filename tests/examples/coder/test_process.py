"""The coding agent as an editor starts it, with a stand-in for the service of a vendor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Editor, editor, introduced
from tests.examples.coder.conftest import finders
from tests.examples.coder.service import Service, answering, calling, saying
from tests.interop.model_endpoint import ModelEndpoint
from tests.library.conftest import SERVER
from tests.watched_processes import until

CODER = Path(__file__).parents[3] / "examples" / "coder"

KEY = "sk-not-to-be-seen-anywhere"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # each process imports pydantic-ai


def started(
    journal: Path, url: str, *, name: str = "openai-chat:stand-in", **env: str
) -> AbstractAsyncContextManager[Editor]:
    """An editor, and the agent on a model behind `url`."""
    command = [sys.executable, str(CODER), "--model", name]
    environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY, **env}
    return editor(command, journal=journal, env=environment)


@asynccontextmanager
async def answered(
    journal: Path, *answers: bytes, status: int = 200, env: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Editor, Service]]:
    """An editor that is introduced to the agent, and a service that answers this."""
    with answering(*answers, status=status) as service:
        async with started(journal, service.url, **(env or {})) as client:
            await client.initialize()
            yield client, service


async def refusal(client: Editor, cwd: Path) -> str:
    """The error that the person sees when a prompt fails."""
    session_id = await client.new(cwd)
    prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
    return (await client.refused("session/prompt", prompt)).message


def said_to_the_model(service: Service) -> str:
    """The last tool result in the model's prompt."""
    return str(json.loads(service.requests[-1])["messages"][-1]["content"])


# -- conversations ---------------------------------------------------------------------------


async def test_after_kill_9_the_model_gets_its_own_messages_again(
    journal: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    (tmp_path / "a.txt").write_text("the text of the file\n")
    async with started(journal, model.url, name="openai:stand-in") as first:
        await first.initialize()
        session_id = await first.talk("USE_TOOL:read FILE=a.txt", cwd=tmp_path)
        await first.until_text("DONE: the tool said: the text of the file")
        await first.kill()
    before = len(model.requests)
    async with started(journal, model.url, name="openai:stand-in") as second:
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


async def test_it_is_served_by_acphold_run_too(
    journal: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    command = [sys.executable, "-m", "acphold", "agent", "run", str(CODER / "agent.py")]
    env = {
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": KEY,
        "CODER_MODEL": "openai-chat:stand-in openai:other",
    }
    async with introduced(command, journal=journal, env=env) as client:
        made = await client.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        chosen = next(it for it in made["configOptions"] if it["id"] == "model")
        assert [it["value"] for it in chosen["options"]] == ["openai-chat:stand-in", "openai:other"]
        await client.prompt(made["sessionId"], "hello")
        assert client.text() == "ECHO: hello"


# -- keys and programs -------------------------------------------------------------------


async def test_the_key_is_neither_shown_nor_kept(journal: Path, tmp_path: Path) -> None:
    body = json.dumps({"error": {"message": "Incorrect API key provided: THE-KEY."}}).encode()
    async with answered(journal, body, status=401) as (client, _):
        words = await refusal(client, tmp_path)
        await client.leave()
        await client.ended()
        seen = [*client.lines, client.stderr]
    seen += [path.read_bytes() for path in journal.parent.glob(f"{journal.name}*")]
    assert "Incorrect API key provided: [OPENAI_API_KEY]" in words
    assert not any(KEY.encode() in text for text in seen)


def test_the_model_library_is_imported_after_initialize_and_before_the_first_prompt() -> None:
    program = (
        "import asyncio, sys\n"
        "import acphold.testing\n"
        "from agent import agent\n"
        "async def main():\n"
        "    async with acphold.testing.connect(agent) as client:\n"
        "        assert 'pydantic_ai' not in sys.modules\n"
        "        await client.new_session()\n"
        "        async with asyncio.timeout(30):\n"
        "            while 'toolbox' not in sys.modules:\n"
        "                await asyncio.sleep(0.01)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program]
    subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(CODER), "CODER_MODEL": "test"},
        check=True,
        timeout=60,
    )


async def test_no_program_that_is_started_gets_the_keys(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "git"
    shim.write_text(f"#!/bin/sh\nenv > {tmp_path}/git-env\nexit 1\n")
    shim.chmod(0o755)
    keys = {
        name: f"{name}-{KEY}"
        for name in (
            *("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "HF_TOKEN"),
            *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_OPENAI_API_KEY", "TOKEN"),
        )
    }
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    answers = [
        calling("shell", command="env"),
        calling("find"),
        calling("test__facts"),
        saying("ok"),
    ]
    server = {"name": "test", "command": sys.executable, "args": ["-E", str(SERVER)], "env": []}
    async with answered(journal, *answers, env={**keys, "PATH": path}) as (client, service):
        await client.prompt(await client.new(tmp_path, mcpServers=[server]), "go")
        told = [
            str(message["content"])
            for message in json.loads(service.requests[-1])["messages"]
            if message["role"] == "tool"
        ]
        assert service.requests, "the model's own key still works"
    assert len(told) == 3
    assert f"PATH={path}" in told[0]
    assert f"PATH={path}" in (tmp_path / "git-env").read_text()
    for text in (*told, (tmp_path / "git-env").read_text()):
        assert KEY not in text
        assert "OPENAI_API_KEY" not in text


async def test_commands_run_in_the_terminal_of_the_client_without_our_keys(
    journal: Path, tmp_path: Path
) -> None:
    def answer(result: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda params: result

    answers = [calling("shell", command="ls"), saying("ok")]
    with answering(*answers) as service:
        async with started(journal, service.url) as client:
            client.answers |= {
                "terminal/create": answer({"terminalId": "t1"}),
                "terminal/wait_for_exit": answer({"exitCode": 0}),
                "terminal/output": answer({"output": "from the client", "truncated": False}),
                "terminal/release": answer({}),
            }
            await client.initialize(terminal=True)
            await client.prompt(await client.new(tmp_path), "go")
            calls = [it for it in client.messages if "id" in it and "method" in it]
            contents = [part for it in client.updates() for part in it.get("content") or ()]
        assert said_to_the_model(service) == "from the client\n(exit code 0)"
    asked = [it["method"] for it in calls]
    created = calls[asked.index("terminal/create")]["params"]
    assert (created["command"], created["args"]) == ("/bin/sh", ["-c", "ls"])
    assert created["cwd"] == str(tmp_path)
    assert {"name": "OPENAI_API_KEY", "value": ""} in created["env"]
    assert asked[0] == "session/request_permission"
    assert asked[-1] == "terminal/release"
    assert {"type": "terminal", "terminalId": "t1"} in contents


async def test_a_signal_ends_it_in_the_middle_of_a_search(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 60 + "b\n")
    async with answered(journal, calling("find", pattern="(a+)+$")) as (client, _):
        turn = client.begin_prompt(await client.new(tmp_path), "look")
        turn.add_done_callback(lambda turn: turn.exception())
        await until(lambda: finders(tmp_path), 20)
        client.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(client.process.wait(), 10)
        assert not finders(tmp_path)
