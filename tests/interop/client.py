"""A client that is nobody's library: permissions are given, files read, commands run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tests.editor import DEADLINE, Answer, Editor, Refused, open_params, prompt_params
from tests.interop.wire import Json

LIMIT = 64 << 20
"""Bytes of the longest line."""

LEAVE_SECONDS = 15.0
LOOK_SECONDS = 0.05

FILES = {"readTextFile": True, "writeTextFile": True}


class Client(Editor):
    """`seen` has all updates that a person at this client has seen, in order, each with its session
    id; the person's own prompts are among them. `odd` has lines that the program must not write.
    """

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.seen: list[tuple[str, Json]] = []
        self.odd: list[str] = []
        self.answers = {**ANSWERS}

    def begin(self, method: str, params: Any = None) -> asyncio.Future[Any]:
        if method == "session/prompt":
            for block in params["prompt"]:
                said = {"sessionUpdate": "user_message_chunk", "content": block}
                self.seen.append((params["sessionId"], said))
        answer = super().begin(method, params)
        # A killed program does not answer, and no caller has to look at the error.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answer

    async def answer(self, call: asyncio.Future[Any]) -> Any:
        """Await the answer to a call that `begin` started."""
        return await asyncio.wait_for(asyncio.shield(call), DEADLINE)

    async def new_session(self, work: Path) -> str:
        """Introduce oneself, and begin a session in this folder; return its id."""
        await self.call("initialize", introduction())
        return str((await self.call("session/new", opening(work)))["sessionId"])

    async def until(self, what: Callable[[], Any]) -> None:
        """Return when `what()` is true, which others than the program may bring about."""
        deadline = time.monotonic() + DEADLINE
        while not what():
            assert time.monotonic() < deadline, f"in vain; the last lines: {self.lines[-3:]}"
            await asyncio.sleep(LOOK_SECONDS)

    def updates(self, session_id: str | None = None) -> list[Json]:
        """The updates of one session, or of all."""
        return [update for about, update in self.seen if session_id in (None, about)]

    @property
    def asked(self) -> list[str]:
        """The methods of the agent's requests; a client on an SDK reports its own."""
        permission = "session/request_permission"
        return [
            it["method"] for it in self._with_method() if "id" in it or it["method"] == permission
        ]

    @property
    def told(self) -> list[str]:
        """The methods of its notifications that are no updates."""
        said = (message["method"] for message in self._with_method() if "id" not in message)
        return [method for method in said if method != "session/update"]

    def _with_method(self) -> list[Json]:
        return [message for message in self.messages if "method" in message]

    async def read_line(self) -> bytes:
        while line := await super().read_line():
            with suppress(ValueError):
                if isinstance(json.loads(line), dict):
                    return line
            self.odd.append(f"not a JSON object: {line[:200]!r}")
        return b""

    def take(self, message: Json) -> None:
        if "method" not in message and message.get("id") not in self.waiting:
            self.odd.append(f"an answer to nothing: {json.dumps(message)[:200]}")
        if message.get("method") == "session/update":
            self.seen.append((message["params"]["sessionId"], message["params"]["update"]))
        super().take(message)


@asynccontextmanager
async def connected(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, stderr: IO[bytes] | int = DEVNULL
) -> AsyncIterator[Client]:
    """Run `command` for the block; kills the rest of it afterwards."""
    process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=cwd, stdin=PIPE, stdout=PIPE, stderr=stderr, limit=LIMIT
    )
    client = Client(process)
    listening = asyncio.create_task(client.read(), name="client listens")
    try:
        yield client
    finally:
        # Not `process.kill`, which may take the exit status away from its waiter.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        # To the end of its output, unless one of its children keeps its stdout open.
        await asyncio.wait([listening], timeout=LEAVE_SECONDS)
        listening.cancel()


def allowed(params: Json) -> Json:
    """The option that allows once; without one the question is taken back."""
    for option in params["options"]:
        if option["kind"] == "allow_once":
            return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
    return {"outcome": {"outcome": "cancelled"}}


@contextmanager
def missing_is_refused() -> Iterator[None]:
    """Answer with an error for files that do not exist."""
    try:
        yield
    except FileNotFoundError as exc:
        raise Refused({"code": -32002, "message": f"no file {exc.filename}"}) from None


def read(params: Json) -> Json:
    with missing_is_refused():
        return {"content": Path(params["path"]).read_text(encoding="utf-8")}


def write(params: Json) -> Json:
    Path(params["path"]).write_text(params["content"], encoding="utf-8")
    return {}


TERMINALS: dict[str, subprocess.CompletedProcess[str]] = {}
"""Commands that have run, by the id of their terminal."""


def run(params: Json) -> Json:
    command = [params["command"], *params.get("args", [])]
    terminal_id = f"terminal-{len(TERMINALS) + 1}"
    with missing_is_refused():
        TERMINALS[terminal_id] = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
    return {"terminalId": terminal_id}


def shown(params: Json) -> Json:
    done = TERMINALS[params["terminalId"]]
    return {"output": done.stdout, "truncated": False, "exitStatus": {"exitCode": done.returncode}}


def release(params: Json) -> Json:
    del TERMINALS[params["terminalId"]]
    return {}


ANSWERS: dict[str, Answer] = {
    "session/request_permission": allowed,
    "fs/read_text_file": read,
    "fs/write_text_file": write,
    "terminal/create": run,
    "terminal/output": shown,
    "terminal/wait_for_exit": lambda params: shown(params)["exitStatus"],
    "terminal/release": release,
}


# --- words of the tests


def introduction(version: int = 1, *, terminal: bool = False) -> Json:
    """The params of `initialize`."""
    who = {"name": "interop", "version": "0"}
    can = {"fs": FILES, "terminal": terminal}
    return {"protocolVersion": version, "clientInfo": who, "clientCapabilities": can}


def opening(cwd: Path, session_id: str | None = None) -> Json:
    """The params of `session/new`; with an id, of `session/load` or `session/resume`."""
    params = open_params(session_id or "", cwd)
    return params if session_id else {"cwd": params["cwd"], "mcpServers": params["mcpServers"]}


prompt = prompt_params
