"""Codex's threads of several files, and what was taken back in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acphold.imports import codex
from acphold.imports.codex import READER
from acphold.imports.sources import files_below
from acphold.imports.values import ABANDONED
from acphold.journal.compression import zstd
from tests.imports.codex_home import CWD, SESSION, Rollout
from tests.imports.told import Story, sources, write_lines

Json = Any
SECOND = "01a1f8bb-0000-7000-8000-000000000002"
THIRD = "01a1f8bc-0000-7000-8000-000000000003"
FORK = "01a1f8bd-0000-7000-8000-00000000000f"


class Segment:
    """A file of a paginated thread, as codex 0.171 writes it."""

    def __init__(self, thread: str, segment: str = "", base: Json = None, **head: Json) -> None:
        self.thread, self.segment = thread, segment or thread
        self.records: list[Json] = []
        self.ordinal = base[1] if base else 0
        self._minute = int(self.segment[-1], 16)
        if base:
            head["history_base"] = {"thread_id": base[0], "end_ordinal_exclusive": base[1]}
        about = {"id": thread, "session_id": thread, "cwd": CWD, "cli_version": "0.171.0"}
        about |= {"history_mode": "paginated", "timestamp": self._now()}
        self.add("session_meta", **about, **head)

    def _now(self) -> str:
        return f"2026-01-02T03:{self._minute:02}:{len(self.records):02}.000Z"

    def add(self, kind: str, **payload: Json) -> None:
        line = {"timestamp": self._now(), "ordinal": self.ordinal, "type": kind, "payload": payload}
        self.records.append(line)
        self.ordinal += 1

    def turn(self, words: str, answer: str) -> int:
        """A turn; returns the ordinal that it begins at."""
        begin, turn = self.ordinal, f"turn-{words}"
        self.add("event_msg", type="task_started", turn_id=turn)
        content = [{"type": "input_text", "text": words}]
        self.add("response_item", type="message", role="user", content=content)
        said = [("UserMessage", "text", words), ("AgentMessage", "Text", answer)]
        for kind, part, text in said:
            item = {
                "type": kind,
                "id": f"{kind}-{words}",
                "content": [{"type": part, "text": text}],
            }
            self.add("event_msg", type="item_completed", turn_id=turn, item=item)
        self.add("event_msg", type="task_complete", turn_id=turn)
        return begin

    def write(self, home: Path) -> Path:
        name = self.thread if self.segment == self.thread else f"{self.thread}_{self.segment}"
        folder = home / ".codex/sessions/2026/01/02"
        return write_lines(folder / f"rollout-2026-01-02T03-00-00-{name}.jsonl", *self.records)


def said(told: Story) -> list[str]:
    return [words for _, words in told.said()]


def story(home: Path, session: str = SESSION) -> Story:
    (source,) = (it for it in sources(READER, home) if it.session_id == session)
    return Story(READER, source)


def tails(home: Path) -> list[list[str]]:
    assert READER.branches is not None
    (source,) = (it for it in sources(READER, home) if it.session_id == SESSION)
    found = list(READER.branches(source))
    assert all(it.session_id.startswith(f"{SESSION}~") for it in found)
    assert len({it.session_id for it in found}) == len(found)
    return [said(Story(READER, it)) for it in found]


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_thread_of_three_files_is_one_conversation(tmp_path: Path, is_packed: bool) -> None:
    first = Segment(SESSION)
    cut = first.turn("One.", "1")
    second = Segment(SESSION, SECOND, base=(SESSION, cut))
    second.turn("Two.", "2")
    cut = second.turn("Three.", "3")
    third = Segment(SESSION, THIRD, base=(SECOND, cut))
    third.turn("Four.", "4")
    for segment in (first, second, third):
        path = segment.write(tmp_path)
        if is_packed and segment is not third:
            path.with_name(path.name + ".zst").write_bytes(zstd.compress(path.read_bytes()))
            path.unlink()
    told = story(tmp_path)
    assert said(told) == ["Two.", "2", "Four.", "4"]
    assert told.facts.missed.counts == {ABANDONED: 2}
    assert tails(tmp_path) == [["One.", "1"], ["Two.", "2", "Three.", "3"]]


def test_going_back_without_a_newer_prompt_takes_nothing_away(tmp_path: Path) -> None:
    first = Segment(SESSION)
    first.turn("One.", "1")
    cut = first.turn("Two.", "2")
    first.write(tmp_path)
    Segment(SESSION, SECOND, base=(SESSION, cut)).write(tmp_path)
    told = story(tmp_path)
    assert said(told) == ["One.", "1", "Two.", "2"]
    assert told.facts.missed.counts == {}


def test_a_fork_is_told_with_its_beginning(tmp_path: Path) -> None:
    first = Segment(SESSION)
    first.turn("One.", "1")
    cut = first.turn("Two.", "2")
    second = Segment(SESSION, SECOND, base=(SESSION, cut))
    cut = second.turn("Three.", "3")
    fork = Segment(FORK, base=(SECOND, cut), forked_from_id=SESSION)
    fork.turn("Elsewhere.", "E")
    for segment in (first, second, fork):
        segment.write(tmp_path)
    told = story(tmp_path, FORK)
    assert said(told) == ["One.", "1", "Elsewhere.", "E"]
    assert told.facts.missed.counts == {}
    assert told.facts.begun_as == SESSION
    prompts = [entry.turn for entry in told.entries if entry.kind == "prompt"]
    original = [entry.turn for entry in story(tmp_path).entries if entry.kind == "prompt"]
    assert prompts[0] == original[0]


def test_a_fork_whose_beginning_is_gone_is_told_from_there_and_says_so(tmp_path: Path) -> None:
    fork = Segment(FORK, base=(SESSION, 7), forked_from_id=SESSION)
    fork.turn("Elsewhere.", "E")
    fork.write(tmp_path)
    told = story(tmp_path, FORK)
    assert said(told) == ["Elsewhere.", "E"]
    assert told.facts.missed.counts == {"beginnings that are in no file": 1}


def test_files_that_begin_in_each_other_end(tmp_path: Path) -> None:
    first = Segment(SESSION, base=(SECOND, 3))
    first.turn("One.", "1")
    second = Segment(SESSION, SECOND, base=(SESSION, 8))
    second.turn("Two.", "2")
    first.write(tmp_path)
    second.write(tmp_path)
    assert "Two." in said(story(tmp_path))


def test_ordinals_that_are_not_written_are_counted(tmp_path: Path) -> None:
    first = Segment(SESSION)
    first.turn("One.", "1")
    cut = first.turn("Two.", "2")
    second = Segment(SESSION, SECOND, base=(SESSION, cut))
    second.turn("Three.", "3")
    for segment in (first, second):
        for record in segment.records[1:]:
            del record["ordinal"]
        segment.write(tmp_path)
    assert said(story(tmp_path)) == ["One.", "1", "Three.", "3"]


def test_a_subagent_that_begins_with_its_callers_records_is_told_from_its_own(
    tmp_path: Path,
) -> None:
    rollout = Rollout("Delegate.")
    rollout.call("c1", "spawn_agent", f'{{"agent_id": "{FORK}"}}', message="Count.")
    rollout.call("c0", "shell", "ok", command=["ls"])
    rollout.write(tmp_path)
    source = {"subagent": {"thread_spawn": {"parent_thread_id": SESSION}}}
    child = Segment(FORK, source=source, forked_from_id=SESSION, subagent_history_start_ordinal=2)
    repeated = {"type": "function_call", "name": "shell", "call_id": "c0"}
    child.add("response_item", **repeated, arguments='{"command": ["ls"]}')
    called = {"type": "function_call", "name": "shell", "call_id": "c2"}
    child.add("response_item", **called, arguments='{"command": ["wc"]}')
    child.write(tmp_path)
    assert said(story(tmp_path)) == ["Delegate.", "spawn_agent", "Run wc", "List " + CWD]


@pytest.mark.parametrize("has_result", [True, False])
def test_the_work_of_a_stopped_subagent_is_told(tmp_path: Path, has_result: bool) -> None:
    rollout = Rollout("Delegate.")
    output = f'{{"agent_id": "{SECOND}"}}' if has_result else None
    rollout.call("c1", "spawn_agent", output, message="Count.")
    rollout.records[-1]["timestamp"] = "2026-01-02T03:30:00.000Z"
    rollout.write(tmp_path)
    child = Segment(SECOND, source={"subagent": {"thread_spawn": {"parent_thread_id": SESSION}}})
    called = {"type": "function_call", "name": "shell", "call_id": "c2"}
    child.add("response_item", **called, arguments='{"command": ["wc"]}')
    child.write(tmp_path)
    other = Segment(THIRD, source={"subagent": {"thread_spawn": {"parent_thread_id": FORK}}})
    other.write(tmp_path)
    assert said(story(tmp_path)) == ["Delegate.", "spawn_agent", "Run wc"]


def test_each_file_is_looked_at_once_for_however_many_stopped_subagents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = Rollout("Delegate.")
    for number in range(9):
        rollout.call(f"c{number}", "spawn_agent", None, message="Count.")
    rollout.write(tmp_path)
    child = Segment(SECOND, source={"subagent": {"thread_spawn": {"parent_thread_id": FORK}}})
    child.write(tmp_path)
    looked: list[Path] = []

    def below(folder: Path, pattern: str) -> list[Path]:
        looked.append(folder)
        return [*files_below(folder, pattern)]

    source = next(it for it in sources(READER, tmp_path) if it.session_id == SESSION)
    monkeypatch.setattr(codex, "files_below", below)
    assert said(Story(READER, source)) == ["Delegate.", *["spawn_agent"] * 9]
    assert len(looked) == 1


def rolled_back(*counts: int) -> Rollout:
    """A thread of five prompts, of which some were taken back after each."""
    rollout = Rollout()
    for number, count in enumerate(counts, 1):
        rollout.user(f"Prompt {number}.")
        rollout.agent(str(number))
        rollout.end()
        if count:
            rollout.event("thread_rolled_back", num_turns=count)
    return rollout


def test_turns_that_were_rolled_back_are_counted_and_branches(tmp_path: Path) -> None:
    rolled_back(0, 1, 0, 2, 0).write(tmp_path)
    told = story(tmp_path)
    assert said(told) == ["Prompt 1.", "1", "Prompt 5.", "5"]
    assert told.facts.missed.counts == {ABANDONED: 3}
    assert tails(tmp_path) == [
        ["Prompt 1.", "1", "Prompt 2.", "2"],
        ["Prompt 1.", "1", "Prompt 3.", "3", "Prompt 4.", "4"],
    ]


def test_words_about_rolling_back_take_nothing_away(tmp_path: Path) -> None:
    rollout = rolled_back(0, 0)
    rollout.user('Say "thread_rolled_back".')
    rollout.agent('{"type": "thread_rolled_back", "num_turns": 2}')
    rollout.write(tmp_path)
    assert said(story(tmp_path))[:4] == ["Prompt 1.", "1", "Prompt 2.", "2"]


def test_a_prompt_that_nothing_answered_and_that_was_sent_again_is_told_once(
    tmp_path: Path,
) -> None:
    rollout = Rollout("One.")
    rollout.agent("1")
    rollout.user("Two.")
    rollout.event("thread_rolled_back", num_turns=1)
    rollout.user("Two.")
    rollout.agent("2")
    rollout.write(tmp_path)
    told = story(tmp_path)
    assert said(told) == ["One.", "1", "Two.", "2"]
    assert told.facts.missed.counts == {}


@pytest.mark.parametrize("words", [["One.", "Two."], ["yes, please", "y"], ["y", "yes, please"]])
def test_the_prompts_of_two_programs_that_write_at_one_time_are_told(
    tmp_path: Path, words: list[str]
) -> None:
    rollout = Rollout()
    begun = [Rollout(said).records[1:] for said in words]
    rollout.records += [record for pair in zip(*begun, strict=True) for record in pair]
    rollout.agent("1")
    rollout.write(tmp_path)
    assert said(story(tmp_path)) == [*words, "1"]
