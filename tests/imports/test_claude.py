"""Claude Code's transcripts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from acphold.imports.claude import READER
from acphold.imports.claude_tools import call_fields
from acphold.imports.values import ABANDONED
from tests.imports.claude_home import CWD, SESSION, Json, Transcript, thinking, use
from tests.imports.told import Story, sources, write_lines


def story(transcript: Transcript, home: Path) -> Story:
    transcript.write(home)
    return Story.of(READER, home)


def test_what_was_said_and_thought_is_told_in_its_order(tmp_path: Path) -> None:
    transcript = Transcript("Hello — 你好 🌍")
    transcript.assistant(thinking("Someone is there."), "Hello Ada.")
    told = story(transcript, tmp_path)
    assert told.said() == [
        ("user", "Hello — 你好 🌍"),
        ("thought", "Someone is there."),
        ("agent", "Hello Ada."),
    ]
    assert told.facts.cwd == CWD
    assert told.facts.session_id == SESSION
    assert [end["stopReason"] for end in told.ends()] == ["end_turn"]


@pytest.mark.parametrize(
    ("entrypoint", "by_program"),
    [("cli", False), ("sdk-ts", False), ("sdk-cli", True), ("sdk-py", True)],
)
def test_a_conversation_says_if_a_program_held_it(
    tmp_path: Path, entrypoint: str, by_program: bool
) -> None:
    transcript = Transcript()
    transcript.user("Hello", entrypoint=entrypoint)
    assert story(transcript, tmp_path).facts.by_program is by_program


def test_a_read_has_its_file_as_its_place_and_the_text_in_a_fence(tmp_path: Path) -> None:
    transcript = Transcript("Read it.")
    transcript.assistant(use("t1", "Read", file_path=f"{CWD}/notes.txt"))
    transcript.result(
        "t1",
        "1\tone\n2\t```\n3\t",
        toolUseResult={"type": "text", "file": {"filePath": f"{CWD}/notes.txt"}},
    )
    call = story(transcript, tmp_path).call()
    assert call["title"] == "Read notes.txt"
    assert call["kind"] == "read"
    assert call["status"] == "completed"
    assert call["locations"] == [{"path": f"{CWD}/notes.txt", "line": 1}]
    assert call["rawInput"] == {"file_path": f"{CWD}/notes.txt"}
    assert call["content"][0]["content"]["text"] == "```\n1\tone\n2\t```\n```"


def test_an_edit_is_a_diff_with_the_lines_around_it(tmp_path: Path) -> None:
    transcript = Transcript("Edit it.")
    transcript.assistant(use("t1", "Edit", file_path="/x/a.py", old_string="b", new_string="c"))
    patch = [{"oldStart": 4, "newStart": 4, "lines": [" a", "-b", "+c", " d"]}]
    transcript.result("t1", "ok", toolUseResult={"filePath": "/x/a.py", "structuredPatch": patch})
    call = story(transcript, tmp_path).call()
    assert call["content"] == [
        {"type": "diff", "path": "/x/a.py", "oldText": "a\nb\nd", "newText": "a\nc\nd"}
    ]
    assert call["locations"] == [{"path": "/x/a.py", "line": 4}]


def test_a_failed_command_is_failed_and_says_so(tmp_path: Path) -> None:
    transcript = Transcript("Run it.")
    transcript.assistant(use("t1", "Bash", command="false", description="fail"))
    transcript.result("t1", "Exit code 1", failed=True, toolUseResult="Error: Exit code 1")
    call = story(transcript, tmp_path).call()
    assert (call["title"], call["kind"], call["status"]) == ("false", "execute", "failed")
    assert call["content"][0]["content"]["text"] == "```\nExit code 1\n```"


def test_what_the_program_put_in_the_persons_place_is_not_told_as_their_words(
    tmp_path: Path,
) -> None:
    transcript = Transcript("<system-reminder>x</system-reminder>")
    transcript.user("<local-command-caveat>x</local-command-caveat>", isMeta=True)
    transcript.user([{"type": "text", "text": "a job ended"}], origin={"kind": "task"})
    transcript.add("attachment", attachment={"type": "date", "date": "2026-01-02"})
    transcript.user("Hello.", origin={"kind": "human"})
    transcript.assistant("Hi.")
    assert story(transcript, tmp_path).said() == [("user", "Hello."), ("agent", "Hi.")]


def test_a_command_of_the_program_and_its_answer_are_told(tmp_path: Path) -> None:
    transcript = Transcript(
        "<command-name>/rename</command-name><command-args>New name</command-args>"
    )
    transcript.add(
        "system",
        subtype="local_command",
        content="<local-command-stdout>Renamed.</local-command-stdout>",
    )
    told = story(transcript, tmp_path)
    assert told.said() == [("user", "/rename New name"), ("agent", "Renamed.")]


@pytest.mark.parametrize("words", ["Use </command-args>.", "<command-args>x</command-args>?"])
def test_tags_of_the_program_in_the_words_behind_a_command_stay_in_them(
    tmp_path: Path, words: str
) -> None:
    name, args = "<command-name>/mend</command-name>", f"<command-args>{words}</command-args>"
    transcript = Transcript(name + args)
    transcript.assistant("Done.")
    assert story(transcript, tmp_path).said() == [("user", f"/mend {words}"), ("agent", "Done.")]


def test_a_cancelled_turn_ends_as_cancelled_and_keeps_its_half_text(tmp_path: Path) -> None:
    transcript = Transcript("Count.")
    transcript.assistant("one two")
    transcript.user("[Request interrupted by user]")
    transcript.user("Go on.")
    transcript.assistant("three")
    told = story(transcript, tmp_path)
    assert [end["stopReason"] for end in told.ends()] == ["cancelled", "end_turn"]
    assert ("agent", "one two") in told.said()


def test_a_call_without_a_result_is_told_as_ended(tmp_path: Path) -> None:
    transcript = Transcript("Sleep.")
    transcript.assistant(use("t1", "Bash", command="sleep 60"))
    told = story(transcript, tmp_path)
    assert told.call()["status"] == "failed"
    (end,) = told.ends()
    assert end["interrupted"] is None


@pytest.mark.parametrize("kind", ["progress", "file-history-snapshot", "from-the-future"])
@pytest.mark.parametrize("before", ["prompts", "calls"])
def test_records_that_are_no_messages_still_link_the_chain(
    tmp_path: Path, kind: str, before: str
) -> None:
    transcript = Transcript("Hello.")
    for words in ("One.", "Two.", "Three."):
        if before == "prompts":
            transcript.add(kind, data={"type": "hook_progress"})
        transcript.user(words)
        if before == "calls":
            transcript.add(kind, data={"type": "hook_progress"})
        transcript.assistant(use(words, "Read", file_path="/a"))
        transcript.result(words, "A")
    assert story(transcript, tmp_path).said() == [
        ("user", "Hello."),
        ("user", "One."),
        ("call", "Read /a"),
        ("user", "Two."),
        ("call", "Read /a"),
        ("user", "Three."),
        ("call", "Read /a"),
    ]


def test_going_back_over_such_records_leaves_what_was_behind_them(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    fork = transcript.assistant("Hi.")
    transcript.add("progress")
    transcript.user("Left behind.")
    transcript.user("Another way.", after=fork)
    assert [words for _, words in story(transcript, tmp_path).said()] == [
        "Hello.",
        "Hi.",
        "Another way.",
    ]


def test_a_result_that_stands_before_its_call_belongs_to_that_call(tmp_path: Path) -> None:
    transcript = Transcript("Read it.")
    transcript.assistant(use("t1", "Read", file_path="/a"))
    transcript.result("t1", "A")
    transcript.user("Thanks.")
    call, result = transcript.records[1:3]
    transcript.records[1:3] = [result, call]
    told = story(transcript, tmp_path)
    assert told.said() == [("user", "Read it."), ("call", "Read /a"), ("user", "Thanks.")]
    assert told.call()["status"] == "completed"
    assert told.facts.missed.counts == {}


@pytest.mark.parametrize("boundary", [True, False])
def test_a_compaction_that_names_no_earlier_record_is_not_taken_for_going_back(
    tmp_path: Path, boundary: bool
) -> None:
    transcript = Transcript("Hello.")
    transcript.assistant("Hi.")
    transcript.user("More.")
    transcript.assistant("Yes.")
    if boundary:
        transcript.add(
            "system", after=None, subtype="compact_boundary", logicalParentUuid="never written"
        )
    summary = "This session is being continued from a previous conversation: …"
    transcript.user(summary, after="" if boundary else None, isCompactSummary=True)
    transcript.user("Go on.")
    users = [words for who, words in story(transcript, tmp_path).said() if who == "user"]
    assert users == ["Hello.", "More.", "Go on."]


@pytest.mark.parametrize("is_copied", [True, False])
def test_nobody_goes_back_behind_a_compaction(tmp_path: Path, is_copied: bool) -> None:
    """A second one in the same process names a record from before the first one."""
    transcript = Transcript("One.")
    early = transcript.assistant("First.")
    transcript.add("system", None, subtype="compact_boundary", logicalParentUuid=early)
    transcript.user("This session is being continued from a previous conversation.")
    transcript.user("Two.")
    transcript.assistant("Second.")
    transcript.records += transcript.records[:2] * is_copied
    hook = transcript.add("system", early, subtype="stop_hook_summary")
    transcript.add("system", None, subtype="compact_boundary", logicalParentUuid=hook)
    transcript.user("Three.", "" if is_copied else early)
    transcript.write(tmp_path)
    said = [words for role, words in Story.of(READER, tmp_path).said() if role != "call"]
    assert said == ["One.", "First.", "Two.", "Second.", "Three."]


@pytest.mark.parametrize("times", [1, 2])
def test_a_prompt_that_follows_what_a_compaction_kept_can_be_gone_back_to(
    tmp_path: Path, times: int
) -> None:
    """Behind the boundary, the first prompt names the last record that was kept."""
    transcript = Transcript("One.")
    kept = transcript.assistant("First.")
    transcript.add("system", None, subtype="compact_boundary", logicalParentUuid=kept)
    transcript.user("This session is being continued from a previous conversation.")
    for number in range(times):
        transcript.user(f"Left {number}.", kept)
        transcript.assistant("Second.")
    transcript.user("Instead.", kept)
    transcript.assistant("Third.")
    transcript.write(tmp_path)
    story = Story.of(READER, tmp_path)
    said = [words for role, words in story.said() if role != "call"]
    assert said == ["One.", "First.", "Instead.", "Third."]
    assert story.facts.missed.counts == {ABANDONED: times}


@pytest.mark.parametrize("names", ["preservedSegment", "preservedMessages"])
@pytest.mark.parametrize(
    ("back_to", "told"),
    [
        (None, ["One.", "First.", "Two.", "Second.", "Three.", "Third.", "Four.", "Last."]),
        (1, ["One.", "First.", "Last."]),
        (2, ["One.", "First.", "Two.", "Second.", "Last."]),
    ],
)
def test_a_prompt_that_a_compaction_kept_can_be_gone_back_to(
    tmp_path: Path, back_to: int | None, told: list[str], names: str
) -> None:
    """A prompt in the place of the first that was kept names what stands before it since."""
    transcript = Transcript("One.")
    transcript.assistant("First.")
    first = transcript.user("Two.")
    second = transcript.assistant("Second.")
    transcript.user("Three.")
    last = transcript.assistant("Third.")
    anchor = f"00000000-0000-4000-8000-{8:012}"
    kept: Json = {"headUuid": first, "anchorUuid": anchor, "tailUuid": last}
    if names == "preservedMessages":
        kept = {"anchorUuid": anchor, "uuids": [first, second, last]}
    about = {"logicalParentUuid": last, "compactMetadata": {names: kept}}
    transcript.add("system", None, subtype="compact_boundary", **about)
    summary = transcript.user("This session is being continued from a previous conversation.")
    assert summary == anchor
    transcript.add("attachment", attachment={"type": "date"})
    transcript.user("Four.")
    transcript.user("Last.", {1: anchor, 2: second}.get(back_to or 0, ""))
    said = [words for role, words in story(transcript, tmp_path).said() if role != "call"]
    assert said == told


def test_the_results_of_parallel_calls_are_all_told(tmp_path: Path) -> None:
    transcript = Transcript("Read both.")
    first = transcript.assistant(use("t1", "Read", file_path="/a"))
    second = transcript.assistant(use("t2", "Read", file_path="/b"))
    transcript.result("t1", "A", after=first)
    transcript.result("t2", "B", after=second)
    transcript.assistant("Done.")
    told = story(transcript, tmp_path)
    assert [call.status for call in told.calls()] == ["completed", "completed"]


def test_a_compaction_is_a_call_behind_the_command_that_asked_for_it(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    last = transcript.assistant("Hi.")
    transcript.add(
        "system",
        after=None,
        logicalParentUuid=last,
        subtype="compact_boundary",
        compactMetadata={"trigger": "manual", "preTokens": 7},
    )
    transcript.user("This session is being continued: …", isCompactSummary=True)
    transcript.user("<command-name>/compact</command-name>")
    transcript.user("<local-command-stdout>Compacted</local-command-stdout>")
    transcript.user("Thanks.")
    transcript.assistant("Bye.")
    told = story(transcript, tmp_path)
    assert [item for item in told.said() if item[0] != "agent"] == [
        ("user", "Hello."),
        ("user", "/compact"),
        ("call", "Compact conversation"),
        ("user", "Thanks."),
    ]
    assert told.call()["rawOutput"] == {"trigger": "manual", "preTokens": 7}


def test_the_plan_is_put_together_from_the_tasks(tmp_path: Path) -> None:
    transcript = Transcript("Plan.")
    for number, subject in enumerate(("One", "Two"), 1):
        transcript.assistant(use(f"c{number}", "TaskCreate", subject=subject, activeForm="Doing"))
        transcript.result(f"c{number}", "ok", toolUseResult={"task": {"id": str(number)}})
    transcript.assistant(use("u1", "TaskUpdate", taskId="1", status="in_progress"))
    transcript.result("u1", "ok", toolUseResult={"success": True})
    told = story(transcript, tmp_path)
    assert told.plan() == [("Doing", "in_progress"), ("Two", "pending")]
    assert told.calls() == []


def test_the_older_plan_is_told_as_it_was_written(tmp_path: Path) -> None:
    transcript = Transcript(version="1.0.124")
    transcript.user("Plan.")
    todos = [{"content": "One", "status": "completed"}, {"content": "Two", "status": "odd"}]
    transcript.assistant(use("t1", "TodoWrite", todos=todos))
    transcript.result("t1", "ok")
    assert story(transcript, tmp_path).plan() == [("One", "completed"), ("Two", "pending")]


def test_a_title_that_a_person_gave_wins_over_one_that_was_made(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.beside(type="ai-title", aiTitle="Made", sessionId=SESSION)
    transcript.beside(type="custom-title", customTitle="Given", sessionId=SESSION)
    transcript.beside(type="ai-title", aiTitle="Made again", sessionId=SESSION)
    assert story(transcript, tmp_path).facts.title == "Given"


def subagent(**more: Json) -> list[Json]:
    child = Transcript(count=500)
    child.add("user", message={"role": "user", "content": "Count."}, isSidechain=True, **more)
    child.assistant("I count.", use("s1", "Read", file_path="/a"), isSidechain=True, **more)
    child.result("s1", "A", isSidechain=True, **more)
    return child.records


def test_a_subagents_calls_stand_inside_the_call_that_started_it(tmp_path: Path) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Agent", description="count", prompt="Count."))
    transcript.result("t1", "3", toolUseResult={"agentId": "abc"})
    path = transcript.write(tmp_path)
    folder = path.with_suffix("") / "subagents"
    write_lines(folder / "agent-abc.jsonl", *subagent())
    (folder / "agent-abc.meta.json").write_text(json.dumps({"toolUseId": "t1"}))
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Delegate."), ("call", "count"), ("call", "Read /a")]
    meta = json.loads(told.calls()[1].fields["_meta"])
    assert meta["acphold/parentToolCallId"] == "t1"


def test_a_subagent_of_a_subagent_stands_inside_its_call(tmp_path: Path) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Agent", description="count", prompt="Count."))
    transcript.result("t1", "3", toolUseResult={"agentId": "abc"})
    folder = transcript.write(tmp_path).with_suffix("") / "subagents"
    above = Transcript(count=500)
    above.assistant(use("t2", "Agent", description="more", prompt="More."), isSidechain=True)
    above.result("t2", "4", isSidechain=True, toolUseResult={"agentId": "def"})
    write_lines(folder / "agent-abc.jsonl", *above.records)
    write_lines(folder / "agent-def.jsonl", *subagent())
    calls = Story.of(READER, tmp_path).calls()
    callers = [json.loads(it.fields["_meta"]).get("acphold/parentToolCallId") for it in calls]
    assert callers == [None, "t1", "t2"]


def test_a_subagents_file_beside_the_transcript_is_found_by_its_id(tmp_path: Path) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Task", description="count", prompt="Count."))
    transcript.result("t1", "3", toolUseResult={"agentId": "0badf00d"})
    path = transcript.write(tmp_path)
    write_lines(path.parent / "agent-0badf00d.jsonl", *subagent())
    write_lines(path.parent / "agent-11111111.jsonl", *subagent())
    assert [call.title for call in Story.of(READER, tmp_path).calls()] == ["count", "Read /a"]


def test_a_subagent_inside_the_transcript_belongs_to_the_call_with_its_prompt(
    tmp_path: Path,
) -> None:
    transcript = Transcript(version="1.0.124")
    transcript.user("Delegate.")
    transcript.assistant(use("t1", "Task", description="count", prompt="Count."))
    transcript.assistant(use("t2", "Task", description="other", prompt="Other."))
    transcript.records += subagent(version="1.0.124")
    transcript.result("t1", "3")
    told = story(transcript, tmp_path)
    meta = json.loads(told.calls()[2].fields["_meta"])
    assert meta["acphold/parentToolCallId"] == "t1"


def test_links_and_embedded_files_of_a_prompt_become_links_and_resources_again(
    tmp_path: Path,
) -> None:
    transcript = Transcript()
    transcript.user(
        [
            {"type": "text", "text": "Look:"},
            {"type": "text", "text": "[@a.txt](file:///x/a.txt)"},
            {"type": "text", "text": "[@b.txt](file:///x/b.txt)"},
            {"type": "image", "source": {"type": "base64", "data": "AA", "media_type": "a/b"}},
            {"type": "text", "text": '\n<context ref="file:///x/b.txt">\nB\n</context>'},
        ]
    )
    assert story(transcript, tmp_path).prompts() == [
        [
            {"type": "text", "text": "Look:"},
            {"type": "resource_link", "name": "a.txt", "uri": "file:///x/a.txt"},
            {"type": "resource", "resource": {"uri": "file:///x/b.txt", "text": "B"}},
            {"type": "image", "data": "AA", "mimeType": "a/b"},
        ]
    ]


def test_what_an_editor_puts_beside_a_prompt_is_not_told_as_the_persons_words(
    tmp_path: Path,
) -> None:
    transcript = Transcript()
    opened = "The user opened the file /x/a.py in the IDE."
    transcript.user(
        [
            {"type": "text", "text": f"<ide_opened_file>{opened}</ide_opened_file>"},
            {"type": "text", "text": "Mend it."},
        ]
    )
    transcript.assistant("Done.")
    told = story(transcript, tmp_path)
    attached = {"uri": "context:ide_opened_file", "text": opened}
    assert told.prompts() == [
        [{"type": "resource", "resource": attached}, {"type": "text", "text": "Mend it."}]
    ]


def test_the_programs_own_records_are_passed_over_in_silence(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.beside(type="resume-head-vouch", x=1)
    transcript.beside(type="file-history-delta", x=1)
    transcript.beside(type="session-owner", x=1)
    transcript.add("system", subtype="model_fallback", content="Switched to another model.")
    transcript.assistant("Hi.")
    told = story(transcript, tmp_path)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert told.facts.missed.counts == {}


def test_what_the_reader_does_not_know_is_counted_and_the_rest_is_told(tmp_path: Path) -> None:
    transcript = Transcript()
    transcript.beside(type="from-the-future", x=1)
    transcript.user("Hello.")
    transcript.assistant({"type": "hologram"}, "Hi.")
    transcript.records.insert(1, b"{ no json\n")
    told = story(transcript, tmp_path)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert told.facts.missed.counts == {
        "records of type 'from-the-future'": 1,
        "parts of type 'hologram'": 1,
        "lines that are not JSON objects": 1,
    }


def test_a_cycle_of_parents_ends(tmp_path: Path) -> None:
    transcript = Transcript()
    transcript.user("Hello.", after="00000000-0000-4000-8000-000000000002")
    transcript.assistant("Hi.")
    transcript.records[0]["parentUuid"] = transcript.records[0]["uuid"]
    assert story(transcript, tmp_path).said() == [("user", "Hello."), ("agent", "Hi.")]


def test_a_subagents_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    write_lines(tmp_path / "secret.jsonl", *subagent())
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Task", description="count", prompt="Count."))
    transcript.result("t1", "3", toolUseResult={"agentId": "x/../../../../secret"})
    assert len(story(transcript, tmp_path).calls()) == 1


@pytest.mark.parametrize("which", ["subagents/agent-abc.meta.json", "custom-title.json", ""])
def test_nothing_is_read_beside_a_transcript_by_a_link_that_leads_out(
    tmp_path: Path, which: str
) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Task", description="count", prompt="Another."))
    folder = transcript.write(tmp_path).with_suffix("")
    write_lines(folder / "subagents/agent-abc.jsonl", *subagent())
    write_lines(folder / (which or "custom-title.json"), {"toolUseId": "t1", "customTitle": "A"})
    told = Story.of(READER, tmp_path)
    assert len(told.calls()) == 1 + ("agent" in which)
    assert told.facts.title == (None if "agent" in which else "A")
    (moved := folder / which).rename(tmp_path / "outside")
    moved.symlink_to(tmp_path / "outside")
    told = Story.of(READER, tmp_path)
    assert (len(told.calls()), told.facts.title) == (1, None)
    assert told.facts.missed.counts == {"links that lead out of a folder": 1}


def test_a_subagents_file_may_be_a_link_to_that_of_a_conversation_it_was_forked_from(
    tmp_path: Path,
) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Agent", description="count", prompt="Count."))
    project = transcript.write(tmp_path).parent
    write_lines(project / "before/subagents/agent-abc.jsonl", *subagent())
    write_lines(tmp_path / "secret.jsonl", *subagent())
    (folder := project / SESSION / "subagents").mkdir(parents=True)
    (folder / "agent-abc.jsonl").symlink_to("../../before/subagents/agent-abc.jsonl")
    (folder / "agent-def.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (source,) = sources(READER, tmp_path)
    assert source.paths[1:2] == (str(folder / "agent-abc.jsonl"),)
    assert str(folder / "agent-def.jsonl") not in source.paths


def reply(message: str, received: int, *blocks: Json, request: str = "") -> Json:
    """A record of a reply, with the tokens until then."""
    usage = {"input_tokens": 2, "output_tokens": received}
    found = {"id": message, "role": "assistant", "model": "m", "content": blocks, "usage": usage}
    return {"message": found} | ({"requestId": request} if request else {})


def test_a_reply_counts_once_though_records_of_another_and_a_prompt_are_in_between(
    tmp_path: Path,
) -> None:
    transcript = Transcript("Hello.")
    transcript.add("assistant", **reply("m1", 10, use("t1", "Bash", command="a")))
    transcript.add("assistant", **reply("m2", 20, use("t2", "Bash", command="b")))
    transcript.add("assistant", **reply("m1", 10, use("t3", "Bash", command="c")))
    transcript.user("And this.")
    transcript.add("assistant", **reply("m1", 15, {"type": "text", "text": "Done."}))
    first, second = story(transcript, tmp_path).ends()
    assert first["usage"]["outputTokens"] == 30
    assert second["usage"] == {"outputTokens": 5, "totalTokens": 5}


def test_requests_of_one_message_count_each(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.add("assistant", **reply("m1", 10, use("t1", "Bash"), request="r1"))
    transcript.add("assistant", **reply("m1", 10, use("t2", "Bash"), request="r2"))
    (end,) = story(transcript, tmp_path).ends()
    assert end["usage"]["outputTokens"] == 20


@pytest.mark.parametrize("names_its_call", [True, False])
def test_the_work_of_a_stopped_subagent_is_told_from_its_own_file(
    tmp_path: Path, names_its_call: bool
) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Agent", prompt="Count.", description="count"))
    transcript.user("And?")
    transcript.assistant("It was stopped.")
    folder = transcript.write(tmp_path).with_suffix("") / "subagents"
    for agent, call, prompt in (("a1", "t1", "Count."), ("a2", "t9", "Something else.")):
        child = Transcript()
        child.user(prompt, isSidechain=True)
        child.records[0]["message"]["content"] = prompt
        edited = use(f"{call}-edit", "Edit", file_path=f"/x/{agent}", old_string="a")
        child.assistant(edited, isSidechain=True)
        write_lines(folder / f"agent-{agent}.jsonl", *child.records)
        if names_its_call:
            write_lines(folder / f"agent-{agent}.meta.json", {"toolUseId": call})
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Delegate."),
        ("call", "count"),
        ("call", "Edit /x/a1"),
        ("user", "And?"),
        ("agent", "It was stopped."),
    ]


@pytest.mark.parametrize("as_blocks", [True, False])
def test_the_persons_words_behind_a_reminder_in_the_same_prompt_are_told(
    tmp_path: Path, as_blocks: bool
) -> None:
    texts = [
        "<task-notification>a job ended</task-notification>\n",
        "<system-reminder>\nBe brief.\n</system-reminder>\n",
        "Mend it.",
    ]
    blocks = [{"type": "text", "text": words} for words in texts]
    transcript = Transcript()
    said = blocks if as_blocks else "".join(texts)
    transcript.add("user", message={"role": "user", "content": said})
    transcript.assistant("Done.")
    told = story(transcript, tmp_path)
    attached = {"uri": "context:system-reminder", "text": "Be brief."}
    assert told.prompts() == [
        [{"type": "resource", "resource": attached}, {"type": "text", "text": "Mend it."}]
    ]


def test_the_persons_words_between_two_reminders_are_told(tmp_path: Path) -> None:
    reminder = "<system-reminder>Be brief.</system-reminder>\n"
    transcript = Transcript()
    transcript.user([{"type": "text", "text": f"{reminder}Mend it.\n{reminder}"}])
    transcript.assistant("Done.")
    attached = {"uri": "context:system-reminder", "text": "Be brief."}
    resource = {"type": "resource", "resource": attached}
    assert story(transcript, tmp_path).prompts() == [
        [resource, {"type": "text", "text": "Mend it."}, resource]
    ]


def test_a_reminder_behind_the_persons_words_is_attached(tmp_path: Path) -> None:
    transcript = Transcript()
    transcript.user("Mend it.\n<system-reminder>Be brief.</system-reminder>\n")
    transcript.assistant("Done.")
    attached = {"uri": "context:system-reminder", "text": "Be brief."}
    assert story(transcript, tmp_path).prompts() == [
        [{"type": "text", "text": "Mend it."}, {"type": "resource", "resource": attached}]
    ]


def test_what_a_version_wrote_below_the_folder_of_settings_is_found(tmp_path: Path) -> None:
    Transcript("Hello.").write(tmp_path)
    (tmp_path / ".config").mkdir()
    (tmp_path / ".claude").rename(tmp_path / ".config/claude")
    assert Story.of(READER, tmp_path).said() == [("user", "Hello.")]


@pytest.mark.parametrize(
    ("name", "arguments", "title", "kind"),
    [
        ("Glob", {"pattern": "*.py", "path": "/src"}, "Find *.py", "search"),
        ("Grep", {"pattern": "TODO", "-n": True}, "Search TODO", "search"),
        ("WebSearch", {"query": "hay"}, "Search the web for hay", "fetch"),
        ("WebFetch", {"url": "https://a.b", "prompt": "Why?"}, "Fetch https://a.b", "fetch"),
        ("NotebookEdit", {"notebook_path": "/n.ipynb"}, "Edit /n.ipynb", "edit"),
        ("mcp__a__b", {"path": "/x"}, "mcp__a__b", "other"),
    ],
)
def test_its_tools_without_a_form_of_their_own_are_shown_as_those_of_other_programs(
    name: str, arguments: dict[str, object], title: str, kind: str
) -> None:
    fields = call_fields(name, arguments, "/", old=False)
    assert (fields["title"], fields["kind"], fields["rawInput"]) == (title, kind, arguments)
    path = arguments.get("path") or arguments.get("notebook_path")
    has_place = path is not None and kind != "other"
    assert fields.get("locations") == ([{"path": path}] if has_place else None)


def test_of_a_long_last_record_little_more_is_read_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = Transcript("Hello.")
    for _ in range(8):
        transcript.assistant("x" * 300_000)
    transcript.write(tmp_path)
    read: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, at: int) -> bytes:
        found = pread(file, size, at)
        read.append(len(found))
        return found

    monkeypatch.setattr(os, "pread", counted)
    assert [source.session_id for source in sources(READER, tmp_path)] == [SESSION]
    assert 300_000 < sum(read) < 600_000


@pytest.mark.parametrize("is_chained", [True, False])
def test_records_that_were_written_again_with_other_ids_are_told_once(
    tmp_path: Path, *, is_chained: bool
) -> None:
    """With `--input-format stream-json`, a version wrote all of it again before each prompt."""
    transcript, told = Transcript(), list[Json]()
    for number, words in enumerate(("continue", "continue", "Thanks.")):
        parent = None if number == 0 or not is_chained else transcript.last
        for n, record in enumerate(told):
            again = record | {"uuid": f"{number}-{n}", "parentUuid": parent}
            transcript.records.append(again)
            transcript.last = parent = again["uuid"]
        begin = len(transcript.records)
        transcript.user(words)
        transcript.assistant(thinking("Well."), use(f"t{number}", "Read", file_path="/a"))
        transcript.result(f"t{number}", "text")
        transcript.assistant("Done.")
        told += transcript.records[begin:]
    said = [words for _, words in story(transcript, tmp_path).said()]
    turn = ["Well.", "Read /a", "Done."]
    assert said == ["continue", *turn, "continue", *turn, "Thanks.", *turn]


def test_a_record_without_a_message_or_a_time_has_its_place_in_a_file_that_was_written_again(
    tmp_path: Path,
) -> None:
    transcript = Transcript("one")
    transcript.assistant("On one")
    parent = None
    for n, record in enumerate([*transcript.records]):
        transcript.records.append(record | {"uuid": f"again-{n}", "parentUuid": parent})
        transcript.last = parent = f"again-{n}"
    notice = transcript.add("system", message="A notice.")
    for words in ("left", "instead"):
        transcript.user(words, notice, timestamp=None)
        transcript.assistant(f"On {words}")
    said = [words for _, words in story(transcript, tmp_path).said()]
    assert said == ["one", "On one", "instead", "On instead"]


def test_a_prompt_without_a_time_can_be_left(tmp_path: Path) -> None:
    transcript = Transcript("one")
    before = transcript.assistant("On one")
    for words in ("left", "instead"):
        transcript.user(words, before, timestamp=None)
        transcript.assistant(f"On {words}")
    said = [words for _, words in story(transcript, tmp_path).said()]
    assert said == ["one", "On one", "instead", "On instead"]


def test_equal_prompts_of_one_time_with_answers_of_their_own_are_told(tmp_path: Path) -> None:
    transcript = Transcript("Before.")
    transcript.records[0]["timestamp"] = "2026-01-02T04:00:00.000Z"
    for number in range(3):
        transcript.user("continue")
        transcript.assistant(f"Answer {number}.")
    for record in transcript.records[1:]:
        record["timestamp"] = "2026-01-02T03:00:00.000Z"
    said = [words for _, words in story(transcript, tmp_path).said()]
    assert said == ["Before.", *[w for n in range(3) for w in ("continue", f"Answer {n}.")]]
