"""Cline's sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.cline import READER
from tests.imports.told import Story, sources

Json = Any
SESSION = "1795174407649_qRGzH_cli"
CWD = "/home/ada/project"


class Session:
    """A manifest and its messages."""

    def __init__(self, home: Path) -> None:
        self.folder = home / ".cline/data/sessions" / SESSION
        self.folder.mkdir(parents=True)
        self._messages: list[Json] = []

    def user(self, *parts: Json) -> None:
        told = [
            {"type": "text", "text": f'<user_input mode="act">{part}</user_input>'}
            if isinstance(part, str)
            else part
            for part in parts
        ]
        self._add("user", told)

    def agent(self, *parts: Json) -> None:
        self._add("assistant", [_text(part) for part in parts])

    def result(self, call: str, output: Json, *, failed: bool = False) -> None:
        part = {"type": "tool_result", "tool_use_id": call, "content": output}
        self._add("user", [part | ({"is_error": True} if failed else {})])

    def _add(self, role: str, content: list[Json]) -> None:
        number = len(self._messages)
        ts = 1_700_000_000_000 + number
        self._messages.append({"id": f"m{number}", "role": role, "ts": ts, "content": content})

    def write(self, title: str = "") -> Path:
        manifest = {"cwd": CWD, "metadata": {"title": title}}
        (self.folder / f"{SESSION}.json").write_text(json.dumps(manifest))
        path = self.folder / f"{SESSION}.messages.json"
        path.write_text(json.dumps({"messages": self._messages}))
        return path


def _text(part: Json) -> Json:
    return {"type": "text", "text": part} if isinstance(part, str) else part


def use(call: str, name: str, **given: Json) -> Json:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def test_a_conversation_with_a_call_is_told(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Run it.")
    session.agent(
        {"type": "thinking", "thinking": "Hm."}, use("c1", "run_commands", commands=["ls"])
    )
    session.result("c1", [{"query": "ls", "result": "a\n", "success": True}])
    session.agent("Done.")
    session.write("Run it.")
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Run it."),
        ("thought", "Hm."),
        ("call", "run_commands: ls"),
        ("agent", "Done."),
    ]
    call = told.call()
    assert (call["kind"], call["status"]) == ("execute", "completed")
    assert call["content"][0]["content"]["text"] == "a\n"
    assert told.facts.cwd == CWD
    assert told.facts.title is None  # it only repeats the first prompt


def test_a_refused_call_has_failed(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Delete it.")
    session.agent(use("c1", "run_commands", commands=["rm x"]))
    session.result("c1", '{"error":"rejected"}', failed=True)
    session.write()
    call = Story.of(READER, tmp_path).call()
    assert (call["status"], call["rawOutput"]) == ("failed", '{"error":"rejected"}')


def test_a_long_input_is_cut_in_the_title_as_the_program_does(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Patch.")
    session.agent(use("c1", "apply_patch", input="x" * 100))
    session.write()
    title = Story.of(READER, tmp_path).call()["title"]
    assert title == 'apply_patch: {"input":"' + "x" * 47 + "..."


def test_what_a_subagent_said_and_did_stands_inside_the_call(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Delegate.")
    session.agent(use("c1", "spawn_agent", task="Count."))
    session.result("c1", '{"text":"3"}')
    session.write()
    messages = [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": "Count."}]},
        {"id": "2", "role": "assistant", "content": [_text("I count.")]},
    ]
    path = session.folder / "agent_1.messages.json"
    path.write_text(json.dumps({"messages": messages}))
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Delegate."),
        ("call", "spawn_agent: Count."),
        ("agent", "I count."),
    ]
    assert told.call()["rawOutput"] == {"text": "3"}


def test_half_a_document_is_left_for_the_next_time(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Hello.")
    path = session.write()
    path.write_text(path.read_text()[:-5])
    (source,) = sources(READER, tmp_path)
    with pytest.raises(OSError, match="being written"):
        Story(READER, source)
