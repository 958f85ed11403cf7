"""A client for tests without our own code: JSON lines over a program's stdio, decoded once.

It answers an agent's requests from `answers`, and keeps every line in the order of arrival.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

DEADLINE = 45.0
"""Seconds any single wait may take."""

SCRIPTED = str(Path(__file__).with_name("scripted_agent.py"))

Answer = Callable[[dict[str, Any]], Any | Awaitable[Any]]


def _note_lineage(answered: asyncio.Future[Any], session: str) -> None:
    if answered.cancelled() or answered.exception() is not None:
        return
    match answered.result():
        case {"_meta": {"acphold/lineage": str(lineage)}, **members}:
            LINEAGES[str(members.get("sessionId", session))] = lineage


class Refused(Exception):
    """The program answered with an error; `code`, `message` and `data` as they came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.error = error
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


def scripted_agent(**options: Any) -> list[str]:
    """The command of an agent of scripted_agent.py."""
    return [sys.executable, "-S", "-E", SCRIPTED, json.dumps(options)]


def under_name(name: str, folder: Path, agent: Sequence[str]) -> list[str]:
    """The command of an agent in a program of this name, which is what it is known by."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nexec {shlex.join(agent)}\n")
    program.chmod(0o755)
    return [str(program)]


def wrap_command(agent: Sequence[str], *options: str) -> list[str]:
    """`acphold wrap` in front of `agent`."""
    return [sys.executable, "-m", "acphold", "wrap", *options, "--", *agent]


LINEAGES: dict[str, str] = {}
"""The lineage of each session, as any client of these tests was told it last."""


class Talker:
    """One client; the classes below carry its lines.

    A `session/resume` with a position but no lineage gets the lineage that was sent last.
    """

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
        session = params.get("sessionId", "")
        meta = params.get("_meta")
        if method == "session/resume" and meta and "acphold/after" in meta and session in LINEAGES:
            params = {**params, "_meta": {"acphold/lineage": LINEAGES[session], **meta}}
        future.add_done_callback(lambda answered: _note_lineage(answered, session))
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
        """All text of this kind of chunk so far."""
        return "".join(
            update["content"].get("text", "")
            for update in self.updates(session_id)
            if update["sessionUpdate"] == kind
        )

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


class Editor(Talker):
    """One client and the program it talks to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    async def read_line(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.readline()

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            self.stderr += chunk

    async def leave(self) -> int:
        """Close stdin as an editor that quits, and wait for the program to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await asyncio.wait_for(self.process.wait(), DEADLINE)

    async def ended(self) -> None:
        """Wait until everything the program has said has been read."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: self._ended), DEADLINE)

    async def kill(self) -> None:
        """SIGKILL the program itself, as a crash would."""
        with suppress(ProcessLookupError):  # it has ended, and is waited for already
            self.process.kill()
        await self.process.wait()


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


def say(text: str) -> dict[str, Any]:
    """The update of an agent that says `text`."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def update_line(update: dict[str, Any], session_id: str = "$ID", **beside: Any) -> str:
    """An update as an agent prints it; `$ID` is the session that a scripted one is asked about."""
    params = {"sessionId": session_id, "update": update, **beside}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})


def received(log: Path, method: str | None = None) -> list[dict[str, Any]]:
    """The messages that a scripted agent with this `log` received: of one method, or all."""
    if not log.exists():
        return []
    *lines, _ = log.read_text().split("\n")  # the last may be half written
    messages = [json.loads(line) for line in lines]
    return [message for message in messages if method in (None, message.get("method"))]


@asynccontextmanager
async def wrapped(
    journal: str | Path,
    *options: str,
    client: Mapping[str, Any] | None = None,
    through: Callable[..., list[str]] = wrap_command,
    **agent: Any,
) -> AsyncIterator[Editor]:
    """An editor with these client capabilities, introduced to a scripted agent behind `wrap`, or
    `through` another command."""
    command = through(scripted_agent(**agent), *options)
    async with introduced(command, journal=journal, client=client) as first:
        yield first


@asynccontextmanager
async def introduced(
    command: Sequence[str], *, client: Mapping[str, Any] | None = None, **how: Any
) -> AsyncIterator[Editor]:
    """An editor with these client capabilities, introduced to `command`."""
    async with editor(command, **how) as first:
        await first.initialize(**(client or {}))
        yield first


@asynccontextmanager
async def editor(
    command: Sequence[str],
    *,
    journal: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    read_stderr: bool = True,
    before: Callable[[], None] | None = None,
) -> AsyncIterator[Editor]:
    """Run `command` and talk to it; at the end it is gone, with all it started.

    `before` is called in the new process, before it becomes the program.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=256 << 20,
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal), **(env or {})},
        start_new_session=True,
        cwd=cwd,
        preexec_fn=before,
    )
    client = Editor(process)
    reading = [asyncio.create_task(client.read())]
    if read_stderr:
        reading.append(asyncio.create_task(client.read_stderr()))
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.wait(reading, timeout=5)
        for task in reading:
            task.cancel()
