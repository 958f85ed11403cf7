"""A scripted agent without any session support of its own: what `holdfast demo` wraps.

It streams a thought, a plan, words, a tool call with a diff, and asks for permission; it forgets
everything when it ends. Run it with `python -m holdfast.cli.demo_agent`; it needs nothing but
the standard library, so that it stays small and plain to read.

Words in a prompt steer it: `slow` (streams until it is cancelled or killed), `quick` (only an
echo), `crash` (exits in mid-turn), `recall` (repeats what earlier conversation it was given).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable

Params = dict[str, "object"]

PAUSE = 0.02
"""Seconds between two chunks: quick to watch, slow enough to be killed in between."""


class DemoAgent:
    """Reads requests in one thread, runs each prompt in another."""

    def __init__(self) -> None:
        self._write_lock = threading.Lock()
        self._answers: dict[int, list[object]] = {}
        self._answered = threading.Condition()
        self._cancelled: set[str] = set()
        self._known: dict[str, list[str]] = {}
        self._asked = 0

    def serve(self) -> None:
        """Answer until stdin ends."""
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self._take_answer(message)
            elif message["method"] == "session/prompt":
                threading.Thread(target=self._prompt, args=(message,), daemon=True).start()
            else:
                self._call(message)

    # -- JSON-RPC -------------------------------------------------------------------------

    def _send(self, **message: object) -> None:
        with self._write_lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def _call(self, message: Params) -> None:
        method, params = str(message["method"]), message.get("params", {})
        assert isinstance(params, dict)
        handlers: dict[str, Callable[[Params], object]] = {
            "initialize": self._initialize,
            "session/new": self._new,
        }
        if method == "session/cancel":
            self._cancelled.add(str(params["sessionId"]))
        if "id" not in message:
            return
        handler = handlers.get(method)
        if handler is None:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            self._send(id=message["id"], error=error)
        else:
            self._send(id=message["id"], result=handler(params))

    def _ask(self, method: str, params: Params) -> object:
        with self._answered:
            self._asked += 1
            number = self._asked
            self._send(id=number, method=method, params=params)
            self._answered.wait_for(lambda: number in self._answers)
            return self._answers.pop(number)[0]

    def _take_answer(self, message: Params) -> None:
        number = message.get("id")
        assert isinstance(number, int)
        with self._answered:
            self._answers[number] = [message.get("result")]
            self._answered.notify_all()

    # -- ACP ------------------------------------------------------------------------------

    def _initialize(self, params: Params) -> object:
        return {
            "protocolVersion": 1,
            "agentCapabilities": {"promptCapabilities": {"embeddedContext": True}},
            "agentInfo": {"name": "demo-agent", "title": "Demo agent", "version": "1"},
            "authMethods": [],
        }

    def _new(self, params: Params) -> object:
        session_id = f"demo-{os.getpid()}-{len(self._known)}"
        self._known[session_id] = []
        return {"sessionId": session_id}

    def _prompt(self, message: Params) -> None:
        params = message["params"]
        assert isinstance(params, dict)
        session_id = str(params["sessionId"])
        if session_id not in self._known:
            error = {"code": -32002, "message": f"no session {session_id}"}
            self._send(id=message["id"], error=error)
            return
        self._cancelled.discard(session_id)
        said, given = _words(params["prompt"])
        self._known[session_id] += [given, said] if given else [said]
        _Turn(self, session_id, said).run()
        cancelled = session_id in self._cancelled
        stop_reason = "cancelled" if cancelled else "end_turn"
        self._send(id=message["id"], result={"stopReason": stop_reason})

    # -- what a turn uses -----------------------------------------------------------------

    def update(self, session_id: str, **update: object) -> None:
        """Send one `session/update`."""
        self._send(method="session/update", params={"sessionId": session_id, "update": update})

    def permitted(self, session_id: str, tool_call_id: str) -> bool:
        """Ask whether the tool call may go on."""
        options = [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        answer = self._ask(
            "session/request_permission",
            {
                "sessionId": session_id,
                "toolCall": {"toolCallId": tool_call_id},
                "options": options,
            },
        )
        return isinstance(answer, dict) and answer["outcome"].get("optionId") == "yes"

    def cancelled(self, session_id: str) -> bool:
        """Whether the client has cancelled the turn."""
        return session_id in self._cancelled

    def memory(self, session_id: str) -> str:
        """All that was said to it in this process, or handed to it."""
        return "\n".join(self._known[session_id][:-1])


class _Turn:
    """The script of one turn."""

    def __init__(self, agent: DemoAgent, session_id: str, said: str) -> None:
        self._agent = agent
        self._id = session_id
        self._said = said

    def run(self) -> None:
        if "crash" in self._said:
            self._say("I am about to crash. ")
            sys.stderr.write("demo agent: asked to crash\n")
            sys.stderr.flush()
            os._exit(3)
        if "recall" in self._said:
            self._say(f"I know: {self._agent.memory(self._id)}")
        elif "slow" in self._said:
            self._slowly()
        elif "quick" in self._said:
            self._say(f"You said: {self._said}")
        else:
            self._work()

    def _slowly(self) -> None:
        self._tool("slow-1", "Count without end", kind="execute", status="in_progress")
        number = 0
        while not self._agent.cancelled(self._id):
            number += 1
            self._say(f"tick {number} ")
            time.sleep(PAUSE)
        self._tool("slow-1", status="failed")

    def _work(self) -> None:
        self._chunk("agent_thought_chunk", "The greeting should be friendlier.")
        entries = [{"content": "Change the greeting", "priority": "high", "status": "in_progress"}]
        self._agent.update(self._id, sessionUpdate="plan", entries=entries)
        for words in ("I will ", "change ", "the greeting. "):
            self._say(words)
        self._tool("edit-1", "Edit hello.py", kind="edit", status="pending")
        if self._agent.permitted(self._id, "edit-1"):
            old, new = 'print("hi")\n', 'print("Hello, friend!")\n'
            diff = {"type": "diff", "path": "/demo/hello.py", "oldText": old, "newText": new}
            self._tool("edit-1", status="in_progress")
            self._tool("edit-1", status="completed", content=[diff])
            self._say("Done.")
        else:
            self._tool("edit-1", status="failed")
            self._say("I left it as it was.")

    def _say(self, text: str) -> None:
        self._chunk("agent_message_chunk", text)

    def _chunk(self, kind: str, text: str) -> None:
        self._agent.update(self._id, sessionUpdate=kind, content={"type": "text", "text": text})

    def _tool(self, tool_call_id: str, title: str | None = None, **fields: object) -> None:
        kind = "tool_call_update" if title is None else "tool_call"
        named = {} if title is None else {"title": title}
        self._agent.update(self._id, sessionUpdate=kind, toolCallId=tool_call_id, **named, **fields)


def _words(prompt: object) -> tuple[str, str]:
    """What the user said, and what was handed over beside it as a resource."""
    said, given = [], []
    assert isinstance(prompt, list)
    for block in prompt:
        if block["type"] == "resource":
            given.append(str(block["resource"].get("text", "")))
        else:
            said.append(str(block.get("text", "")))
    return "\n".join(said), "\n".join(given)


if __name__ == "__main__":
    DemoAgent().serve()
