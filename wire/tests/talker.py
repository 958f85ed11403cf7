"""A client for tests without our own code: JSON lines, decoded once.

It answers the other side's requests from `answers`, and keeps every line in the order of arrival.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

DEADLINE = 45.0
"""Seconds any single wait may take."""

Answer = Callable[[dict[str, Any]], Any | Awaitable[Any]]

Prepare = Callable[[str, dict[str, Any], "asyncio.Future[Any]"], dict[str, Any]]

PREPARED: list[Prepare] = []
"""Each is asked, before a request is sent, for the params to send; it may look at the answer."""


class Refused(Exception):
    """The program answered with an error; `code`, `message` and `data` as they came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.error = error
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Talker:
    """One client; its subclasses carry its lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.messages: list[dict[str, Any]] = []
        self.answers: dict[str, Answer] = {"session/request_permission": allow}
        self.stderr = b""
        self.waiting: dict[Any, asyncio.Future[Any]] = {}
        self._asked: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()
        self._last_id = 0
        self._ended = False

    # -- asking and telling -----------------------------------------------------------------

    def begin(self, method: str, params: Any = None) -> asyncio.Future[Any]:
        """Send a request; the future gets its result, or Refused."""
        self._last_id += 1
        future = asyncio.get_running_loop().create_future()
        if self._ended:
            future.set_exception(ConnectionError("the program has gone"))
            return future
        params = params or {}
        for prepare in PREPARED:
            params = prepare(method, params, future)
        self.waiting[self._last_id] = future
        self.send({"id": self._last_id, "method": method, "params": params})
        return future

    async def call(self, method: str, params: Any = None) -> Any:
        """Send a request and wait for the result; Refused for an error."""
        return await asyncio.wait_for(self.begin(method, params), DEADLINE)

    def tell(self, method: str, params: Any) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    def send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        """Send these bytes and a newline."""
        raise NotImplementedError

    async def refused(self, method: str, params: Any = None) -> Refused:
        """Send a request that is answered with an error; that error."""
        try:
            result = await self.call(method, params)
        except Refused as error:
            return error
        raise AssertionError(f"{method} was not refused but answered {result}")

    @property
    def is_over(self) -> bool:
        """True once the other side has closed the connection."""
        return self._ended

    @property
    def last_id(self) -> int:
        return self._last_id

    # -- the steps of most tests ------------------------------------------------------------

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        """Introduce a client with these capabilities."""
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        result: dict[str, Any] = await self.call("initialize", params)
        return result

    async def new(self, cwd: str | Path = "/", **params: Any) -> str:
        """A new session; its id."""
        result = await self.call("session/new", {"cwd": str(cwd), "mcpServers": [], **params})
        return str(result["sessionId"])

    async def load(self, session_id: str, cwd: str | Path = "/", **params: Any) -> Any:
        """Load a session."""
        return await self.call("session/load", open_params(session_id, cwd, **params))

    async def resume(self, session_id: str, cwd: str | Path = "/", **params: Any) -> Any:
        """Resume a session."""
        return await self.call("session/resume", open_params(session_id, cwd, **params))

    def begin_prompt(self, session_id: str, *steps: Any) -> asyncio.Future[Any]:
        """Begin a turn; `steps` as scripted_agent.py takes them, or one string."""
        return self.begin("session/prompt", prompt_params(session_id, *steps))

    async def prompt(self, session_id: str, *steps: Any) -> Any:
        """Run a turn to its end."""
        return await asyncio.wait_for(self.begin_prompt(session_id, *steps), DEADLINE)

    async def talk(self, *steps: Any, cwd: str | Path = "/", **params: Any) -> str:
        """A new session with a whole turn in it; its id."""
        session_id = await self.new(cwd, **params)
        await self.prompt(session_id, *steps)
        return session_id

    async def sessions(self, **params: Any) -> list[dict[str, Any]]:
        """All pages of the list."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self.call("session/list", params)
            found += page["sessions"]
            if not page.get("nextCursor"):
                return found
            params = {**params, "cursor": page["nextCursor"]}

    # -- received messages ------------------------------------------------------------------

    def updates(self, session_id: str | None = None) -> list[dict[str, Any]]:
        """The update objects so far, of one session or of all."""
        return [
            message["params"]["update"]
            for message in self.messages
            if message.get("method") == "session/update"
            and session_id in (None, message["params"]["sessionId"])
        ]

    def text(self, kind: str = "agent_message_chunk", session_id: str | None = None) -> str:
        """All text of this kind of chunk so far, without the lines about what an agent has lost."""
        texts = [
            str(update["content"].get("text", ""))
            for update in self.updates(session_id)
            if update["sessionUpdate"] == kind
        ]
        return "".join(text for text in texts if "/without-history" not in text)

    def place_of_answer(self, number: int) -> int:
        """Index in `messages` of the answer to this request."""
        return next(
            place
            for place, message in enumerate(self.messages)
            if message.get("id") == number and "method" not in message
        )

    async def until(self, what: Callable[[], Any]) -> Any:
        """Wait until `what()` is true, checking after each line; returns its value."""

        async def wait() -> Any:
            async with self._news:
                while not (found := what()):
                    if self._ended:
                        raise AssertionError(f"the program ended first; stderr: {self.stderr!r}")
                    await self._news.wait()
                return found

        return await asyncio.wait_for(wait(), DEADLINE)

    async def until_text(self, text: str) -> None:
        """Wait until the agent has said this."""
        await self.until(lambda: text in self.text())

    # -- running ----------------------------------------------------------------------------

    async def read_line(self) -> bytes:
        """The next line; b"" at the end."""
        raise NotImplementedError

    async def read(self) -> None:
        """Take lines until the other side ends."""
        try:
            while line := await self.read_line():
                async with self._news:
                    self.lines.append(line)
                    self.take(json.loads(line))
                    self._news.notify_all()
        finally:
            async with self._news:
                self._ended = True
                self._news.notify_all()
            for future in self.waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError("the program has gone"))
                    future.exception()

    def take(self, message: dict[str, Any]) -> None:
        """A message has come."""
        self.messages.append(message)
        if "method" in message:
            if "id" in message:
                task = asyncio.create_task(self._answer(message))
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)
            return
        future = self.waiting.pop(message.get("id"), None)
        if future is not None and not future.done():
            if "error" in message:
                future.set_exception(Refused(message["error"]))
            else:
                future.set_result(message["result"])

    async def _answer(self, message: dict[str, Any]) -> None:
        handler = self.answers.get(message["method"], no_such_method)
        try:
            result = handler(message.get("params", {}))
            if isinstance(result, Awaitable):
                result = await result
        except Refused as refused:
            self.send({"id": message["id"], "error": refused.error})
        else:
            self.send({"id": message["id"], "result": result})


def no_such_method(params: dict[str, Any]) -> Any:
    raise Refused({"code": -32601, "message": "not here"})


def allow(params: dict[str, Any]) -> Any:
    """The first option there is."""
    return {"outcome": {"outcome": "selected", "optionId": params["options"][0]["optionId"]}}


def open_params(session_id: str, cwd: str | Path, **params: Any) -> dict[str, Any]:
    """Params of session/load and session/resume."""
    return {"sessionId": session_id, "cwd": str(cwd), "mcpServers": [], **params}


def prompt_params(session_id: str, *steps: Any) -> dict[str, Any]:
    """Params of session/prompt, from steps of the scripted agent or one string."""
    text = steps[0] if steps and isinstance(steps[0], str) else json.dumps(steps)
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
