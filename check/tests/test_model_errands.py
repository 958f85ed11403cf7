"""The stand-in model does the errands of the checker, over OpenAI's interfaces and Anthropic's."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from acp_check.errands import RECALL, Errand
from acp_check.model_endpoint import (
    ModelEndpoint,
    ModelPrompt,
    ToolUse,
    Words,
    answer,
    endpoint,
)

READ = {"read_file": {"properties": {"path": {"type": "string"}}, "required": ["path"]}}
TODOS = {
    "write_todos": {
        "required": ["todos"],
        "properties": {
            "todos": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["content", "status"],
                    "properties": {
                        "content": {"type": "string"},
                        "status": {"type": "string", "enum": ["pending", "completed"]},
                    },
                },
            }
        },
    }
}


def asked(user: str, tools: dict[str, Any], *earlier: str, said: str | None = None) -> ModelPrompt:
    return ModelPrompt(user, earlier, tools, said)


def test_a_tool_of_the_agent_is_called_with_what_it_requires() -> None:
    reply = answer(asked(Errand("read", "/a/b.txt").words, READ))
    assert reply == ToolUse("read_file", {"path": "/a/b.txt"})
    shell = {"shell": {"properties": {"command": {"type": "array"}}, "required": ["command"]}}
    reply = answer(asked(Errand("run", "echo x").words, shell))
    assert reply == ToolUse("shell", {"command": ["bash", "-lc", "echo x"]})


def test_a_plan_is_made_in_whatever_shape_the_tool_wants() -> None:
    reply = answer(asked(Errand("plan").words, TODOS))
    assert isinstance(reply, ToolUse)
    steps = [{"content": step, "status": "pending"} for step in ("Knead", "Wait", "Bake")]
    assert reply.arguments == {"todos": steps}


def test_a_tool_of_an_mcp_server_is_found_under_any_prefix() -> None:
    reply = answer(asked(Errand("call", "check_walnut").words, {"mcp__walnuts__check_walnut": {}}))
    assert reply == ToolUse("mcp__walnuts__check_walnut", {})


def test_what_a_tool_said_is_repeated_and_a_code_word_recalled() -> None:
    told = answer(asked(Errand("read", "/a").words, READ, said="walnut"))
    assert isinstance(told, Words)
    assert "walnut" in "".join(told.pieces)
    known = answer(asked(RECALL.words, {}, Errand("remember", "heron").words, "OK"))
    assert isinstance(known, Words)
    assert list(known.pieces) == ["heron"]


@pytest.fixture
def served() -> Iterator[ModelEndpoint]:
    with endpoint(answer) as found:
        yield found


def post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as response:
        raw: bytes = response.read()
    return raw.decode()


def test_both_interfaces_stream_it(served: ModelEndpoint) -> None:
    message = {"role": "user", "content": Errand("remember", "heron").words}
    chat = post(f"{served.url}/chat/completions", {"stream": True, "messages": [message]})
    assert '"content": "OK"' in chat
    assert chat.rstrip().endswith("data: [DONE]")
    tools = [{"type": "function", "name": "read_file", "parameters": READ["read_file"]}]
    said = [{"role": "user", "content": Errand("read", "/a").words}]
    responses = post(f"{served.url}/responses", {"input": said, "tools": tools})
    assert "event: response.function_call_arguments.done" in responses
    assert "response.completed" in responses
    assert len(served.requests) == 2


def test_a_model_that_calls_tools_from_scripts_alone_runs_a_command(served: ModelEndpoint) -> None:
    tools = [
        {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    ]
    said: list[Any] = [
        {"type": "additional_tools", "role": "developer", "tools": tools},
        {"role": "user", "content": Errand("run", 'echo "x"').words},
    ]
    called = post(f"{served.url}/responses", {"input": said})
    *_, done = (line for line in called.splitlines() if '"response.output_item.done"' in line)
    item = json.loads(done.removeprefix("data: "))["item"]
    assert (item["type"], item["namespace"], item["name"]) == (
        "custom_tool_call",
        "functions",
        "exec",
    )
    command = json.dumps({"cmd": 'echo "x"'})
    assert item["input"] == f"text((await tools.exec_command({command})).output)"
    output = [
        {"type": "input_text", "text": "Script completed"},
        {"type": "input_text", "text": "x"},
    ]
    said.append({"type": "custom_tool_call_output", "call_id": item["call_id"], "output": output})
    assert "It says: Script completed\\nx" in post(f"{served.url}/responses", {"input": said})


def test_a_tool_that_is_no_function_is_not_called(served: ModelEndpoint) -> None:
    message = {"role": "user", "content": Errand("read", "/a").words}
    tools = [{"type": "custom", "custom": {"name": "read_file"}}]
    told = post(f"{served.url}/chat/completions", {"messages": [message], "tools": tools})
    assert json.loads(told)["choices"][0]["message"]["content"] == "I have no tool for that."


def test_anthropics_interface_streams_it_too(served: ModelEndpoint) -> None:
    url = f"{served.url}/messages"
    said = [{"role": "user", "content": [{"type": "text", "text": Errand("read", "/a").words}]}]
    body = {
        "stream": True,
        "messages": said,
        "tools": [{"name": "read_file", "input_schema": READ["read_file"]}],
    }
    called = post(f"{url}?beta=true", body)
    assert '"partial_json": "{\\"path\\": \\"/a\\"}"' in called
    assert '"stop_reason": "tool_use"' in called
    assert "event: message_stop" in called
    result = {"type": "tool_result", "tool_use_id": "1", "content": "walnut"}
    said.append({"role": "user", "content": [result]})
    told = json.loads(post(url, {**body, "stream": False}))
    assert told["content"] == [{"type": "text", "text": "It says: walnut"}]
    assert json.loads(post(f"{url}/count_tokens", body))["input_tokens"] > 0


def test_an_agent_that_has_only_a_shell_reads_and_writes_with_it() -> None:
    shell = {"bash": {"properties": {"command": {"type": "string"}}, "required": ["command"]}}
    read = answer(asked(Errand("read", "/a b.txt").words, shell))
    assert read == ToolUse("bash", {"command": "cat '/a b.txt'"})
    write = answer(asked(Errand("write", "/a.txt", "x y").words, shell))
    assert write == ToolUse("bash", {"command": "printf %s 'x y' > /a.txt"})
