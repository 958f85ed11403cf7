"""VS Code's chat: documents, and the logs of changes that came after them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.values import Missed
from acphold.imports.vscode import READER, read_log
from tests.imports.told import Story, sources, write_lines

Json = Any
CWD = "/home/ada/my project"


def request(words: str, *response: Json, **more: Json) -> Json:
    """A request and its answer, as 1.11x keeps them."""
    told = {
        "requestId": f"request_{words}",
        "responseId": f"response_{words}",
        "timestamp": 1_767_000_000_000,
        "modelId": "copilot/gpt-5",
        "message": {"text": words, "parts": []},
        "variableData": {"variables": []},
        "response": [{"value": part} if isinstance(part, str) else part for part in response],
        "modelState": {"value": 1, "completedAt": 1_767_000_009_000},
    }
    return told | more


def tool(name: str, call_id: str = "c1", **more: Json) -> Json:
    told = {"kind": "toolInvocationSerialized", "toolId": name, "toolCallId": call_id}
    return told | {"isComplete": True, "isConfirmed": {"type": 1}, "invocationMessage": name} | more


def session(*requests: Json, **more: Json) -> Json:
    told = {"version": 3, "sessionId": "s1", "creationDate": 1_766_999_999_000}
    return told | {"requests": list(requests), "customTitle": "Notes"} | more


def storage(home: Path) -> Path:
    """The storage of VS Code for a folder."""
    found = home / ".config/Code/User/workspaceStorage/w"
    (found / "chatSessions").mkdir(parents=True, exist_ok=True)
    folder = {"folder": "file:///home/ada/my%20project"}
    (found / "workspace.json").write_text(json.dumps(folder))
    return found


def document(home: Path, *requests: Json, **more: Json) -> Path:
    path = storage(home) / "chatSessions/s1.json"
    path.write_text(json.dumps(session(*requests, **more)))
    return path


def asked(*calls: Json, **results: str) -> Json:
    """Metadata with the model's tool calls, and their results."""
    rounds = [{"toolCalls": [call | {"id": f"{call['id']}__vscode-1"}]} for call in calls]
    told = {
        f"{call_id}__vscode-1": {"$mid": 20, "content": [{"$mid": 21, "value": words}]}
        for call_id, words in results.items()
    }
    return {"metadata": {"toolCallRounds": rounds, "toolCallResults": told}}


def call(call_id: str, **given: Json) -> Json:
    return {"id": call_id, "name": "x", "arguments": json.dumps(given)}


def test_a_conversation_is_told_as_it_stood_in_the_chat(tmp_path: Path) -> None:
    reference = {"fsPath": "/a/notes.txt", "path": "/a/notes.txt", "scheme": "file"}
    document(
        tmp_path,
        request(
            "Look.",
            {"kind": "mcpServersStarting", "didStartServerIds": []},
            {"kind": "thinking", "value": "Hm.", "id": "t"},
            "I look at ",
            {"kind": "inlineReference", "inlineReference": reference},
            ".",
            tool(
                "copilot_readFile",
                pastTenseMessage={"value": "Read [](file:///a/notes%20one.txt#1-1), lines 1 to 9"},
            ),
            "Done.",
            result=asked(call("c1", filePath="/a/notes one.txt"), c1="one"),
            completionTokens=7,
        ),
    )
    told = Story.of(READER, tmp_path)
    facts = told.facts
    assert (facts.session_id, facts.agent, facts.cwd, facts.title) == (
        "s1",
        "Copilot",
        CWD,
        "Notes",
    )
    assert (facts.created_at, facts.updated_at) == (1_766_999_999_000, 1_767_000_009_000)
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look at `notes.txt`."),
        ("call", "Read notes one.txt, lines 1 to 9"),
        ("agent", "Done."),
    ]
    read = told.call()
    assert (read["kind"], read["rawInput"]) == ("read", {"filePath": "/a/notes one.txt"})
    assert read["locations"] == [{"path": "/a/notes one.txt"}]
    assert read["content"][0]["content"]["text"] == "one"
    (end,) = told.ends()
    assert (end["stopReason"], end["_meta"]["acphold/model"]) == ("end_turn", "gpt-5")
    assert end["usage"] == {"outputTokens": 7, "totalTokens": 7}
    assert not facts.missed.counts


def test_a_log_of_changes_is_the_document_that_it_makes(tmp_path: Path) -> None:
    path = storage(tmp_path) / "chatSessions/s1.jsonl"
    first, second = request("Hello.", "Hi", modelState={"value": 0}), request("And now?")
    write_lines(
        path,
        {"kind": 0, "v": session(customTitle=None)},
        {"kind": 2, "k": ["requests"], "v": [first]},
        {"kind": 2, "k": ["requests", 0, "response"], "i": 0, "v": [{"value": "Hi."}]},
        {"kind": 1, "k": ["requests", 0, "modelState"], "v": {"value": 1}},
        {"kind": 1, "k": ["customTitle"], "v": "Greeting"},
        {"kind": 2, "k": ["requests"], "v": [request("Gone."), second]},
        {"kind": 2, "k": ["requests"], "i": 1, "v": [second]},
        {"kind": 2, "k": ["requests", 1, "response"], "v": [{"value": "Bye."}]},
        {"kind": 1, "k": ["inputState", "mode"], "v": "lost"},
        {"kind": 3, "k": ["customTitle"]},
        {"kind": 1, "k": ["customTitle"], "v": "Farewell"},
    )
    told = Story.of(READER, tmp_path)
    assert told.facts.title == "Farewell"
    assert told.said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("user", "And now?"),
        ("agent", "Bye."),
    ]
    assert told.facts.missed.counts == {"changes of type '1'": 1}


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": 1},
        {"kind": 1, "k": []},
        {"kind": 1, "k": ["requests", 9, "message"], "v": 1},
        {"kind": 1, "k": ["requests", -1], "v": 1},
        {"kind": 2, "k": ["version"], "v": [1]},
        {"kind": 2, "k": ["requests"], "v": "many"},
        {"kind": 3, "k": ["requests", 0]},
        {"kind": 9, "k": ["requests"]},
        {"kind": 1, "k": ["requests"] * 1000, "v": 1},
        {"kind": 1, "k": [["requests"]], "v": 1},
        {"kind": None, "k": {}},
    ],
)
def test_a_change_that_cannot_be_made_is_said_and_costs_only_itself(
    tmp_path: Path, entry: Json
) -> None:
    path = storage(tmp_path) / "chatSessions/s1.jsonl"
    write_lines(path, {"kind": 0, "v": session(request("Hello.", "Hi."))}, entry)
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert sum(told.facts.missed.counts.values()) == 1


def log(home: Path, *lines: Json) -> None:
    write_lines(storage(home) / "chatSessions/s1.jsonl", *lines)


def push(*requests: Json) -> Json:
    return {"kind": 2, "k": ["requests"], "v": list(requests)}


def test_of_a_document_and_its_log_the_log_is_read(tmp_path: Path) -> None:
    document(tmp_path, request("Old."), request("Gone."))
    begun = {"kind": 0, "v": session(request("Old."), request("Gone."))}
    log(tmp_path, begun, push(request("New.")) | {"i": 1})
    assert Story.of(READER, tmp_path).said() == [("user", "Old."), ("user", "New.")]


def test_the_document_beside_a_log_that_was_emptied_is_told_before_it(tmp_path: Path) -> None:
    document(tmp_path, request("Old."), request("Both."))
    log(tmp_path, {"kind": 0, "v": session()}, push(request("Both."), request("New.")))
    told = Story.of(READER, tmp_path).said()
    assert told == [("user", "Old."), ("user", "Both."), ("user", "New.")]


def set_answer(index: int, words: str) -> Json:
    return {"kind": 1, "k": ["requests", index, "response"], "v": [{"value": words}]}


@pytest.mark.parametrize("lost", [1, 2])
def test_changes_behind_a_damaged_line_are_of_the_requests_that_they_count(
    tmp_path: Path, lost: int
) -> None:
    begun = {"kind": 0, "v": session(request("One."))}
    more = [push(request("Three.")), set_answer(1 + lost, "3"), set_answer(0, "1")]
    log(tmp_path, begun, b'{"kind":2,"k":["req\n', *more)
    story = Story.of(READER, tmp_path)
    assert story.said() == [("user", "One."), ("agent", "1"), ("user", "Three."), ("agent", "3")]
    assert story.facts.missed.counts["requests whose line is damaged"] == lost


def test_a_line_that_was_damaged_before_all_was_written_anew_lost_nothing(tmp_path: Path) -> None:
    begun = {"kind": 0, "v": session(request("One."))}
    anew = {"kind": 0, "v": session(request("One."), request("Two."))}
    log(tmp_path, begun, b"{\n", anew, set_answer(5, "?"), set_answer(1, "2"))
    story = Story.of(READER, tmp_path)
    assert story.said() == [("user", "One."), ("user", "Two."), ("agent", "2")]
    assert story.facts.missed.counts["requests whose line is damaged"] == 0


def test_many_damaged_lines_take_no_longer_than_their_length(tmp_path: Path) -> None:
    def read(lines: int) -> float:
        pushed = (push(request(f"Q{n}")) | {"i": n} for n in range(lines))
        log(tmp_path, {"kind": 0, "v": session()}, *(it for one in pushed for it in (one, b"{\n")))
        (source,) = sources(READER, tmp_path)
        began = time.process_time()
        read_log(source.path, [], Missed())
        return time.process_time() - began

    few, many = (min(read(lines) for _ in range(3)) for lines in (200, 3_200))
    assert many < 48 * few


def test_a_change_of_no_request_is_counted_however_many_are_missing(tmp_path: Path) -> None:
    begun = {"kind": 0, "v": session(request("One."))}
    log(tmp_path, begun, b"{\n", set_answer(10**9, "?"))
    story = Story.of(READER, tmp_path)
    assert story.said() == [("user", "One.")]
    assert story.facts.missed.counts["changes of type '1'"] == 1


def test_what_was_said_in_a_window_without_a_folder_is_found_in_every_editor(
    tmp_path: Path,
) -> None:
    for number, user in enumerate((".config/Code - Insiders/User", ".config/VSCodium/User")):
        path = tmp_path / user / f"globalStorage/emptyWindowChatSessions/s{number}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(session(request("Hello."))))
    found = sources(READER, tmp_path)
    assert sorted(source.session_id for source in found) == ["s0", "s1"]
    assert Story(READER, found[0]).facts.cwd == ""


def test_the_first_forms_of_a_message_are_read(tmp_path: Path) -> None:
    old = {
        "message": "Hello?",
        "response": [{"kind": "markdownContent", "content": {"value": "Hi."}}],
        "isCanceled": True,
    }
    other = {"message": "And?", "response": [{"value": "So."}]}
    failed = {"message": "Again.", "response": None, "responseErrorDetails": {"message": "No."}}
    document(tmp_path, old, other, failed)
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Hello?"),
        ("agent", "Hi."),
        ("user", "And?"),
        ("agent", "So."),
        ("user", "Again."),
    ]
    cancelled, _, wrong = told.ends()
    assert cancelled == {"stopReason": "cancelled"}
    assert wrong["error"]["message"] == "No."


def test_an_edit_is_a_diff_where_the_call_says_what_it_did(tmp_path: Path) -> None:
    one = call("c1", filePath="/a", oldString="x", newString="y")
    several = [{"filePath": "/b", "oldString": "1", "newString": "2"}]
    new = call("c3", filePath="/c", content="all")
    patch = "*** Begin Patch\n*** Update File: /d\n+x\n*** End Patch"
    group = {"kind": "textEditGroup", "uri": {"fsPath": "/a", "scheme": "file"}, "done": True}
    other = {
        "kind": "textEditGroup",
        "uri": {"fsPath": "/e", "scheme": "file"},
        "edits": [[{"text": "z"}]],
    }
    document(
        tmp_path,
        request(
            "Edit.",
            tool("copilot_replaceString", "c1"),
            "\n```\n",
            {"kind": "undoStop", "id": "u"},
            {"kind": "codeblockUri", "uri": {"path": "/a"}, "isEdit": True},
            group | {"edits": [[{"text": "y"}]]},
            "\n```\n",
            tool("copilot_multiReplaceString", "c2"),
            tool("copilot_createFile", "c3"),
            tool("copilot_applyPatch", "c4"),
            other,
            result=asked(one, call("c2", replacements=several), new, call("c4", input=patch)),
        ),
    )
    told = Story.of(READER, tmp_path)
    assert [who for who, _ in told.said()] == ["user", *["call"] * 5]
    shown = [json.loads(one.fields["content"])[0] for one in told.calls()]
    assert [(d["path"], d["oldText"], d["newText"]) for d in shown[:3]] == [
        ("/a", "x", "y"),
        ("/b", "1", "2"),
        ("/c", None, "all"),
    ]
    assert shown[3]["content"]["text"] == patch
    assert (told.calls()[4].title, shown[4]["content"]["text"]) == ("Edit /e", "z")


def test_a_command_has_its_output_and_what_was_refused_has_failed(tmp_path: Path) -> None:
    terminal = {"kind": "terminal", "commandLine": {"original": "npm test"}}
    output = {
        "input": "npm test",
        "output": [{"isText": True, "value": "1 failed"}],
        "isError": True,
    }
    ran = terminal | {
        "terminalCommandState": {"exitCode": 0},
        "terminalCommandOutput": {"text": "ok"},
    }
    document(
        tmp_path,
        request(
            "Run.",
            tool("run_in_terminal", "c1", toolSpecificData=terminal, resultDetails=output),
            tool("run_in_terminal", "c2", toolSpecificData=ran),
            tool("copilot_runInTerminal", "c3", isConfirmed=False),
            tool("run_in_terminal", "c4", isConfirmed={"type": 0}),
        ),
    )
    calls = Story.of(READER, tmp_path).calls()
    assert [one.status for one in calls] == ["failed", "completed", "failed", "failed"]
    assert calls[0].title == "npm test"
    assert b"1 failed" in bytes(calls[0].fields["content"])
    assert json.loads(calls[1].fields["rawOutput"]) == {"exitCode": 0}


def test_a_plan_is_told_and_a_subagent_s_calls_inside_its_call(tmp_path: Path) -> None:
    steps = [
        {"id": "1", "title": "look", "status": "completed"},
        {"id": "2", "title": "write", "status": "in-progress"},
        {"id": "3", "title": "rest", "status": "not-started"},
    ]
    plan = {"kind": "todoList", "todoList": steps}
    started = {"kind": "subagent", "description": "Find it", "result": "Found."}
    document(
        tmp_path,
        request(
            "Plan.",
            tool("manage_todo_list", "c1", toolSpecificData=plan),
            tool("runSubagent", "c2", toolSpecificData=started),
            tool("copilot_listDirectory", "c3", subAgentInvocationId="c2"),
        ),
    )
    told = Story.of(READER, tmp_path)
    assert told.plan() == [("look", "completed"), ("write", "in_progress"), ("rest", "pending")]
    _, agent, inner = told.calls()
    assert b"Found." in bytes(agent.fields["content"])
    assert json.loads(inner.fields["_meta"]) == {"acphold/parentToolCallId": "c2"}


def test_what_the_model_was_told_as_a_tree_is_told_as_its_text(tmp_path: Path) -> None:
    tree = {"type": 2, "text": "two", "lineBreakBefore": True}
    for _ in range(200):
        tree = {"type": 1, "children": [tree]}
    node = {"node": {"type": 1, "children": [{"type": 2, "text": "one"}, tree]}}
    result = asked(call("c1", query="x"), c1="")
    (told,) = result["metadata"]["toolCallResults"].values()
    told["content"] = [{"value": node}]
    document(tmp_path, request("Find.", tool("copilot_findFiles"), result=result))
    shown = Story.of(READER, tmp_path).call()["content"]
    assert shown[0]["content"]["text"] == "one\ntwo"


def test_what_a_person_attached_is_attached_and_what_was_beside_it_is_not(tmp_path: Path) -> None:
    variables = [
        {"kind": "file", "name": "a", "value": {"$mid": 1, "path": "/a.txt", "scheme": "file"}},
        {"kind": "file", "name": "b", "value": {"uri": {"fsPath": "/b.txt", "scheme": "file"}}},
        {"kind": "image", "name": "Pasted", "value": {"0": 1}},
        {"kind": "paste", "name": "code", "code": "x = 1"},
        {"kind": "workspace", "name": "Pages", "value": "No pages."},
        {"kind": "implicit", "name": "open", "value": {"path": "/o.txt", "scheme": "file"}},
    ]
    document(tmp_path, request("Look.", variableData={"variables": variables}))
    ((_, a, b, pasted, code),) = Story.of(READER, tmp_path).prompts()
    assert (a["uri"], b["uri"], pasted["name"]) == ("file:///a.txt", "file:///b.txt", "Pasted")
    assert code["resource"] == {"uri": "context:code", "text": "x = 1"}


def test_requests_that_a_person_went_back_from_are_counted_and_those_of_a_machine_are_no_prompts(
    tmp_path: Path,
) -> None:
    undone = request("Undone.", "No.", shouldBeRemovedOnSend={"requestId": "x"})
    later = request("Your task is done.", "I go on.", isSystemInitiated=True)
    for number, one in enumerate((undone, later)):
        one["requestId"] = f"r{number}"
    kept = request("Kept.", "Yes.")
    document(tmp_path, kept, undone, later)
    said = [words for _, words in Story.of(READER, tmp_path).said()]
    assert said == ["Kept.", "Yes.", "Undone.", "No.", "I go on."]
    document(tmp_path, kept, undone, later, request("Newer.", "So."))
    (source,) = sources(READER, tmp_path)
    told = Story(READER, source)
    assert [words for _, words in told.said()] == ["Kept.", "Yes.", "I go on.", "Newer.", "So."]
    assert told.facts.missed.counts == {"prompts in abandoned branches, see --branches": 1}
    assert READER.branches is not None
    (left,) = READER.branches(source)
    assert "Undone." in [words for _, words in Story(READER, left).said()]
