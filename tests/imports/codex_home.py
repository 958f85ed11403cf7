"""Rollouts in Codex's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.imports.told import write_lines

Json = Any
SESSION = "01a1f8ba-aa04-7032-a1cb-9d6f4915ca30"
CWD = "/home/ada/project"


class Rollout:
    """The records of a rollout, as today's program writes them."""

    def __init__(self, prompt: str = "", *, session: str = SESSION, **head: Json) -> None:
        self.session = session
        self.records: list[Json] = []
        self.add("session_meta", id=session, cwd=CWD, cli_version="0.137.0", **head)
        if prompt:
            self.user(prompt)

    def add(self, kind: str, **payload: Json) -> None:
        at = f"2026-01-02T03:{len(self.records) // 60:02}:{len(self.records) % 60:02}.000Z"
        self.records.append({"timestamp": at, "type": kind, "payload": payload})

    def item(self, kind: str, **fields: Json) -> None:
        self.add("response_item", type=kind, **fields)

    def event(self, kind: str, **fields: Json) -> None:
        self.add("event_msg", type=kind, **fields)

    def screen(self, kind: str, /, **item: Json) -> None:
        """An item of the screen, as the program of autumn 2026 writes it."""
        self.event("item_completed", turn_id="turn", item={"type": kind, **item})

    def script(self, call: str, output: Json, *items: Json) -> None:
        """A script of the model, the items on the screen of what it did, and its result."""
        self.item("custom_tool_call", name="exec", input=f"await {call}()", call_id=call)
        for item in items:
            self.event("item_completed", item=item)
        self.item("custom_tool_call_output", call_id=call, output=output)

    def program(self, words: str) -> None:
        """A message of the program in the role of the person."""
        self.item("message", role="user", content=[{"type": "input_text", "text": words}])

    def user(self, words: str, *more: Json) -> None:
        """A turn begins: on both sides."""
        self.event("task_started", turn_id="turn")
        self.add("turn_context", turn_id="turn", cwd=CWD, approval_policy="untrusted", model="m")
        parts = [{"type": "input_text", "text": words}, *more]
        self.item("message", role="user", content=parts)
        self.event("user_message", message=words, images=[])

    def agent(self, words: str) -> None:
        self.event("agent_message", message=words)
        content = [{"type": "output_text", "text": words}]
        self.item("message", role="assistant", content=content)

    def thought(self, words: str) -> None:
        self.event("agent_reasoning", text=words)
        self.item("reasoning", summary=[{"type": "summary_text", "text": words}])

    def call(self, call: str, name: str, output: Json = None, **given: Json) -> None:
        self.item("function_call", name=name, arguments=json.dumps(given), call_id=call)
        if output is not None:
            self.item("function_call_output", call_id=call, output=output)

    def run(self, call: str, command: str, output: str, code: int = 0) -> None:
        """A command, with its result as the program writes it."""
        head = f"Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code {code}\nOutput:\n"
        self.call(call, "exec_command", head + output, cmd=command)

    def end(self) -> None:
        self.event("task_complete", turn_id="turn")

    def path(self, home: Path) -> Path:
        name = f"rollout-2026-01-02T03-00-00-{self.session}.jsonl"
        return home / ".codex/sessions/2026/01/02" / name

    def write(self, home: Path) -> Path:
        return write_lines(self.path(home), *self.records)
