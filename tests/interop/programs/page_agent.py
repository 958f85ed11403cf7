"""An agent for the page: its prompts name what it does. It speaks ACP on stdio, with nothing of
ours."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from typing import Any

out, lock = sys.stdout, threading.Lock()

ANSWER = """Two of the **three** places disagree:

| place | now |
|---|---|
| `when.py` | local |

```python
def parse_when(text): ...
```
"""


def send(**message: Any) -> None:
    with lock:
        out.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        out.flush()


def update(session: str, **told: Any) -> None:
    send(method="session/update", params={"sessionId": session, "update": told})


def say(session: str, text: str) -> None:
    update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def turn(session: str, words: str) -> None:
    if "flood" in words:
        *_, length = words.split()  # a number of words, or the file with which it ends
        for number in itertools.count():
            if number == int(length) if length.isdigit() else os.path.exists(length):
                break
            say(session, f"word{number} ")
            time.sleep(0.001)
        say(session, "\n\nThat was all.")
    else:
        say(session, ANSWER)


def handle(message: dict[str, Any]) -> None:
    id_, method, params = message.get("id"), message["method"], message.get("params", {})
    if method == "initialize":
        send(id=id_, result={"protocolVersion": 1, "agentInfo": {"name": "coder", "version": "1"}})
    elif method == "session/new":
        send(id=id_, result={"sessionId": f"s{time.time_ns()}"})
    elif method == "session/prompt":
        words = " ".join(block.get("text", "") for block in params["prompt"])

        def run() -> None:
            turn(params["sessionId"], words)
            send(id=id_, result={"stopReason": "end_turn"})

        threading.Thread(target=run, daemon=True).start()
    elif id_ is not None:
        send(id=id_, error={"code": -32601, "message": "Method not found"})


for line in sys.stdin:
    message = json.loads(line)
    if "method" in message:
        handle(message)
