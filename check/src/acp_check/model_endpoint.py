"""A stand-in for a model vendor, offline, and its mind, which carries out errands.

It speaks OpenAI's chat completions and responses, Anthropic's messages, and Google's
generateContent.

A `Mind` decides what it answers; `answer` is the mind for `check`.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, TypeAlias
from uuid import uuid4

from msgspec import Struct

from acp_check import bounds
from acp_check.errands import Errand, Task, errand, errands
from acp_check.record import Json

ADDED_BY_AGENTS = re.compile(
    r"<(system-reminder|environment_context|turn-context)>.*?</\1>", re.DOTALL
)
"""Text that agents add to the person's words, for the model alone."""

STREAMED_CONTENT = ":streamGenerateContent"
"""The end of the address of Google's stream."""

NAMESPACE = "::"
"""Separates an MCP server's namespace, which agents add, from the tool's name."""

SCRIPT_TOOL = "exec"
"""Codex's tool for models that call its other tools from JavaScript alone."""

IN_SCRIPT: Final = {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
"""The parameters of the command that our scripts run."""


class ModelPrompt(Struct, frozen=True):
    """A request, reduced to what the interfaces share.

    `user` is the person's last message, `earlier` all messages before, one text each; `tools` are
    the parameters of each offered tool, by name; `tool_result` is the result of the tool that was
    just called, None if there is none.
    """

    user: str
    earlier: tuple[str, ...]
    tools: dict[str, Json]
    tool_result: str | None


class ToolUse(Struct, frozen=True):
    """The model calls a tool."""

    tool: str
    arguments: Json


class Words(Struct, frozen=True):
    """The model writes text; `pieces` are streamed as they come."""

    pieces: Iterable[str]


class Failure(Struct, frozen=True):
    """The vendor answers with an HTTP error."""

    status: int


Reply: TypeAlias = ToolUse | Words | Failure
Mind = Callable[[ModelPrompt], Reply]
"""Returns the model's reply."""


class ModelEndpoint:
    """`url` is the base URL for agents; `requests` are the received bodies, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[str] = []

    def input_since(self, number: int) -> str:
        """Return all that the model was given after the first `number` requests."""
        return "\n".join(self.requests[number:])


@contextmanager
def endpoint(mind: Mind, port: int = 0) -> Iterator[ModelEndpoint]:
    """Run an endpoint on this machine for the block; on a free port if none is named.

    Raises OSError if the port is taken.
    """
    server = _ModelServer(("127.0.0.1", port), _ModelHandler)
    server.mind = mind
    server.endpoint = found = ModelEndpoint(f"http://127.0.0.1:{server.server_port}/v1")
    with serving(server, "model endpoint"):
        yield found


@contextmanager
def serving(server: ThreadingHTTPServer, name: str) -> Iterator[None]:
    """Run a server in a thread for the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name=name)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StandInServer(ThreadingHTTPServer):
    """The server of a stand-in."""

    daemon_threads = True
    block_on_close = False  # a killed client leaves a thread that notices later


class StandInHandler(BaseHTTPRequestHandler):
    """Its answers: whole, or as a stream of events. It prints nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return None

    def answer(self, body: bytes, status: int = 200) -> None:
        """Answer with this body, which is JSON."""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        """Begin a stream of events, which the connection ends with."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data: Json | str, name: str = "") -> None:
        """Send an event."""
        text = data if isinstance(data, str) else json.dumps(data)
        named = f"event: {name}\n" if name else ""
        self.wfile.write(f"{named}data: {text}\n\n".encode())
        self.wfile.flush()


class _ModelServer(StandInServer):
    endpoint: ModelEndpoint
    mind: Mind


class _ModelHandler(StandInHandler):
    server: _ModelServer

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        self.server.endpoint.requests.append(raw.decode())
        body: Json = json.loads(raw)
        path = self.path.partition("?")[0]
        if path.endswith(("/messages/count_tokens", ":countTokens")):
            self._json({"input_tokens": len(raw) // 4, "totalTokens": len(raw) // 4})
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # a killed agent does not wait
            if path.endswith("/chat/completions"):
                self._chat(body)
            elif path.endswith("/messages"):
                self._messages(body)
            elif path.endswith((":generateContent", STREAMED_CONTENT)):
                self._contents(body, is_streamed=path.endswith(STREAMED_CONTENT))
            else:
                self._responses(body)

    def _reply(
        self, messages: list[Json], functions: list[Json], tool_result: str | None
    ) -> ToolUse | Words | None:
        """Return the mind's reply; None for a failure, which is sent to the client."""
        tools = {function["name"]: function.get("parameters") or {} for function in functions}
        texts = [(item.get("role") == "user", _flat(item.get("content"))) for item in messages]
        by_user = [place for place, (is_user, text) in enumerate(texts) if is_user and text]
        last = by_user[-1] if by_user else len(texts)
        user = texts[last][1] if by_user else ""
        earlier = tuple(text for _, text in texts[:last])
        reply = self.server.mind(ModelPrompt(user, earlier, tools, tool_result))
        if not isinstance(reply, Failure):
            return reply
        error = {"message": f"stand-in error {reply.status}", "type": "error"}
        self._json({"error": error}, reply.status)
        return None

    def _json(self, body: Json, status: int = 200) -> None:
        self.answer(json.dumps(body).encode(), status)

    # -- chat completions -----------------------------------------------------------------

    def _chat(self, body: Json) -> None:
        messages = body["messages"]
        functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
        last = messages[-1]
        result = _flat(last.get("content")) if last["role"] == "tool" else None
        reply = self._reply(messages, functions, result)
        if reply is None:
            return
        if not body.get("stream"):
            message: Json = {"role": "assistant", "content": None}
            if isinstance(reply, ToolUse):
                message["tool_calls"] = [_tool_call(reply)]
            else:
                message["content"] = "".join(reply.pieces)
            self._json(_completion("chat.completion", {"message": message}, _finish(reply)))
            return
        self.begin_stream()
        kind = "chat.completion.chunk"
        if isinstance(reply, ToolUse):
            made = {"index": 0, **_tool_call(reply)}
            self.event(_completion(kind, {"delta": {"tool_calls": [made]}}))
        else:
            for piece in reply.pieces:
                delta = {"role": "assistant", "content": piece}
                self.event(_completion(kind, {"delta": delta}))
        self.event(_completion(kind, {"delta": {}}, _finish(reply)))
        self.event("[DONE]")

    # -- responses ------------------------------------------------------------------------

    def _responses(self, body: Json) -> None:
        items = body["input"]
        last = items[-1]
        is_output = last.get("type") in ("function_call_output", "custom_tool_call_output")
        added = [tool for it in items for tool in it.get("tools") or []]
        functions = list(_functions([*(body.get("tools") or []), *added]))
        reply = self._reply(items, functions, _flat(last["output"]) if is_output else None)
        if reply is None:
            return
        self.begin_stream()
        numbers = iter(range(1_000_000))

        def say(kind: str, **fields: object) -> None:
            self.event({"type": kind, "sequence_number": next(numbers), **fields}, kind)

        response = {"id": _id("resp"), "object": "response", "model": "stand-in", "output": []}
        say("response.created", response={**response, "status": "in_progress"})
        item: Json
        if isinstance(reply, ToolUse):
            namespace, _, name = reply.tool.rpartition(NAMESPACE)
            item = {"type": "function_call", "id": _id("fc"), "call_id": _id("call"), "name": name}
            if namespace:
                item["namespace"] = namespace
            text, given = json.dumps(reply.arguments), "arguments"
            if name == SCRIPT_TOOL:
                text, given = f"text((await tools.exec_command({text})).output)", "input"
                item["type"] = "custom_tool_call"
            say("response.output_item.added", output_index=0, item={**item, given: ""})
            at: Json = {"item_id": item["id"], "output_index": 0}
            if given == "arguments":
                say("response.function_call_arguments.delta", **at, delta=text)
                say("response.function_call_arguments.done", **at, arguments=text)
            item = {**item, given: text, "status": "completed"}
        else:
            item = {"type": "message", "id": _id("msg"), "role": "assistant"}
            say("response.output_item.added", output_index=0, item={**item, "content": []})
            at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            part: Json = {"type": "output_text", "text": "", "annotations": []}
            say("response.content_part.added", **at, part=part)
            written = []
            for piece in reply.pieces:
                written.append(piece)
                say("response.output_text.delta", **at, delta=piece)
            part = {**part, "text": "".join(written)}
            say("response.output_text.done", **at, text=part["text"])
            say("response.content_part.done", **at, part=part)
            item = {**item, "content": [part], "status": "completed"}
        say("response.output_item.done", output_index=0, item=item)
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        done = {**response, "status": "completed", "output": [item], "usage": usage}
        say("response.completed", response=done)

    # -- messages -------------------------------------------------------------------------

    def _messages(self, body: Json) -> None:
        messages = body["messages"]
        tools = body.get("tools") or []
        functions = [{**tool, "parameters": tool.get("input_schema")} for tool in tools]
        blocks = messages[-1]["content"] if isinstance(messages[-1]["content"], list) else []
        results = [block for block in blocks if block["type"] == "tool_result"]
        result = _flat(results[-1].get("content")) if results else None
        reply = self._reply(messages, functions, result)
        if reply is None:
            return
        if not body.get("stream"):
            block: Json
            if isinstance(reply, ToolUse):
                block = _tool_use(reply)
            else:
                block = {"type": "text", "text": "".join(reply.pieces)}
            stop = _stop_reason(reply)
            self._json({**_MESSAGE, "id": _id("msg"), "content": [block], "stop_reason": stop})
            return
        self.begin_stream()
        for event in messages_stream(reply):
            self.event(event, event["type"])

    # -- generateContent ------------------------------------------------------------------

    def _contents(self, body: Json, *, is_streamed: bool) -> None:
        contents = body["contents"]
        contents = contents if isinstance(contents, list) else [contents]
        messages = [{"role": it.get("role"), "content": it.get("parts") or []} for it in contents]
        functions = [
            {**it, "parameters": it.get("parametersJsonSchema", it.get("parameters"))}
            for tool in body.get("tools") or []
            for it in tool.get("functionDeclarations") or []
        ]
        results = [it for it in messages[-1]["content"] if "functionResponse" in it]
        result = json.dumps(results[-1]["functionResponse"].get("response")) if results else None
        reply = self._reply(messages, functions, result)
        if reply is None:
            return
        if not is_streamed:
            self._json(_candidate(_parts(reply), "STOP"))
            return
        self.begin_stream()
        if isinstance(reply, Words):
            for piece in reply.pieces:
                self.event(_candidate([{"text": piece}]))
            self.event(_candidate([{"text": ""}], "STOP"))
        else:
            self.event(_candidate(_parts(reply), "STOP"))


def messages_stream(reply: ToolUse | Words) -> Iterator[Json]:
    """Yield the events of Anthropic's stream that tell a reply."""
    message = {**_MESSAGE, "id": _id("msg"), "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": message}
    if isinstance(reply, ToolUse):
        block = {**_tool_use(reply), "input": {}}
        pieces: Iterable[str] = (json.dumps(reply.arguments),)
        kind, key = "input_json_delta", "partial_json"
    else:
        block, pieces = {"type": "text", "text": ""}, reply.pieces
        kind, key = "text_delta", "text"
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for piece in pieces:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: piece}}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


_MESSAGE: Final[Json] = {
    "type": "message",
    "role": "assistant",
    "model": "stand-in",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 5},
}


def _parts(reply: ToolUse | Words) -> list[Json]:
    """Return a reply as the parts of a content of Google's."""
    if isinstance(reply, Words):
        return [{"text": "".join(reply.pieces)}]
    return [{"functionCall": {"id": _id("call"), "name": reply.tool, "args": reply.arguments}}]


def _candidate(parts: list[Json], finish: str | None = None) -> Json:
    found: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    ended = {"finishReason": finish} if finish else {}
    return {"candidates": [{**found, **ended}], "usageMetadata": usage, "modelVersion": "stand-in"}


def _tool_use(reply: ToolUse) -> Json:
    return {"type": "tool_use", "id": _id("toolu"), "name": reply.tool, "input": reply.arguments}


def _stop_reason(reply: ToolUse | Words) -> str:
    return "tool_use" if isinstance(reply, ToolUse) else "end_turn"


def _tool_call(reply: ToolUse) -> Json:
    function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
    return {"id": _id("call"), "type": "function", "function": function}


def _finish(reply: ToolUse | Words) -> str:
    return "tool_calls" if isinstance(reply, ToolUse) else "stop"


def _completion(kind: str, choice: Json, finish: str | None = None) -> Json:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    whole = {
        "id": _id("chatcmpl"),
        "object": kind,
        "created": int(time.time()),
        "model": "stand-in",
    }
    choices = [{"index": 0, **choice, "finish_reason": finish}]
    return {**whole, "choices": choices, **({"usage": usage} if finish else {})}


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex[:16]}"


def _functions(tools: list[Json], namespace: str = "") -> Iterator[Json]:
    """Yield the functions, with those of namespaces named `NAMESPACE::…`."""
    for tool in tools:
        if tool.get("type") == "function":
            yield {**tool, "name": namespace + tool["name"]}
        elif tool.get("type") == "namespace":
            yield from _functions(tool["tools"], tool["name"] + NAMESPACE)
        elif tool.get("name") == SCRIPT_TOOL:
            yield {"name": namespace + SCRIPT_TOOL, "parameters": IN_SCRIPT}


def _flat(content: object) -> str:
    """Return the text of a content value, without what agents add for the model alone."""
    if isinstance(content, list):
        content = "\n".join(part.get("text") or "" for part in content)
    return ADDED_BY_AGENTS.sub("", str(content or "")).strip()


# -- the mind ---------------------------------------------------------------------------------

TOOLS: dict[Task, tuple[str, ...]] = {
    "read": ("read_file", "read", "read_text_file", "view"),
    "write": ("write_file", "write", "create_file", "write_text_file"),
    "run": (
        *("exec_command", "shell_command", "run_shell_command", "shell", "bash", "execute"),
        *("run_command", "run", f"functions{NAMESPACE}{SCRIPT_TOOL}"),
    ),
    "plan": ("update_plan", "todowrite", "write_todos", "todo_write", "TodoWrite", "plan"),
}
"""Names that agents give the tools for an errand; the first one offered is used."""


def answer(asked: ModelPrompt) -> Reply:
    """Return the model's reply to a request; the person's last errand counts."""
    todo = errand(asked.user) or Errand("greet")
    if asked.tool_result is not None:
        return Words((f"It says: {asked.tool_result[:2000]}",))
    in_shell = todo  # for agents that only have a shell
    if todo.task == "read":
        in_shell = Errand("run", f"cat {shlex.quote(todo.what)}")
    elif todo.task == "write":
        path = shlex.quote(todo.what)
        in_shell = Errand("run", f"printf %s {shlex.quote(todo.text)} > {path}")
    for way in (todo, in_shell):
        names = TOOLS.get(way.task, ())
        fitting = [name for name in names if name in asked.tools]
        if way.task == "call":
            fitting = [name for name in asked.tools if name.endswith(way.what)]
        for tool in fitting[:1]:
            return ToolUse(tool, arguments(asked.tools[tool], way))
    return Words(_report(asked, todo))


def _report(asked: ModelPrompt, todo: Errand) -> Iterator[str]:
    match todo.task:
        case "count":
            for number in range(1, 301):
                yield f"{number}\n"
                time.sleep(bounds.MODEL_COUNT_SECONDS)
        case "remember":
            yield "OK"
        case "recall":
            yield recall(asked) or "You told me none."
        case "greet":
            yield "Hello, "
            yield "nice to meet you."
        case _:
            yield "I have no tool for that."


def recall(asked: ModelPrompt) -> str:
    """Return the code word given in the conversation, or in one that was handed over."""
    for text in (asked.user, *reversed(asked.earlier)):
        for todo in reversed(errands(text)):
            if todo.task == "remember":
                return todo.what
    return ""


# -- arguments --------------------------------------------------------------------------------


def arguments(schema: Json, todo: Errand) -> Json:
    """Return the arguments for a tool with these parameters: all required ones."""
    properties: Json = schema.get("properties") or {}
    found: Json = {}
    for name in schema.get("required") or ():
        kind: Json = properties.get(name) or {}
        match name.lower():
            case "command" | "cmd":
                is_array = kind.get("type") == "array"
                found[name] = ["bash", "-lc", todo.what] if is_array else todo.what
            case "file" | "filename":
                found[name] = todo.what
            case lower if "path" in lower:
                found[name] = todo.what
            case "content" | "contents" | "text" | "file_text" | "new_text" if todo.text:
                found[name] = todo.text
            case _:
                found[name] = _anything(kind, todo)
    return found


def _anything(schema: Json, todo: Errand) -> object:
    """Return some value that a schema allows."""
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "array":
            items = schema.get("items") or {}
            return [_anything(items, Errand(todo.task, step)) for step in ("Knead", "Wait", "Bake")]
        case "object":
            return arguments(schema, todo)
        case "boolean":
            return False
        case "integer" | "number":
            return 1
    return todo.what or "as it was asked for"
