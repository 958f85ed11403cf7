"""An agent in memory for the tests of the client: it does what the test says, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Unpack

from acp_wire.transports.streams import MemoryTransport, memory_pair
from acphold.client import Options, RemoteAgent, RemoteSession, connect_over

DEADLINE = 30.0
"""Seconds any wait of a test may take."""

Act = Callable[["FarAgent", dict[str, Any]], Awaitable[Any]]
"""Answers a request to the agent: takes the params, returns the result."""

ALL = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        "list": {},
        "delete": {},
        "additionalDirectories": {},
        "resume": {},
        "close": {},
    },
    "auth": {"logout": {}},
}
"""Every capability that there is."""


class Refusal(Exception):
    """Answers a request with an error."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


class FarAgent:
    """Answers by `acts`; `got` has all that it received, in order."""

    def __init__(self, capabilities: dict[str, Any] | None = None, **initialize: Any) -> None:
        self.got: list[dict[str, Any]] = []
        self.acts: dict[str, Act] = {}
        self.cancelled = asyncio.Event()
        self._initialize = {
            "protocolVersion": 1,
            "agentCapabilities": capabilities or {},
            **initialize,
        }
        self._transport: MemoryTransport
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()

    def on(self, method: str) -> Callable[[Act], Act]:
        """Registers the act for a method."""

        def register(act: Act) -> Act:
            self.acts[method] = act
            return act

        return register

    # -- its messages ---------------------------------------------------------------------

    def line(self, text: str) -> None:
        """A line as it is."""
        self._transport.send(text.encode() + b"\n")

    def send(self, **message: Any) -> None:
        """Any message."""
        self.line(json.dumps({"jsonrpc": "2.0", **message}))

    def update(self, session_id: str, kind: str, /, **members: Any) -> None:
        """One `session/update`."""
        update = {"sessionUpdate": kind, **members}
        self.send(method="session/update", params={"sessionId": session_id, "update": update})

    def say(self, session_id: str, text: str, kind: str = "agent_message_chunk") -> None:
        """One piece of text."""
        self.update(session_id, kind, content={"type": "text", "text": text})

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request to the client; its whole answer."""
        number = 1000 + len(self._asked)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(id=number, method=method, params=params)
        async with asyncio.timeout(DEADLINE):
            reply: dict[str, Any] = await answer
        return reply

    async def drain(self) -> None:
        """Wait until the client has read everything sent."""
        await self._transport.drain()

    # -- its requests and notifications ---------------------------------------------------

    def methods(self) -> list[str]:
        """The methods it was called by, in order."""
        return [message["method"] for message in self.got if "method" in message]

    def params(self, method: str) -> dict[str, Any]:
        """The params of the last message with this method."""
        found = [message for message in self.got if message.get("method") == method]
        params: dict[str, Any] = found[-1]["params"]
        return params

    async def until(self, method: str, times: int = 1) -> None:
        """Wait until it has got a message of this method so often."""
        async with asyncio.timeout(DEADLINE), self._news:
            await self._news.wait_for(lambda: self.methods().count(method) >= times)

    # -- running --------------------------------------------------------------------------

    async def run(self, transport: MemoryTransport) -> None:
        """Answer until the client leaves."""
        self._transport = transport
        tail = b""
        while data := await transport.receive():
            *lines, tail = (tail + data).split(b"\n")
            for text in lines:
                await self._take(json.loads(text))

    async def leave(self) -> None:
        """Close the connection."""
        await self._transport.aclose()

    async def _take(self, message: dict[str, Any]) -> None:
        self.got.append(message)
        if "method" not in message:
            self._asked[message["id"]].set_result(message)
        elif message["method"] == "session/cancel":
            self.cancelled.set()
        elif "id" in message:
            task = asyncio.create_task(self._answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        async with self._news:
            self._news.notify_all()

    async def _answer(self, message: dict[str, Any]) -> None:
        act = self.acts.get(message["method"]) or DEFAULTS.get(message["method"])
        try:
            if message["method"] == "initialize" and act is None:
                result: Any = self._initialize
            elif act is None:
                raise Refusal(-32601, f"no method {message['method']}")
            else:
                result = await act(self, message.get("params", {}))
        except Refusal as refusal:
            self.send(id=message["id"], error=refusal.error)
        except Exception as mistake:  # of the test: it is told at once
            self.send(id=message["id"], error={"code": -32603, "message": f"{mistake!r}"})
            raise
        else:
            self.send(id=message["id"], result=result)

    async def end(self) -> None:
        """End all running work."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _new(agent: FarAgent, params: dict[str, Any]) -> Any:
    return {"sessionId": f"s{agent.methods().count('session/new')}"}


async def _prompt(agent: FarAgent, params: dict[str, Any]) -> Any:
    agent.say(params["sessionId"], f"heard {params['prompt'][0].get('text', '')}")
    return {"stopReason": "end_turn"}


async def _empty(agent: FarAgent, params: dict[str, Any]) -> Any:
    return {}


DEFAULTS: dict[str, Act] = {
    "session/new": _new,
    "session/prompt": _prompt,
    **dict.fromkeys(
        [
            "session/load",
            "session/resume",
            "session/close",
            "session/delete",
            "session/set_mode",
            "session/set_config_option",
            "authenticate",
            "logout",
        ],
        _empty,
    ),
}


@asynccontextmanager
async def talking(
    agent: FarAgent,
    over: tuple[MemoryTransport, MemoryTransport] | None = None,
    **options: Unpack[Options],
) -> AsyncIterator[RemoteAgent]:
    """The client of `agent` for the block; both have a deadline."""
    ours, theirs = over or memory_pair()
    running = asyncio.create_task(agent.run(theirs))
    try:
        async with asyncio.timeout(DEADLINE), connect_over(ours, **options) as remote:
            yield remote
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await agent.end()
        await theirs.aclose()


@asynccontextmanager
async def in_session(agent: FarAgent, **options: Unpack[Options]) -> AsyncIterator[RemoteSession]:
    """A new session of `agent` for the block; see `talking`."""
    async with talking(agent, **options) as remote:
        yield await remote.new_session("/tmp")
