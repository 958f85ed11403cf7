"""Threads of the real Codex that a person went back in and forked, as the import tells them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.codex import READER
from acphold.imports.values import ABANDONED
from tests.imports.told import Story, sources
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.real_agents import CODEX_CONFIG, at_home
from tests.npm import NODE, installed

pytestmark = pytest.mark.interop

Json = dict[str, Any]

VERSION = "0.171.0"

SECONDS = 60.0


class AppServer:
    """`codex app-server`: JSON-RPC on lines, without the member that names it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._calls = 0
        self._ended: set[str] = set()

    async def _read(self) -> Json:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS)
        assert line, "codex app-server has ended"
        message: Json = json.loads(line)
        if message.get("method") == "turn/completed":
            self._ended.add(message["params"]["turn"]["id"])
        return message

    async def call(self, method: str, **params: Any) -> Json:
        assert self._process.stdin is not None
        self._calls += 1
        asked = {"id": self._calls, "method": method, "params": params}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        while (message := await self._read()).get("id") != self._calls or "method" in message:
            pass
        assert "result" in message, message
        result: Json = message["result"]
        return result

    async def turn(self, thread: str, words: str) -> str:
        """The id of a turn, once it has ended."""
        said = [{"type": "text", "text": words}]
        begun = await self.call("turn/start", threadId=thread, input=said)
        turn: str = begun["turn"]["id"]
        while turn not in self._ended:
            await self._read()
        return turn


@asynccontextmanager
async def app_server(home: Path, url: str) -> AsyncIterator[AppServer]:
    (folder := home / ".codex").mkdir()
    config = CODEX_CONFIG.format(url=json.dumps(url)).replace('approval_policy = "untrusted"\n', "")
    (folder / "config.toml").write_text(config, encoding="utf-8")
    package = installed(f"@openai/codex@{VERSION}") / "node_modules/@openai/codex"
    process = await asyncio.create_subprocess_exec(
        *(NODE, str(package / "bin/codex.js"), "app-server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=1 << 24,
        cwd=home,
        env=at_home(home) | {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "none"},
    )
    try:
        server = AppServer(process)
        about = {"name": "test", "title": "test", "version": "1"}
        await server.call("initialize", clientInfo=about, capabilities={"experimentalApi": True})
        yield server
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), SECONDS)


def prompts(home: Path, thread: str) -> tuple[list[str], int]:
    """The prompts that are told of a thread, and the number of those that are left."""
    (source,) = (it for it in sources(READER, home) if it.session_id == thread)
    told = Story(READER, source)
    said = [words for role, words in told.said() if role == "user"]
    return said, told.facts.missed.counts.get(ABANDONED, 0)


async def test_a_thread_is_told_as_its_person_left_it_and_a_fork_with_its_beginning(
    tmp_path: Path, model: ModelEndpoint
) -> None:
    async with app_server(tmp_path, model.url) as codex:
        begun = await codex.call("thread/start", cwd=str(tmp_path), historyMode="paginated")
        thread = begun["thread"]["id"]
        await codex.turn(thread, "one")
        two = await codex.turn(thread, "two")
        await codex.call("thread/revert", threadId=thread, beforeTurnId=two)
        three = await codex.turn(thread, "three")
        forked = await codex.call("thread/fork", threadId=thread, lastTurnId=three)
        fork = forked["thread"]["id"]
        four = await codex.turn(thread, "four")
        await codex.turn(fork, "in the fork")
        await codex.call("thread/revert", threadId=thread, beforeTurnId=four)
        assert prompts(tmp_path, thread) == (["one", "three", "four"], 1)
        await codex.turn(thread, "five")
    assert prompts(tmp_path, thread) == (["one", "three", "five"], 2)
    assert prompts(tmp_path, fork) == (["one", "three", "in the fork"], 0)
