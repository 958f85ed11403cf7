"""Hermes: repeated records are told once, and records that nobody said are left out."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.hermes import READER
from tests.imports.told import Story, sources

Json = Any
CWD = "/home/ada/project"
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] They greeted."


class State:
    """The database of a home folder; with `old`, as it was before messages could be compacted."""

    def __init__(self, home: Path, below: str = ".hermes", *, old: bool = False) -> None:
        path = home / below / "state.db"
        path.parent.mkdir(parents=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT,"
            " model_config TEXT, parent_session_id TEXT, started_at REAL, ended_at REAL,"
            " end_reason TEXT, message_count INTEGER DEFAULT 0, input_tokens INTEGER,"
            " output_tokens INTEGER, title TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT,"
            " role TEXT, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,"
            " timestamp REAL, finish_reason TEXT)"
        )
        self._newer = () if old else ("reasoning", "observed", "active", "compacted")
        for column in self._newer:
            self.db.execute(f"ALTER TABLE messages ADD COLUMN {column}")
        if not old:
            self.db.executescript(
                "ALTER TABLE sessions ADD COLUMN cwd TEXT;"
                "ALTER TABLE sessions ADD COLUMN estimated_cost_usd REAL"
            )
        self.at = 1_767_000_000.0

    def session(self, session_id: str = "s1", **about: Json) -> None:
        row: Json = {"id": session_id, "source": "cli", "model": "gpt-5", "started_at": self.at}
        row |= {"title": "Notes", "input_tokens": 5, "output_tokens": 3} | about
        marks = ", ".join("?" for _ in row)
        names = ", ".join(row)
        self.db.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", tuple(row.values()))

    def message(self, role: str, words: Json, session: str = "s1", **about: Json) -> None:
        self.at += 1
        row: Json = {"session_id": session, "role": role, "content": words, "timestamp": self.at}
        row |= ({"active": 1, "compacted": 0} if self._newer else {}) | about
        if not isinstance(words, str):
            row["content"] = "\x00json:" + json.dumps(words)
        if "tool_calls" in row:
            row["tool_calls"] = json.dumps(row["tool_calls"])
        marks = ", ".join("?" for _ in row)
        names = ", ".join(row)
        self.db.execute(f"INSERT INTO messages ({names}) VALUES ({marks})", tuple(row.values()))
        count = "UPDATE sessions SET message_count = message_count + 1 WHERE id = ?"
        self.db.execute(count, (session,))


def call(call_id: str, name: str, **given: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(given)}
    return {"id": call_id, "type": "function", "function": function}


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def test_a_session_is_told_as_it_was_held(state: State, tmp_path: Path) -> None:
    state.session(cwd=CWD, estimated_cost_usd=0.5)
    state.message("user", "Look.")
    calls = [call("c1", "read_file", path="notes.txt")]
    state.message("assistant", "I look.", reasoning="Hm.", tool_calls=calls)
    state.message("tool", json.dumps({"content": "1|one", "error": None}), tool_call_id="c1")
    state.message("assistant", "Done.", finish_reason="stop")
    told = Story.of(READER, tmp_path)
    facts = told.facts
    assert (facts.session_id, facts.agent, facts.cwd) == ("s1", "hermes-agent", CWD)
    assert (facts.title, facts.created_at) == ("Notes", 1_767_000_000_000)
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read notes.txt"),
        ("agent", "Done."),
    ]
    read = told.call()
    assert (read["kind"], read["locations"]) == ("read", [{"path": f"{CWD}/notes.txt"}])
    assert read["content"][0]["content"]["text"] == "1|one"
    (end,) = told.ends()
    assert end["_meta"]["acphold/model"] == "gpt-5"
    so_far = end["_meta"]["acphold/soFar"]
    assert so_far["usage"] == {"inputTokens": 5, "outputTokens": 3}
    assert so_far["cost"]["amount"] == 0.5
    assert not facts.missed.counts


def test_a_session_of_an_early_version_is_told(tmp_path: Path) -> None:
    state = State(tmp_path, old=True)
    state.session(model_config=json.dumps({"cwd": CWD}))
    state.message("user", "Hello.")
    state.message("assistant", "Hi.", finish_reason="stop")
    told = Story.of(READER, tmp_path)
    assert (told.facts.cwd, told.said()) == (CWD, [("user", "Hello."), ("agent", "Hi.")])


def test_an_edit_is_a_diff_and_what_failed_is_told_as_failed(state: State, tmp_path: Path) -> None:
    state.session(cwd=CWD)
    state.message("user", "Edit.")
    calls = [
        call("c1", "patch", path="/a", old_string="x", new_string="y"),
        call("c2", "write_file", path="/b", content="all"),
        call("c3", "terminal", command="false"),
        call("c4", "web_search", query="acp"),
    ]
    state.message("assistant", "", tool_calls=calls)
    state.message("tool", json.dumps({"success": True}), tool_call_id="c1")
    state.message("tool", json.dumps({"bytes_written": 3}), tool_call_id="c2")
    state.message("tool", json.dumps({"output": "no", "exit_code": 1}), tool_call_id="c3")
    state.message("tool", "Nothing found.", tool_call_id="c4")
    told = Story.of(READER, tmp_path)
    shown = [json.loads(one.fields["content"])[0] for one in told.calls()]
    assert [(d["path"], d["oldText"], d["newText"]) for d in shown[:2]] == [
        ("/a", "x", "y"),
        ("/b", None, "all"),
    ]
    assert [one.status for one in told.calls()] == ["completed", "completed", "failed", "completed"]
    assert (told.calls()[2].title, shown[2]["content"]["text"]) == ("false", "no")
    assert shown[3]["content"]["text"] == "Nothing found."


def test_what_is_written_down_again_behind_a_summary_is_told_once(
    state: State, tmp_path: Path
) -> None:
    state.session()
    for words, answer in (("Hello.", "Hi."), ("yes", "Well.")):
        state.message("user", words, active=0, compacted=1)
        state.message("assistant", answer, active=0, compacted=1, finish_reason="stop")
    said = state.at
    state.message("user", "Hello.", timestamp=said - 3)
    state.message("user", SUMMARY)
    state.message("user", "yes", timestamp=said - 1)
    state.message("assistant", "Well.", timestamp=said, finish_reason="stop")
    state.message("user", "yes")
    state.message("assistant", "Bye.", finish_reason="stop")
    assert Story.of(READER, tmp_path).said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("user", "yes"),
        ("agent", "Well."),
        ("call", "Compact conversation"),
        ("user", "yes"),
        ("agent", "Bye."),
    ]


def test_a_session_that_goes_on_with_another_is_one_with_it_and_a_subagent_is_none(
    state: State, tmp_path: Path
) -> None:
    state.session(end_reason="compression", ended_at=state.at)
    state.message("user", "Hello.")
    state.message("assistant", "Hi.", finish_reason="stop")
    (before,) = sources(READER, tmp_path)
    unset = json.dumps({"_delegate_from": None, "_reset_from": None})
    state.session("s2", parent_session_id="s1", title="Notes #2", model_config=unset)
    state.message("user", "Hello.", "s2")
    state.message("user", SUMMARY, "s2")
    state.message("user", "And now?", "s2")
    state.message("assistant", "Bye.", "s2", finish_reason="stop")
    delegate = json.dumps({"_delegate_from": "s1"})
    state.session("sub", parent_session_id="s1", model_config=delegate)
    state.message("user", "You are to find it.", "sub")
    state.db.execute("UPDATE sessions SET end_reason = 'compression' WHERE id = 'sub'")
    for name, parent in (("sub2", "sub"), ("sub3", "sub2")):
        state.session(name, parent_session_id=parent, end_reason="compression")
        state.message("user", "You are to find it.", name)
    (after,) = sources(READER, tmp_path)
    assert (after.item, after != before) == ("s1", True)
    told = Story(READER, after)
    assert told.facts.title == "Notes #2"
    assert told.said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("call", "Compact conversation"),
        ("user", "And now?"),
        ("agent", "Bye."),
    ]


def test_a_chain_without_a_beginning_is_told_and_what_is_far_behind_one_as_another_one(
    state: State, tmp_path: Path
) -> None:
    ended: Json = {"end_reason": "compression"}
    state.session("a1", parent_session_id="a2", **ended)
    state.session("a2", parent_session_id="a1", **ended)
    state.message("user", "Round.", "a1")
    state.message("user", "And round.", "a2")
    for n in range(2_500):
        parent = f"b{n - 1:04}" if n else None
        state.db.execute(
            "INSERT INTO sessions (id, parent_session_id, end_reason, started_at, message_count)"
            " VALUES (?, ?, 'compression', ?, 1)",
            (f"b{n:04}", parent, state.at + n),
        )
    for n in (0, 999, 1_000, 2_499):
        state.message("user", f"Message {n}.", f"b{n:04}")
    for n in range(1_500):  # a ring whose clock went back
        state.session(f"c{n:04}", parent_session_id=f"c{n - 1 if n else 1_499:04}", **ended)
        state.db.execute("UPDATE sessions SET started_at = ? WHERE id = ?", (9_999 - n, f"c{n:04}"))
        state.message("user", f"Ring {n}.", f"c{n:04}")
    told = {source.session_id: Story(READER, source).said() for source in sources(READER, tmp_path)}
    rings = [told.pop(name) for name in list(told) if name.startswith("c")]
    assert {words for ring in rings for _, words in ring} == {f"Ring {n}." for n in range(1_500)}
    assert sum(map(len, rings)) <= 2 * 1_000
    assert told == {
        "a1": [("user", "Round."), ("user", "And round.")],
        "b0000": [("user", "Message 0."), ("user", "Message 999.")],
        "b1000": [("user", "Message 1000.")],
        "b2000": [("user", "Message 2499.")],
    }


def test_a_session_is_told_wherever_its_messages_are(state: State, tmp_path: Path) -> None:
    """Those of its beginning may be lost, two may have gone on with it, or it was pruned."""
    state.session("s1", end_reason="compression")
    for number in (2, 3):
        state.session(f"s{number}", parent_session_id="s1")
        state.message("user", f"To {number}.", f"s{number}")
    reset = json.dumps({"_reset_from": "s1"})
    state.session("s4", parent_session_id="s1", model_config=reset)
    state.message("user", "Anew.", "s4")
    state.session("s5", parent_session_id="pruned")
    state.message("user", "Left over.", "s5")
    told = {
        it.item: [words for _, words in Story(READER, it).said()]
        for it in sources(READER, tmp_path)
    }
    assert told == {"s1": ["To 2.", "To 3."], "s4": ["Anew."], "s5": ["Left over."]}


def test_what_a_person_took_back_or_never_said_is_no_prompt(state: State, tmp_path: Path) -> None:
    state.session()
    state.message("user", "Undone.", active=0)
    state.message("assistant", "No.", active=0)
    state.message("user", "Also undone.", active=0)
    assert [words for _, words in Story.of(READER, tmp_path).said()] == [
        "Undone.",
        "No.",
        "Also undone.",
    ]
    state.message("user", "Kept.")
    state.message("assistant", "Yes.", finish_reason="stop")
    state.message("user", "Review the conversation above and consider saving to memory it.")
    state.message("assistant", "Nothing to save.", finish_reason="stop")
    state.message("user", "Somebody else in the group.", observed=1)
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Kept."), ("agent", "Yes.")]
    assert told.facts.missed.counts == {
        "prompts in abandoned branches, see --branches": 2,
        "other people's messages in a group": 1,
    }


def test_a_picture_is_one_and_a_plan_is_told(state: State, tmp_path: Path) -> None:
    state.session()
    url = {"url": "data:image/png;base64,cG5n"}
    state.message(
        "user", [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": url}]
    )
    steps = [{"id": "1", "content": "look", "status": "in_progress"}]
    state.message("assistant", "", tool_calls=[call("c1", "todo", todos=steps)])
    told = Story.of(READER, tmp_path)
    assert told.prompts()[0][1] == {"type": "image", "data": "cG5n", "mimeType": "image/png"}
    assert told.plan() == [("look", "in_progress")]


def test_each_profile_has_sessions_of_its_own(tmp_path: Path) -> None:
    for below in (".hermes", ".hermes/profiles/coder"):
        state = State(tmp_path, below)
        state.session(below)
        state.message("user", "Hello.", below)
    assert [source.session_id for source in sources(READER, tmp_path)] == [
        ".hermes",
        ".hermes/profiles/coder",
    ]


@pytest.mark.parametrize("marked", [True, False])
def test_a_branch_is_a_session_of_its_own(state: State, tmp_path: Path, *, marked: bool) -> None:
    """Early versions only say how the session that was left ended."""
    state.session(end_reason="compression" if marked else "branched", ended_at=state.at + 9)
    state.message("user", "Hello.")
    state.message("assistant", "Hi.")
    config = json.dumps({"_branched_from": "s1"} if marked else {})
    state.session("s2", parent_session_id="s1", title="Notes #2", model_config=config)
    for role, words in (("user", "Hello."), ("assistant", "Hi."), ("user", "Another way.")):
        state.message(role, words, session="s2")
    state.session("s3", parent_session_id="s2", model_config=json.dumps({"_delegate_from": "s2"}))
    state.message("user", "A task.", session="s3")
    own, branch = sources(READER, tmp_path)
    assert [words for _, words in Story(READER, own).said()] == ["Hello.", "Hi."]
    told = Story(READER, branch)
    assert (told.facts.session_id, told.facts.begun_as) == ("s2", "s1")
    assert [words for _, words in told.said()] == ["Hello.", "Hi.", "Another way."]
