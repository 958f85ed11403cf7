"""An MCP server on stdio, without any library: tools, a prompt, a resource, a question.

Arguments: `slow` waits a second before it answers anything. Its tool `facts` returns its working
directory and the TOKEN of its environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "title": "Echo", "annotations": {"readOnlyHint": True}},
    {"name": "count", "description": "Reports progress"},
    {"name": "fail"},
    {"name": "image"},
    {"name": "ask"},
    {"name": "hang"},
    {"name": "die"},
    {"name": "facts"},
    {"name": "roots"},
]

PROMPT = {
    "name": "greet",
    "description": "Greets somebody",
    "arguments": [{"name": "who", "required": True}, {"name": "how"}],
}


def send(message: dict[str, Any]) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: dict[str, Any] = json.loads(line)
    return message


def asked_back(method: str, params: dict[str, Any]) -> Any:
    """Send a request to the client and return its answer."""
    send({"id": "back", "method": method, "params": params})
    while (message := receive()).get("id") != "back":
        pass
    return message.get("result", message.get("error"))


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def called(name: str, arguments: dict[str, Any], token: Any) -> dict[str, Any] | None:
    match name:
        case "echo":
            return text(str(arguments.get("message"))) | {"structuredContent": arguments}
        case "count":
            for done in (1, 2):
                progress = {"progressToken": token, "progress": done, "total": 2, "message": "so"}
                send({"method": "notifications/progress", "params": progress})
            return text("counted")
        case "fail":
            return text("it cannot be done") | {"isError": True}
        case "image":
            return {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}
        case "ask":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            question = {"message": "Your name?", "requestedSchema": schema}
            return text(json.dumps(asked_back("elicitation/create", question)))
        case "hang":
            return None
        case "die":
            os._exit(7)
        case "facts":
            facts = {"cwd": os.getcwd(), "token": os.environ.get("TOKEN")}
            return text(json.dumps(facts))
        case "roots":
            return text(json.dumps(asked_back("roots/list", {})))
    return text("?") | {"isError": True}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
                "serverInfo": {"name": "test", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"inputSchema": {"type": "object"}, **tool} for tool in TOOLS]}
        case "tools/call":
            token = params.get("_meta", {}).get("progressToken")
            return called(params["name"], params.get("arguments", {}), token)
        case "prompts/list":
            return {"prompts": [PROMPT]}
        case "prompts/get":
            words = " ".join(["Greet", *params["arguments"].values()])
            content = {"type": "text", "text": words}
            return {"messages": [{"role": "user", "content": content}]}
        case "resources/list":
            return {"resources": [{"uri": "test://a", "name": "a"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"the text of {params['uri']}"}]}
    return {}


def main() -> None:
    if "slow" in sys.argv:
        time.sleep(1)
    while True:
        message = receive()
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            if result is not None:
                send({"id": message["id"], "result": result})


main()
