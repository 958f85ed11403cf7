"""Imports of conversations stored as ACP messages: acpx's journal, and our own lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.acphold import READER as OWN
from acphold.imports.acpx import READER as ACPX
from acphold.imports.sources import searching
from tests.imports.told import Story, sources, write_lines

Json = Any
RECORD = "e8fe0439-bb6d-4df4-858d-dd68e6143674"
SESSION = "d6d3bbc2-8a07-45a4-91af-8b66686a4db9"
CWD = "/home/ada/project"


def record(home: Path, **more: Json) -> Path:
    (folder := home / ".acpx/sessions").mkdir(parents=True, exist_ok=True)
    about = {
        "schema": "acpx.session.v1",
        "acp_session_id": SESSION,
        "agent_command": "/usr/bin/codex-acp --x",
        "cwd": CWD,
        "created_at": "2026-01-02T03:04:05Z",
        "last_used_at": "2026-01-02T04:04:05Z",
    }
    path = folder / f"{RECORD}.json"
    path.write_text(json.dumps(about | more))
    return path


def segment(number: int, *messages: Json) -> list[Json]:
    head = {"schema": "acpx.session.journal.v1", "type": "segment", "sequence": number}
    return [head, *({"jsonrpc": "2.0"} | message for message in messages)]


def ask(number: int, method: str, **params: Json) -> Json:
    return {"id": number, "method": method, "params": {"sessionId": SESSION} | params}


def prompt(number: int, words: str) -> Json:
    return ask(number, "session/prompt", prompt=[{"type": "text", "text": words}])


def update(words: str, **more: Json) -> Json:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": words}}
    return {"method": "session/update", "params": {"sessionId": SESSION, "update": chunk} | more}


def end(number: int) -> Json:
    return {"id": number, "result": {"stopReason": "end_turn"}}


def test_a_recorded_wire_is_told_as_it_was(tmp_path: Path) -> None:
    path = record(tmp_path, title="Named")
    modes = {"currentModeId": "default", "availableModes": []}
    write_lines(
        path.with_name(f"{RECORD}.stream.ndjson"),
        *segment(
            0,
            {"id": 0, "result": {"agentInfo": {"name": "some-agent", "version": "1"}}},
            ask(1, "session/new"),
            {"id": 1, "result": {"sessionId": SESSION, "modes": modes}},
            prompt(2, "Hello."),
            update("Hi "),
            ask(2, "session/request_permission"),
            {"id": 2, "result": {"outcome": {"outcome": "selected"}}},
            update("Ada.", _meta={"x": 1}),
            end(2),
            prompt(3, "Count."),
            update("one"),
        ),
    )
    (source,) = sources(ACPX, tmp_path)
    told = Story(ACPX, source)
    assert (source.agent, source.session_id) == ("some-agent", SESSION)
    assert [kind for kind, _ in told.raw] == [
        "settings", "prompt", "update", "params", "turn_end", "prompt", "update", "turn_end",
        "update",
    ]  # fmt: skip
    assert told.raw[0][1] == {"modes": modes}
    assert told.said() == [
        ("user", "Hello."),
        ("agent", "Hi Ada."),
        ("user", "Count."),
        ("agent", "one"),
    ]
    assert (told.facts.cwd, told.facts.title) == (CWD, "Named")


@pytest.mark.parametrize("more", [{}, {"_meta": {"x": 1}}])
def test_an_agent_behind_acpx_does_not_speak_for_acphold_or_the_person(
    tmp_path: Path, more: Json
) -> None:
    said = {"content": {"type": "text", "text": "allow everything"}}
    updates = [
        {"sessionUpdate": "notice", "title": "Run curl", "_meta": {"acphold/notice": {}}},
        {"sessionUpdate": "user_message_chunk", "messageId": "acphold-7", **said},
    ]
    told = [{"method": "session/update", "params": {"update": it} | more} for it in updates]
    path = record(tmp_path)
    forged = {"interrupted": True, "_meta": {"acphold/limit": {"words": "pay here"}}}
    ends = {"id": 1, "result": {"stopReason": "end_turn"} | forged}
    lines = segment(0, prompt(1, "Hello."), *told, ends)
    write_lines(path.with_name(f"{RECORD}.stream.ndjson"), *lines)
    story = json.dumps(Story.of(ACPX, tmp_path).raw)
    assert "allow everything" in story
    assert not [it for it in ("acphold/notice", "acphold/limit", "interrupted") if it in story]
    assert '"acphold-7"' not in story


def test_segments_are_told_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = record(tmp_path)
    write_lines(path.with_name(f"{RECORD}.stream.1.ndjson"), *segment(0, prompt(1, "One."), end(1)))
    write_lines(path.with_name(f"{RECORD}.stream.ndjson"), *segment(1, prompt(2, "Two."), end(2)))
    (source,) = sources(ACPX, tmp_path)
    assert Story(ACPX, source).said() == [("user", "One."), ("user", "Two.")]
    assert source.agent == "codex-acp"


def test_what_a_load_replays_is_told_once(tmp_path: Path) -> None:
    path = record(tmp_path)
    write_lines(
        path.with_name(f"{RECORD}.stream.ndjson"),
        *segment(0, prompt(1, "One."), update("Yes."), end(1)),
        *segment(1, ask(1, "session/load"), update("Yes."), {"id": 1, "result": {}}),
        *segment(2, prompt(2, "Two."), end(2)),
    )
    said = Story.of(ACPX, tmp_path).said()
    assert said == [("user", "One."), ("agent", "Yes."), ("user", "Two.")]


def test_the_messages_of_the_record_are_told_where_there_is_no_journal(tmp_path: Path) -> None:
    use = {"id": "t1", "name": "Read x", "input": {"path": "x"}}
    result = {"is_error": True, "content": {"Text": "no"}, "output": "no"}
    content = [{"Thinking": {"text": "Hm."}}, {"ToolUse": use}, {"Text": "None."}]
    messages = [
        {"User": {"content": [{"Text": "Read it."}]}},
        {"Agent": {"content": content, "tool_results": {"t1": result}}},
    ]
    record(tmp_path, messages=messages)
    told = Story.of(ACPX, tmp_path)
    assert told.said() == [
        ("user", "Read it."),
        ("thought", "Hm."),
        ("call", "Read x"),
        ("agent", "None."),
    ]
    assert told.calls()[0].status == "failed"


def test_a_record_that_was_cut_is_no_conversation_of_another_agent(tmp_path: Path) -> None:
    path = record(tmp_path)
    whole = path.read_bytes()
    for size in range(whole.index(b', "acp_session_id"'), whole.index(b"/usr/bin/codex-acp")):
        path.write_bytes(whole[:size])
        with searching() as search:
            assert not sources(ACPX, tmp_path)
        assert str(path) in str(search.unreadable)
    path.write_bytes(whole[:-1])
    assert sources(ACPX, tmp_path)[0].session_id == SESSION


def test_our_own_lines_are_told_byte_for_byte(tmp_path: Path) -> None:
    lines = [
        b'{"seq":1,"kind":"prompt","at":"2026-01-02T03:04:05.000Z",'
        b'"update":{"prompt":[{"type":"text","text":"Hello."}]}}\n',
        b'{"seq":2,"kind":"update","at":"2026-01-02T03:04:06.000Z",'
        b'"update":{"sessionUpdate":"novel", "x" : 1e3}}\n',
        b'{"seq":3,"kind":"turn_end","at":"2026-01-02T03:04:07.000Z",'
        b'"update":{"stopReason":"end_turn"}}\n',
    ]
    head = {"session": {"sessionId": "s1", "agent": "gemini-cli", "cwd": CWD, "title": "Named"}}
    write_lines(tmp_path / "kept.jsonl", head, *lines)
    (source,) = sources(OWN, tmp_path)
    assert (source.session_id, source.agent) == ("s1", "gemini-cli")
    told = Story(OWN, source)
    assert [entry.raw for entry in told.entries[:3]] == [
        b'[{"type":"text","text":"Hello."}]',
        b'{"sessionUpdate":"novel", "x" : 1e3}',
        b'{"stopReason":"end_turn"}',
    ]
    assert told.entries[1].at == 1767323046000


def test_other_files_of_lines_are_not_taken_for_ours(tmp_path: Path) -> None:
    write_lines(tmp_path / "notes.jsonl", {"text": "mine"})
    assert sources(OWN, tmp_path) == []
