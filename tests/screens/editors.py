"""Small models of editors: each draws a session from the lines that the editor would read.

Zed        `tool_call` inserts or replaces a call; without `content` or `status`, these start over.
           An update of an unannounced call is drawn as a failed entry. A message with content that
           names an unknown terminal is refused as a whole. A permission request inserts its call,
           or changes it. A terminal of the agent's own is made at a `tool_call`, and prints the
           output in the updates.
chat       acphold's own, in a terminal: its flow prints finished parts.
plain      a client that shows only text: no terminals, no sub-agents. Content that names a
           terminal is drawn as a hole.

Sources: Zed's crates `acp_thread` and `agent_servers`, from reading; ACP v1 schema.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from acphold.faces.screen.flow import Flow

Json = dict[str, Any]

ROLES = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}

NOT_FOUND = "Tool call not found"


class Zed:
    """See the module."""

    capabilities: ClassVar[Json] = {"_meta": {"terminal_output": True}}

    def __init__(self) -> None:
        self.entries: list[Json] = []
        self._calls: dict[str, Json] = {}
        self._terminals: dict[str, str] = {}
        self._early: dict[str, str] = {}

    def read(self, message: Json) -> None:
        """A message of the agent's side."""
        params = message.get("params", {})
        if message.get("method") == "session/update":
            self._update(params["update"])
        elif message.get("method") == "session/request_permission":
            self._ask(params["toolCall"])

    def prompted(self, text: str) -> None:
        """The person has sent this."""
        self.entries.append({"kind": "user", "text": text})

    def _update(self, update: Json) -> None:
        kind, meta = update["sessionUpdate"], update.get("_meta") or {}
        if kind in ROLES:
            self._said(ROLES[kind], update)
        elif kind == "tool_call":
            if info := meta.get("terminal_info"):
                id_ = info["terminal_id"]
                self._terminals.setdefault(id_, self._early.pop(id_, ""))
            self._upsert({"content": [], "status": "pending", **update})
        elif kind == "tool_call_update":
            self._change(update)
            if told := meta.get("terminal_output"):
                self._print(told["terminal_id"], told["data"])

    def _said(self, role: str, update: Json) -> None:
        text = update["content"].get("text", "")
        last = self.entries[-1] if self.entries else {}
        if role == last.get("kind") == "user" and last["text"].endswith(text):
            return  # the prompt that it has drawn itself
        if last.get("kind") == role:
            last["text"] += text
        else:
            self.entries.append({"kind": role, "text": text})

    def _print(self, terminal: str, text: str) -> None:
        where = self._terminals if terminal in self._terminals else self._early
        where[terminal] = where.get(terminal, "") + text

    def _knows(self, content: list[Json]) -> bool:
        named = {item["terminalId"] for item in content if item["type"] == "terminal"}
        return named <= self._terminals.keys()

    def _ask(self, told: Json) -> None:
        """Its status is the question's while that is open, and afterwards its old one again."""
        call = self._calls.get(told["toolCallId"])
        self._upsert({**told, "status": call["status"] if call else "pending"})

    def _upsert(self, told: Json) -> None:
        id_ = told["toolCallId"]
        if not self._knows(told.get("content") or []):
            return
        if id_ not in self._calls:
            if not told.get("title"):
                return
            self._calls[id_] = call = {"kind": "call", "id": id_, "content": [], "status": ""}
            self.entries.append(call)
        self._apply(self._calls[id_], told)

    def _change(self, told: Json) -> None:
        id_ = told["toolCallId"]
        if id_ not in self._calls:
            self._calls[id_] = call = {"kind": "call", "id": id_, "title": NOT_FOUND}
            call |= {"status": "failed", "content": []}
            self.entries.append(call)
            return
        if self._knows(told.get("content") or []):
            self._apply(self._calls[id_], told)

    def _apply(self, call: Json, told: Json) -> None:
        for name in ("title", "status", "content", "rawOutput"):
            if told.get(name) is not None:
                call[name] = told[name]

    def screen(self) -> list[tuple[str, ...]]:
        """The content of the screen at the end."""
        return [
            ("call", entry["title"], entry["status"], *self._shown(entry))
            if entry["kind"] == "call"
            else (entry["kind"], entry["text"])
            for entry in self.entries
        ]

    def _shown(self, call: Json) -> list[str]:
        shown = [self._item(item) for item in call["content"]]
        return shown or ([str(call["rawOutput"])] if call.get("rawOutput") else [])

    def _item(self, item: Json) -> str:
        if item["type"] == "content":
            return str(item["content"].get("text", ""))
        if item["type"] == "diff":
            return f"{item['path']}: {item.get('oldText')} -> {item['newText']}"
        return self._terminals.get(item["terminalId"], "a hole")


class Air(Zed):
    """An editor that asks for terminal output by the other name."""

    capabilities: ClassVar[Json] = {"_meta": {"terminal_output_delta": True}}

    def _update(self, update: Json) -> None:
        meta = dict(update.get("_meta") or {})
        assert "terminal_output" not in meta
        if "terminal_output_delta" in meta:
            meta["terminal_output"] = meta.pop("terminal_output_delta")
        super()._update({**update, "_meta": meta})


class Plain(Zed):
    """See the module."""

    capabilities: ClassVar[Json] = {}

    def _update(self, update: Json) -> None:
        meta = update.get("_meta") or {}
        assert not [name for name in meta if name.startswith("terminal_")]
        super()._update(update)

    def _knows(self, content: list[Json]) -> bool:
        return True


EDITORS = (Zed, Air, Plain)


class Chat:
    """The screen of `acphold chat`: all that it has printed, by kind, whenever it was finished."""

    capabilities: ClassVar[Json] = {"session": {"notices": {}}, "subagents": {}}

    def __init__(self) -> None:
        self._flow = Flow(thoughts="whole")

    def read(self, message: Json) -> None:
        """A message of the agent's side."""
        if message.get("method") == "session/update":
            self._flow.add_update(json.dumps(message["params"]["update"]).encode())

    def screen(self) -> list[tuple[str, ...]]:
        """The content of the screen at the end, by label."""
        self._flow.turn_over()
        found: dict[str, list[str]] = {}
        label = ""
        for shown in self._flow.take():
            label = shown.label or label
            found.setdefault(label, []).append("\n".join(line.plain for line in shown.lines))
        said = {it: "".join(texts) for it, texts in found.items() if it != "tool"}
        return [*said.items(), *(("tool", text) for text in sorted(found.get("tool", [])))]
