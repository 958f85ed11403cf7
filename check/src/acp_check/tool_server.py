"""An MCP server with one tool, as a separate program.

    python tool_server.py LOG [silent]

It writes each received message to the file LOG, one line each, with its pid, its arguments and its
`KEY_VARIABLES`. With `silent` it answers nothing. It imports nothing but the standard library, so
that it starts quickly in whatever Python the agent's environment leaves it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOL = "check_walnut"
KEY_VARIABLES = ("CHECK_KEY", "CHECK_WORD")
"""Variables that the client asks the agent to set."""

SECRET = "walnut-5501"
"""The tool's answer."""


def reply(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a client's message; None for a notification."""
    if "id" not in message:
        return None
    params = message.get("params") or {}
    results: dict[str, dict[str, Any]] = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "acphold-check", "version": "1"},
        },
        "ping": {},
        "tools/list": {"tools": [DESCRIPTION]},
        "tools/call": {"content": [{"type": "text", "text": SECRET}], "isError": False},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
        "prompts/list": {"prompts": []},
    }
    found = results.get(str(message.get("method")))
    if found is None:
        error = {"code": -32601, "message": "no such method"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": found}


DESCRIPTION: dict[str, Any] = {
    "name": TOOL,
    "description": "Tells a word about walnuts. Takes no arguments.",
    "inputSchema": {"type": "object", "properties": {}},
}


def main() -> None:
    """Serve on stdio."""
    log, silent = sys.argv[1], "silent" in sys.argv[2:]
    _note(log, "start")
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        _note(log, str(message.get("method")))
        answer = None if silent else reply(message)
        if answer is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _note(log: str, method: str) -> None:
    given = dict(os.environ)
    entry = {
        "method": method,
        "pid": os.getpid(),
        "arguments": sys.argv[2:],
        "keys": {name: given.get(name) for name in KEY_VARIABLES},
    }
    # In one write: the checker reads the file meanwhile.
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
