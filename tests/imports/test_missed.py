"""Records that a reader does not understand are reported, and everything around them is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import NAMES, reader
from acphold.imports.records import LINE_BYTES
from tests.cli.command_line import CommandLine
from tests.imports.claude_home import Transcript
from tests.imports.codex_home import Rollout
from tests.imports.test_aider import BEGUN, project
from tests.imports.test_auggie import (
    exchange as auggie_exchange,
    said as auggie_said,
    session as auggie_session,
)
from tests.imports.test_crush import Database, part
from tests.imports.test_cursor import Editor
from tests.imports.test_goose import Store as Goose
from tests.imports.test_hermes import State
from tests.imports.test_opencode import Store
from tests.imports.test_pi import Session
from tests.imports.test_vscode import document, request
from tests.imports.test_zed import Threads, agent, user
from tests.imports.told import Story, write_lines

Json = Any


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    return CommandLine(journal)


def imported(acphold: CommandLine, home: Path, *words: str) -> list[Json]:
    """The report of an import for each agent."""
    done = acphold.run("import", "--from", str(home), "--json", *words)
    return [json.loads(line) for line in done.out.splitlines()]


SAID = [("user", "Hello."), ("agent", "Hi."), ("user", "And now?"), ("agent", "Bye.")]


def claude(home: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.assistant("Hi.", {"type": "hologram"})
    transcript.add("from-the-future", message={"content": "x"})
    transcript.add("system", subtype="from-the-future")
    transcript.user([{"type": "text", "text": "And now?"}, {"type": "smell"}])
    transcript.assistant("Bye.")
    transcript.write(home)


def codex(home: Path) -> None:
    rollout = Rollout("Hello.")
    rollout.agent("Hi.")
    rollout.add("from-the-future", x=1)
    rollout.event("from-the-future")
    rollout.item("from-the-future")
    rollout.user("And now?", {"type": "input_smell"})
    rollout.agent("Bye.")
    rollout.write(home)


def gemini(home: Path, folder: str = ".gemini", speaker: str = "gemini") -> None:
    write_lines(
        home / folder / "tmp/p/chats/session-2026-01-02T03-04-aaaaaaaa.jsonl",
        {"sessionId": "s1", "startTime": "2026-01-02T03:04:05Z"},
        {"id": "1", "type": "user", "content": [{"text": "Hello."}]},
        {"id": "2", "type": speaker, "content": "Hi."},
        {"id": "3", "type": "from-the-future", "content": "x"},
        {"from": "the future"},
        {"id": "4", "type": "user", "content": [{"text": "And now?"}, {"smell": {}}]},
        {"id": "5", "type": speaker, "content": "Bye."},
    )


def qwen(home: Path) -> None:
    chain: list[Json] = [
        {"type": "user", "message": {"parts": [{"text": "Hello."}]}},
        {"type": "assistant", "message": {"parts": [{"text": "Hi."}, {"hologram": {}}]}},
        {"type": "from-the-future"},
        {"type": "system", "subtype": "from-the-future"},
        {"type": "user", "message": {"parts": [{"text": "And now?"}, {"smell": {}}]}},
        {"type": "assistant", "message": {"parts": [{"text": "Bye."}]}},
    ]
    write_lines(
        home / ".qwen/projects/x/chats/s1.jsonl",
        *(
            record | {"uuid": str(number), "parentUuid": str(number - 1) if number else None}
            for number, record in enumerate(chain)
        ),
    )


def opencode(home: Path, program: str = "opencode") -> None:
    store = Store(home, program)
    store.session()
    store.message("user", "Hello.")
    store.message("assistant", "Hi.", {"type": "hologram"})
    store.message("from-the-future", "x")
    store.message("user", "And now?", {"type": "smell"})
    store.message("assistant", "Bye.")


def goose(home: Path) -> None:
    store = Goose(home)
    store.session("1")
    store.message("user", {"type": "text", "text": "Hello."})
    store.message("assistant", {"type": "text", "text": "Hi."}, {"type": "hologram"})
    store.message("from-the-future", {"type": "text", "text": "x"})
    store.message("user", {"type": "text", "text": "And now?"}, {"type": "smell"})
    store.message("assistant", {"type": "text", "text": "Bye."})


def cursor(home: Path) -> None:
    editor = Editor(home)
    editor.composer()
    editor.bubble(1, "Hello.")
    editor.bubble(2, "Hi.")
    editor.bubble(7, "x")
    editor.bubble(1, "And now?")
    editor.bubble(2, "Bye.")


def vscode(home: Path) -> None:
    attached = {"variables": [{"kind": "smell", "value": 1}]}
    document(
        home,
        request("Hello.", "Hi.", {"kind": "hologram"}),
        request("And now?", "Bye.", variableData=attached),
    )


def zed(home: Path) -> None:
    threads = Threads(home)
    threads.put(
        user("Hello."),
        agent("Hi.", {"Hologram": "x"}),
        {"FromTheFuture": {}},
        user("And now?", {"Smell": 1}),
        agent("Bye."),
    )


def aider(home: Path) -> None:
    long = "x" * (LINE_BYTES + 1) + "\n"
    said = "\n#### Hello.  \n\nHi.\n\n" + long + "\n#### And now?  \n\nBye.\n"
    project(home, BEGUN, said)


def crush(home: Path) -> None:
    database = Database(home)
    database.session()
    database.message("user", "Hello.")
    database.message("assistant", "Hi.", part("hologram"))
    database.message("from-the-future", "x")
    database.message("user", "And now?", part("smell"))
    database.message("assistant", "Bye.")


def auggie(home: Path) -> None:
    auggie_session(
        home,
        auggie_exchange("Hello.", auggie_said("Hi."), {"type": 4711}),
        auggie_exchange("And now?", auggie_said("Bye."), nodes=({"type": 4712},)),
    )


def hermes(home: Path) -> None:
    state = State(home)
    state.session()
    state.message("user", "Hello.")
    state.message("assistant", "Hi.", finish_reason="stop")
    state.message("from-the-future", "x")
    state.message("user", [{"type": "text", "text": "And now?"}, {"type": "smell"}])
    state.message("assistant", "Bye.", finish_reason="stop")


def cline(home: Path) -> None:
    path = home / ".cline/data/sessions/1/1.messages.json"
    path.parent.mkdir(parents=True)

    def said(role: str, words: str, *more: Json) -> Json:
        return {"role": role, "content": [{"type": "text", "text": words}, *more]}

    messages = [
        said("user", "Hello."),
        said("assistant", "Hi.", {"type": "hologram"}),
        said("from-the-future", "x"),
        said("user", "And now?", {"type": "smell"}),
        said("assistant", "Bye."),
    ]
    path.write_text(json.dumps({"messages": messages}))


def cline_task(home: Path, root: str = ".cline/data") -> None:
    path = home / root / "tasks/1/ui_messages.json"
    path.parent.mkdir(parents=True)
    kinds = ["task", "text", "from_the_future", "user_feedback", "text"]
    words = ["Hello.", "Hi.", "x", "And now?", "Bye."]
    screen = [
        {"ts": 1, "type": "say", "say": kind, "text": said}
        for kind, said in zip(kinds, words, strict=True)
    ]
    path.write_text(json.dumps(screen))


def copilot(home: Path) -> None:
    write_lines(
        home / ".copilot/session-state/s1/events.jsonl",
        {"type": "user.message", "data": {"content": "Hello."}},
        {"type": "assistant.message", "data": {"content": "Hi."}},
        {"type": "from.the.future", "data": {"content": "x"}},
        {
            "type": "user.message",
            "data": {"content": "And now?", "attachments": [{"type": "smell"}]},
        },
        {"type": "assistant.message", "data": {"content": "Bye."}},
    )


def pi(home: Path) -> None:
    session = Session()
    session.user("Hello.")
    session.agent("Hi.", {"type": "hologram"})
    session.add("from-the-future", x=1)
    session.message("from-the-future", "x")
    session.user("And now?", {"type": "smell"})
    session.agent("Bye.")
    session.write(home)


def acpx(home: Path) -> None:
    def prompt(number: int, words: str) -> Json:
        block = {"type": "text", "text": words}
        return {"id": number, "method": "session/prompt", "params": {"prompt": [block]}}

    def chunk(words: str) -> Json:
        update = {"sessionUpdate": "agent_message_chunk"}
        whole = update | {"content": {"type": "text", "text": words}}
        return {"method": "session/update", "params": {"sessionId": "s1", "update": whole}}

    folder = home / ".acpx/sessions"
    write_lines(folder / "r.json", {"schema": "acpx.session.v1", "acp_session_id": "s1"})
    write_lines(
        folder / "r.stream.ndjson",
        {"type": "segment", "sequence": 0},
        prompt(1, "Hello."),
        chunk("Hi."),
        {"id": 1, "result": {"stopReason": "end_turn"}},
        {"type": "from-the-future"},
        prompt(2, "And now?"),
        chunk("Bye."),
        {"id": 2, "result": {"stopReason": "end_turn"}},
    )


def acphold_lines(home: Path) -> None:
    def chunk(words: str) -> Json:
        update = {"sessionUpdate": "agent_message_chunk"}
        return update | {"content": {"type": "text", "text": words}}

    entries = [
        ("prompt", [{"type": "text", "text": "Hello."}]),
        ("update", chunk("Hi.")),
        ("turn_end", {"stopReason": "end_turn"}),
        ("prompt", [{"type": "text", "text": "And now?"}]),
        ("update", chunk("Bye.")),
        ("turn_end", {"stopReason": "end_turn"}),
    ]
    lines = [
        {"seq": seq, "kind": kind, "update": told} for seq, (kind, told) in enumerate(entries, 1)
    ]
    write_lines(
        home / "s.jsonl",
        {"session": {"sessionId": "s", "agent": "a", "cwd": "/"}},
        *lines[:3],
        {"from": "the future"},
        *lines[3:],
    )


HOMES: dict[str, tuple[str, Callable[[Path], None], set[str]]] = {
    "claude": ("claude", claude, {
        "parts of type 'hologram'", "records of type 'from-the-future'",
        "system records of type 'from-the-future'", "parts of prompts of type 'smell'",
    }),
    "codex": ("codex", codex, {
        "records of type 'from-the-future'", "events of type 'from-the-future'",
        "items of type 'from-the-future'", "parts of prompts of type 'input_smell'",
    }),
    "gemini": ("gemini", gemini, {
        "messages of type 'from-the-future'", "records of an unknown form",
        "parts of prompts of type 'smell'",
    }),
    "qwen": ("qwen", qwen, {
        "parts of type 'hologram'", "records of type 'from-the-future'",
        "system records of type 'from-the-future'", "parts of prompts of type 'smell'",
    }),
    "qwen of 0.1": ("qwen", lambda home: gemini(home, ".qwen", "qwen"), {
        "messages of type 'from-the-future'", "records of an unknown form",
        "parts of prompts of type 'smell'",
    }),
    "opencode": ("opencode", opencode, {
        "parts of type 'hologram'", "messages of type 'from-the-future'",
        "parts of prompts of type 'smell'",
    }),
    "pi": ("pi", pi, {
        "parts of type 'hologram'", "records of type 'from-the-future'",
        "messages of type 'from-the-future'", "parts of messages of type 'smell'",
    }),
    "kilo": ("kilo", lambda home: opencode(home, "kilo"), {
        "parts of type 'hologram'", "messages of type 'from-the-future'",
        "parts of prompts of type 'smell'",
    }),
    "kilo before that": ("kilo", lambda home: cline_task(home, ".kilocode/cli/global"), {
        "messages of kind 'from_the_future'",
    }),
    "roo": ("roo", lambda home: cline_task(home, ".vscode-mock/global-storage"), {
        "messages of kind 'from_the_future'",
    }),
    "goose": ("goose", goose, {
        "parts of type 'hologram'", "messages of type 'from-the-future'",
        "parts of prompts of type 'smell'",
    }),
    "cursor": ("cursor", cursor, {"messages of type '7'"}),
    "vscode": ("vscode", vscode, {"parts of type 'hologram'", "attachments of type 'smell'"}),
    "zed": ("zed", zed, {
        "parts of type 'Hologram'", "messages of type 'FromTheFuture'",
        "parts of prompts of type 'Smell'",
    }),
    "aider": ("aider", aider, {"lines that are too long"}),
    "crush": ("crush", crush, {
        "parts of type 'hologram'", "messages of type 'from-the-future'",
        "parts of prompts of type 'smell'",
    }),
    "hermes": ("hermes", hermes, {
        "messages of type 'from-the-future'", "parts of prompts of type 'smell'",
    }),
    "auggie": ("auggie", auggie, {
        "parts of type '4711'", "parts of prompts of type '4712'",
    }),
    "cline": ("cline", cline, {
        "parts of type 'hologram'", "messages of type 'from-the-future'",
        "parts of prompts of type 'smell'",
    }),
    "cline in editors": ("cline", cline_task, {"messages of kind 'from_the_future'"}),
    "copilot": ("copilot", copilot, {
        "events of type 'from.the.future'", "attachments of type 'smell'",
    }),
    "acpx": ("acpx", acpx, {"records of type 'from-the-future'"}),
    "acphold": ("acphold", acphold_lines, {"lines that are not entries"}),
}  # fmt: skip


def test_every_reader_has_a_transcript_here() -> None:
    assert {name for name, _, _ in HOMES.values()} == set(NAMES)


@pytest.mark.parametrize("which", HOMES)
def test_what_a_reader_does_not_know_is_counted_and_all_around_it_comes_in(
    acphold: CommandLine, tmp_path: Path, which: str
) -> None:
    name, make, missed = HOMES[which]
    make(tmp_path)
    assert Story.of(reader(name), tmp_path).said() == SAID
    (told,) = imported(acphold, tmp_path, "--agent", name)
    assert told["new"] == 1
    assert told["missed"] == dict.fromkeys(missed, 1)
    assert told["missedBytes"].keys() == missed
    assert all(size > 0 for size in told["missedBytes"].values())


def test_how_much_was_passed_over_and_which_files_could_not_be_read_is_told_in_words(
    acphold: CommandLine, tmp_path: Path
) -> None:
    copilot(tmp_path)
    broken = tmp_path / ".cline/data/sessions/1/1.messages.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("half")
    done = acphold.run("import", "--from", str(tmp_path))
    assert "copilot: skipped events of type 'from.the.future' (1)" in done.err
    assert done.err.rstrip().endswith(" bytes")
    (failure,) = imported(acphold, tmp_path, "--agent", "cline")[0]["failures"]
    assert failure.startswith(str(broken))


def test_prompts_on_abandoned_branches_are_counted(acphold: CommandLine, tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    here = transcript.assistant("Hi.")
    transcript.user("This way?")
    transcript.assistant("No.")
    transcript.user("That way?", after=here)
    transcript.assistant("Yes.")
    transcript.user("<command-name>/exit</command-name>", after=here)
    transcript.user("And so?", after=transcript.records[-2]["uuid"])
    transcript.write(tmp_path)
    (told,) = imported(acphold, tmp_path)
    assert told["missed"] == {"prompts in abandoned branches, see --branches": 1}
    for options, said in ((), ", see --branches (1)"), (("--branches",), ""):
        acphold.journal.unlink()
        done = acphold.run("import", "--from", str(tmp_path), *options)
        skipped = [line for line in done.err.splitlines() if ": skipped " in line]
        assert [line.endswith(said) for line in skipped] == [True] * bool(said)


def test_what_a_person_says_beside_the_result_of_a_call_is_a_prompt(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.assistant({"type": "tool_use", "id": "t1", "name": "Bash", "input": {}})
    refused = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "refused"}
    transcript.user([refused, {"type": "text", "text": "Use the other tool."}])
    transcript.assistant("I do.")
    transcript.write(tmp_path)
    told = Story.of(reader("claude"), tmp_path)
    assert told.said() == [
        ("user", "Hello."),
        ("call", "Terminal"),
        ("user", "Use the other tool."),
        ("agent", "I do."),
    ]
    assert told.calls()[0].status == "failed"


def test_what_codex_puts_in_the_persons_place_before_any_event_is_no_prompt(
    tmp_path: Path,
) -> None:
    rollout = Rollout()
    rollout.program("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>Be kind.</INSTRUCTIONS>")
    rollout.program("Something that no version before has put here.")
    rollout.program("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>")
    rollout.user("<b>Hello.</b>")
    rollout.agent("Hi.")
    rollout.end()
    rollout.write(tmp_path)
    assert Story.of(reader("codex"), tmp_path).said() == [
        ("user", "<b>Hello.</b>"),
        ("agent", "Hi."),
    ]


def test_what_only_the_models_side_of_a_codex_rollout_has_is_told(tmp_path: Path) -> None:
    rollout = Rollout("Hello.")
    content = [{"type": "output_text", "text": "Hi."}]
    rollout.item("reasoning", summary=[{"type": "summary_text", "text": "Hm."}])
    rollout.item("message", role="assistant", content=content)
    rollout.end()
    rollout.write(tmp_path)
    told = Story.of(reader("codex"), tmp_path).said()
    assert told == [("user", "Hello."), ("thought", "Hm."), ("agent", "Hi.")]


def test_records_without_parents_are_all_told_in_their_order(tmp_path: Path) -> None:
    transcript = Transcript()
    for words in ("Hello.", "And now?"):
        transcript.user(words, after=None)
        transcript.assistant(words.upper(), after=None)
    transcript.write(tmp_path)
    assert Story.of(reader("claude"), tmp_path).said() == [
        ("user", "Hello."),
        ("agent", "HELLO."),
        ("user", "And now?"),
        ("agent", "AND NOW?"),
    ]
