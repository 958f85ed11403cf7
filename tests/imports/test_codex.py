"""Codex's rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.timeline import Message
from acphold.imports import Intake
from acphold.imports.codex import READER
from acphold.journal.compression import zstd
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter
from tests.imports.codex_home import CWD, SESSION, Rollout
from tests.imports.told import Story, sources, write_lines

Json = Any


def story(rollout: Rollout, home: Path) -> Story:
    rollout.write(home)
    return Story.of(READER, home)


def conversation() -> Rollout:
    rollout = Rollout()
    rollout.program("<environment_context>\n<cwd>/home/ada/project</cwd>\n</environment_context>")
    rollout.user("Hello — 你好")
    rollout.thought("Someone is there.")
    rollout.agent("Hello Ada.")
    rollout.end()
    return rollout


SAID = [("user", "Hello — 你好"), ("thought", "Someone is there."), ("agent", "Hello Ada.")]


def test_each_text_is_told_once_though_both_sides_have_it(tmp_path: Path) -> None:
    told = story(conversation(), tmp_path)
    assert told.said() == SAID
    assert told.facts.session_id == SESSION
    assert told.facts.cwd == CWD
    assert [end["stopReason"] for end in told.ends()] == ["end_turn"]


def test_a_compressed_rollout_is_told_like_a_plain_one(tmp_path: Path) -> None:
    path = conversation().write(tmp_path)
    packed = zstd.compress(path.read_bytes())
    path.with_name(path.name + ".zst").write_bytes(packed)
    path.unlink()
    assert Story.of(READER, tmp_path).said() == SAID


@pytest.mark.parametrize("is_packed_cut", [False, True])
async def test_of_a_plain_and_a_compressed_rollout_the_whole_one_is_told(
    opened: Journal, tmp_path: Path, *, is_packed_cut: bool
) -> None:
    path = conversation().write(tmp_path)
    whole = path.read_bytes()
    packed = zstd.compress(whole)
    path.with_name(path.name + ".zst").write_bytes(packed[:20] if is_packed_cut else packed)
    path.write_bytes(whole if is_packed_cut else whole[:900])
    for source in sources(READER, tmp_path):
        await Intake(opened).take(source, READER)
    (row,) = await opened.page(ListFilter())
    state = await state_of(opened, row.session_id)
    told = [item.text for item in state.timeline if isinstance(item, Message)]
    assert told == [words for _, words in SAID]


def test_a_damaged_compressed_rollout_is_told_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    rollout = conversation()
    for number in range(4000):
        rollout.user(f"prompt {number} {hash(str(number))}")
    path = rollout.write(tmp_path)
    packed = zstd.compress(path.read_bytes())
    path.with_name(path.name + ".zst").write_bytes(packed[: len(packed) * 3 // 4])
    path.unlink()
    told = Story.of(READER, tmp_path)
    assert told.said()[:3] == SAID


@pytest.mark.parametrize(
    ("command", "title", "kind"),
    [
        ("cat notes.txt", "Read notes.txt", "read"),
        ("cd src && sed -n '1,20p' a/b.py", "Read b.py", "read"),
        ("ls -la src", f"List {CWD}/src", "search"),
        ("printf 'x\\n'; ls", f"List {CWD}", "search"),
        ("rg -n 'some words' src | head -5", "Search some words in src", "search"),
        ("git ls-files", f"List {CWD}", "search"),
        ("make test", "make test", "execute"),
        ("echo 'unclosed", "echo 'unclosed", "execute"),
    ],
)
def test_a_command_is_told_by_what_it_is_for(
    tmp_path: Path, command: str, title: str, kind: str
) -> None:
    rollout = Rollout("Do it.")
    rollout.run("c1", command, "done\n")
    call = story(rollout, tmp_path).call()
    assert (call["title"], call["kind"], call["status"]) == (title, kind, "completed")
    assert call["rawInput"]["turn_id"] == "turn"
    assert call["rawOutput"]["aggregated_output"] == "done\n"


def test_two_prompts_in_a_row_without_a_screen_are_both_told(tmp_path: Path) -> None:
    rollout = Rollout()
    for words in ("One", "Two"):
        rollout.program(words)
    rollout.item("message", role="assistant", content=[{"type": "output_text", "text": "Three"}])
    told = story(rollout, tmp_path).said()
    assert told == [("user", "One"), ("user", "Two"), ("agent", "Three")]


def test_a_command_that_ends_with_another_code_has_failed(tmp_path: Path) -> None:
    rollout = Rollout("Do it.")
    rollout.run("c1", "false", "Process exited with code 0\n", code=1)
    call = story(rollout, tmp_path).call()
    assert call["status"] == "failed"
    assert call["rawOutput"]["exit_code"] == 1


def test_a_code_that_a_command_prints_is_not_its_own(tmp_path: Path) -> None:
    rollout = Rollout("Do it.")
    for name, begun in (("c1", ""), ("c2", "Exit code: 0\n")):
        rollout.item("local_shell_call", call_id=name, action={"command": ["make"]})
        printed = "built\n" * 300 + "Exit code: 7\n"
        rollout.item("function_call_output", call_id=name, output=f"{begun}{printed}")
    assert [it.status for it in story(rollout, tmp_path).calls()] == ["completed", "completed"]


def test_a_patch_is_told_with_what_became_of_the_files(tmp_path: Path) -> None:
    rollout = Rollout("Edit it.")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+2\n*** End Patch"
    rollout.item("custom_tool_call", name="apply_patch", input=patch, call_id="c1")
    diff = "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    changes = {
        f"{CWD}/a.txt": {"type": "update", "unified_diff": diff, "move_path": None},
        f"{CWD}/b.txt": {"type": "add", "content": "new\n"},
    }
    rollout.event("patch_apply_end", call_id="c1", success=True, changes=changes)
    rollout.item("custom_tool_call_output", call_id="c1", output="Exit code: 0\nOutput:\nok")
    call = story(rollout, tmp_path).call()
    assert call["title"] == f"Edit {CWD}/a.txt, {CWD}/b.txt"
    assert call["status"] == "completed"
    assert call["content"] == [
        {"type": "diff", "path": f"{CWD}/a.txt", "oldText": "one\ntwo\n", "newText": "one\n2\n"},
        {"type": "diff", "path": f"{CWD}/b.txt", "oldText": None, "newText": "new\n"},
    ]


def test_a_patch_that_was_never_done_is_told_as_it_was_asked_for(tmp_path: Path) -> None:
    rollout = Rollout("Edit it.")
    patch = (
        "*** Begin Patch\n*** Add File: n.txt\n+new\n*** Update File: a.txt\n"
        "@@\n one\n-two\n+2\n@@\n-three\n+3\n*** End Patch"
    )
    rollout.item("custom_tool_call", name="apply_patch", input=patch, call_id="c1")
    call = story(rollout, tmp_path).call()
    assert call["status"] == "failed"
    assert [(c["path"], c["oldText"], c["newText"]) for c in call["content"]] == [
        (f"{CWD}/n.txt", None, "new\n"),
        (f"{CWD}/a.txt", "one\ntwo\n", "one\n2\n"),
        (f"{CWD}/a.txt", "three\n", "3\n"),
    ]


def test_a_plan_is_not_told_as_a_call(tmp_path: Path) -> None:
    rollout = Rollout("Plan.")
    plan = [{"step": "One", "status": "in_progress"}]
    rollout.call("c1", "update_plan", "Plan updated", plan=plan)
    told = story(rollout, tmp_path)
    assert told.plan() == [("One", "in_progress")]
    assert told.calls() == []


def test_an_aborted_turn_is_cancelled_and_its_call_has_failed(tmp_path: Path) -> None:
    rollout = Rollout("Sleep.")
    rollout.call("c1", "exec_command", "aborted by user after 0.1s", cmd="sleep 60")
    rollout.program("<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>")
    rollout.event("turn_aborted", reason="interrupted")
    told = story(rollout, tmp_path)
    assert told.call()["status"] == "failed"
    assert [end["stopReason"] for end in told.ends()] == ["cancelled"]
    assert told.said()[0] == ("user", "Sleep.")
    assert len(told.prompts()) == 1


@pytest.mark.parametrize("said", ["", "And now?"], ids=["by command", "by itself"])
def test_a_compaction_before_any_prompt_of_its_turn_was_asked_for(
    said: str, tmp_path: Path
) -> None:
    rollout = conversation()
    rollout.event("task_started", turn_id="two")
    rollout.item("message", role="assistant", content=[{"type": "output_text", "text": "sum"}])
    rollout.add("compacted", message="The sum of it.")
    rollout.event("context_compacted")
    if said:
        rollout.event("user_message", message=said)
    rollout.end()
    told = story(rollout, tmp_path)
    assert told.said()[3:] == [("user", said or "/compact"), ("call", "Compact conversation")]
    assert told.call()["content"][0]["content"]["text"] == "The sum of it."


def test_a_rollout_of_summer_2025_is_told_from_the_models_side(tmp_path: Path) -> None:
    output = json.dumps({"output": "no\n", "metadata": {"exit_code": 3}})
    given = json.dumps({"command": ["bash", "-lc", "cat a.txt; exit 3"], "workdir": "/w"})
    parts = [{"type": "input_text", "text": "Read it."}]
    write_lines(
        Rollout().path(tmp_path),
        {"id": SESSION, "timestamp": "2025-08-01T10:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": parts},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "name": "shell", "arguments": given, "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": output},
        {"type": "message", "role": "assistant", "content": [{"text": "There is none."}]},
    )
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Read it."),
        ("thought", "Hm."),
        ("call", "Run exit 3"),
        ("agent", "There is none."),
    ]
    assert told.call()["status"] == "failed"
    assert told.facts.missed.counts == {}


def on_screen() -> Rollout:
    """A conversation whose screen side is items, as far as the first prompt."""
    rollout = Rollout(history_mode="paginated")
    rollout.event("task_started", turn_id="turn")
    rollout.program("<environment_context>\n<cwd>/home/ada/project</cwd>\n</environment_context>")
    rollout.program("Words that a plugin added.")
    rollout.program("Hello")
    rollout.screen("UserMessage", id="u1", content=[{"type": "text", "text": "Hello"}])
    return rollout


def command(call: str, script: str, *purposes: Json, code: int = 0) -> Json:
    return {
        "type": "CommandExecution",
        "id": call,
        "command": ["/bin/bash", "-lc", script],
        "cwd": "file:///home/ada/my%20project",
        "parsed_cmd": [*purposes],
        "status": "failed" if code else "completed",
        "aggregated_output": "done\n",
        "exit_code": code,
    }


def test_a_search_without_an_id_is_told_each_time(tmp_path: Path) -> None:
    rollout = on_screen()
    for query in ("Ada", "Ada", "Bob"):
        rollout.item("web_search_call", action={"type": "search", "query": query})
    rollout.end()
    told = story(rollout, tmp_path).said()
    assert told[1:] == [("call", f"Search {query}") for query in ("Ada", "Ada", "Bob")]


def test_each_item_of_the_screen_is_told_once_though_the_model_has_it_too(tmp_path: Path) -> None:
    rollout = on_screen()
    rollout.screen("Reasoning", id="r1", summary_text=["Someone is there.", "Who?"])
    rollout.item("reasoning", summary=[{"type": "summary_text", "text": "Someone is there."}])
    rollout.screen("WebSearch", id="w1", query="Ada", action={"type": "search", "query": "Ada"})
    rollout.item("web_search_call", id="w1", action={"type": "search", "query": "Ada"})
    rollout.item("image_generation_call", id="i1", result="AA")
    rollout.screen("ImageGeneration", id="i1", status="completed", result="AA")
    for picture in ("BB", "CC"):
        rollout.item("image_generation_call", result=picture)
    rollout.screen("AgentMessage", id="m1", content=[{"type": "Text", "text": "Hello Ada."}])
    parts = [{"type": "output_text", "text": "Hello Ada."}]
    rollout.item("message", role="assistant", content=parts)
    rollout.screen("Plan", id="p1", text="1. Greet her.")
    rollout.screen("ContextCompaction", id="x1")
    rollout.add("token_usage_record", usage={"input_tokens": 1})
    rollout.item("additional_tools", role="developer", tools=[])
    rollout.end()
    told = story(rollout, tmp_path)
    assert told.said() == [
        ("user", "Hello"),
        ("thought", "Someone is there.\n\nWho?"),
        ("call", "Web search: Ada"),
        ("agent", "Hello Ada.1. Greet her."),
    ]
    shown = [update["content"] for update in told.updates("agent_message_chunk")]
    pictures = [it["data"] for it in shown if it["type"] == "image"]
    assert pictures == ["AA", "BB", "CC"]  # those without an id were told once each
    assert told.facts.missed.counts == {}


def test_answers_to_questions_amid_the_work_are_told_as_text(tmp_path: Path) -> None:
    rollout = on_screen()
    answers = [{"question": "Which?", "answer": "A"}, {"question": "And?", "answer": "B"}]
    name = "send_user_message_question_reply"
    words, raw = (
        f"<{name}>\n{json.dumps(it)}\n</{name}>"
        for it in (answers, [{"question": "Which?", "answer": ["A", "B"]}])
    )
    for number, each in enumerate((words, raw)):
        rollout.program(each)
        rollout.screen("UserMessage", id=f"v{number}", content=[{"type": "text", "text": each}])
    told = story(rollout, tmp_path).said()
    readable = "> Which?\n\nA\n\n> And?\n\nB"
    assert told == [("user", "Hello"), ("user", readable), ("user", raw)]


def test_a_script_of_the_model_is_told_by_what_it_did(tmp_path: Path) -> None:
    rollout = on_screen()
    read = {"type": "read", "name": "a.txt", "path": "a.txt"}
    search = {"type": "search", "query": "Ada", "path": "."}
    ls = {"type": "list_files", "path": None}
    commands = [
        command("exec-1", "cat a.txt", read),
        command("exec-2", "rg Ada .", search),
        command("exec-3", "ls", ls),
        command("exec-4", "cat a.txt; ls", read, ls, code=3),
    ]
    rollout.script("c1", "Script completed\nOutput:\n", *commands)
    changes = {f"{CWD}/b.txt": {"type": "add", "content": "new\n"}}
    edit = {"type": "FileChange", "id": "exec-5", "changes": changes, "status": "completed"}
    tool = {"type": "McpToolCall", "id": "exec-6", "server": "s", "tool": "t", "status": "failed"}
    look = {"type": "ImageView", "id": "exec-7", "path": f"file://{CWD}/c.png"}
    rollout.script("c2", "Script failed\nOutput:\n", edit, tool, look)
    rollout.call("c3", "wait", "Script completed", cell_id="1")
    rollout.end()
    told = story(rollout, tmp_path)
    folder = "/home/ada/my project"
    assert [(call.title, call.kind, call.status) for call in told.calls()] == [
        (f"Read file '{folder}/a.txt'", "read", "completed"),
        ("Search for 'Ada' in .", "search", "completed"),
        ("List files", "read", "completed"),
        ("cat a.txt; ls", "execute", "failed"),
        (f"Edit {CWD}/b.txt", "edit", "completed"),
        ("mcp.s.t", "execute", "failed"),
        (f"View Image {CWD}/c.png", "read", "completed"),
    ]
    by_id = {call["toolCallId"]: call for call in told.updates("tool_call")}
    ran = by_id["exec-4"]
    assert ran["rawInput"] == {"command": "cat a.txt; ls", "cwd": folder}
    assert ran["rawOutput"] == {"exit_code": 3}
    assert ran["content"][0]["content"]["text"] == "```sh\ndone\n```\n"
    assert by_id["exec-1"]["locations"] == [{"path": f"{folder}/a.txt"}]
    made = {"type": "diff", "path": f"{CWD}/b.txt", "oldText": None, "newText": "new\n"}
    assert by_id["exec-5"]["content"] == [made]


def test_a_script_that_did_nothing_on_the_screen_is_told_itself(tmp_path: Path) -> None:
    rollout = on_screen()
    rollout.script("c1", "Script failed\nOutput:\n")
    rollout.script("c2", "Script completed\nOutput:\n")
    failed = [{"type": "input_text", "text": "Script failed\nOutput:\nError: wrong"}]
    rollout.script("c3", failed)
    rollout.script("c4", "aborted by user after 2.0s")
    rollout.event("turn_aborted", reason="interrupted")
    rollout.event("task_started", turn_id="two")
    rollout.screen("UserMessage", id="u2", content=[{"type": "text", "text": "Again"}])
    rollout.item("custom_tool_call", name="exec", input="await killed()", call_id="c5")
    told = story(rollout, tmp_path)
    assert [(call.tool_call_id, call.title, call.status) for call in told.calls()] == [
        (name, "Run a script", "failed") for name in ("c1", "c3", "c4", "c5")
    ]
    *_, killed = told.updates("tool_call")
    assert killed["rawInput"] == "await killed()"
    assert [end.get("stopReason") for end in told.ends()] == ["cancelled", None]


def test_a_call_on_both_sides_is_one_with_what_the_screen_says_of_it(tmp_path: Path) -> None:
    rollout = on_screen()
    rollout.item("function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id="c1")
    ls = command("c1", "ls", {"type": "list_files", "path": "src"})
    rollout.event("item_completed", item=ls)
    rollout.item("function_call_output", call_id="c1", output="Exit code: 0\nOutput:\ndone\n")
    rollout.call("c2", "exec_command", "aborted by user", cmd="sleep 60")
    calls = story(rollout, tmp_path).calls()
    assert [(call.tool_call_id, call.title, call.status) for call in calls] == [
        ("c1", "List files in 'src'", "completed"),
        ("c2", "sleep 60", "failed"),
    ]


def test_a_subagent_on_the_screen_is_told_inside_its_call(tmp_path: Path) -> None:
    agent = "01a1f8c2-199d-7110-9c2d-6f8d1b114418"
    rollout = on_screen()
    rollout.item("function_call", name="spawn_agent", arguments="{}", call_id="c1")
    started = {"agent_thread_id": agent, "agent_path": "/root/count"}
    rollout.screen("SubAgentActivity", id="c1", kind="started", **started)
    rollout.item("function_call_output", call_id="c1", output='{"task_name": "/root/count"}')
    rollout.item("agent_message", author="/root/count", recipient="/root", content=[])
    rollout.screen("SubAgentActivity", id="done-1", kind="completed", **started)
    rollout.write(tmp_path)
    child = Rollout(session=agent, source={"subagent": {"thread_spawn": {}}})
    child.screen("UserMessage", id="u9", content=[{"type": "text", "text": "Count."}])
    child.event("item_completed", item=command("c2", "wc -l notes.txt"))
    child.screen("AgentMessage", id="m9", content=[{"type": "Text", "text": "3"}])
    child.write(tmp_path)
    stories = [Story(READER, source) for source in sources(READER, tmp_path)]
    assert [len(told.prompts()) for told in stories] == [1, 0]
    titles = [call.title for call in stories[0].calls()]
    assert titles == ["Start subagent count", "wc -l notes.txt", "Complete subagent count"]
    assert stories[0].facts.missed.counts == {}


def test_a_subagent_is_told_inside_its_call_and_is_no_conversation_of_its_own(
    tmp_path: Path,
) -> None:
    agent = "01a1f8c2-199d-7110-9c2d-6f8d1b114418"
    rollout = Rollout("Delegate.")
    rollout.call("c1", "spawn_agent", json.dumps({"agent_id": agent}), message="Count.")
    rollout.agent("It says 3.")
    rollout.write(tmp_path)
    child = Rollout(session=agent, source={"subagent": {"thread_spawn": {}}})
    child.user("Count.")
    child.run("c2", "wc -l notes.txt", "3\n")
    child.agent("3")
    child.write(tmp_path)
    stories = [Story(READER, source) for source in sources(READER, tmp_path)]
    assert [len(told.prompts()) for told in stories] == [1, 0]
    titles = [call.title for call in stories[0].calls()]
    assert titles == ["spawn_agent", "wc -l notes.txt"]
    assert ("agent", "3") not in stories[0].said()


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_subagent_of_a_subagent_is_told_inside_its_call(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    threads = [SESSION, *(f"01a1f8c2-199d-7110-9c2d-6f8d1b11441{n}" for n in (1, 2))]
    for n, thread in enumerate(threads):
        above = {"thread_spawn": {"parent_thread_id": threads[n - 1]}}
        head: Json = {"source": {"subagent": above}} if n else {}
        rollout = Rollout(session=thread, **head)
        rollout.user("Delegate.")
        # The last one names the first, as one that sends a message to its caller.
        result = json.dumps({"agent_id": threads[(n + 1) % 3]})
        rollout.call(f"c{n}", "spawn_agent", None if is_stopped and n < 2 else result)
        rollout.write(tmp_path)
    (told, *_) = (Story(READER, source) for source in sources(READER, tmp_path))
    callers = [json.loads(it.fields.get("_meta", "{}")) for it in told.calls()]
    assert [it.get("acphold/parentToolCallId") for it in callers] == [None, "c0", "c1"]


def test_tokens_that_are_told_again_are_counted_once(tmp_path: Path) -> None:
    rollout = Rollout("Hello.")
    usage = {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 3, "total_tokens": 13}
    info = {"total_token_usage": usage, "last_token_usage": usage, "model_context_window": 1000}
    rollout.event("token_count", info=info)
    rollout.event("token_count", info=info)
    rollout.agent("Hi.")
    rollout.end()
    told = story(rollout, tmp_path)
    (end,) = told.ends()
    assert end["usage"] == {
        "inputTokens": 6,
        "cachedReadTokens": 4,
        "outputTokens": 3,
        "totalTokens": 13,
    }
    (usage_update,) = told.updates("usage_update")
    assert (usage_update["used"], usage_update["size"]) == (13, 1000)


def test_a_picture_in_a_prompt_is_kept(tmp_path: Path) -> None:
    rollout = Rollout()
    rollout.user("Look.", {"type": "input_image", "image_url": "data:image/png;base64,AA"})
    assert story(rollout, tmp_path).prompts() == [
        [
            {"type": "text", "text": "Look."},
            {"type": "image", "data": "AA", "mimeType": "image/png"},
        ]
    ]


def test_the_name_of_a_thread_is_its_title(tmp_path: Path) -> None:
    write_lines(
        tmp_path / ".codex/session_index.jsonl",
        {"id": SESSION, "thread_name": "Old"},
        {"id": SESSION, "thread_name": "Named"},
    )
    assert story(conversation(), tmp_path).facts.title == "Named"


def test_events_that_the_reader_does_not_know_are_counted(tmp_path: Path) -> None:
    rollout = conversation()
    rollout.item("hologram")
    rollout.event("sang")
    rollout.add("melody")
    told = story(rollout, tmp_path)
    assert told.facts.missed.counts == {
        "items of type 'hologram'": 1,
        "events of type 'sang'": 1,
        "records of type 'melody'": 1,
    }


def embedded(uri: str, words: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "text": words}}


def test_attachments_are_not_told_as_the_persons_words(tmp_path: Path) -> None:
    rollout = Rollout()
    b, c = "file:///x/b.txt", "file:///x/c.txt"
    rollout.event("task_started")
    rollout.event(
        "user_message",
        message=f'Look:\n<context ref="{b}">\nB\n</context>\n<context ref="{c}">\nC\n</context>',
        local_images=["/x/d.png"],
    )
    rollout.agent("I see.")
    rollout.end()
    editor = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py: src/a.py"
    rollout.user(f"{editor}\n\n## My request for Codex:\nMend it.")
    told = story(rollout, tmp_path)
    assert told.prompts() == [
        [
            {"type": "text", "text": "Look:"},
            embedded(b, "B"),
            embedded(c, "C"),
            {"type": "resource_link", "name": "d.png", "uri": "file:///x/d.png"},
        ],
        [{"type": "text", "text": "Mend it."}, embedded("context:editor", editor)],
    ]
    assert told.facts.title is None


def test_a_context_tag_that_is_never_closed_is_the_persons_own_text(tmp_path: Path) -> None:
    rollout = Rollout('What does <context ref="x">\n mean?')
    assert story(rollout, tmp_path).said() == [("user", 'What does <context ref="x">\n mean?')]


def test_a_picture_that_is_only_named_in_a_prompt_is_a_link(tmp_path: Path) -> None:
    url = "https://example.com/a.png"
    rollout = Rollout()
    rollout.user("Look:", {"type": "input_image", "image_url": url})
    assert story(rollout, tmp_path).prompts() == [
        [
            {"type": "text", "text": "Look:"},
            {"type": "resource_link", "name": url, "uri": url},
        ]
    ]
