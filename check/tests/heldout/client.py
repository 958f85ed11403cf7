"""A correct ACP client, and forty-nine ways to break it: `python client.py [FAULT] -- AGENT…`.

It does an editor's day with the agent: sets sessions up, prompts, answers, cancels, lists, loads
and deletes as far as the agent offers it. Written from the protocol's pages alone.
"""

from __future__ import annotations

import asyncio
import base64
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

FAULTS: dict[str, tuple[str, str]] = {
    # name: (what is wrong, page # heading of the sentence it breaks)
    "new-first": ("session/new before initialize", "initialization"),
    "version-missing": ("initialize names no version", "initialization#version-negotiation"),
    "version-text": ("protocolVersion is a string", "initialization#protocol-version"),
    "version-ignored": ("goes on with version 99 (SHOULD)", "initialization#version-negotiation"),
    "info-missing": ("no clientInfo (SHOULD)", "initialization#implementation-information"),
    "terminal-object": ("capability terminal is {}", "schema#clientcapabilities"),
    "terminal-lie": ("offers terminals, knows none", "initialization#terminal"),
    "write-lie": ("offers writing, does not know it", "initialization#file-system"),
    "custom-field": ("a custom field in initialize", "extensibility#the-_meta-field"),
    "cwd-relative": ("cwd is .", "session-setup#working-directory"),
    "cwd-home": ("cwd is ~/project", "session-setup#working-directory"),
    "mcp-missing": ("session/new without mcpServers", "session-setup#creating-a-session"),
    "mcp-relative": ("MCP command is not absolute", "session-setup#stdio-transport"),
    "mcp-env-map": ("env is an object", "session-setup#stdio-transport"),
    "mcp-http": ("an HTTP server unasked", "session-setup#checking-transport-support"),
    "mcp-sse": ("an SSE server unasked", "session-setup#checking-transport-support"),
    "load-unasked": ("loads without the capability", "session-setup#checking-support"),
    "load-bare": ("load without cwd", "session-setup#loading-a-session"),
    "resume-unasked": ("resumes without the capability", "session-setup#checking-support"),
    "close-unasked": ("closes without the capability", "session-setup#checking-support"),
    "roots-unasked": ("additionalDirectories unasked", "session-setup#additional-workspace-roots"),
    "roots-relative": ("a relative root", "session-setup#additional-workspace-roots"),
    "list-unasked": ("lists without the capability", "session-list#checking-support"),
    "list-relative": ("filters by a relative cwd", "session-list#listing-sessions"),
    "list-on": ("asks on behind the last page", "session-list#pagination"),
    "list-cursor": ("edits the cursor", "session-list#pagination"),
    "delete-unasked": ("deletes without the capability", "session-delete#checking-support"),
    "logout-unasked": (
        "logs out without the capability",
        "authentication#advertising-authentication",
    ),
    "auth-made-up": ("a method nobody advertised", "authentication#protocol-driven-authentication"),
    "image-unasked": ("an image unasked", "prompt-turn#1-user-message"),
    "embedded-unasked": ("an embedded resource unasked", "prompt-turn#1-user-message"),
    "prompt-text": ("the prompt is a string", "prompt-turn#1-user-message"),
    "link-nameless": ("a resource link has no name", "content#resource-link"),
    "cancel-request": ("session/cancel has an id", "prompt-turn#cancellation"),
    "cancel-unanswered": ("leaves the permission open on cancel", "prompt-turn#cancellation"),
    "cancel-allowed": ("allows on cancel", "prompt-turn#cancellation"),
    "permission-kind": ("answers with the kind, not the id", "tool-calls#requesting-permission"),
    "permission-flat": ("outcome is not an object", "tool-calls#requesting-permission"),
    "read-zero": ("counts lines from 0", "file-system#reading-files"),
    "read-whole": ("ignores limit", "file-system#reading-files"),
    "write-old": ("writes only files that exist", "file-system#writing-files"),
    "create-waits": ("terminal/create waits for the end", "terminals#executing-commands"),
    "keeps-start": ("truncates the end", "terminals#executing-commands"),
    "cuts-character": ("truncates within a character", "terminals#executing-commands"),
    "kill-releases": ("a killed terminal is unknown", "terminals#killing-commands"),
    "release-leaves": ("release lets the command run", "terminals#releasing-terminals"),
    "unknown-silent": ("an unknown request is not answered", "extensibility#custom-requests"),
    "notification-answered": ("answers unknown notifications", "overview#error-handling"),
    "garbage": ("a line that is no message", "transports#stdio"),
}

ODDITIES: dict[str, str] = {
    "text-ids": "its requests have string ids: RequestId is null, an integer or a string",
    "bare": "offers no capability: all of them are optional",
    "rejects": "rejects every tool at once: clients may answer by the user's settings",
    "metas": "_meta everywhere and custom notifications: extensibility allows both",
    "short": "initializes, prompts once, leaves: nothing obliges it to more",
    "nulls": "optional nullable fields are null: the schema allows it",
}

FAULT = ""
NO_METHOD, INVALID, NOT_FOUND, AUTH = -32601, -32602, -32002, -32000
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def is_(name: str) -> bool:
    assert name in FAULTS or name in ODDITIES, name
    return name == FAULT


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
                if is_("keeps-start"):
                    self.kept = self.kept[: self.limit]
                    continue
                self.kept = self.kept[len(self.kept) - self.limit :]
                while self.kept and self.kept[0] & 0xC0 == 0x80 and not is_("cuts-character"):
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
            elif is_("notification-answered"):
                error = {"code": NO_METHOD, "message": "Method not found"}
                self.send({"jsonrpc": "2.0", "id": None, "error": error})
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
        lies = (is_("terminal-lie") and "terminal/" in method) or (
            is_("write-lie") and method == "fs/write_text_file"
        )
        try:
            if method not in self.answers or lies:
                if is_("unknown-silent"):
                    return
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
            if is_("cancel-unanswered"):
                return NotImplemented
            if not is_("cancel-allowed"):
                return {"outcome": {"outcome": "cancelled"}}
        wanted = "reject_once" if is_("rejects") else "allow_once"
        chosen = next((o for o in options if o["kind"] == wanted), options[0])
        if is_("permission-flat"):
            return {"outcome": "selected", "optionId": chosen["optionId"]}
        option = chosen["kind"] if is_("permission-kind") else chosen["optionId"]
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
        lines = lines[max(0, (1 if first is None else first) - (0 if is_("read-zero") else 1)) :]
        if params.get("limit") is not None and not is_("read-whole"):
            lines = lines[: params["limit"]]
        narrowed = first is not None or params.get("limit") is not None
        return {"content": "".join(lines) if narrowed else text}

    async def write(self, params: Obj) -> Obj | None:
        path = self.path(params)
        if is_("write-old") and not await asyncio.to_thread(path.exists):
            raise Failure(NOT_FOUND, f"there is no file {path}")
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, params["content"].encode())
        return None if is_("nulls") else {}

    async def create(self, params: Obj) -> Obj:
        session = self.known(params)
        terminal = Terminal(params.get("outputByteLimit"))
        await terminal.start(params, self.folders[session])
        if is_("create-waits"):
            await terminal.ended()
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
        if not is_("cuts-character"):
            kept = whole_characters(kept)
        shown = {"output": kept.decode(errors="replace"), "truncated": terminal.truncated}
        status = terminal.status()
        return shown | ({"exitStatus": status} if status or is_("nulls") else {})

    async def wait(self, params: Obj) -> Obj:
        return await self.terminal(params).ended()

    async def kill(self, params: Obj) -> Obj:
        self.terminal(params).kill()
        if is_("kill-releases"):
            del self.terminals[params["terminalId"]]
        return {}

    async def release(self, params: Obj) -> Obj:
        terminal = self.terminal(params)
        if not is_("release-leaves"):
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
            "terminal": {} if is_("terminal-object") else True,
            "session": {"configOptions": {"boolean": {}}},
        }
        params: Obj = {
            "protocolVersion": "1" if is_("version-text") else 1,
            "clientCapabilities": {} if is_("bare") else everything,
            "clientInfo": {"name": "heldout-client", "title": "Held-out client", "version": "1.0"},
        }
        if is_("nulls"):
            params["clientCapabilities"] |= {"session": None, "elicitation": None, "_meta": None}
            params["clientInfo"]["title"] = None
        if is_("version-missing"):
            del params["protocolVersion"]
        if is_("info-missing"):
            del params["clientInfo"]
        if is_("custom-field"):
            params["workspaceName"] = "project"
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
        if is_("mcp-relative"):
            servers[0]["command"] = "python3"
        if is_("mcp-env-map"):
            servers[0]["env"] = {"HELDOUT_GREETING": "hello"}
        remote = {"name": "remote", "url": "http://127.0.0.1:9/mcp", "headers": []}
        if is_("mcp-http") and not self.has("mcpCapabilities", "http"):
            servers.append({"type": "http", **remote})
        if is_("mcp-sse") and not self.has("mcpCapabilities", "sse"):
            servers.append({"type": "sse", **remote})
        return servers

    def setup(self, folder: str) -> Obj:
        params: Obj = {"cwd": folder, "mcpServers": self.servers()}
        if is_("cwd-relative"):
            params["cwd"] = "."
        if is_("cwd-home"):
            params["cwd"] = "~/project"
        if is_("mcp-missing"):
            del params["mcpServers"]
        supported = self.has("sessionCapabilities", "additionalDirectories")
        if is_("roots-unasked") and not supported:
            params["additionalDirectories"] = [folder]
        if is_("roots-relative"):
            params["additionalDirectories"] = ["lib"]
        if is_("nulls") and supported:
            params["additionalDirectories"] = []
        return params

    async def new(self, folder: str) -> Obj:
        params = self.setup(folder)
        if is_("auth-made-up"):
            with contextlib.suppress(Failure):
                await self.call("authenticate", {"methodId": "password"})
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
        if is_("link-nameless"):
            del link["name"]
        if self.has("promptCapabilities", "image") or is_("image-unasked"):
            blocks.append({"type": "image", "data": PNG, "mimeType": "image/png"})
        if self.has("promptCapabilities", "embeddedContext") or is_("embedded-unasked"):
            resource = {"uri": f"file://{file}", "text": "print('hello')\n"}
            blocks.append({"type": "resource", "resource": resource})
        return text if is_("prompt-text") else blocks

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
        if is_("cancel-request"):
            self.begin("session/cancel", {"sessionId": session}).add_done_callback(
                lambda future: future.exception()
            )
        else:
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
        params: Obj = {"cwd": "project" if is_("list-relative") else folder}
        for _ in range(50):
            page = await self.call("session/list", params)
            rows += page["sessions"]
            cursor = page.get("nextCursor")
            if cursor is None:
                if is_("list-on"):
                    await self.call("session/list", {**params, "cursor": ""})
                return rows
            if is_("list-cursor"):
                cursor = base64.b64encode(cursor.encode()).decode().rstrip("=")
            params = {**params, "cursor": cursor}
        return rows

    async def day(self, folder: str, other: str) -> None:
        if is_("garbage"):
            assert self.agent.stdin
            self.agent.stdin.write(b"hello agent\n")
        if is_("new-first"):
            with contextlib.suppress(Failure):
                await self.call("session/new", {"cwd": folder, "mcpServers": []})
        version = await self.initialize()
        if version != 1 and not is_("version-ignored"):
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
        if self.has(capability, "list") or is_("list-unasked"):
            await self.attempt(self.listed(folder))
        if self.has(capability, "close") or is_("close-unasked"):
            await self.attempt(self.call("session/close", {"sessionId": session}))
        if self.has("loadSession") or is_("load-unasked"):
            if is_("load-bare"):
                del again["cwd"]
            await self.attempt(self.call("session/load", again))
            await self.attempt(self.prompt(session, "Where were we?"))
        if self.has(capability, "resume") or is_("resume-unasked"):
            if self.has(capability, "close"):
                await self.attempt(self.call("session/close", {"sessionId": session}))
            await self.attempt(self.call("session/resume", again))
            await self.attempt(self.prompt(session, "And now?"))
        if self.has(capability, "delete") or is_("delete-unasked"):
            await self.attempt(self.call("session/delete", {"sessionId": session}))
        if self.has("auth", "logout") or is_("logout-unasked"):
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
    FAULT = sys.argv[1] if split > 1 else ""
    if FAULT and FAULT not in FAULTS and FAULT not in ODDITIES:
        raise SystemExit(f"unknown fault {FAULT}; one of: {', '.join([*FAULTS, *ODDITIES])}")
    raise SystemExit(asyncio.run(main(sys.argv[split + 1 :])))
