"""An MCP server of a few lines, on the standard library: `mcp_server.py HOW [SECONDS]`.

`good` begins to answer after SECONDS. The others never do: `silent`, `noise`, `leaves`.
"""

import json
import sys
import time
from typing import Any

TOOLS = [{"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(8)]
RESULTS: dict[str, dict[str, object]] = {
    "initialize": {
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bench", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
}


def main() -> None:
    """Do what the argument says, until stdin ends."""
    how, *seconds = sys.argv[1:]
    if how == "leaves":
        sys.exit("no such configuration")
    if how == "noise":
        print("Welcome!", flush=True)
    if how == "good":
        time.sleep(float(seconds[0]))
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if how == "good" and "id" in message:
            answer(message)


def answer(message: dict[str, Any]) -> None:
    """Answer a request."""
    result = dict(RESULTS.get(message["method"], {}))
    if message["method"] == "initialize":
        result["protocolVersion"] = message["params"]["protocolVersion"]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
