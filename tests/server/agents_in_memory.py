"""Programs of an agent in this process, for `ProcessAgent`: hundreds start in a second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from acp_wire.surroundings import Surroundings
from acp_wire.transports.streams import memory_pair
from acphold.live.agents import wrapped
from tests.caller import Caller
from tests.editor import DEADLINE

OPENING = ("session/new", "session/load", "session/resume")
TELLING = ("authenticate", "logout", "providers/set", "providers/disable")
KEY = "ANTHROPIC_API_KEY"

Where = dict[str, str]
"""For whom and where a program works: the value of each kind of terms that it has."""


class MemoryProgram:
    """One run of the agent: what it was asked, in order, and for whom and where it works."""

    def __init__(self, world: World, env: Mapping[str, str]) -> None:
        self.world = world
        self.asked: list[str] = []
        self.where: Where = {"variable": env[KEY]} if env.get(KEY) else {}
        self.ended = asyncio.Event()
        self.near, far = memory_pair()
        self._ours = Caller(far)
        self._reading = asyncio.create_task(self._read())

    def kill(self) -> None:
        """End it at once."""
        if not self.ended.is_set():
            self.ended.set()
            self._reading.cancel()
            self._leaving = asyncio.create_task(self._ours.leave())

    async def _read(self) -> None:
        while line := await self._ours.read_line():
            message = json.loads(line)
            if "id" in message and "method" in message:
                self._take(message["id"], message["method"], message["params"])
            elif message.get("method") == "session/cancel":
                self._ours.send({"id": self.long, "result": {"stopReason": "cancelled"}})
        self.ended.set()

    def _take(self, id_: int, method: str, params: dict[str, Any]) -> None:
        self.asked.append(method)
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": self.world.can}
        elif method == "authenticate":
            self.where["authenticate"] = params["_meta"]["key"]
        elif method == "logout":
            self.where.pop("authenticate", None)
        elif method == "providers/set":
            self.where["providers"] = params["baseUrl"]
        elif method == "providers/disable":
            self.where.pop("providers", None)
        elif method == "session/new":
            self.world.made += 1
            result = {"sessionId": f"s{self.world.made}"}
        elif method == "session/prompt":
            text = params["prompt"][-1]["text"]
            self.world.prompts.append((text, self, dict(self.where)))
            self.world.news.set()
            if text == "long":
                self.long = id_
                return
            result = {"stopReason": "end_turn"}
        self._ours.send({"id": id_, "result": result})

    @property
    def told_late(self) -> list[str]:
        """What it was told of its terms after the first session had been opened in it."""
        first = next((at for at, it in enumerate(self.asked) if it in OPENING), len(self.asked))
        return [it for it in self.asked[first:] if it in TELLING]


class MemoryChild:
    """A program as `ProcessAgent` sees it (acp_wire.transports.child.ChildProcess)."""

    def __init__(self, program: MemoryProgram, **_: object) -> None:
        self._program = program
        self.transport = program.near

    @property
    def returncode(self) -> int | None:
        return 9 if self._program.ended.is_set() else None

    async def wait(self) -> None:
        await self._program.ended.wait()

    async def aclose(self) -> None:
        self._program.kill()

    def stderr_tail(self) -> str:
        return ""

    def last_words(self) -> str:
        return ""


class World:
    """The programs that were started, and the prompts that they got: text, program, and for whom
    and where it worked then."""

    def __init__(self, patch: pytest.MonkeyPatch, can: dict[str, Any], made: int = 0) -> None:
        self.can = can
        self.made = made  # sessions, by which the next one is named
        self.news = asyncio.Event()
        self.programs: list[MemoryProgram] = []
        self.prompts: list[tuple[str, MemoryProgram, Where]] = []
        patch.setattr(wrapped, "launch", self._launch)
        patch.setattr(wrapped, "ChildProcess", MemoryChild)

    def _launch(self, _: Sequence[str], place: Surroundings, cwd: object = None) -> MemoryProgram:
        self.programs.append(MemoryProgram(self, place.env))
        return self.programs[-1]

    async def until_prompted(self, text: str) -> None:
        """Wait until a program has got this prompt."""
        async with asyncio.timeout(DEADLINE):
            while text not in [it for it, _, _ in self.prompts]:
                self.news.clear()
                await self.news.wait()

    def kill(self) -> None:
        """End all programs."""
        for program in self.programs:
            program.kill()
