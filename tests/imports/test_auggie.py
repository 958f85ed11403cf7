"""Auggie's conversations: one document each, of exchanges with nodes that numbers name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acphold.imports.auggie import READER
from tests.imports.told import Story

Json = Any
CWD = "/home/ada/project"
WHERE = {"id": 1, "type": 4, "ide_state_node": {"workspace_folders": [{"folder_root": CWD}]}}


def words(said: str) -> Json:
    return {"id": 0, "type": 0, "text_node": {"content": said}}


def result(call_id: str, said: str, *, failed: bool = False) -> Json:
    told = {"tool_use_id": call_id, "content": said, "is_error": failed}
    return {"id": 1, "type": 1, "tool_result_node": told}


def said(words: str) -> Json:
    return {"id": 1, "type": 0, "content": words}


def called(call_id: str, name: str, **given: Json) -> Json:
    use = {"tool_use_id": call_id, "tool_name": name, "input_json": json.dumps(given)}
    return {"id": 2, "type": 5, "content": "", "tool_use": use}


def exchange(asked: str, *answered: Json, nodes: tuple[Json, ...] = (), **more: Json) -> Json:
    inner: Json = {"request_message": asked, "response_text": "", "request_id": f"r-{asked}"}
    inner |= {"request_nodes": list(nodes), "response_nodes": list(answered)}
    told: Json = {"exchange": inner, "completed": True, "finishedAt": "2026-01-02T03:04:05.000Z"}
    return told | {"source": "local"} | more


def session(home: Path, *exchanges: Json, **more: Json) -> Path:
    path = home / ".augment/sessions/s1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    told: Json = {"sessionId": "s1", "created": "2026-01-02T03:00:00.000Z", "title": "Notes"}
    told |= {"modified": "2026-01-02T04:00:00.000Z", "agentState": {"modelId": "sonnet4.5"}}
    path.write_text(json.dumps(told | {"chatHistory": list(exchanges)} | more))
    return path


def test_a_conversation_is_told_as_it_was_held(tmp_path: Path) -> None:
    spent = {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 100}
    session(
        tmp_path,
        exchange(
            "Look.",
            {"id": 0, "type": 8, "thinking": {"summary": "Hm."}},
            said("I look."),
            called("c1", "view", path="notes.txt", type="file"),
            {"id": 3, "type": 10, "token_usage": spent},
            nodes=(words("Look."), WHERE),
        ),
        exchange("", said("Done."), {"id": 9, "type": 2}, nodes=(result("c1", "one"),)),
    )
    told = Story.of(READER, tmp_path)
    facts = told.facts
    assert (facts.session_id, facts.agent, facts.title, facts.cwd) == ("s1", "auggie", "Notes", CWD)
    assert (facts.created_at, facts.updated_at) == (1_767_322_800_000, 1_767_326_400_000)
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read notes.txt"),
        ("agent", "Done."),
    ]
    view = told.call()
    assert (view["kind"], view["locations"]) == ("read", [{"path": f"{CWD}/notes.txt"}])
    assert view["content"][0]["content"]["text"] == "one"
    (end,) = told.ends()
    assert end["_meta"]["acphold/model"] == "sonnet4.5"
    counts = {"inputTokens": 5, "outputTokens": 3, "cachedReadTokens": 100, "totalTokens": 108}
    assert (end["stopReason"], end["usage"]) == ("end_turn", counts)
    assert not facts.missed.counts


def test_an_edit_is_a_diff_and_what_failed_is_told_as_failed(tmp_path: Path) -> None:
    session(
        tmp_path,
        exchange(
            "Edit.",
            called(
                "c1",
                "str-replace-editor",
                path="/a",
                old_str_1="x",
                new_str_1="y",
                old_str_2="1",
                new_str_2="2",
            ),
            called("c2", "save-file", path="/b", file_content="all"),
            called("c3", "remove-files", file_paths=["/c", "/d"]),
            called("c4", "launch-process", command="false"),
        ),
        exchange(
            "",
            nodes=(
                result("c1", "ok"),
                result("c2", "ok"),
                result("c3", "ok"),
                result("c4", "exit 1", failed=True),
            ),
        ),
    )
    told = Story.of(READER, tmp_path)
    edit, save, remove, ran = told.calls()
    assert [(d["oldText"], d["newText"]) for d in json.loads(edit.fields["content"])] == [
        ("x", "y"),
        ("1", "2"),
    ]
    assert json.loads(save.fields["content"])[0]["newText"] == "all"
    assert (remove.title, len(json.loads(remove.fields["locations"]))) == ("Delete /c, /d", 2)
    assert (ran.title, ran.status) == ("false", "failed")


def test_only_what_a_person_typed_and_attached_is_a_prompt(tmp_path: Path) -> None:
    picture = {"id": 2, "type": 2, "image_node": {"image_data": "cG5n", "format": 2}}
    session(
        tmp_path,
        exchange(
            "", said("Hi."), nodes=(words("<supervisor>Go on.</supervisor>"), words("Hello."))
        ),
        exchange("<supervisor>Go on.</supervisor>", said("I go on.")),
        exchange("Look.", nodes=(picture,), completed=False),
        exchange("They greeted.", isHistorySummary=True),
    )
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("agent", "I go on."),
        ("user", "Look."),
        ("call", "Compact conversation"),
    ]
    assert told.prompts()[1][1] == {"type": "image", "data": "cG5n", "mimeType": "image/jpeg"}


def test_an_answer_without_nodes_is_told_by_its_text(tmp_path: Path) -> None:
    one = exchange("Hello.")
    one["exchange"]["response_text"] = "Hi."
    session(tmp_path, one, customTitle="Greeting")
    told = Story.of(READER, tmp_path)
    assert (told.facts.title, told.said()) == ("Greeting", [("user", "Hello."), ("agent", "Hi.")])
