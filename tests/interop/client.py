"""A client that is nobody's library: JSON-RPC over a program's stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from tests.interop.wire import Json, Line

LIMIT = 64 << 20
"""Bytes of the longest line."""

ANSWER_SECONDS = 40.0
LEAVE_SECONDS = 15.0
LOOK_SECONDS = 0.05

FILES = {"readTextFile": True, "writeTextFile": True}


class Refused(Exception):
    """The other side answered with an error."""

    def __init__(self, method: str, error: Json) -> None:
        super().__init__(f"{method}: {error}")
        self.code = error.get("code")
        self.message = error.get("message")


class Client:
    """Talks to one program. Permissions are given, files read and written, commands run.

    `seen` has what a person at this client has seen, in order: session id and update, one's own
    prompts among them. `asked` has the methods of what the agent asked.
    """

    def __init__(self, process: Process) -> None:
        self.seen: list[tuple[str, Json]] = []
        self.asked: list[str] = []
        self.told: list[str] = []
        self.odd: list[str] = []
        self.lines: list[Line] = []
        self._process = process
        self._pending: dict[int, tuple[str, asyncio.Future[Json]]] = {}
        self._news = asyncio.Event()

    # -- asking ---------------------------------------------------------------------------

    async def call(self, method: str, params: Json, seconds: float = ANSWER_SECONDS) -> Json:
        """The result; Refused for an error, AssertionError when none comes in time."""
        return await self.answer(self.begin(method, params), seconds)

    async def answer(self, call: asyncio.Future[Json], seconds: float = ANSWER_SECONDS) -> Json:
        """What `begin` promised."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(call)
        except TimeoutError:
            waiting = [method for method, answer in self._pending.values() if not answer.done()]
            raise AssertionError(f"no answer in {seconds:g} s to {waiting}") from None

    def begin(self, method: str, params: Json) -> asyncio.Future[Json]:
        """Send a request; the future gets its result."""
        number = len(self._pending) + 1
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        # Whoever was killed does not answer, and nobody has to ask for that.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pending[number] = (method, answer)
        if method == "session/prompt":
            for block in params["prompt"]:
                said = {"sessionUpdate": "user_message_chunk", "content": block}
                self.seen.append((params["sessionId"], said))
        self._send({"id": number, "method": method, "params": params})
        return answer

    def tell(self, method: str, params: Json) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def _send(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message})
        self.lines.append(Line("client", line))
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def until(self, condition: Callable[[], bool], seconds: float = ANSWER_SECONDS) -> None:
        """Return when `condition()` holds: looked at with each line that comes, and in between."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                last = [line.text[:300] for line in self.lines[-3:]]
                raise AssertionError(f"waited {seconds:g} s in vain; the last lines: {last}")
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_SECONDS)

    def updates(self, session_id: str) -> list[Json]:
        """What has been seen of one session."""
        return [update for about, update in self.seen if about == session_id]

    # -- hearing --------------------------------------------------------------------------

    async def listen(self) -> None:
        """Take in what the program writes, until it ends."""
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = Line("agent", raw.decode(errors="replace").rstrip("\n"))
            self.lines.append(line)
            message = line.message()
            if message is None:
                self.odd.append(f"not a JSON object: {line.text[:200]}")
            elif "method" in message:
                self._hear(message)
            else:
                self._settle(message)
            self._news.set()
        for method, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(AssertionError(f"ended before it answered {method}"))

    def _settle(self, message: Json) -> None:
        method, answer = self._pending.get(message.get("id", 0), ("", None))
        if answer is None or answer.done():
            self.odd.append(f"an answer to nothing: {json.dumps(message)[:200]}")
        elif "error" in message:
            answer.set_exception(Refused(method, message["error"]))
        else:
            answer.set_result(message["result"])

    def _hear(self, message: Json) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "session/update":
            self.seen.append((params["sessionId"], params["update"]))
        elif "id" not in message:
            self.told.append(method)
        if "id" in message or method == "session/request_permission":
            self.asked.append(method)
        if "id" in message:
            self._send({"id": message["id"], **_reply(method, params)})

    async def close_stdin(self) -> None:
        """Leave, as an editor does; the program has to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(LEAVE_SECONDS):
            await self._process.wait()


@asynccontextmanager
async def connected(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, stderr: IO[bytes] | int = DEVNULL
) -> AsyncIterator[Client]:
    """Run `command` for the block; what then still runs of it is killed."""
    process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=cwd, stdin=PIPE, stdout=PIPE, stderr=stderr, limit=LIMIT
    )
    client = Client(process)
    listening = asyncio.create_task(client.listen(), name="client listens")
    try:
        yield client
    finally:
        # Not `process.kill`, which may take the exit status away from who waits for it.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        # To the end of what it wrote; unless somebody it started keeps its stdout open.
        await asyncio.wait([listening], timeout=LEAVE_SECONDS)
        listening.cancel()


def _reply(method: str, params: Json) -> Json:
    try:
        match method:
            case "session/request_permission":
                return {"result": {"outcome": _allowed(params["options"])}}
            case "fs/read_text_file":
                return {"result": {"content": Path(params["path"]).read_text(encoding="utf-8")}}
            case "fs/write_text_file":
                Path(params["path"]).write_text(params["content"], encoding="utf-8")
                return {"result": {}}
            case "terminal/create":
                return {"result": {"terminalId": _run(params)}}
            case "terminal/output":
                shown = TERMINALS[params["terminalId"]]
                status = {"exitCode": shown.returncode}
                output = {"output": shown.stdout, "truncated": False, "exitStatus": status}
                return {"result": output}
            case "terminal/wait_for_exit":
                return {"result": {"exitCode": TERMINALS[params["terminalId"]].returncode}}
            case "terminal/release":
                del TERMINALS[params["terminalId"]]
                return {"result": {}}
    except FileNotFoundError as exc:
        return {"error": {"code": -32002, "message": f"no file {exc.filename}"}}
    return {"error": {"code": -32601, "message": f"this client has no {method}"}}


TERMINALS: dict[str, subprocess.CompletedProcess[str]] = {}
"""Commands that have run, by the id of their terminal."""


def _run(params: Json) -> str:
    command = [params["command"], *params.get("args", [])]
    terminal_id = f"terminal-{len(TERMINALS) + 1}"
    TERMINALS[terminal_id] = subprocess.run(
        command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
    )
    return terminal_id


def _allowed(options: list[Json]) -> Json:
    for option in options:
        if option["kind"] == "allow_once":
            return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}


# --- what tests say ------------------------------------------------------------------------------


def introduction(version: int = 1, *, terminal: bool = False) -> Json:
    """The params of `initialize`."""
    who = {"name": "interop", "version": "0"}
    can = {"fs": FILES, "terminal": terminal}
    return {"protocolVersion": version, "clientInfo": who, "clientCapabilities": can}


def opening(cwd: Path, session_id: str | None = None) -> Json:
    """The params of `session/new`; with an id, of `session/load` or `session/resume`."""
    params: Json = {"cwd": str(cwd), "mcpServers": []}
    return params if session_id is None else {"sessionId": session_id, **params}


def prompt(session_id: str, text: str) -> Json:
    """The params of `session/prompt`."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
