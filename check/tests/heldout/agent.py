"""A correct ACP agent over stdio, with nine oddities that are correct: `python agent.py [ODDITY]`.

It plays a language model: words of the prompt choose what a turn does (`Turn.work`). Sessions live
as JSON lines in the folder `HELDOUT_STORE`. Written from the protocol's pages alone.
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
import urllib.request
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from uuid import uuid4

Obj = dict[str, Any]

ODDITIES: dict[str, str] = {
    "text-ids": "its requests have string ids: RequestId is null, an integer or a string",
    "minimal": "offers nothing optional: load, list, modes and tools are all optional",
    "null-load": "answers session/load with null, as the page's example does",
    "merged-replay": "replays whole messages and finished tool calls: chunking is free",
    "page-of-one": "lists one session a page: the page size is the agent's own",
    "metas": "_meta on everything, unknown custom notifications: extensibility allows both",
    "escapes": "ASCII JSON with blanks and members in another order: JSON allows all of it",
    "one-shot-tools": "a tool call is told once, when it is done: its updates are SHOULD",
    "echo": "sends the prompt back as user_message_chunk: the update exists in every turn",
}

ODDITY = sys.argv[1] if len(sys.argv) > 1 else ""


def is_(name: str) -> bool:
    assert name in ODDITIES, name
    return name == ODDITY


STORE = Path(os.environ.get("HELDOUT_STORE") or Path(tempfile.gettempdir(), "heldout-agent"))
NOT_FOUND, INVALID, NO_METHOD, AUTH = -32002, -32602, -32601, -32000
MODES = {"ask": "Ask before each tool", "code": "Use tools without asking"}
MODELS = {"small": "Small", "large": "Large"}
SLOW = re.compile(
    r"\b(slow|slowly|long|count|sleep|wait|story|essay|poem|novel|forever|minutes?|detail\w*)\b",
    re.I,
)
PATH = re.compile(r"[`'\"]?((?:\.{0,2}/|file://)?[\w.~/-]*[\w-]\.\w+|/[\w.~/-]+)[`'\"]?")
COMMANDS = {
    "read": ("Read a file", "path"),
    "write": ("Write a text into a file", "path text"),
    "run": ("Run a shell command", "command"),
    "wait": ("Think for some seconds", "seconds"),
    "plan": ("Make a plan and carry it out", None),
    "mode": ("Switch to another mode", "mode id"),
    "tools": ("Name the tools of the MCP servers", None),
    "call": ("Call a tool of an MCP server", "name {arguments}"),
    "recall": ("Say what was said before", None),
    "survey": ("Ask the user to fill in a form", None),
}


class Failure(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# The wire


def dumps(message: Obj) -> bytes:
    if is_("metas"):
        message = _with_metas(message)
    if is_("escapes"):
        return json.dumps(dict(reversed(message.items())), separators=(" ,  ", " :  ")).encode()
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _with_metas(message: Obj) -> Obj:
    message = json.loads(json.dumps(message))
    for place in (message.get("params"), message.get("result")):
        if isinstance(place, dict):
            place["_meta"] = {"heldout.example/n": [1, None], "traceparent": "00-ab-cd-01"}
            for inner in place.values():
                if isinstance(inner, dict) and "heldout.example/n" not in inner:
                    inner["_meta"] = {"heldout.example/deep": {"x": {}}}
    return message


def write(message: Obj) -> None:
    sys.stdout.buffer.write(dumps(message) + b"\n")
    sys.stdout.buffer.flush()


PENDING: dict[Any, asyncio.Future[Any]] = {}
COUNT = 0


async def ask(method: str, params: Obj) -> Any:
    """Send a request to the client and return its result; raises Failure for an error."""
    global COUNT
    COUNT += 1
    number: Any = f"agent-{uuid4().hex[:6]}" if is_("text-ids") else COUNT
    PENDING[number] = asyncio.get_running_loop().create_future()
    write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    try:
        return await PENDING[number]
    finally:
        del PENDING[number]


def notify(session: str, update: Obj) -> None:
    params = {"sessionId": session, "update": update}
    write({"jsonrpc": "2.0", "method": "session/update", "params": params})
    if is_("metas"):
        write({"jsonrpc": "2.0", "method": "_heldout.example/seen", "params": {"session": session}})


# MCP


class ToolServer:
    """An MCP server as a subprocess, spoken to in lines, or behind a URL."""

    def __init__(self, spec: Obj, cwd: str) -> None:
        self.spec, self.cwd, self.tools = spec, cwd, list[Obj]()
        self.program: asyncio.subprocess.Process | None = None
        self.count = 0
        self.headers: dict[str, str] = {h["name"]: h["value"] for h in spec.get("headers") or []}
        self.turn = asyncio.Lock()

    async def connect(self) -> None:
        if "command" in self.spec:
            given = {e["name"]: e["value"] for e in self.spec.get("env") or []}
            self.program = await asyncio.create_subprocess_exec(
                self.spec["command"],
                *self.spec.get("args") or [],
                env={**os.environ, **given},
                cwd=self.cwd,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 26,
                start_new_session=True,
            )
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "heldout-agent", "version": "1"},
        }
        answer = await asyncio.wait_for(self.request("initialize", hello), 15)
        self.headers["MCP-Protocol-Version"] = answer["protocolVersion"]
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = (await asyncio.wait_for(self.request("tools/list", {}), 15))["tools"]

    async def request(self, method: str, params: Obj) -> Any:
        async with self.turn:
            self.count += 1
            number = self.count
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            answer = await self.send(message)
            while answer is None or answer.get("id") != number or "method" in answer:
                assert self.program
                assert self.program.stdout
                line = await self.program.stdout.readline()
                if not line:
                    raise Failure(-32603, "the MCP server is gone")
                answer = json.loads(line) if line.strip() else None
                if answer and "method" in answer and "id" in answer:
                    refusal = {"code": NO_METHOD, "message": "Method not found"}
                    refused = {"result": {}} if answer["method"] == "ping" else {"error": refusal}
                    await self.send({"jsonrpc": "2.0", "id": answer["id"], **refused})
        if "error" in answer:
            raise Failure(-32603, str(answer["error"].get("message")))
        return answer["result"]

    async def send(self, message: Obj) -> Any:
        if self.program:
            assert self.program.stdin
            self.program.stdin.write(json.dumps(message).encode() + b"\n")
            await self.program.stdin.drain()
            return None
        return await asyncio.to_thread(self._post, message)

    def _post(self, message: Obj) -> Any:
        accept = "application/json, text/event-stream"
        headers = {"Content-Type": "application/json", "Accept": accept, **self.headers}
        request = urllib.request.Request(self.spec["url"], json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=15) as answer:
            if answer.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            if "id" not in message:
                return None
            if "event-stream" not in answer.headers.get("Content-Type", ""):
                return json.loads(answer.read())
            for line in answer:
                if line.startswith(b"data:"):
                    event = json.loads(line[5:])
                    if event.get("id") == message["id"]:
                        return event
        raise Failure(-32603, "the MCP server did not answer")

    async def close(self) -> None:
        if self.program and self.program.returncode is None:
            assert self.program.stdin
            self.program.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.program.wait(), 0.5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.program.pid, signal.SIGKILL)
            await self.program.wait()


# Sessions


class Session:
    def __init__(self, session_id: str, cwd: str, roots: list[str]) -> None:
        self.id, self.cwd, self.roots = session_id, cwd, roots
        self.mode, self.model, self.brave = "ask", "small", False
        self.title: str | None = None
        self.updated = now()
        self.history: list[Obj] = []
        self.allowed: set[str] = set()
        self.servers: list[ToolServer] = []
        self.turns: dict[asyncio.Task[str], asyncio.Task[None]] = {}
        self.line = asyncio.Lock()
        self.calls = 0

    @property
    def place(self) -> str:
        """The folder where its tools work."""
        return self.cwd

    @property
    def file(self) -> Path:
        return STORE / f"{self.id}.jsonl"

    def keep(self, record: Obj) -> None:
        STORE.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def keep_head(self) -> None:
        head = {
            **{"id": self.id, "cwd": self.cwd, "roots": self.roots, "title": self.title},
            **{"updated": self.updated, "mode": self.mode, "model": self.model},
            "brave": self.brave,
        }
        self.keep({"head": head})

    def say(self, update: Obj, *, live: bool = True) -> None:
        """Keep `update` as a part of the conversation and send it."""
        self.history.append(update)
        self.keep({"update": update})
        if live:
            notify(self.id, update)

    async def connect(self, specs: list[Obj]) -> None:
        servers = [ToolServer(spec, self.cwd) for spec in specs]
        outcomes = await asyncio.gather(*(s.connect() for s in servers), return_exceptions=True)
        for server, outcome in zip(servers, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                sys.stderr.write(f"MCP server {server.spec.get('name')}: {outcome!r}\n")
                await server.close()
            else:
                self.servers.append(server)

    async def stop(self) -> None:
        for running in self.turns:
            running.cancel()
        if self.turns:
            await asyncio.wait(self.turns.values())
        for server in self.servers:
            await server.close()
        self.servers = []

    def modes(self) -> Obj:
        return {
            "currentModeId": self.mode,
            "availableModes": [
                {"id": i, "name": i.title(), "description": d} for i, d in MODES.items()
            ],
        }

    def options(self) -> list[Obj]:
        options: list[Obj] = [
            {
                **{"id": "mode", "name": "Mode", "category": "mode", "type": "select"},
                "currentValue": self.mode,
                "options": [
                    {"value": i, "name": i.title(), "description": d} for i, d in MODES.items()
                ],
            },
            {
                **{"id": "model", "name": "Model", "category": "model", "type": "select"},
                "currentValue": self.model,
                "options": [{"value": i, "name": n} for i, n in MODELS.items()],
            },
        ]
        if offered("session", "configOptions", "boolean") is not None:
            options.append(
                {"id": "brave", "name": "Brave", "type": "boolean", "currentValue": self.brave}
            )
        return options

    def state(self) -> Obj:
        return {} if is_("minimal") else {"modes": self.modes(), "configOptions": self.options()}


def stored(session_id: str) -> Session | None:
    """Read a session from its file."""
    if "/" in session_id or not (STORE / f"{session_id}.jsonl").is_file():
        return None
    session: Session | None = None
    for line in (STORE / f"{session_id}.jsonl").read_text().splitlines():
        record = json.loads(line)
        if head := record.get("head"):
            session = session or Session(head["id"], head["cwd"], [])
            session.roots, session.title = head["roots"], head["title"]
            session.updated, session.mode = head["updated"], head["mode"]
            session.model, session.brave = head["model"], head["brave"]
        elif session:
            session.history.append(record["update"])
            session.calls += record["update"]["sessionUpdate"] == "tool_call"
    return session


def all_stored() -> dict[str, Session]:
    found = [stored(file.stem) for file in STORE.glob("*.jsonl")]
    return {session.id: session for session in found if session}


OPEN: dict[str, Session] = {}
DELETED: set[str] = set()
CLIENT: Obj = {}
STATE = {"initialized": False, "authenticated": True}


def offered(*path: str) -> Any:
    """Return a client capability; None if it is absent."""
    value: Any = CLIENT
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def open_session(params: Obj) -> Session:
    session_id = want(params, "sessionId", str)
    if session_id not in OPEN:
        raise Failure(NOT_FOUND, f"session {session_id} is not open")
    return OPEN[session_id]


def want(params: Obj, name: str, kind: type) -> Any:
    if not isinstance(params.get(name), kind):
        raise Failure(INVALID, f"{name} has to be a {kind.__name__}")
    return params[name]


def setup(params: Obj) -> tuple[str, list[str], list[Obj]]:
    cwd = want(params, "cwd", str)
    roots = params.get("additionalDirectories") or []
    for folder in [cwd, *roots]:
        if not isinstance(folder, str) or not os.path.isabs(folder):
            raise Failure(INVALID, f"{folder} is not an absolute path")
    if "mcpServers" not in params:
        raise Failure(INVALID, "mcpServers is required")
    servers = params["mcpServers"] or []
    for server in servers:
        if not isinstance(server, dict) or not isinstance(server.get("name"), str):
            raise Failure(INVALID, "an MCP server has to have a name")
        if server.get("type") == "sse" or not ("command" in server or "url" in server):
            raise Failure(INVALID, f"MCP server {server['name']} has an unsupported transport")
    return cwd, roots, servers


# Methods


async def initialize(params: Obj) -> Obj:
    want(params, "protocolVersion", int)
    CLIENT.clear()
    CLIENT.update(params.get("clientCapabilities") or {})
    STATE["initialized"] = True
    answer: Obj = {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {
                **{"list": {}, "delete": {}, "resume": {}, "close": {}},
                "additionalDirectories": {},
            },
            "auth": {"logout": {}},
        },
        "agentInfo": {"name": "heldout-agent", "title": "Held-out agent", "version": "1.0.0"},
        "authMethods": [{"id": "login", "name": "Log in", "description": "Always succeeds"}],
    }
    if offered("auth", "terminal") is True:
        method = {"id": "tty", "name": "Terminal login", "type": "terminal", "args": ["--login"]}
        answer["authMethods"].append(method)
    if is_("minimal"):
        answer = {"protocolVersion": 1, "agentCapabilities": {}}
        answer["agentInfo"] = {"name": "minimal", "version": "0"}
    return answer


async def authenticate(params: Obj) -> Obj:
    if want(params, "methodId", str) != "login":
        raise Failure(INVALID, "there is no such method to authenticate by")
    STATE["authenticated"] = True
    return {}


async def logout(params: Obj) -> Obj:
    STATE["authenticated"] = False
    return {}


async def new(params: Obj) -> Obj:
    if not STATE["authenticated"]:
        raise Failure(AUTH, "log in first")
    cwd, roots, servers = setup(params)
    session = Session(uuid4().hex, cwd, roots)
    await session.connect(servers)
    OPEN[session.id] = session
    session.keep_head()
    asyncio.get_running_loop().call_soon(announce, session)
    return {"sessionId": session.id, **session.state()}


def announce(session: Session) -> None:
    """Name the slash commands of a session; runs behind the answer that opens it."""
    if is_("minimal"):
        return
    commands = [
        {"name": n, "description": d} | ({"input": {"hint": h}} if h else {})
        for n, (d, h) in COMMANDS.items()
    ]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    notify(session.id, update)


async def reopen(params: Obj) -> Session:
    if not STATE["authenticated"]:
        raise Failure(AUTH, "log in first")
    session_id = want(params, "sessionId", str)
    cwd, roots, servers = setup({"mcpServers": [], **params})
    running = OPEN.get(session_id)
    session = running or stored(session_id)
    if session is None:
        raise Failure(NOT_FOUND, f"there is no session {session_id}")
    if not same_folder(cwd, session.cwd):
        raise Failure(INVALID, f"the session's folder is {session.cwd}")
    if running:
        await running.stop()
    session.roots = roots
    session.keep_head()
    await session.connect(servers)
    OPEN[session_id] = session
    asyncio.get_running_loop().call_soon(announce, session)
    return session


def same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def replayed(session: Session) -> list[Obj]:
    """Return the conversation as session/load sends it."""
    history = session.history
    if is_("merged-replay"):
        return merged(history)
    return history


def merged(history: list[Obj]) -> list[Obj]:
    whole: list[Obj] = []
    calls: dict[str, Obj] = {}
    for update in json.loads(json.dumps(history)):
        kind, last = update["sessionUpdate"], whole[-1] if whole else {}
        text = update.get("content", {}).get("text") if kind.endswith("_chunk") else None
        if kind == "tool_call_update":
            calls[update["toolCallId"]].update({**update, "sessionUpdate": "tool_call"})
        elif text and last.get("messageId") == update["messageId"] and "text" in last["content"]:
            last["content"]["text"] += text
        else:
            whole.append(update)
            if kind == "tool_call":
                calls[update["toolCallId"]] = update
    return whole


async def load(params: Obj) -> Any:
    if "mcpServers" not in params:
        raise Failure(INVALID, "mcpServers is required")
    session = await reopen(params)
    replay(session, replayed(session))
    return None if is_("null-load") else session.state()


async def resume(params: Obj) -> Obj:
    return (await reopen(params)).state()


def replay(session: Session, history: list[Obj]) -> None:
    for update in history:
        notify(session.id, update)


async def close(params: Obj) -> Obj:
    session = open_session(params)
    del OPEN[session.id]
    await session.stop()
    return {}


async def delete(params: Obj) -> Obj:
    session_id = want(params, "sessionId", str)
    session = OPEN.pop(session_id, None)
    if session:
        await session.stop()
    DELETED.add(session_id)
    if "/" not in session_id:
        (STORE / f"{session_id}.jsonl").unlink(missing_ok=True)
    return {}


async def list_sessions(params: Obj) -> Obj:
    cwd, cursor = params.get("cwd"), params.get("cursor")
    if cwd is not None and not (isinstance(cwd, str) and os.path.isabs(cwd)):
        raise Failure(INVALID, "cwd has to be an absolute path")
    known = {**all_stored(), **OPEN}
    rows = [s for s in known.values() if s.id not in DELETED and (cwd is None or s.cwd == cwd)]
    rows.sort(key=lambda s: (s.updated, s.id), reverse=True)
    if cursor is not None:
        try:
            after = json.loads(base64.urlsafe_b64decode(cursor))
            rows = [s for s in rows if (s.updated, s.id) < (after["at"], after["id"])]
        except (ValueError, TypeError, KeyError):
            raise Failure(INVALID, "cursor is not one of ours") from None
    size = 1 if is_("page-of-one") else 50
    answer: Obj = {"sessions": [about(s) for s in rows[:size]]}
    if len(rows) > size:
        last = {"at": rows[size - 1].updated, "id": rows[size - 1].id}
        answer["nextCursor"] = base64.urlsafe_b64encode(json.dumps(last).encode()).decode()
    return answer


def about(session: Session) -> Obj:
    row: Obj = {"sessionId": session.id, "cwd": session.cwd, "updatedAt": session.updated}
    if session.roots:
        row["additionalDirectories"] = session.roots
    if session.title:
        row["title"] = session.title
    return row


async def set_mode(params: Obj) -> Obj:
    session, mode = open_session(params), want(params, "modeId", str)
    if mode not in MODES:
        raise Failure(INVALID, f"there is no mode {mode}")
    switch(session, mode=mode)
    return {}


def switch(session: Session, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(session, name, value)
    session.keep_head()
    notify(
        session.id, {"sessionUpdate": "config_option_update", "configOptions": session.options()}
    )
    if "mode" in changes:
        notify(session.id, {"sessionUpdate": "current_mode_update", "currentModeId": session.mode})


async def set_config_option(params: Obj) -> Obj:
    session, option = open_session(params), want(params, "configId", str)
    value = params.get("value")
    known: dict[str, list[Any]] = {"mode": [*MODES], "model": [*MODELS], "brave": [True, False]}
    if option not in [o["id"] for o in session.options()]:
        raise Failure(INVALID, f"there is no option {option}")
    if not any(value is v or (isinstance(v, str) and value == v) for v in known[option]):
        raise Failure(INVALID, f"{value} is no value of {option}")
    setattr(session, option, value)
    session.keep_head()
    if option == "mode":
        notify(session.id, {"sessionUpdate": "current_mode_update", "currentModeId": session.mode})
    return {"configOptions": session.options()}


# Turns


class Turn:
    """One prompt: the words of the user choose the tools that the model uses."""

    def __init__(self, session: Session, blocks: list[Obj]) -> None:
        self.session, self.blocks = session, blocks
        self.text = " ".join(b["text"] for b in blocks if b["type"] == "text")
        self.message = uuid4().hex
        self.open: dict[str, Obj] = {}
        self.refused = False

    def say(self, text: str, kind: str = "agent_message_chunk") -> None:
        message = uuid4().hex if kind == "agent_thought_chunk" else self.message
        content = {"type": "text", "text": text}
        self.session.say({"sessionUpdate": kind, "messageId": message, "content": content})

    def begin(self) -> None:
        """Keep the prompt, before anything can cancel the turn."""
        session = self.session
        self.earlier = [
            u["content"]["text"]
            for u in session.history
            if u["sessionUpdate"] == "user_message_chunk" and "text" in u["content"]
        ]
        mine = uuid4().hex
        for block in self.blocks:
            update = {"sessionUpdate": "user_message_chunk", "messageId": mine, "content": block}
            session.say(update, live=is_("echo"))
        session.updated = now()
        session.keep_head()

    async def run(self) -> str:
        async with self.session.line:
            return await self.model()

    async def model(self) -> str:
        for block in self.blocks:
            if block["type"] == "resource_link":
                await self.look_at_link(block)
            elif block["type"] != "text":
                self.say(
                    f"I have received {'an' if block['type'][0] in 'ai' else 'a'} {block['type']}. "
                )
        await self.work(self.earlier)
        if self.refused:
            self.say("I was not allowed to, so I leave it. ")
        self.say("Fertig: schön ✓")
        return "end_turn"

    async def work(self, earlier: list[str]) -> None:
        command, rest = self.command()
        server = self.named_tool(self.text)
        if command == "recall" or re.search(
            r"\?|\b(recall|remember|repeat|earlier|before|previous|secret|what)\b", self.text, re.I
        ):
            self.say("You told me before: " + " | ".join(earlier) + "\n")
        if command == "tools" or (not server and re.search(r"\btools\b", self.text, re.I)):
            names = [t["name"] for s in self.session.servers for t in s.tools]
            self.say("My tools: " + ", ".join(names) + "\n")
        if command == "call" or server:
            await self.call_tool(rest)
        elif command == "mode" or re.search(r"\b(switch|change|exit)\b.*\bmode\b", self.text, re.I):
            mode = next((m for m in MODES if re.search(rf"\b{m}\b", rest)), "code")
            switch(self.session, mode=mode)
        elif command == "survey" or re.search(r"\b(survey|form|elicit\w*)\b", self.text, re.I):
            await self.survey()
        elif command == "run" or re.search(
            r"\b(run|execute|command|shell|terminal|bash)\b", self.text, re.I
        ):
            await self.shell(rest)
        elif command == "write" or re.search(
            r"\b(write|create|edit|save)\b.*[./]", self.text, re.I
        ):
            await self.write_file(rest)
        elif command == "read" or re.search(r"\b(read|open|show|cat)\b.*[./]", self.text, re.I):
            await self.read_file(rest)
        elif command == "wait" or SLOW.search(self.text):
            await self.slowly(rest)
        else:
            await self.look_around()

    def command(self) -> tuple[str, str]:
        found = re.match(r"\s*/(\w+)\s*(.*)", self.text, re.S)
        if found and found[1] in COMMANDS:
            return found[1], found[2]
        return "", self.text

    def named_tool(self, text: str) -> tuple[ToolServer, Obj] | None:
        tools = [(s, t) for s in self.session.servers for t in s.tools]
        tools.sort(key=lambda pair: -len(pair[1]["name"]))
        for server, tool in tools:
            if re.search(rf"(?<![\w-]){re.escape(tool['name'])}(?![\w-])", text):
                return server, tool
        return None

    def path(self, text: str) -> str:
        found = PATH.search(text)
        name = found[1] if found else "README.md"
        if name.startswith("file://"):
            name = unquote(urlparse(name).path)
        base = self.session.place
        return os.path.normpath(os.path.join(base, name))

    def inside(self, path: str) -> bool:
        real = os.path.realpath(path)
        roots = [os.path.realpath(r) for r in (self.session.place, *self.session.roots)]
        return any(real == r or real.startswith(r.rstrip("/") + "/") for r in roots)

    # What a tool call is made of

    def tool(self, title: str, kind: str, **more: Any) -> str:
        self.session.calls += 1
        call = f"call-{self.session.calls}-{uuid4().hex[:6]}"
        update = {"sessionUpdate": "tool_call", "toolCallId": call, "title": title, "kind": kind}
        update |= {"status": "pending", **more}
        self.open[call] = update
        if not is_("one-shot-tools"):
            self.session.say(dict(update))
        return call

    def change(self, call: str, **fields: Any) -> None:
        self.open[call].update(fields)
        ended = fields.get("status") in ("completed", "failed")
        if is_("one-shot-tools"):
            if ended:
                self.session.say(self.open[call])
        else:
            self.session.say({"sessionUpdate": "tool_call_update", "toolCallId": call, **fields})
        if ended:
            del self.open[call]

    def fail(self, call: str, why: str) -> None:
        self.change(call, status="failed", content=[text_content(why)])

    async def allowed(self, call: str) -> bool:
        """Ask for permission where the mode wants it; report the refusal."""
        kind = self.open[call]["kind"]
        if self.session.mode != "ask" or kind in self.session.allowed:
            return True
        fields = {k: self.open[call][k] for k in ("toolCallId", "title", "kind", "status")}
        options = [
            {"optionId": "yes", "name": "Allow once", "kind": "allow_once"},
            {"optionId": "yes-always", "name": "Always allow", "kind": "allow_always"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
            {"optionId": "no-never", "name": "Never", "kind": "reject_always"},
        ]
        asked = {"sessionId": self.session.id, "toolCall": fields, "options": options}
        try:
            answer = (await ask("session/request_permission", asked))["outcome"]
        except Failure:
            answer = {"outcome": "selected", "optionId": "no"}
        if answer["outcome"] == "cancelled":
            raise asyncio.CancelledError
        if answer["optionId"] == "yes-always":
            self.session.allowed.add(kind)
        if answer["optionId"].startswith("yes"):
            return True
        self.refused = True
        self.fail(call, "The user rejected it.")
        return False

    # The tools

    async def look_around(self) -> None:
        self.say("The user wants something; first a look around.", "agent_thought_chunk")
        entries = [
            {"content": "Look at the folder", "priority": "high", "status": "in_progress"},
            {"content": "Answer", "priority": "medium", "status": "pending"},
        ]
        self.session.say({"sessionUpdate": "plan", "entries": entries})
        self.say("You said: ")
        for word in self.text.split():
            self.say(word + " ")
            await asyncio.sleep(0.005)
        folder = self.session.place
        call = self.tool("List the folder", "search", locations=[{"path": folder}])
        if await self.allowed(call):
            self.change(call, status="in_progress")
            names = names_in(folder)
            shown = [text_content(folder + ": " + ", ".join(names))]
            self.change(call, status="completed", content=shown)
        entries = [{**entry, "status": "completed"} for entry in entries]
        self.session.say({"sessionUpdate": "plan", "entries": entries})

    async def slowly(self, rest: str) -> None:
        found = re.search(r"\d+", rest)
        seconds = min(float(found[0]), 60.0) if found and self.command()[0] == "wait" else 30.0
        for step in range(int(seconds * 20)):
            self.say(f"{step + 1} ")
            await asyncio.sleep(0.05)

    async def look_at_link(self, block: Obj) -> None:
        if block["uri"].startswith("file:"):
            await self.read_file(file_of(block["uri"]), asked=False)
        else:
            self.say(f"You pointed me to {block['uri']}. ")

    async def read_file(self, rest: str, *, asked: bool = True) -> None:
        path = self.path(rest) if asked else rest
        call = self.tool(f"Read {path}", "read", locations=[{"path": path, "line": 1}])
        if asked and not await self.allowed(call):
            return
        if not self.inside(path):
            return self.fail(call, f"{path} is outside of the session's folders")
        self.change(call, status="in_progress")
        try:
            text = await self.contents(path)
        except (Failure, OSError, UnicodeDecodeError) as error:
            return self.fail(call, str(error))
        self.change(call, status="completed", content=[text_content(text)])
        self.say(f"The file says: {text[:2000]}\n")

    async def contents(self, path: str) -> str:
        if offered("fs", "readTextFile") is True:
            params = {"sessionId": self.session.id, "path": path}
            return str((await ask("fs/read_text_file", params))["content"])
        return await asyncio.to_thread(Path(path).read_text)

    async def write_file(self, rest: str) -> None:
        path = self.path(rest)
        found = re.search(r"[`'\"]([^`'\"]*\s[^`'\"]*|[^`'\"./]+)[`'\"]", rest)
        text = (found[1] if found else "written by the held-out agent") + "\n"
        if self.command()[0] == "write":
            text = rest.partition(" ")[2] + "\n"
        call = self.tool(f"Write {path}", "edit", locations=[{"path": path}])
        if not await self.allowed(call):
            return
        if not self.inside(path):
            return self.fail(call, f"{path} is outside of the session's folders")
        self.change(call, status="in_progress")
        old: str | None
        try:
            old = await self.contents(path)
        except (Failure, OSError, UnicodeDecodeError):
            old = None
        writes = offered("fs", "writeTextFile") is True
        try:
            if writes:
                params = {"sessionId": self.session.id, "path": path, "content": text}
                await ask("fs/write_text_file", params)
            else:
                await asyncio.to_thread(Path(path).write_text, text)
        except (Failure, OSError) as error:
            return self.fail(call, str(error))
        diff = {"type": "diff", "path": path, "oldText": old, "newText": text}
        self.change(call, status="completed", content=[diff])

    async def shell(self, rest: str) -> None:
        found = re.search(r"`([^`]+)`|\"([^\"]+)\"|: *(.+)$|'([^']+)'", rest)
        command = next((g for g in found.groups() if g), "echo hello") if found else "echo hello"
        if self.command()[0] == "run":
            command = rest or command
        elif not found and SLOW.search(rest):
            command = "sleep 30"
        call = self.tool(command, "execute", rawInput={"command": command})
        if not await self.allowed(call):
            return
        folder = self.session.place
        try:
            if offered("terminal") is True:
                await self.in_terminal(call, command, folder)
            else:
                await self.in_process(call, command, folder)
        except (Failure, OSError) as error:
            self.fail(call, str(error))

    async def in_terminal(self, call: str, command: str, folder: str) -> None:
        params = {
            **{"sessionId": self.session.id, "command": "sh", "args": ["-c", command]},
            **{"cwd": folder, "env": [], "outputByteLimit": 65536},
        }
        creating = asyncio.create_task(ask("terminal/create", params))

        def handle(created: Obj) -> Obj:
            return {"sessionId": self.session.id, "terminalId": created["terminalId"]}

        terminal: Obj = {}
        try:
            terminal = handle(await asyncio.shield(creating))
            shown = {"type": "terminal", "terminalId": terminal["terminalId"]}
            self.change(call, status="in_progress", content=[shown])
            status = await ask("terminal/wait_for_exit", terminal)
            output = (await ask("terminal/output", terminal))["output"]
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError, Failure):
                async with asyncio.timeout(5):
                    terminal = handle(await creating)
                    await ask("terminal/kill", terminal)
                    await ask("terminal/output", terminal)
            raise
        finally:
            if terminal:
                with contextlib.suppress(TimeoutError, Failure):
                    async with asyncio.timeout(5):
                        await ask("terminal/release", terminal)
        ended = "completed" if status.get("exitCode") == 0 else "failed"
        self.change(call, status=ended, content=[shown, text_content(output)])
        self.say(f"It printed: {output[:2000]}\n")

    async def in_process(self, call: str, command: str, folder: str) -> None:
        self.change(call, status="in_progress")
        program = await asyncio.create_subprocess_exec(
            *["sh", "-c", command],
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output = (await program.communicate())[0].decode(errors="replace")
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
        ended = "completed" if program.returncode == 0 else "failed"
        self.change(call, status=ended, content=[text_content(output)])
        self.say(f"It printed: {output[:2000]}\n")

    async def call_tool(self, rest: str) -> None:
        chosen = self.named_tool(rest)
        if chosen is None:
            return self.say("There is no such tool. ")
        server, tool = chosen
        found = re.search(r"\{.*\}", rest, re.S)
        arguments: Obj = {}
        if found:
            with contextlib.suppress(ValueError):
                arguments = json.loads(found[0])
        schema = tool.get("inputSchema") or {}
        for name in schema.get("required") or []:
            kind = (schema.get("properties") or {}).get(name, {}).get("type")
            blank: Obj = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
            words = re.search(r"[`'\"]([^`'\"]+)[`'\"]", rest.replace(tool["name"], ""))
            arguments.setdefault(name, blank.get(kind, words[1] if words else self.text))
        call = self.tool(f"Use {tool['name']}", "other", rawInput=arguments)
        if not await self.allowed(call):
            return
        self.change(call, status="in_progress")
        try:
            params = {"name": tool["name"], "arguments": arguments}
            answer = await server.request("tools/call", params)
        except (Failure, OSError, ValueError) as error:
            return self.fail(call, str(error))
        shown = [{"type": "content", "content": block} for block in answer.get("content") or []]
        ended = "failed" if answer.get("isError") else "completed"
        self.change(call, status=ended, content=shown, rawOutput=answer)
        for block in answer.get("content") or []:
            if block["type"] == "text":
                self.say(f"{tool['name']} says: {block['text']}\n")

    async def survey(self) -> None:
        if offered("elicitation", "form") is None:
            return self.say("I would ask you with a form, but you have none. ")
        schema = {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
            "required": ["colour"],
        }
        params = {"sessionId": self.session.id, "mode": "form", "message": "Which colour?"}
        try:
            answer = await ask("elicitation/create", {**params, "requestedSchema": schema})
        except Failure:
            answer = {"action": "cancel"}
        self.say(f"You chose to {answer['action']}: {answer.get('content')}\n")


def file_of(uri: str) -> str:
    return os.path.normpath(unquote(urlparse(uri).path))


def names_in(folder: str) -> list[str]:
    return sorted(os.listdir(folder))[:20] if os.path.isdir(folder) else []


def text_content(text: str) -> Obj:
    return {"type": "content", "content": {"type": "text", "text": text}}


KNOWN_BLOCKS: dict[Any, dict[str, type]] = {
    "text": {"text": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
}


def prompt(number: Any, params: Obj) -> None:
    """Begin a turn; `finish` answers the prompt."""
    try:
        session = open_session(params)
        blocks = want(params, "prompt", list)
        for block in blocks:
            needed = KNOWN_BLOCKS.get(block.get("type")) if isinstance(block, dict) else None
            if needed is None or not all(isinstance(block.get(n), k) for n, k in needed.items()):
                raise Failure(INVALID, "a block of the prompt is not valid")
            if is_("minimal") and block["type"] not in ("text", "resource_link"):
                raise Failure(INVALID, f"{block['type']} is not supported")
    except Failure as failure:
        return answer_error(number, failure)
    turn = Turn(session, blocks)
    turn.begin()
    running = asyncio.create_task(turn.run())
    finishing = asyncio.create_task(finish(number, turn, running))
    session.turns[running] = finishing
    REQUESTS[number] = running
    return None


async def finish(number: Any, turn: Turn, running: asyncio.Task[str]) -> None:
    await asyncio.wait([running])
    session = turn.session
    if not running.cancelled() and (error := running.exception()):
        sys.stderr.write(f"turn: {error!r}\n")
    for call in list(turn.open):
        turn.fail(call, "Cancelled.")
    session.updated = now()
    info: Obj = {"sessionUpdate": "session_info_update", "updatedAt": session.updated}
    if not session.title and turn.text.strip():
        session.title = " ".join(turn.text.split())[:60]
        info["title"] = session.title
    session.keep_head()
    if not is_("minimal"):
        used = sum(len(json.dumps(u)) for u in session.history) // 4
        notify(session.id, {"sessionUpdate": "usage_update", "used": used, "size": 200_000})
        notify(session.id, info)
    del session.turns[running]
    del REQUESTS[number]
    result: Obj = {"stopReason": "cancelled" if running.cancelled() else "end_turn"}
    if running.cancelled() or not running.exception():
        answer(number, result)
    else:
        answer_error(number, Failure(-32603, "internal error"))


def cancel(params: Obj) -> None:
    if session := OPEN.get(str(params.get("sessionId"))):
        for running in session.turns:
            running.cancel()


def cancel_request(params: Obj) -> None:
    if turn := REQUESTS.get(params.get("requestId", "")):
        turn.cancel()


# Dispatch

METHODS: dict[str, Callable[[Obj], Coroutine[Any, Any, Any]]] = {
    "initialize": initialize,
    "authenticate": authenticate,
    "logout": logout,
    "session/new": new,
    "session/load": load,
    "session/resume": resume,
    "session/close": close,
    "session/delete": delete,
    "session/list": list_sessions,
    "session/set_mode": set_mode,
    "session/set_config_option": set_config_option,
}
if is_("minimal"):
    METHODS = {name: METHODS[name] for name in ("initialize", "session/new")}
NOTIFICATIONS = {"session/cancel": cancel, "$/cancel_request": cancel_request}
REQUESTS: dict[Any, asyncio.Task[str]] = {}
TASKS: set[asyncio.Task[None]] = set()


def answer(number: Any, result: Any) -> None:
    write({"jsonrpc": "2.0", "id": number, "result": result})


def answer_error(number: Any, failure: Failure) -> None:
    error = {"code": failure.code, "message": str(failure)}
    write({"jsonrpc": "2.0", "id": number, "error": error})


async def serve(number: Any, method: str, params: Obj) -> None:
    try:
        if method != "initialize" and not STATE["initialized"]:
            raise Failure(-32600, "initialize comes first")
        result = await METHODS[method](params)
    except Failure as failure:
        answer_error(number, failure)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.stderr.write(f"{method}: {error!r}\n")
        answer_error(number, Failure(-32603, "internal error"))
    else:
        answer(number, result)


def receive(line: bytes) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        return answer_error(None, Failure(-32700, "this is not JSON"))
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return answer_error(None, Failure(-32600, "this is not a request"))
    method, number = message.get("method"), message.get("id")
    params = message.get("params")
    if method is None:
        if (future := PENDING.get(number)) and not future.done():
            if "error" in message:
                error = message["error"]
                future.set_exception(Failure(error.get("code", 0), error.get("message", "")))
            else:
                future.set_result(message.get("result"))
        return None
    if not isinstance(method, str) or not isinstance(number, str | int | None):
        return answer_error(number, Failure(-32600, "method has to be a string"))
    if not isinstance(params, dict):
        params = {}
    if "id" not in message:
        if handler := NOTIFICATIONS.get(method):
            handler(params)
        return None
    if method == "session/prompt":
        return prompt(number, params)
    if method in METHODS:
        task = asyncio.create_task(serve(number, method, params))
    else:
        return answer_error(number, Failure(NO_METHOD, f"Method not found: {method}"))
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)
    return None


async def main() -> None:
    reader = asyncio.StreamReader(limit=1 << 27)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip():
            receive(line)
    for session in list(OPEN.values()):
        await session.stop()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(main())
