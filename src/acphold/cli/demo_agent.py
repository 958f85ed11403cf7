"""`acphold demo-agent`: a scripted agent, which `acphold demo` wraps and anybody may try.

It streams a thought, a plan, words and a tool call with a diff, and asks for permission. It can
neither list nor load sessions, and forgets everything when it ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from acphold.cli.command_line import Exit, Parser

Json = dict[str, Any]

PAUSE = 0.02
"""Seconds between two words: quick to watch, slow enough to be killed in between."""

EDIT = "Edit hello.py"


def greeting(edits: int) -> str:
    """What hello.py says after so many edits: each makes it friendlier."""
    words = f"Hello, {'dear ' * (edits - 1)}friend!" if edits else "hi"
    return f'print("{words}")\n'


def parser() -> Parser:
    """It takes no arguments."""
    return Parser(demo_agent, "demo-agent", "")


def demo_agent() -> int:
    """A scripted agent to try acphold with, offline.

    It speaks ACP on stdio and has no sessions of its own: put it behind `acphold wrap`.

      acphold wrap -- acphold demo-agent

    Words in a prompt steer it: `slow` (counts until it is cancelled or killed), `quick` (only an
    echo), `crash` (exits in mid-turn), `recall` (repeats what it knows of the conversation).
    Without one of them it asks for permission, and then shows an edit of hello.py. It is a play:
    no file is read or written.
    """
    if sys.stdin.isatty():
        print(
            "acphold demo-agent: this is an ACP agent and waits for an editor on stdin; name "
            "`acphold wrap -- acphold demo-agent` in your editor's settings",
            file=sys.stderr,
        )
    DemoAgent().serve()
    return Exit.OK


class Client:
    """The other end of stdin and stdout: JSON-RPC, one message a line."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._answered = threading.Condition()
        self._answers: dict[int, Json] = {}
        self._asked = 0

    def send(self, **message: object) -> None:
        """Write one message; any thread may."""
        with self._writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def refuse(self, request: Json, code: int, message: str) -> None:
        """Answer a request with an error."""
        self.send(id=request["id"], error={"code": code, "message": message})

    def ask(self, method: str, params: Json) -> Json:
        """Send a request and wait for its result."""
        with self._answered:
            self._asked += 1
            number = self._asked
            self.send(id=number, method=method, params=params)
            self._answered.wait_for(lambda: number in self._answers)
            return self._answers.pop(number)

    def take_answer(self, message: Json) -> None:
        """An answer has come in: whoever waits for it goes on."""
        with self._answered:
            self._answers[message["id"]] = message.get("result") or {}
            self._answered.notify_all()


class Session:
    """One conversation: all that was said to the agent in it, for as long as the agent runs."""

    def __init__(self, session_id: str, cwd: str) -> None:
        self.id = session_id
        self.cwd = cwd
        self.edits = 0
        self.said: list[str] = []
        self.cancelled = threading.Event()


class DemoAgent:
    """Reads in one thread, runs each turn in another."""

    def __init__(self) -> None:
        self._client = Client()
        self._sessions: dict[str, Session] = {}

    def serve(self) -> None:
        """Answer until stdin ends."""
        for line in sys.stdin:
            try:
                message = json.loads(line)
            except ValueError:
                self._client.refuse({"id": None}, -32700, "not JSON")
                continue
            if not isinstance(message, dict) or not message.keys() & {"method", "id"}:
                self._client.refuse({"id": None}, -32600, "not a request")
            elif "method" not in message:
                self._client.take_answer(message)
            else:
                self._take(message)

    def _take(self, message: Json) -> None:
        match message["method"]:
            case "initialize":
                self._client.send(id=message["id"], result=self._introduction())
            case "session/new" if not isinstance(message.get("params", {}).get("cwd"), str):
                self._client.refuse(message, -32602, "session/new needs a `cwd`")
            case "session/new":
                self._client.send(id=message["id"], result=self._new(message["params"]["cwd"]))
            case "session/prompt" if not is_prompt(message.get("params")):
                self._client.refuse(message, -32602, "session/prompt needs a session and a prompt")
            case "session/prompt":
                threading.Thread(target=self._prompt, args=(message,), daemon=True).start()
            case "session/cancel":
                self._cancel(message["params"]["sessionId"])
            case method if "id" in message:
                self._client.refuse(message, -32601, f"Method not found: {method}")

    def _introduction(self) -> Json:
        return {
            "protocolVersion": 1,
            "agentCapabilities": {"promptCapabilities": {"embeddedContext": True}},
            "agentInfo": {"name": "demo-agent", "title": "Demo agent", "version": "1"},
            "authMethods": [],
            "_meta": {"demo/pid": os.getpid()},
        }

    def _new(self, cwd: str) -> Json:
        session = Session(f"demo-{os.getpid()}-{len(self._sessions)}", cwd)
        self._sessions[session.id] = session
        return {"sessionId": session.id}

    def _cancel(self, session_id: str) -> None:
        if session_id in self._sessions:
            self._sessions[session_id].cancelled.set()

    def _prompt(self, request: Json) -> None:
        params = request["params"]
        session = self._sessions.get(params["sessionId"])
        if session is None:
            self._client.refuse(request, -32002, f"no session {params['sessionId']}")
            return
        session.cancelled.clear()
        words, given = read_prompt(params["prompt"])
        # Those of an earlier process, in a conversation that was handed over.
        session.edits += sum(text.count("\n+print(") for text in given)
        Turn(self._client, session, words).run(known=[*session.said, *given])
        session.said += [*given, words]
        stop_reason = "cancelled" if session.cancelled.is_set() else "end_turn"
        self._client.send(id=request["id"], result={"stopReason": stop_reason})


def is_prompt(params: object) -> bool:
    """Whether these are the parameters of a prompt."""
    if not isinstance(params, dict) or not isinstance(params.get("sessionId"), str):
        return False
    prompt = params.get("prompt")
    return isinstance(prompt, list) and all(
        isinstance(it, dict) and (it.get("type") != "text" or isinstance(it.get("text"), str))
        for it in prompt
    )


def read_prompt(prompt: list[Json]) -> tuple[str, list[str]]:
    """What the user said, which comes first, and the texts that were handed over behind it."""
    words, *given = [block.get("text", "") for block in prompt]
    return words, given


class Turn:
    """The script of one turn."""

    def __init__(self, client: Client, session: Session, words: str) -> None:
        self._client = client
        self._session = session
        self._words = words

    def run(self, known: list[str]) -> None:
        """Do what the words ask for; `known` is the conversation before them."""
        if "crash" in self._words:
            self._crash()
        elif "recall" in self._words:
            self._say("I know: " + "\n".join(known))
        elif "slow" in self._words:
            self._count()
        elif "quick" in self._words:
            self._say(f"You said: {self._words}")
        else:
            self._edit()

    def _crash(self) -> None:
        self._say("I am about to crash. ")
        sys.stderr.write("demo agent: asked to crash\n")
        sys.stderr.flush()
        os._exit(3)

    def _count(self) -> None:
        call = self._new_id("slow")
        self._tool(call, title="Count without end", kind="execute", status="in_progress")
        number = 0
        while not self._session.cancelled.is_set():
            number += 1
            self._say(f"tick {number} ")
            time.sleep(PAUSE)
        self._change_tool(call, status="failed")

    def _edit(self) -> None:
        self._chunk("agent_thought_chunk", "The greeting should be friendlier.")
        self._plan("in_progress")
        for words in ("I will ", "change ", "the greeting. "):
            self._say(words)
            time.sleep(PAUSE)
        call = self._new_id("edit")
        self._tool(call, title=EDIT, kind="edit", status="pending")
        if not self._permitted(call):
            self._change_tool(call, status="failed")
            self._say("I left it as it was.")
            return
        self._change_tool(call, status="in_progress")
        diff = self._greet()
        place = {"path": diff["path"], "line": 1}
        self._change_tool(call, status="completed", content=[diff], locations=[place])
        self._plan("completed")
        self._say("Done.")

    def _greet(self) -> Json:
        """The diff of one more edit."""
        session = self._session
        session.edits += 1
        return {
            "type": "diff",
            "path": os.path.join(session.cwd, "hello.py"),
            "oldText": greeting(session.edits - 1),
            "newText": greeting(session.edits),
        }

    def _permitted(self, tool_call_id: str) -> bool:
        answer = self._client.ask(
            "session/request_permission",
            {
                "sessionId": self._session.id,
                "toolCall": {"toolCallId": tool_call_id, "title": EDIT},
                "options": [
                    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
                ],
            },
        )
        outcome = answer.get("outcome") or {}
        return bool(outcome.get("optionId") == "yes")

    def _new_id(self, kind: str) -> str:
        # With the pid: the conversation may have calls of an earlier process.
        return f"{kind}-{os.getpid()}-{len(self._session.said) + 1}"

    # -- updates --------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._chunk("agent_message_chunk", text)

    def _chunk(self, kind: str, text: str) -> None:
        self._update(sessionUpdate=kind, content={"type": "text", "text": text})

    def _plan(self, status: str) -> None:
        entry = {"content": "Change the greeting", "priority": "high", "status": status}
        self._update(sessionUpdate="plan", entries=[entry])

    def _tool(self, tool_call_id: str, **fields: object) -> None:
        self._update(sessionUpdate="tool_call", toolCallId=tool_call_id, **fields)

    def _change_tool(self, tool_call_id: str, **fields: object) -> None:
        self._update(sessionUpdate="tool_call_update", toolCallId=tool_call_id, **fields)

    def _update(self, **update: object) -> None:
        params = {"sessionId": self._session.id, "update": update}
        self._client.send(method="session/update", params=params)
