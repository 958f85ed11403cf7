"""acpx, a client of others that keeps no conversation in memory: each of its calls is a process."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.editor import scripted_agent
from tests.interop.conversation import text
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CODEX
from tests.interop.wire import Json
from tests.npm import NODE, installed

# The first run downloads the agents and acpx.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PACKAGE = "acpx@0.19.1"
TURN_SECONDS = 60.0


class Acpx:
    """Runs acpx against one agent; its output with `--format json` is its raw wire."""

    def __init__(self, place: Place, agent: list[str], env: Mapping[str, str]) -> None:
        cli = installed(PACKAGE) / "node_modules" / "acpx" / "dist" / "cli.js"
        options = {"--agent": shlex.join(agent), "--cwd": str(place.work), "--format": "json"}
        # The process that acpx keeps for the next call ends after a second.
        words = [word for option in ({**options, "--ttl": "1"}).items() for word in option]
        self._command = [NODE, str(cli), *words, "--approve-all"]
        self._env = env

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[AsyncIterator[Json]]:
        """One call of acpx; the messages on its wire, or whatever else it prints as JSON."""
        process = await asyncio.create_subprocess_exec(
            *self._command, *arguments, env=self._env, stdin=DEVNULL, stdout=PIPE, limit=64 << 20
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(TURN_SECONDS):
                yield (json.loads(line) async for line in process.stdout)
                async for _ in process.stdout:
                    pass
        finally:
            await process.wait()

    async def call(self, *arguments: str) -> list[Json]:
        """All of it, when the call is over."""
        async with self.running(*arguments) as messages:
            return [message async for message in messages]


def methods(messages: list[Json]) -> list[str]:
    return [message["method"] for message in messages if "method" in message]


def updates(messages: list[Json]) -> list[Json]:
    said = (message for message in messages if message.get("method") == "session/update")
    return [message["params"]["update"] for message in said]


async def test_acpx_goes_on_with_a_session_in_whose_turn_all_was_killed(
    place: Place, model: ModelEndpoint
) -> None:
    env = place.environment(**CODEX.prepare(place.home, model.url))
    acpx = Acpx(place, place.wrapped(CODEX.command()), env)
    await acpx.call("sessions", "new", "--name", "birds")
    turn = await acpx.call("prompt", "-s", "birds", "The word is ALBATROSS.")
    assert "ECHO: The word is ALBATROSS." in text(updates(turn))
    async with acpx.running("prompt", "-s", "birds", "SLOW now") as messages:
        async for message in messages:
            if "tick3 " in text(updates([message])):
                break
        await place.family.kill()

    (listed,) = await acpx.call("sessions", "list")
    [found] = listed["sessions"]
    assert found["title"] == "The word is ALBATROSS"
    so_far = len(model.requests)
    again = await acpx.call("prompt", "-s", "birds", "Which word was it?")
    # Its exit status says nothing: it begins anew, silently, where it could not go on.
    assert "session/new" not in methods(again)
    assert {"session/load", "session/resume"} & set(methods(again))
    assert "ECHO: Which word was it?" in text(updates(again))
    assert "ALBATROSS" in model.input_since(so_far)
    await place.family.gone()
    assert place.wrong_lines() == []


async def test_acpx_goes_on_behind_acphold_with_an_agent_that_keeps_nothing(place: Place) -> None:
    """Alone, acpx begins anew, silently, when its agent has ended."""
    agent = scripted_agent(capabilities={"loadSession": False})
    acpx = Acpx(place, place.wrapped(agent), place.environment(HOME=str(place.home)))
    await acpx.call("sessions", "new", "--name", "birds")
    await acpx.call("prompt", "-s", "birds", "The word is ALBATROSS.")
    await place.family.kill()
    again = await acpx.call("prompt", "-s", "birds", "Which word was it?")
    assert "session/new" not in methods(again)
    assert {"session/load", "session/resume"} & set(methods(again))
    [heard] = [words for words in text(updates(again)).splitlines() if "Which word" in words]
    assert "ALBATROSS" in heard  # the agent was told what it has forgotten
    await place.family.gone()
    assert place.wrong_lines() == []


async def test_acpx_finds_an_agent_that_setup_wrote(place: Place) -> None:
    env = place.environment(HOME=str(place.home))
    acphold = [sys.executable, "-m", "acphold"]
    setup = [*acphold, "setup", "acpx", "--yes", "--as", "demo", "--", *acphold, "agent", "demo"]
    done = await asyncio.to_thread(subprocess.run, setup, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cli = installed(PACKAGE) / "node_modules" / "acpx" / "dist" / "cli.js"
    words = ["--cwd", str(place.work), "--approve-all", "demo", "exec", "Greet"]
    said = await asyncio.to_thread(
        subprocess.run, [NODE, str(cli), *words], env=env, capture_output=True, text=True
    )
    assert "Edit hello.py (completed)" in said.stdout, said.stderr
    await place.family.gone()
