"""pi's sessions, in the three forms of its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Home
from acphold.imports.pi import READER
from tests.imports.told import Story, sources, write_lines

Json = Any
SESSION = "01a1fdbb-2891-777b-8c00-45cddab2a861"
CWD = "/home/ada/project"
USAGE = {"input": 10, "output": 5, "cacheRead": 2, "cacheWrite": 0, "cost": {"total": 0.25}}


class Session:
    """The records of a session, as today's program writes them."""

    def __init__(self, *, has_ids: bool = True) -> None:
        self._has_ids = has_ids
        self.leaf: str | None = None
        self.records: list[Json] = []
        head = {"type": "session", "id": SESSION, "timestamp": self._at(), "cwd": CWD}
        self.records.append(head | ({"version": 3} if has_ids else {}))

    def _at(self) -> str:
        return f"2026-01-02T03:04:{len(self.records):02}.000Z"

    def add(self, kind: str, **fields: Json) -> str:
        """A record behind the one before; its id."""
        record_id = f"{len(self.records):08x}"
        ids = {"id": record_id, "parentId": self.leaf} if self._has_ids else {}
        self.records.append({"type": kind, "timestamp": self._at()} | ids | fields)
        self.leaf = record_id
        return record_id

    def message(self, role: str, said: Json, **fields: Json) -> str:
        return self.add("message", message={"role": role, "content": said} | fields)

    def user(self, words: str, *more: Json) -> str:
        return self.message("user", [{"type": "text", "text": words}, *more])

    def agent(self, *said: Json, reason: str = "stop", **fields: Json) -> str:
        parts = [{"type": "text", "text": x} if isinstance(x, str) else x for x in said]
        more = {"model": "m", "usage": USAGE, "stopReason": reason} | fields
        return self.message("assistant", parts, **more)

    def result(self, call: str, name: str, words: str, *, failed: bool = False) -> str:
        said = [{"type": "text", "text": words}]
        return self.message("toolResult", said, toolCallId=call, toolName=name, isError=failed)

    def write(self, home: Path) -> Path:
        name = f"2026-01-02T03-04-05-678Z_{SESSION}.jsonl"
        return write_lines(home / ".pi/agent/sessions/--home-ada-project--" / name, *self.records)

    def told(self, home: Path) -> Story:
        self.write(home)
        return Story.of(READER, home)


def use(call: str, name: str, **given: Json) -> Json:
    return {"type": "toolCall", "id": call, "name": name, "arguments": given}


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_conversation_is_told_as_it_was_held(tmp_path: Path, has_ids: bool) -> None:
    session = Session(has_ids=has_ids)
    session.add("model_change", provider="p", modelId="m")
    session.message("system", "", sections={"preamble": "You are …"})
    session.user("Where is it?", {"type": "image", "data": "AA", "mimeType": "image/png"})
    hm = {"type": "thinking", "thinking": "Hm."}
    session.agent(hm, "I look.", use("c1", "read", path="notes.txt"), reason="toolUse")
    session.result("c1", "read", "In the haystack.\n")
    session.agent("In the haystack.")
    told = session.told(tmp_path)
    assert told.said() == [
        ("user", "Where is it?"),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read notes.txt"),
        ("agent", "In the haystack."),
    ]
    assert told.prompts()[0][1] == {"type": "image", "data": "AA", "mimeType": "image/png"}
    call = told.call()
    assert (call["kind"], call["status"]) == ("read", "completed")
    assert call["locations"] == [{"path": f"{CWD}/notes.txt"}]
    assert call["content"][0]["content"]["text"] == "In the haystack.\n"
    (end,) = told.ends()
    assert end["usage"]["inputTokens"] == 20
    assert end["_meta"]["acphold/model"] == "m"
    facts = told.facts
    assert (facts.agent, facts.session_id, facts.cwd) == ("pi-acp", SESSION, CWD)
    assert facts.created_at == 1767323040000
    assert facts.missed.counts == {}


@pytest.mark.parametrize(
    "given",
    [
        {"oldText": "a", "newText": "b"},
        {"edits": [{"oldText": "a", "newText": "b"}]},
    ],
)
def test_an_edit_is_a_diff_of_what_was_asked_for(tmp_path: Path, given: Json) -> None:
    session = Session()
    session.user("Edit it.")
    session.agent(use("c1", "edit", path="a.py", **given), reason="toolUse")
    session.result("c1", "edit", "Successfully replaced text in a.py.")
    call = session.told(tmp_path).call()
    assert call["content"] == [
        {"type": "diff", "path": f"{CWD}/a.py", "oldText": "a", "newText": "b"}
    ]
    assert call["rawOutput"]["content"][0]["text"].startswith("Successfully")


@pytest.mark.parametrize("has_ids", [True, False])
def test_two_messages_in_a_row_are_two(tmp_path: Path, has_ids: bool) -> None:
    session = Session(has_ids=has_ids)
    session.user("Hello.")
    session.agent("Hi.")
    session.agent("Are you there?")
    said = session.told(tmp_path).said()
    assert said[1:] == [("agent", "Hi."), ("agent", "Are you there?")]


def test_what_failed_says_why(tmp_path: Path) -> None:
    session = Session()
    session.user("Write it.")
    session.agent(use("c1", "write", path="/a", content="x"), reason="toolUse")
    session.result("c1", "write", "EACCES", failed=True)
    call = session.told(tmp_path).call()
    assert call["status"] == "failed"
    assert call["content"][0]["content"]["text"] == "EACCES"


def test_a_failure_ends_a_turn_if_it_is_not_tried_again(tmp_path: Path) -> None:
    session = Session()
    session.user("Once.")
    session.agent(reason="error", errorMessage="overloaded")
    session.agent("Here it is.")
    session.user("Twice.")
    session.agent(reason="error", errorMessage="overloaded")
    session.user("Thrice.")
    session.agent("Half of", reason="aborted")
    told = session.told(tmp_path)
    first, second, third = told.ends()
    assert first["stopReason"] == "end_turn"
    assert second["error"]["message"] == "overloaded"
    assert third["stopReason"] == "cancelled"


def test_what_a_person_went_back_from_is_a_branch(tmp_path: Path) -> None:
    session = Session()
    session.user("Hello.")
    fork = session.agent("Hi.")
    session.user("This way?")
    session.agent("No.")
    session.leaf = fork
    session.add("branch_summary", summary="It was the wrong way.", fromId="x")
    session.user("That way?")
    session.agent("Yes.")
    session.write(tmp_path)
    (source,) = sources(READER, tmp_path)
    told = Story(READER, source)
    assert told.said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("call", "Summary of another branch"),
        ("user", "That way?"),
        ("agent", "Yes."),
    ]
    assert told.facts.missed.counts == {"prompts in abandoned branches, see --branches": 1}
    assert READER.branches is not None
    (left,) = READER.branches(source)
    assert Story(READER, left).said()[-2:] == [("user", "This way?"), ("agent", "No.")]


def test_the_name_a_summary_and_a_command_of_the_person_are_told(tmp_path: Path) -> None:
    session = Session()
    session.user("Hello.")
    session.agent("Hi.")
    session.add("compaction", summary="They met.", firstKeptEntryId="x", tokensBefore=7)
    session.add("session_info", name="The needle")
    ran = {"command": "ls", "output": "a\n", "exitCode": 0, "cancelled": False}
    session.message("bashExecution", "", **ran)
    session.add("custom_message", customType="x", content="Seen.", display=True)
    session.add("custom_message", customType="x", content="Not seen.", display=False)
    told = session.told(tmp_path)
    assert told.facts.title == "The needle"
    assert told.said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("call", "Compact conversation"),
        ("user", "! ls"),
        ("agent", "a\nSeen."),
    ]
    assert told.call()["content"][0]["content"]["text"] == "They met."


def test_sessions_lie_in_the_folder_that_a_variable_names(tmp_path: Path) -> None:
    path = Session().write(tmp_path)
    moved = write_lines(tmp_path / "mine" / path.name, *Session().records)
    flat = Home(tmp_path / "x", {"PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "mine")})
    (found,) = READER.find(flat)
    assert (found.paths, found.session_id) == ((str(moved),), SESSION)


@pytest.mark.parametrize("named", ["parentSession", "branchedFrom"])
@pytest.mark.parametrize("folder", ["/home/ada/", "C:\\work\\", None])
def test_a_fork_names_the_session_that_it_begins_with(
    tmp_path: Path, named: str, folder: str | None
) -> None:
    session = Session()
    session.user("One.")
    session.agent("1")
    name = f"2026-01-02T03-04-05-678Z_{SESSION}.jsonl"
    head = {named: SESSION if folder is None else f"{folder}{name}"}
    session.records[0] |= head | {"id": "fork", "timestamp": "2026-01-03T00:00:00.000Z"}
    assert session.told(tmp_path).facts.begun_as == SESSION
    # One without the turns of its parent only names it.
    session.records[0]["timestamp"] = "2026-01-01T00:00:00.000Z"
    assert session.told(tmp_path).facts.begun_as == ""
