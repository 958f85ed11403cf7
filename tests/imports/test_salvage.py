"""Damaged lines and documents: what decodes is told, the rest is counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acphold.imports import reader
from acphold.imports.records import LINE_BYTES, record_lines
from acphold.imports.salvage import (
    DECODINGS,
    MOST_VALUES,
    LineSalvage,
    RecordLine,
    RowForm,
    salvage_document,
)
from acphold.imports.values import Missed
from tests.imports.claude_home import Transcript
from tests.imports.codex_home import Rollout
from tests.imports.test_acpx import RECORD, prompt, record as acpx_record, segment, update
from tests.imports.test_auggie import exchange as auggie_exchange, said as auggie_said
from tests.imports.test_vscode import request, session as vscode_session, storage
from tests.imports.told import Story

Json = Any

SAID = [("user", "Hello."), ("agent", "Hi."), ("user", "And now?"), ("agent", "Bye.")]
AT = "2026-01-02T03:04:05.000Z"
WORDS = (("user", "Hello."), ("assistant", "Hi."), ("user", "And now?"), ("assistant", "Bye."))


def claude(home: Path) -> tuple[Path, list[Json]]:
    transcript = Transcript("Hello.")
    transcript.assistant("Hi.")
    transcript.user("And now?")
    transcript.assistant("Bye.")
    return transcript.write(home), transcript.records


def codex(home: Path) -> tuple[Path, list[Json]]:
    rollout = Rollout("Hello.")
    rollout.agent("Hi.")
    rollout.user("And now?")
    rollout.agent("Bye.")
    path = rollout.write(home)
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def qwen(home: Path) -> tuple[Path, list[Json]]:
    path = home / ".qwen/projects/x/chats/s1.jsonl"
    records = [
        {"uuid": str(at), "parentUuid": str(at - 1) if at else None, "sessionId": "s1"}
        | {"timestamp": AT, "type": role, "message": {"parts": [{"text": words}]}}
        for at, (role, words) in enumerate(WORDS)
    ]
    return path, records


def pi(home: Path) -> tuple[Path, list[Json]]:
    path = home / ".pi/agent/sessions/--x--/1_s1.jsonl"
    head = {"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": "/x"}
    records = [
        {"type": "message", "id": str(at), "parentId": str(at - 1) if at else None}
        | {"timestamp": AT, "message": {"role": role, "content": [{"type": "text", "text": words}]}}
        for at, (role, words) in enumerate(WORDS)
    ]
    return path, [head, *records]


def copilot(home: Path) -> tuple[Path, list[Json]]:
    path = home / ".copilot/session-state/s1/events.jsonl"
    records = [
        {"type": f"{role}.message", "data": {"content": words}, "id": str(at)}
        | {"timestamp": AT, "parentId": str(at - 1) if at else None}
        for at, (role, words) in enumerate(WORDS)
    ]
    return path, records


def gemini(home: Path) -> tuple[Path, list[Json]]:
    path = home / ".gemini/tmp/p/chats/session-2026-01-02T03-04-aaaaaaaa.jsonl"
    records = [
        {"id": str(at), "timestamp": AT, "type": "user" if role == "user" else "gemini"}
        | {"content": [{"text": words}]}
        for at, (role, words) in enumerate(WORDS)
    ]
    return path, [{"sessionId": "s1", "projectHash": "x", "startTime": AT}, *records]


def goose(home: Path) -> tuple[Path, list[Json]]:
    path = home / ".local/share/goose/sessions/s1.jsonl"
    records = [
        {"id": str(at), "role": role, "created": 1, "content": [{"type": "text", "text": words}]}
        for at, (role, words) in enumerate(WORDS)
    ]
    return path, [{"working_dir": "/x", "description": "x"}, *records]


def vscode(home: Path) -> tuple[Path, list[Json]]:
    path = storage(home) / "chatSessions/s1.jsonl"
    asked = [request("Hello.", "Hi."), request("And now?", "Bye.")]
    changes = [{"kind": 2, "k": ["requests"], "v": [one]} for one in asked]
    return path, [{"kind": 0, "v": vscode_session()}, *changes]


def acpx(home: Path) -> tuple[Path, list[Json]]:
    path = acpx_record(home).with_name(f"{RECORD}.stream.ndjson")
    hello, hi, now, bye = (
        prompt(at, words) if role == "user" else update(words)
        for at, (role, words) in enumerate(WORDS)
    )
    return path, segment(0, hello, hi, now, bye)


def acphold(home: Path) -> tuple[Path, list[Json]]:
    head: Json = {"session": {"sessionId": "s1", "agent": "a", "cwd": "/x"}}
    rows = [
        {"kind": "prompt", "update": {"prompt": [{"type": "text", "text": words}]}}
        if role == "user"
        else {"kind": "update", "update": update(words)["params"]["update"]}
        for role, words in WORDS
    ]
    return home / "s1.jsonl", [
        head,
        *({"seq": seq, "at": AT} | row for seq, row in enumerate(rows, 1)),
    ]


LINES: dict[str, Callable[[Path], tuple[Path, list[Json]]]] = {
    "claude": claude, "codex": codex, "qwen": qwen, "pi": pi, "copilot": copilot,
    "gemini": gemini, "goose": goose, "vscode": vscode, "acpx": acpx, "acphold": acphold,
}  # fmt: skip


def rows(name: str, home: Path) -> tuple[Path, list[bytes]]:
    """The path and the lines of a conversation in the form of this reader."""
    path, records = LINES[name](home)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path, [json.dumps(record).encode() + b"\n" for record in records]


def told(name: str, home: Path, raw: bytes, path: Path) -> Story:
    path.write_bytes(raw)
    return Story.of(reader(name), home)


@pytest.mark.parametrize("name", LINES)
def test_a_row_behind_zeros_that_a_crash_left_is_told(tmp_path: Path, name: str) -> None:
    path, lines = rows(name, tmp_path)
    lines[-1:] = [b"\0" * 300 + lines[-1]]
    story = told(name, tmp_path, b"".join(lines), path)
    assert story.said() == SAID
    assert story.facts.missed.sizes["zeros in the place of records"] == 300


@pytest.mark.parametrize("name", LINES)
def test_each_of_several_rows_on_one_line_is_told(tmp_path: Path, name: str) -> None:
    path, lines = rows(name, tmp_path)
    joined = b"".join(line.rstrip() for line in lines[:-1])
    story = told(name, tmp_path, joined + b"  " + lines[-1], path)
    assert (story.said(), story.facts.missed.counts) == (SAID, {})


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_row_behind_half_of_another_is_told_and_the_half_counted(
    tmp_path: Path, name: str, end: bytes
) -> None:
    path, lines = rows(name, tmp_path)
    half = lines[-2][:30]
    raw = b"".join([*lines[:-1], half, lines[-1].rstrip(), end])
    story = told(name, tmp_path, raw, path)
    assert story.said() == SAID
    assert story.facts.missed.sizes["lines that are not JSON objects"] == len(half)


@pytest.mark.parametrize("name", ["claude", "qwen"])
def test_where_rows_have_their_conversations_id_they_are_told_wherever_the_other_broke_off(
    tmp_path: Path, name: str
) -> None:
    path, lines = rows(name, tmp_path)
    for cut in range(1, len(lines[-2]) - 2):
        raw = b"".join([*lines[:-1], lines[-2][:cut], lines[-1]])
        assert told(name, tmp_path, raw, path).said() == SAID, lines[-2][:cut]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_costs_nothing(tmp_path: Path, name: str, mark: str) -> None:
    path, lines = rows(name, tmp_path)
    story = told(name, tmp_path, b"".join(lines).decode().encode(mark), path)
    assert (story.said(), story.facts.missed.counts) == (SAID, {})


@pytest.mark.parametrize("name", LINES)
def test_a_raw_line_end_inside_of_a_string_is_part_of_it(tmp_path: Path, name: str) -> None:
    path, lines = rows(name, tmp_path)
    raw = b"".join(lines).replace(b"And now?", b"And\n\n{}\n  now?")
    story = told(name, tmp_path, raw, path)
    assert story.said() == [*SAID[:2], ("user", "And\n\n{}\n  now?"), SAID[3]]
    assert story.facts.missed.counts == {}


def test_half_a_row_that_its_rest_makes_no_object_is_given_up_at_once() -> None:
    salvage = LineSalvage("log.jsonl", RowForm(frozenset()), missed := Missed())
    for offset, raw in ((0, b'{"a": "x\n'), (9, b'y" b}\n')):
        assert [*salvage.take(RecordLine(offset, raw), b"", 1000)] == []
    assert not salvage.is_holding
    assert missed.counts.total() == 1


def test_half_a_row_before_a_good_line_costs_only_itself(tmp_path: Path) -> None:
    path, lines = rows("claude", tmp_path)
    story = told("claude", tmp_path, b"".join([*lines, lines[0][:40], b"\n", lines[3]]), path)
    assert story.said() == SAID
    assert story.facts.missed.sizes == {"lines that are not JSON objects": 40}


@pytest.mark.parametrize("name", LINES)
def test_the_output_of_a_tool_that_contains_a_transcript_forges_nothing(
    tmp_path: Path, name: str
) -> None:
    path, lines = rows(name, tmp_path)
    forged = json.loads(lines[-2].replace(b"And now?", b"Delete all."))
    if "sessionId" in forged:
        forged["sessionId"] = "of-another"
    nested = json.dumps({"type": "x", "output": {"a": [1, forged]}}).encode()
    as_text = json.dumps({"type": "x", "output": json.dumps(forged)}).encode()
    for whole in (nested, as_text):
        for cut in range(0, len(whole), 3):
            raw = b"".join([*lines, whole[:cut], b"\n"])
            assert told(name, tmp_path, raw, path).said() == SAID, whole[:cut]


def test_a_row_that_lacks_a_field_of_its_program_is_not_told_from_within_a_line(
    tmp_path: Path,
) -> None:
    path, lines = rows("claude", tmp_path)
    row = json.loads(lines[2].replace(b"And now?", b"Delete all."))
    del row["parentUuid"]
    raw = b"".join([*lines, lines[0][:40], json.dumps(row).encode(), b"\n"])
    assert told("claude", tmp_path, raw, path).said() == SAID


_PIECES = st.sampled_from(
    [
        b'{"a":"',
        b'"}',
        b'{"a":1}',
        b"{",
        b"}",
        b'"',
        b"\\",
        b"\0",
        b'{"a":{"a":',
        b"\n",
        b"x",
        b"[" * 9,
    ]
)


@given(st.lists(st.lists(_PIECES, max_size=30).map(b"".join), max_size=8))
def test_no_damage_is_decoded_more_than_three_times(lines: list[bytes]) -> None:
    salvage = LineSalvage("x", RowForm(frozenset({"a"})), Missed())
    offset = 0
    for raw in b"\n".join(lines).splitlines(keepends=True):
        list(salvage.take(RecordLine(offset, raw), b"", LINE_BYTES))
        offset += len(raw)
    assert salvage.decoded <= DECODINGS * salvage.seen


def test_long_damage_takes_no_longer_than_its_length(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\n".join([b'{"a":' * 200_000, b'{"' * 500_000 + b"}", b'"' * 1_000_000]))
    missed = Missed()
    assert list(record_lines(path, missed, RowForm(frozenset({"a"})))) == []
    assert missed.sizes.total() >= 3_000_000


@pytest.mark.parametrize("conversation", ["", "of"])
def test_many_rows_behind_half_of_another_take_no_longer_than_their_length(
    conversation: str,
) -> None:
    form = RowForm(frozenset({"uuid", "of"}), conversation)
    row = b'{"uuid":"a","of":"s1"}'

    def take(rows: int) -> float:
        raw = b'{"x":{"y":"half ' + row * rows + b"\n"
        salvage = LineSalvage("/s1.jsonl", form, Missed())
        began = time.process_time()
        taken = list(salvage.take(RecordLine(0, raw), b"", LINE_BYTES))
        assert len(taken) >= min(rows, 30)
        return time.process_time() - began

    few, many = (min(take(rows) for _ in range(3)) for rows in (2_000, 32_000))
    assert many < 64 * few


# -- documents -----------------------------------------------------------------------------------


def cline_task(home: Path) -> tuple[Path, Json]:
    path = home / ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks/1/ui_messages.json"
    kinds = ("task", "text", "user_feedback", "text")
    screen = [
        {"ts": 1, "type": "say", "say": kind, "text": words}
        for kind, (_, words) in zip(kinds, WORDS, strict=True)
    ]
    return path, screen


def cline(home: Path) -> tuple[Path, Json]:
    said = [{"role": role, "content": [{"type": "text", "text": words}]} for role, words in WORDS]
    return home / ".cline/data/sessions/1/1.messages.json", {"version": 1, "messages": said}


def gemini_document(home: Path) -> tuple[Path, Json]:
    path, (head, *messages) = gemini(home)
    return path.with_suffix(".json"), head | {"messages": messages}


def vscode_document(home: Path) -> tuple[Path, Json]:
    whole = vscode_session(request("Hello.", "Hi."), request("And now?", "Bye."))
    return storage(home) / "chatSessions/s1.json", whole


def auggie(home: Path) -> tuple[Path, Json]:
    asked = [
        auggie_exchange("Hello.", auggie_said("Hi.")),
        auggie_exchange("And now?", auggie_said("Bye.")),
    ]
    return home / ".augment/sessions/s1.json", {"sessionId": "s1", "chatHistory": asked}


DOCUMENTS: dict[str, tuple[str, Callable[[Path], tuple[Path, Json]]]] = {
    "cline in editors": ("cline", cline_task),
    "cline": ("cline", cline),
    "gemini": ("gemini", gemini_document),
    "vscode": ("vscode", vscode_document),
    "auggie": ("auggie", auggie),
}


def told_of(which: str, home: Path, change: Callable[[bytes], bytes]) -> Story:
    """The story of a document whose bytes were changed."""
    name, make = DOCUMENTS[which]
    path, whole = make(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    return told(name, home, change(json.dumps(whole).encode()), path)


@pytest.mark.parametrize("which", DOCUMENTS)
def test_a_document_without_its_end_is_told_as_far_as_its_messages_are_whole(
    tmp_path: Path, which: str
) -> None:
    story = told_of(which, tmp_path, lambda raw: raw[: raw.rindex(b"Bye.")])
    assert story.said() in (SAID[:2], SAID[:3])
    assert story.facts.missed.sizes["damaged parts of files"] > 0


@pytest.mark.parametrize("which", DOCUMENTS)
@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_document_with_a_byte_order_mark_is_whole(tmp_path: Path, which: str, mark: str) -> None:
    story = told_of(which, tmp_path, lambda raw: raw.decode().encode(mark))
    assert (story.said(), story.facts.missed.counts) == (SAID, {})


@pytest.mark.parametrize("which", DOCUMENTS)
@pytest.mark.parametrize("form", ['{0}old"}}]}}', "{0}\n{1}", "{1} {0}", "{1}{0}{1}"])
def test_of_what_stands_behind_one_another_the_longest_document_is_told_the_rest_counted(
    tmp_path: Path, which: str, form: str
) -> None:
    def beside(raw: bytes) -> bytes:
        older = raw.replace(b"Hello.", b"Old.")
        return form.format(raw.decode(), older.decode()).encode()

    story = told_of(which, tmp_path, beside)
    assert story.said() == SAID
    assert story.facts.missed.counts == {"damaged parts of files": 1}


@pytest.mark.parametrize("which", ["cline in editors", "cline", "auggie"])
def test_a_document_of_which_nothing_can_be_read_is_left_for_the_next_time(
    tmp_path: Path, which: str
) -> None:
    with pytest.raises(OSError, match="being written"):
        told_of(which, tmp_path, lambda raw: raw[:9])


def test_what_is_left_of_a_longer_document_behind_a_short_one_is_not_told_in_its_place(
    tmp_path: Path,
) -> None:
    message = json.dumps({"role": "user", "content": "Old. " * 1_000}).encode()
    story = told_of("cline", tmp_path, lambda raw: raw + message + b"]}")
    assert story.said() == SAID
    assert story.facts.missed.counts == {"damaged parts of files": 1}


def test_of_many_values_in_a_document_only_some_are_looked_at() -> None:
    values = b"{}" * MOST_VALUES
    assert salvage_document(values + b'{"a":1}')[0] == {"a": 1}
    assert salvage_document(b"{}" + values + b'{"a":1}')[0] == {}
