"""A correct ACP client, with six oddities that are correct: `python client.py [ODDITY] -- AGENT…`.

It does an editor's day with the agent: sets sessions up, prompts, answers, cancels, lists, loads
and deletes as far as the agent offers it. Written from the protocol's pages alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

Obj = dict[str, Any]

ODDITIES: dict[str, str] = {
    "text-ids": "its requests have string ids: RequestId is null, an integer or a string",
    "bare": "offers no capability: all of them are optional",
    "rejects": "rejects every tool at once: clients may answer by the user's settings",
    "metas": "_meta everywhere and custom notifications: extensibility allows both",
    "short": "initializes, prompts once, leaves: nothing obliges it to more",
    "nulls": "optional nullable fields are null: the schema allows it",
}

ODDITY = ""
NO_METHOD, INVALID, NOT_FOUND, AUTH = -32601, -32602, -32002, -32000
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def is_(name: str) -> bool:
    assert name in ODDITIES, name
    return name == ODDITY


class Failure(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Terminal:
    """A command, its output up to a limit, and its end."""

    def __init__(self, limit: int | None) -> None:
        self.limit, self.kept, self.truncated = limit, b"", False
        self.program: asyncio.subprocess.Process | None = None
        self.reading: asyncio.Task[None] | None = None

    async def start(self, params: Obj, cwd: str) -> None:
        given = {e["name"]: e["value"] for e in params.get("env") or []}
        args = params.get("args") or []
        argv = [params["command"], *args] if args else ["sh", "-c", params["command"]]
        self.program = await asyncio.create_subprocess_exec(
            *argv,
            cwd=params.get("cwd") or cwd,
            env={**os.environ, **given},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.program
        assert self.program.stdout
        while data := await self.program.stdout.read(65536):
            self.kept += data
            if self.limit is not None and len(self.kept) > self.limit:
                self.truncated = True
                self.kept = self.kept[len(self.kept) - self.limit :]
                while self.kept and self.kept[0] & 0xC0 == 0x80:
                    self.kept = self.kept[1:]
        await self.program.wait()

    async def ended(self) -> Obj:
        assert self.reading
        await asyncio.shield(self.reading)
        return self.status() or {}

    def status(self) -> Obj | None:
        assert self.program
        assert self.reading
        code = self.program.returncode
        if code is None or not self.reading.done():
            return None
        if code < 0:
            return {"exitCode": None, "signal": signal.Signals(-code).name}
        return {"exitCode": code, "signal": None}

    def kill(self) -> None:
        assert self.program
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)


class Editor:
    """The client's end of the connection, with its answers."""

    def __init__(self) -> None:
        self.pending: dict[Any, asyncio.Future[Any]] = {}
        self.count = 0
        self.terminals: dict[str, Terminal] = {}
        self.folders: dict[str, str] = {}
        self.offers: Obj = {}
        self.methods: list[Obj] = []
        self.cancelled: dict[str, asyncio.Event] = {}
        self.stirred, self.asked = asyncio.Event(), asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.answers: dict[str, Callable[[Obj], Coroutine[Any, Any, Any]]] = {
            "session/request_permission": self.permission,
            "fs/read_text_file": self.read,
            "fs/write_text_file": self.write,
            "terminal/create": self.create,
            "terminal/output": self.output,
            "terminal/wait_for_exit": self.wait,
            "terminal/kill": self.kill,
            "terminal/release": self.release,
        }
        if is_("bare"):
            self.answers = {"session/request_permission": self.permission}

    async def start(self, argv: list[str]) -> None:
        self.agent = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 27,
        )
        self.listening = asyncio.create_task(self.listen())

    def send(self, message: Obj) -> None:
        if is_("metas"):
            for part in ("params", "result"):
                if isinstance(message.get(part), dict):
                    message[part]["_meta"] = {"heldout.example/x": {"deep": [None]}}
        assert self.agent.stdin
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self.agent.stdin.write(text.encode() + b"\n")

    async def listen(self) -> None:
        assert self.agent.stdout
        while line := await self.agent.stdout.readline():
            if not line.strip():
                continue
            message = json.loads(line)
            if "method" not in message:
                self.settle(message)
            elif "id" in message:
                task = asyncio.create_task(self.serve(message))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            elif message["method"] == "session/update":
                self.stirred.set()
        for future in self.pending.values():
            if not future.done():
                future.set_exception(Failure(0, "the agent is gone"))

    def settle(self, message: Obj) -> None:
        future = self.pending.get(message.get("id"))
        if future is None or future.done():
            return
        if "error" in message:
            error = message["error"]
            future.set_exception(Failure(error["code"], error["message"]))
        else:
            future.set_result(message["result"])

    def begin(self, method: str, params: Obj) -> asyncio.Future[Any]:
        self.count += 1
        number: Any = f"editor-{uuid4().hex[:6]}" if is_("text-ids") else self.count
        future = self.pending[number] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self.pending.pop(number, None))
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return future

    async def call(self, method: str, params: Obj) -> Any:
        return await asyncio.wait_for(self.begin(method, params), 45)

    async def attempt(self, work: Coroutine[Any, Any, Any]) -> None:
        """Show an error of the agent and go on, as an editor does."""
        try:
            await work
        except Failure as failure:
            sys.stderr.write(f"{failure.code} {failure}\n")

    def notify(self, method: str, params: Obj) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def serve(self, message: Obj) -> None:
        method, answer = message["method"], {"jsonrpc": "2.0", "id": message["id"]}
        try:
            if method not in self.answers:
                raise Failure(NO_METHOD, "Method not found")
            answer["result"] = await self.answers[method](message.get("params") or {})
        except Failure as failure:
            answer["error"] = {"code": failure.code, "message": str(failure)}
        except (OSError, ValueError, TypeError, KeyError) as error:
            answer["error"] = {"code": -32603, "message": str(error)}
        if answer.get("result", 0) is not NotImplemented:
            self.send(answer)

    # What the agent may ask

    async def permission(self, params: Obj) -> Any:
        session = self.known(params)
        options = params["options"]
        if cancelled := self.cancelled.get(session):
            self.stirred.set()
            self.asked.set()
            await cancelled.wait()
            return {"outcome": {"outcome": "cancelled"}}
        wanted = "reject_once" if is_("rejects") else "allow_once"
        chosen = next((o for o in options if o["kind"] == wanted), options[0])
        option = chosen["optionId"]
        return {"outcome": {"outcome": "selected", "optionId": option}}

    def known(self, params: Obj) -> str:
        session = str(params.get("sessionId"))
        if session not in self.folders:
            raise Failure(INVALID, f"there is no session {session}")
        return session

    def path(self, params: Obj) -> Path:
        self.known(params)
        if not isinstance(params.get("path"), str) or not os.path.isabs(params["path"]):
            raise Failure(INVALID, "path has to be absolute")
        return Path(params["path"])

    async def read(self, params: Obj) -> Obj:
        path = self.path(params)
        try:
            text = (await asyncio.to_thread(path.read_bytes)).decode()
        except FileNotFoundError:
            raise Failure(NOT_FOUND, f"there is no file {path}") from None
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        first = params.get("line")
        lines = lines[max(0, (1 if first is None else first) - 1) :]
        if params.get("limit") is not None:
            lines = lines[: params["limit"]]
        narrowed = first is not None or params.get("limit") is not None
        return {"content": "".join(lines) if narrowed else text}

    async def write(self, params: Obj) -> Obj | None:
        path = self.path(params)
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, params["content"].encode())
        return None if is_("nulls") else {}

    async def create(self, params: Obj) -> Obj:
        session = self.known(params)
        terminal = Terminal(params.get("outputByteLimit"))
        await terminal.start(params, self.folders[session])
        name = f"term-{uuid4().hex[:8]}"
        self.terminals[name] = terminal
        return {"terminalId": name}

    def terminal(self, params: Obj) -> Terminal:
        self.known(params)
        if params.get("terminalId") not in self.terminals:
            raise Failure(NOT_FOUND, "there is no such terminal")
        return self.terminals[params["terminalId"]]

    async def output(self, params: Obj) -> Obj:
        terminal = self.terminal(params)
        kept = terminal.kept
        kept = whole_characters(kept)
        shown = {"output": kept.decode(errors="replace"), "truncated": terminal.truncated}
        status = terminal.status()
        return shown | ({"exitStatus": status} if status or is_("nulls") else {})

    async def wait(self, params: Obj) -> Obj:
        return await self.terminal(params).ended()

    async def kill(self, params: Obj) -> Obj:
        self.terminal(params).kill()
        return {}

    async def release(self, params: Obj) -> Obj:
        terminal = self.terminal(params)
        terminal.kill()
        del self.terminals[params["terminalId"]]
        return {}

    # An editor's day

    def has(self, *path: str) -> bool:
        value: Any = self.offers
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value not in (None, False)

    async def initialize(self) -> int:
        everything: Obj = {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": True,
            "session": {"configOptions": {"boolean": {}}},
        }
        params: Obj = {
            "protocolVersion": 1,
            "clientCapabilities": {} if is_("bare") else everything,
            "clientInfo": {"name": "heldout-client", "title": "Held-out client", "version": "1.0"},
        }
        if is_("nulls"):
            params["clientCapabilities"] |= {"session": None, "elicitation": None, "_meta": None}
            params["clientInfo"]["title"] = None
        answer = await self.call("initialize", params)
        self.offers = answer.get("agentCapabilities") or {}
        self.methods = answer.get("authMethods") or []
        return int(answer["protocolVersion"])

    def servers(self) -> list[Obj]:
        me = os.path.abspath(__file__)
        env: Any = [{"name": "HELDOUT_GREETING", "value": "hello"}]
        servers: list[Obj] = [
            {"name": "greeter", "command": sys.executable, "args": [me, "--mcp"], "env": env}
        ]
        return servers

    def setup(self, folder: str) -> Obj:
        params: Obj = {"cwd": folder, "mcpServers": self.servers()}
        supported = self.has("sessionCapabilities", "additionalDirectories")
        if is_("nulls") and supported:
            params["additionalDirectories"] = []
        return params

    async def new(self, folder: str) -> Obj:
        params = self.setup(folder)
        try:
            answer: Obj = await self.call("session/new", params)
        except Failure as failure:
            usable = [m for m in self.methods if m.get("type", "agent") == "agent"]
            if failure.code != AUTH or not usable:
                raise
            await self.call("authenticate", {"methodId": usable[0]["id"]})
            answer = await self.call("session/new", params)
        self.folders[answer["sessionId"]] = folder
        return answer

    def blocks(self, text: str, folder: str) -> Any:
        file = os.path.join(folder, "main.py")
        link: Obj = {"type": "resource_link", "uri": f"file://{file}", "name": "main.py"}
        blocks: list[Obj] = [{"type": "text", "text": text}, link]
        if is_("nulls"):
            link |= {"mimeType": None, "size": None, "annotations": None}
        if self.has("promptCapabilities", "image"):
            blocks.append({"type": "image", "data": PNG, "mimeType": "image/png"})
        if self.has("promptCapabilities", "embeddedContext"):
            resource = {"uri": f"file://{file}", "text": "print('hello')\n"}
            blocks.append({"type": "resource", "resource": resource})
        return blocks

    async def prompt(self, session: str, text: str, *, plain: bool = True) -> Obj:
        prompt = [{"type": "text", "text": text}]
        if not plain:
            prompt = self.blocks(text, self.folders[session])
        answer: Obj = await self.call("session/prompt", {"sessionId": session, "prompt": prompt})
        assert answer["stopReason"], answer
        return answer

    async def cancelled_prompt(self, session: str, text: str, sign: asyncio.Event) -> Obj:
        """Cancel a turn at the first `sign` of it: an update, or a question."""
        self.cancelled[session] = asyncio.Event()
        sign.clear()
        prompt = [{"type": "text", "text": text}]
        turn = self.begin("session/prompt", {"sessionId": session, "prompt": prompt})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sign.wait(), 2)
        self.notify("session/cancel", {"sessionId": session})
        self.cancelled[session].set()
        answer: Obj = await asyncio.wait_for(turn, 20)
        del self.cancelled[session]
        return answer

    async def choose(self, session: str, answer: Obj) -> None:
        """Set an option, or a mode where there are no options, to another value."""
        for option in answer.get("configOptions") or []:
            if option["type"] == "select":
                values = [v for o in option["options"] for v in o.get("options", [o])]
                others = [v["value"] for v in values if v["value"] != option["currentValue"]]
                if others:
                    params = {"sessionId": session, "configId": option["id"], "value": others[0]}
                    await self.call("session/set_config_option", params)
                    back = {**params, "value": option["currentValue"]}
                    await self.call("session/set_config_option", back)
                    return
        if modes := answer.get("modes"):
            params = {"sessionId": session, "modeId": modes["availableModes"][-1]["id"]}
            await self.call("session/set_mode", params)

    async def listed(self, folder: str) -> list[Obj]:
        rows: list[Obj] = []
        params: Obj = {"cwd": folder}
        for _ in range(50):
            page = await self.call("session/list", params)
            rows += page["sessions"]
            cursor = page.get("nextCursor")
            if cursor is None:
                return rows
            params = {**params, "cursor": cursor}
        return rows

    async def day(self, folder: str, other: str) -> None:
        version = await self.initialize()
        if version != 1:
            sys.stderr.write(f"The agent speaks version {version}, which is not supported.\n")
            return
        if is_("metas"):
            self.notify("_heldout.example/opened", {"folder": folder})
        answer = await self.new(folder)
        session = answer["sessionId"]
        if is_("short"):
            await self.prompt(session, "Hello, who are you?")
            return
        await self.attempt(self.choose(session, answer))
        await self.attempt(self.prompt(session, "Have a look at this, please.", plain=False))
        await self.attempt(
            self.prompt(session, f"Write 'hello there' to the file {folder}/notes/new.txt")
        )
        counting, sleeping = "Count slowly to one thousand.", "Run the command `sleep 20`."
        await self.attempt(self.cancelled_prompt(session, counting, self.stirred))
        await self.attempt(self.cancelled_prompt(session, sleeping, self.asked))
        second = (await self.new(other))["sessionId"]
        await asyncio.gather(self.prompt(session, "One."), self.prompt(second, "Two."))
        await self.attempt(self.lifecycle(session, folder))

    async def lifecycle(self, session: str, folder: str) -> None:
        capability = "sessionCapabilities"
        again: Obj = {"sessionId": session, **self.setup(folder)}
        if self.has(capability, "list"):
            await self.attempt(self.listed(folder))
        if self.has(capability, "close"):
            await self.attempt(self.call("session/close", {"sessionId": session}))
        if self.has("loadSession"):
            await self.attempt(self.call("session/load", again))
            await self.attempt(self.prompt(session, "Where were we?"))
        if self.has(capability, "resume"):
            if self.has(capability, "close"):
                await self.attempt(self.call("session/close", {"sessionId": session}))
            await self.attempt(self.call("session/resume", again))
            await self.attempt(self.prompt(session, "And now?"))
        if self.has(capability, "delete"):
            await self.attempt(self.call("session/delete", {"sessionId": session}))
        if self.has("auth", "logout"):
            await self.attempt(self.call("logout", {}))

    async def leave(self) -> None:
        assert self.agent.stdin
        self.agent.stdin.close()
        try:
            await asyncio.wait_for(self.agent.wait(), 5)
        except TimeoutError:
            self.agent.kill()
        self.listening.cancel()
        for terminal in self.terminals.values():
            terminal.kill()


def whole_characters(data: bytes) -> bytes:
    """Cut a character off the end that has not all of its bytes yet."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if length <= back else data[:-back]
        if byte < 0x80:
            break
    return data


def mcp() -> None:
    """Serve one tool, `greet`, to an agent."""
    greeting = os.environ.get("HELDOUT_GREETING", "no greeting")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    tool = {"name": "greet", "description": "Greet somebody", "inputSchema": schema}
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message or method is None:
            continue
        answer: Obj = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            answer["result"] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "greeter", "version": "1"},
            }
        elif method == "tools/list":
            answer["result"] = {"tools": [tool]}
        elif method == "tools/call":
            said = f"{greeting}, {params['arguments']['name']}"
            answer["result"] = {"content": [{"type": "text", "text": said}]}
        elif method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": NO_METHOD, "message": "Method not found"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def projects(top: str) -> tuple[str, str]:
    places = [Path(top).resolve() / name for name in ("project", "other")]
    for place in places:
        place.mkdir()
        (place / "main.py").write_text("import sys\nprint('hello')\n")
        lines = (f"Line {n} of what there is to know.\n" for n in range(1, 151))
        (place / "README.md").write_text("".join(lines))
    return str(places[0]), str(places[1])


async def main(argv: list[str]) -> int:
    with tempfile.TemporaryDirectory() as top:
        folder, other = projects(top)
        editor = Editor()
        await editor.start(argv)
        try:
            await editor.day(folder, other)
        except (Failure, TimeoutError, AssertionError, KeyError) as error:
            sys.stderr.write(f"the day ended early: {error!r}\n")
            return 1
        finally:
            await editor.leave()
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--mcp"]:
        mcp()
        raise SystemExit
    split = sys.argv.index("--")
    ODDITY = sys.argv[1] if split > 1 else ""
    raise SystemExit(asyncio.run(main(sys.argv[split + 1 :])))
