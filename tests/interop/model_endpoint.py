"""A stand-in for a model vendor: OpenAI's chat completions and responses, streamed, offline.

It answers `ECHO: ` and the last line of what the user said. Words on that line steer it:

- `USE_TOOL:read|shell|write`: first a call of whichever offered tool fits, with `FILE=…` as its
  path and `CMD=…` as its command; then what the tool said.
- `SLOW`: 200 words, one every 50 ms.
- `BADREQ`: HTTP 400, which agents do not try again; `FAIL`: HTTP 500, which they do, for minutes.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from uuid import uuid4

Json = dict[str, Any]

SLOW_WORDS = 200
SLOW_PAUSE = 0.05
"""Seconds between two of them."""

TOOLS = {
    "read": ("read_file", "read"),
    "shell": ("exec_command", "shell_command", "shell", "bash", "execute"),
    "write": ("write_file", "write"),
}
"""What agents call the tools that a word asks for."""

HANDED_OVER = "# Earlier in this conversation"

ADDED_BY_AGENTS = re.compile(r"<(system-reminder|environment_context)>.*?</\1>", re.DOTALL)


class ModelEndpoint:
    """`url` is what agents take as the base URL; `requests` are the bodies that came, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[str] = []

    def given_since(self, number: int) -> str:
        """All that the model was given after the first `number` requests."""
        return "\n".join(self.requests[number:])


@contextmanager
def running() -> Iterator[ModelEndpoint]:
    """An endpoint on a free port of this machine, for the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.endpoint = endpoint = ModelEndpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="model endpoint")
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Asked(NamedTuple):
    """A request in the words both interfaces share."""

    user: str
    tools: dict[str, Json]
    tool_said: str | None

    @property
    def order(self) -> str:
        """The line that steers; agents put an earlier prompt that failed in front of it.

        An earlier conversation that was handed over stands behind it.
        """
        return (self.user.split(HANDED_OVER)[0].strip().splitlines() or [""])[-1]

    def error_status(self) -> int | None:
        """The HTTP status of the error to answer with, if it is to be one."""
        found = re.search(r"\b(BADREQ|FAIL)\b", self.order)
        return None if found is None else {"BADREQ": 400, "FAIL": 500}[found[1]]

    def call(self) -> tuple[str, Json] | None:
        """The tool to call, with arguments."""
        found = re.search(r"USE_TOOL:(\w+)", self.order)
        if found is None or self.tool_said is not None:
            return None
        for name in TOOLS[found[1]]:
            if name in self.tools:
                return name, _arguments(self.tools[name], self.order)
        return None

    def words(self) -> Iterator[str]:
        """What is said instead."""
        if self.tool_said is not None:
            yield f"DONE: the tool said: {self.tool_said[:200]}"
        elif "SLOW" in self.order:
            for number in range(SLOW_WORDS):
                yield f"tick{number} "
                time.sleep(SLOW_PAUSE)
        else:
            yield "ECHO: "
            yield self.order[:400]


def _arguments(schema: Json, order: str) -> Json:
    properties: Json = schema.get("properties", {})
    needed = schema.get("required", [])
    return {name: _argument(name, properties[name], order) for name in needed}


def _argument(name: str, schema: Json, order: str) -> object:
    if name in ("command", "cmd"):
        command = found[1] if (found := re.search(r"CMD=(\S+)", order)) else "pwd"
        return ["bash", "-lc", command] if schema.get("type") == "array" else command
    if "path" in name.lower() and (found := re.search(r"FILE=(\S+)", order)):
        return found[1]
    return {"string": "written by the model\n", "boolean": False}.get(schema.get("type", ""), 1)


class _Server(ThreadingHTTPServer):
    endpoint: ModelEndpoint
    daemon_threads = True
    block_on_close = False  # who was killed in a slow answer leaves a thread that notices later


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return None

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        self.server.endpoint.requests.append(raw.decode())
        body: Json = json.loads(raw)
        chat = self.path.endswith("/chat/completions")
        asked = _chat_asked(body) if chat else _responses_asked(body)
        with suppress(BrokenPipeError, ConnectionResetError):  # a killed agent does not wait
            if (status := asked.error_status()) is not None:
                error = {"message": f"stand-in error {status}", "type": "error"}
                self._json({"error": error}, status)
            elif chat:
                self._chat(body, asked)
            else:
                self._responses(asked)

    def _json(self, body: Json, status: int = 200) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _event(self, data: Json | str, name: str = "") -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write((f"event: {name}\n" if name else "").encode())
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    # -- chat completions -----------------------------------------------------------------

    def _chat(self, body: Json, asked: _Asked) -> None:
        call = asked.call()
        if not body.get("stream"):  # a title, say: nothing with tools
            message = {"role": "assistant", "content": "".join(asked.words())}
            self._json(_completion("chat.completion", {"message": message}, "stop"))
            return
        self._begin_stream()
        kind = "chat.completion.chunk"
        if call is not None:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            made = {"index": 0, "id": _id("call"), "type": "function", "function": function}
            self._event(_completion(kind, {"delta": {"tool_calls": [made]}}))
        else:
            for word in asked.words():
                delta = {"role": "assistant", "content": word}
                self._event(_completion(kind, {"delta": delta}))
        finish = "stop" if call is None else "tool_calls"
        self._event(_completion(kind, {"delta": {}}, finish))
        self._event("[DONE]")

    # -- responses ------------------------------------------------------------------------

    def _responses(self, asked: _Asked) -> None:
        self._begin_stream()
        numbers = iter(range(1_000_000))

        def say(kind: str, **fields: object) -> None:
            self._event({"type": kind, "sequence_number": next(numbers), **fields}, kind)

        response = {"id": _id("resp"), "object": "response", "model": "stand-in", "output": []}
        say("response.created", response={**response, "status": "in_progress"})
        call = asked.call()
        item = _message(asked, say) if call is None else _function_call(*call, say)
        say("response.output_item.done", output_index=0, item=item)
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        done = {**response, "status": "completed", "output": [item], "usage": usage}
        say("response.completed", response=done)


def _function_call(name: str, arguments: Json, say: Callable[..., None]) -> Json:
    text = json.dumps(arguments)
    item = {"type": "function_call", "id": _id("fc"), "call_id": _id("call"), "name": name}
    say("response.output_item.added", output_index=0, item={**item, "arguments": ""})
    at: Json = {"item_id": item["id"], "output_index": 0}
    say("response.function_call_arguments.delta", **at, delta=text)
    say("response.function_call_arguments.done", **at, arguments=text)
    return {**item, "arguments": text, "status": "completed"}


def _message(asked: _Asked, say: Callable[..., None]) -> Json:
    item: Json = {"type": "message", "id": _id("msg"), "role": "assistant"}
    say("response.output_item.added", output_index=0, item={**item, "content": []})
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part: Json = {"type": "output_text", "text": "", "annotations": []}
    say("response.content_part.added", **at, part=part)
    said = []
    for word in asked.words():
        said.append(word)
        say("response.output_text.delta", **at, delta=word)
    part = {**part, "text": "".join(said)}
    say("response.output_text.done", **at, text=part["text"])
    say("response.content_part.done", **at, part=part)
    return {**item, "content": [part], "status": "completed"}


def _completion(kind: str, choice: Json, finish: str | None = None) -> Json:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    whole = {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": "stand-in"}
    choices = [{"index": 0, **choice, "finish_reason": finish}]
    return {**whole, "choices": choices, **({"usage": usage} if finish else {})}


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex[:16]}"


# --- what was asked ------------------------------------------------------------------------------


def _chat_asked(body: Json) -> _Asked:
    messages = body["messages"]
    functions = [tool["function"] for tool in body.get("tools") or []]
    last = messages[-1]
    return _Asked(
        _last_user(messages),
        {function["name"]: function.get("parameters") or {} for function in functions},
        _flat(last.get("content")) if last["role"] == "tool" else None,
    )


def _responses_asked(body: Json) -> _Asked:
    items = body["input"]
    functions = [tool for tool in body.get("tools") or [] if tool.get("type") == "function"]
    last = items[-1]
    over = last.get("type") == "function_call_output"
    return _Asked(
        _last_user(items),
        {function["name"]: function.get("parameters") or {} for function in functions},
        _flat(last["output"]) if over else None,
    )


def _last_user(messages: list[Json]) -> str:
    said = (_flat(item.get("content")) for item in reversed(messages) if _is_user(item))
    return next((text for text in said if text), "")


def _is_user(item: Json) -> bool:
    return item.get("role") == "user"


def _flat(content: object) -> str:
    """The text of a content value, without what agents add for the model alone."""
    if isinstance(content, list):
        content = "\n".join(part.get("text") or "" for part in content)
    return ADDED_BY_AGENTS.sub("", str(content or "")).strip()
