"""Made-up homes: conversations in the forms of Claude Code and Codex, about real source code.

What compresses and what is searched is as in real ones: the files that are read and edited are
those of Python's standard library, and what is said is taken from their docstrings. The records
have the members that the programs write, with what they repeat in every line.
"""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

Json = Any

CWD: Final = "/home/ada/project"
BEGIN: Final = datetime(2026, 1, 2, tzinfo=UTC)

_USAGE: Final = {
    "input_tokens": 860,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 34_012,
    "output_tokens": 87,
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
}


class Library:
    """The sources of the standard library: files to work on, and sentences to say."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        folder = Path(sysconfig.get_path("stdlib"))
        self.files = [
            (str(path.relative_to(folder)), path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.py"))
            if 2_000 < path.stat().st_size < 60_000
        ]
        self._sentences = [
            " ".join(sentence.split())
            for _, text in self.files
            for quoted in text.split('"""')[1::2]
            for sentence in quoted.split(".")
            if 20 < len(sentence) < 300
        ]

    def said(self, sentences: int) -> str:
        """So many sentences."""
        return ". ".join(self.chance.choices(self._sentences, k=sentences)) + "."

    def file(self) -> tuple[str, list[str]]:
        """A file and its lines."""
        name, text = self.chance.choice(self.files)
        return name, text.splitlines()

    def uuid(self) -> str:
        """An id as programs make them."""
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    def hex(self, digits: int) -> str:
        """So many digits of some other id."""
        return f"{self.chance.getrandbits(4 * digits):0{digits}x}"


def fill(home: Path, size: int, seed: int = 1) -> int:
    """Conversations of `size` bytes and a little more; how many there are."""
    library = Library(seed)
    written = count = 0
    while written < size:
        tell = codex if count % 4 == 3 else claude
        path, records = tell(home, library, BEGIN + timedelta(minutes=37 * count))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for record in records:
                written += file.write(json.dumps(record, ensure_ascii=False) + "\n")
        count += 1
    return count


# -- Claude Code --------------------------------------------------------------------------------


def claude(home: Path, library: Library, at: datetime) -> tuple[Path, Iterator[Json]]:
    """A transcript of Claude Code, and where it lies."""
    session = library.uuid()
    path = home / ".claude/projects/-home-ada-project" / f"{session}.jsonl"
    return path, _claude(library, session, at)


def _claude(library: Library, session: str, at: datetime) -> Iterator[Json]:
    last: str | None = None

    def record(kind: str, message: Json, **more: Json) -> Json:
        nonlocal last, at
        at += timedelta(seconds=library.chance.random() * 9)
        before, last = last, library.uuid()
        return {
            "parentUuid": before,
            "isSidechain": False,
            "type": kind,
            "message": message,
            "uuid": last,
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **more,
            "userType": "external",
            "entrypoint": "cli",
            "cwd": CWD,
            "sessionId": session,
            "version": "2.1.316",
            "gitBranch": "main",
        }

    def reply(message_id: str, block: Json, stop: str) -> Json:
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5-20250929",
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": _USAGE,
        }
        return record("assistant", message, requestId=f"req_{library.hex(22)}")

    for _ in range(library.chance.randint(3, 12)):
        text = library.said(library.chance.randint(1, 4))
        yield record("user", {"role": "user", "content": [{"type": "text", "text": text}]})
        for _ in range(library.chance.randint(1, 8)):
            message_id = f"msg_{library.hex(24)}"
            thinking = {
                "type": "thinking",
                "thinking": library.said(library.chance.randint(1, 5)),
                "signature": library.hex(300),
            }
            yield reply(message_id, thinking, "tool_use")
            yield reply(message_id, {"type": "text", "text": library.said(1)}, "tool_use")
            call = f"toolu_{library.hex(24)}"
            name, given, told, result = _claude_tool(library)
            use = {"type": "tool_use", "id": call, "name": name, "input": given}
            yield reply(message_id, use, "tool_use")
            block = {"tool_use_id": call, "type": "tool_result", "content": told}
            yield record(
                "user",
                {"role": "user", "content": [block]},
                toolUseResult=result,
                sourceToolAssistantUUID=last,
            )
        answer = {"type": "text", "text": library.said(library.chance.randint(2, 12))}
        yield reply(f"msg_{library.hex(24)}", answer, "end_turn")


def _claude_tool(library: Library) -> tuple[str, Json, str, Json]:
    """A call: its name and input, what the model got of its result, and what the program keeps."""
    name, lines = library.file()
    path = f"{CWD}/{name}"
    start = library.chance.randrange(max(1, len(lines) - 120))
    kind = library.chance.choice(("Read", "Read", "Edit", "Bash", "Grep"))
    if kind == "Read":
        some = lines[start : start + library.chance.randint(40, 400)]
        told = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(some, start + 1))
        content = "\n".join(some)
        file = {"filePath": path, "content": content, "numLines": len(some), "startLine": start + 1}
        return "Read", {"file_path": path}, told, {"type": "text", "file": file}
    if kind == "Edit":
        old = lines[start : start + 8]
        new = [*old[:4], f"    # {library.said(1)}", *old[4:]]
        given = {"file_path": path, "old_string": "\n".join(old), "new_string": "\n".join(new)}
        hunk = {
            "oldStart": start + 1,
            "oldLines": 8,
            "newStart": start + 1,
            "newLines": 9,
            "lines": [*(f" {x}" for x in old[:4]), f"+{new[4]}", *(f" {x}" for x in old[4:])],
        }
        result = {
            "filePath": path,
            "oldString": given["old_string"],
            "newString": given["new_string"],
            "originalFile": "\n".join(lines),
            "structuredPatch": [hunk],
            "userModified": False,
        }
        return "Edit", given, f"The file {path} has been updated.", result
    if kind == "Grep":
        word = library.chance.choice(("self", "return", "import", "raise"))
        hits = [f"{path}:{n}:{line}" for n, line in enumerate(lines, 1) if word in line][:60]
        told = "\n".join(hits)
        return "Grep", {"pattern": word, "path": CWD}, told, {"mode": "content", "content": told}
    out = "\n".join(
        f"{name}:{n}: {line}" for n, line in enumerate(lines[start : start + 60], start)
    )
    given = {"command": f"python -m pytest {name} -q", "description": library.said(1)[:60]}
    return "Bash", given, out, {"stdout": out, "stderr": "", "interrupted": False}


# -- Codex --------------------------------------------------------------------------------------


def codex(home: Path, library: Library, at: datetime) -> tuple[Path, Iterator[Json]]:
    """A rollout of Codex, and where it lies."""
    session = library.uuid()
    stamp = at.strftime("%Y-%m-%dT%H-%M-%S")
    folder = home / ".codex/sessions" / at.strftime("%Y/%m/%d")
    return folder / f"rollout-{stamp}-{session}.jsonl", _codex(library, session, at)


def _codex(library: Library, session: str, at: datetime) -> Iterator[Json]:
    def record(kind: str, payload: Json) -> Json:
        nonlocal at
        at += timedelta(seconds=library.chance.random() * 5)
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"timestamp": stamp, "type": kind, "payload": payload}

    def item(payload: Json) -> Json:
        return record("response_item", payload)

    def event(payload: Json) -> Json:
        return record("event_msg", payload)

    yield record(
        "session_meta",
        {"id": session, "cwd": CWD, "originator": "codex_cli_rs", "cli_version": "0.58.0"},
    )
    for _ in range(library.chance.randint(3, 10)):
        text = library.said(library.chance.randint(1, 4))
        content = [{"type": "input_text", "text": text}]
        yield item({"type": "message", "role": "user", "content": content})
        yield event({"type": "user_message", "message": text})
        for _ in range(library.chance.randint(1, 8)):
            thought = library.said(library.chance.randint(1, 3))
            yield event({"type": "agent_reasoning", "text": thought})
            summary = [{"type": "summary_text", "text": thought}]
            sealed = library.hex(400)
            yield item({"type": "reasoning", "summary": summary, "encrypted_content": sealed})
            call = f"call_{library.hex(24)}"
            name, lines = library.file()
            start = library.chance.randrange(max(1, len(lines) - 200))
            out = "\n".join(lines[start : start + library.chance.randint(20, 200)])
            command = {"command": ["bash", "-lc", f"sed -n '{start},$p' {name}"], "workdir": CWD}
            yield item(
                {
                    "type": "function_call",
                    "name": "shell",
                    "arguments": json.dumps(command),
                    "call_id": call,
                }
            )
            told = json.dumps({"output": out, "metadata": {"exit_code": 0, "duration_seconds": 0}})
            yield item({"type": "function_call_output", "call_id": call, "output": told})
            info = {"total_token_usage": {"input_tokens": 9_000, "output_tokens": 300}}
            yield event({"type": "token_count", "info": info})
        answer = library.said(library.chance.randint(2, 10))
        yield event({"type": "agent_message", "message": answer})
        content = [{"type": "output_text", "text": answer}]
        yield item({"type": "message", "role": "assistant", "content": content})
