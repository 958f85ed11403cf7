"""An MCP server on stdio with faults, without any library: `fault_server.py MODE`.

`START` and `serve` have the faults of each mode; `ok` has none. Its tools are named for their
actions.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable


def content(words: bytes) -> bytes:
    return b'"result": {"content": [{"type": "text", "text": "%b"}]}' % words


UNREADABLE = {
    "half_surrogate": content(b"cut \\ud83d"),
    "bad_byte": content(b"cut \xff"),
    "several_lines": content(b"cut")
    .replace(b"[{", b"[\n    {\n    ")
    .replace(b"}]", b"\n    }]\n  "),
    "line_break": content(b"two\nlines"),
    "null_result": b'"result": null',
    "no_result": b'"outcome": {}',
    "error_without_code": b'"error": {"message": "no"}',
    "error_text": b'"error": "no"',
    "deep": b'"result": {"structuredContent": ' + b'{"a": ' * 1000 + b"1" + b"}" * 1001,
}
"""Tools whose answers are no messages, or hardly: the members of each behind its id."""


def unreadable(tool: str, request: object) -> bytes:
    """The answer to `request`, as a tool of UNREADABLE has it."""
    head = b'{\n  "jsonrpc": "2.0",\n  "id": %d,\n  %b\n}'
    if tool != "several_lines":
        head = head.replace(b"\n", b"").replace(b"  ", b"")
    return head % (request, UNREADABLE[tool])


TOOLS = ("ok", "die", "hang", "halfclose", "hologram", "scalar", "surroundings", "image", "refuse")


def say(message: object) -> None:
    """Write a message, whole and at once."""
    os.write(1, json.dumps(message).encode() + b"\n")


def print_answer(answer: bytes) -> None:
    os.write(1, answer + b"\n")


def chatter() -> None:
    """A banner, and some lines that are nearly messages."""
    os.write(1, b'Welcome!\n{not json\n{"foo": 1}\n\n\xff\xfe\x00\n')


def only_noise() -> None:
    os.write(1, b"loading...\n" * 3)
    time.sleep(600)


def endless_line() -> None:
    while True:
        os.write(1, b"x" * 65536)


def flood_stderr() -> None:
    for _ in range(200):
        os.write(2, (b"e" * 1023 + b"\n") * 100)


def flood(method: str, params: dict[str, object] | None = None, **members: object) -> None:
    """Say the same as fast as the pipe takes it, while we serve."""
    line = json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **members})

    def write() -> None:
        with contextlib.suppress(OSError):
            while True:
                os.write(1, line.encode() + b"\n")

    threading.Thread(target=write, daemon=True).start()


def leave(status: int = 3) -> None:
    sys.exit(f"boom: bad config for {os.environ.get('TOKEN')}" if status == 3 else status)


def fail_like_node() -> None:
    os.write(
        2, b"file.js:1\n\nError: Cannot find module 'x'\n    at load (file.js:1)\n\nNode.js v22\n"
    )
    sys.exit(1)


def ignore_the_end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def child(*, session: bool = False, stubborn: bool = False) -> None:
    """Start a process that outlives us, and tell its pid in the file that PIDS names."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    if not stubborn:
        code = "import time; time.sleep(600)"
    started = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=session,
    )
    with open(os.environ["PIDS"], "a", encoding="ascii") as file:
        file.write(f"{os.getpid()} {started.pid}\n")


def stubborn_family() -> None:
    ignore_the_end()
    child(stubborn=True)


def silent_family() -> None:
    child()
    time.sleep(600)


START: dict[str, Callable[[], object]] = {
    "exit": leave,
    "node": fail_like_node,
    "chatter": chatter,
    "only_noise": only_noise,
    "endless_line": endless_line,
    "flood_stderr": flood_stderr,
    "flood": lambda: flood("notifications/tools/list_changed"),
    "silent": lambda: time.sleep(600),
    "stubborn": ignore_the_end,
    "stubborn_child": stubborn_family,
    "child": child,
    "silent_child": silent_family,
    "child_apart": lambda: child(session=True),
    "slow": lambda: time.sleep(float(os.environ["SLOW"])),
}


def text(words: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}]}


def listed(mode: str, params: dict[str, object]) -> dict[str, object]:
    tools: list[object] = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    cursor = params.get("cursor")
    match mode:
        case "same_cursor":
            return {"tools": tools, "nextCursor": "same"}
        case "endless_pages":
            page = int(str(cursor or 0)) + 1
            return {"tools": tools[:1], "nextCursor": str(page)}
        case "pages" if cursor is None:
            return {"tools": tools[:1], "nextCursor": "rest"}
        case "pages":
            return {"tools": tools[1:]}
        case "one_bad_tool":
            return {"tools": [{"nam": 1}, *tools]}
        case "no_list":
            return {"tools": "none"}
    return {"tools": tools}


def hasten(steps: int, token: object) -> None:
    """Report many steps at once."""
    for step in range(steps):
        params = {"progressToken": token, "progress": step}
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def work(steps: int, token: object) -> None:
    """Take a while, and report each step."""
    for step in range(steps):
        time.sleep(0.1)
        params = {"progressToken": token, "progress": step}
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


QUESTION: dict[str, object] = {
    "message": "Go on?",
    "requestedSchema": {"type": "object", "properties": {}},
}


def ask() -> str:
    """Ask the person a question; returns the answer, as JSON."""
    say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION})
    return sys.stdin.readline()


def called(tool: str, arguments: dict[str, object], token: object) -> dict[str, object] | None:
    """The result of a tool; None if it gives none."""
    match tool:
        case "ask":
            return text(ask())
        case "hasten":
            hasten(1000, token)
        case "pester":
            flood("elicitation/create", QUESTION, id="q")
            return None
        case "ping":
            flood("ping", id="p")
            time.sleep(600)
        case "work":
            work(5, token)
        case "surprise":
            for unasked in (0, 99, -1, "99", "x", None):
                say({"jsonrpc": "2.0", "id": unasked, "result": text("unasked")})
        case "die":
            os.write(2, b"dying\n")
            os._exit(9)
        case "hang":
            return None
        case "halfclose":
            os.close(1)
            time.sleep(600)
        case "hologram":
            return {"content": [{"type": "hologram", "depth": 3}]}
        case "scalar":
            return {"content": 5}
        case "image":
            return {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}
        case "surroundings":
            facts = {"cwd": os.getcwd(), "env": dict(os.environ), "pid": os.getpid()}
            return text("") | {"structuredContent": facts}
    return text(f"ok {json.dumps(arguments)}")


def answer(mode: str, message: dict[str, object]) -> None:
    """Answer a request as the mode does."""
    raw = message.get("params")
    params: dict[str, object] = raw if isinstance(raw, dict) else {}
    result: dict[str, object] | None = {}
    match message["method"]:
        case "initialize":
            version = "1999-01-01" if mode == "old" else params["protocolVersion"]
            if mode == "rejecting":
                error = {"code": -32000, "message": f"bad key {os.environ.get('TOKEN')}"}
                return say({"jsonrpc": "2.0", "id": message["id"], "error": error})
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "fault", "version": "0"},
            }
            if mode == "shapeless":
                result = {"hello": "world"}
        case "tools/list":
            if mode == "mute_list":
                return None
            result = listed(mode, params)
        case "tools/call":
            if params["name"] in UNREADABLE:
                return print_answer(unreadable(str(params["name"]), message["id"]))
            if params["name"] == "refuse":
                error = {"code": -32602, "message": "no such thing"}
                return say({"jsonrpc": "2.0", "id": message["id"], "error": error})
            arguments = params.get("arguments")
            meta = params.get("_meta")
            token = meta.get("progressToken") if isinstance(meta, dict) else None
            arguments = arguments if isinstance(arguments, dict) else {}
            result = called(str(params["name"]), arguments, token)
        case "resources/read":
            return None
        case "resources/list":
            result = {"resources": []}
    if result is not None:
        say({"jsonrpc": "2.0", "id": message["id"], "result": result})
    if result is not None and params.get("name") == "twice":
        say({"jsonrpc": "2.0", "id": message["id"], "result": text("again")})
    return None


def main() -> None:
    mode = sys.argv[1]
    START.get(mode, lambda: None)()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(mode, message)
            if mode == "deaf":
                time.sleep(600)
        elif message.get("method") == "notifications/cancelled":
            # Note for the test that the cancellation came.
            with open(os.environ["PIDS"], "a", encoding="ascii") as file:
                file.write("cancelled\n")
    if mode in ("stubborn", "stubborn_child"):
        time.sleep(600)


if __name__ == "__main__":
    main()
