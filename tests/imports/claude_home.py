"""Transcripts in Claude Code's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.imports.told import write_lines

Json = Any
SESSION = "11111111-2222-4333-8444-555555555555"
CWD = "/home/ada/project"


class Transcript:
    """Records that follow each other, each the child of the one before it."""

    def __init__(self, prompt: str = "", *, version: str = "2.1.316", count: int = 0) -> None:
        self.records: list[Json] = []
        self._version = version
        self.last: str | None = None
        self._count = count
        if prompt:
            self.user(prompt)

    def add(self, kind: str, after: str | None = "", **fields: Json) -> str:
        """One record of the tree; `after` is its parent, if not the last."""
        self._count += 1
        uuid = f"00000000-0000-4000-8000-{self._count:012}"
        record = {
            "parentUuid": self.last if after == "" else after,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-01-02T03:{self._count // 60:02}:{self._count % 60:02}.000Z",
            "cwd": CWD,
            "sessionId": SESSION,
            "version": self._version,
        }
        self.records.append(record | fields)
        self.last = uuid
        return uuid

    def beside(self, **record: Json) -> None:
        """A record that is not in the tree."""
        self.records.append(record)

    def user(self, said: Json, after: str | None = "", **fields: Json) -> str:
        if isinstance(said, str) and not said.startswith("<"):
            said = [{"type": "text", "text": said}]
        return self.add("user", after, message={"role": "user", "content": said}, **fields)

    def assistant(self, *blocks: Json, **fields: Json) -> str:
        """One record for each block, as the program writes them."""
        message_id = f"msg_{self._count}"
        calls = any(not isinstance(b, str) and b["type"] == "tool_use" for b in blocks)
        for block in blocks:
            if isinstance(block, str):
                block = {"type": "text", "text": block}
            message = {
                "id": message_id,
                "role": "assistant",
                "model": "claude-x",
                "content": [block],
                "stop_reason": "tool_use" if calls else "end_turn",
                "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 2},
            }
            uuid = self.add("assistant", message=message, **fields)
        return uuid

    def result(self, call: str, said: Json, *, failed: bool = False, **fields: Json) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": said}
        if failed:
            block["is_error"] = True
        return self.user([block], **fields)

    def write(self, home: Path, name: str = SESSION) -> Path:
        path = home / ".claude/projects/-home-ada-project" / f"{name}.jsonl"
        return write_lines(path, *self.records)


def use(call: str, name: str, **given: Json) -> Json:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def thinking(words: str) -> Json:
    return {"type": "thinking", "thinking": words, "signature": "x"}
