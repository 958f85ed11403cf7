"""The oracles of these tests find the faults they are there for."""

from __future__ import annotations

import json
import sys

import pytest

from tests.interop.conversation import INTERRUPTED, assert_all_there, assert_same
from tests.interop.official_schema import violations
from tests.interop.place import Place
from tests.interop.probe import differences
from tests.interop.wire import Json, Line

pytestmark = pytest.mark.timeout(300)  # the first run downloads the schema


def chunk(text: str, kind: str = "agent") -> Json:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": f"{kind}_message_chunk", "content": content}


def tool(status: str, kind: str = "tool_call_update", **fields: object) -> Json:
    return {"sessionUpdate": kind, "toolCallId": "1", "status": status, **fields}


SEEN = [
    chunk("hello", "user"),
    chunk("So "),
    chunk("long"),
    tool("pending", "tool_call", title="Look"),
    chunk("and "),
    tool("completed", content=[1]),
    {"sessionUpdate": "session_info_update", "title": "hello"},
    chunk("thanks"),
]

JOINED = [
    {**chunk("hello", "user"), "messageId": "1"},
    chunk("So long"),
    tool("completed", "tool_call", title="Look", content=[1]),
    chunk("and "),
    SEEN[6],
    chunk("thanks"),
]


def test_joined_and_compacted_is_the_same_conversation() -> None:
    assert_same(SEEN, JOINED)


@pytest.mark.parametrize("place", range(len(JOINED)))
def test_whatever_is_missing_is_noticed(place: int) -> None:
    with pytest.raises(AssertionError):
        assert_same(SEEN, JOINED[:place] + JOINED[place + 1 :])


@pytest.mark.parametrize("place", [0, 1, 3, 4, 5])  # a tool call that is told twice is still one
def test_whatever_is_doubled_is_noticed(place: int) -> None:
    with pytest.raises(AssertionError):
        assert_same(SEEN, [*JOINED[:place], JOINED[place], *JOINED[place:]])


def test_a_turn_that_was_cut_off_may_go_on_in_the_replay_but_not_lack_a_word() -> None:
    seen = [chunk("go", "user"), tool("in_progress", "tool_call"), chunk("tick1 ")]
    failed = tool("failed", "tool_call")
    mark = {"sessionUpdate": "session_info_update", "_meta": INTERRUPTED}
    assert_all_there(seen, [seen[0], failed, chunk("tick1 tick2 "), mark])
    for wrong in ([failed, chunk("tick"), mark], [seen[1], seen[2], mark], [chunk("tick1 "), mark]):
        with pytest.raises(AssertionError):
            assert_all_there(seen, [seen[0], *wrong])


def lines(*messages: Json) -> list[Line]:
    """A request of the client, then the agent's lines."""
    asked = {"id": 1, "method": "session/new", "params": {"cwd": "/a", "mcpServers": []}}
    sent = [("client", asked), *(("agent", message) for message in messages)]
    return [Line(by, json.dumps({"jsonrpc": "2.0", **message})) for by, message in sent]


def update(**fields: object) -> Json:
    return {"method": "session/update", "params": {"sessionId": "s", "update": fields}}


RIGHT = {"id": 1, "result": {"sessionId": "s"}}


def test_the_official_schema_accepts_what_is_right() -> None:
    said = update(**chunk("hello"))
    free = {"method": "_x/told", "params": {}}
    assert violations(lines(RIGHT, said, free), "agent") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1, "result": None},
        {"id": 1, "result": {"sessionId": 5}},
        {"id": "1", "result": {"sessionId": "s"}},
        {"id": 1, "error": {"code": "-32603", "message": "a code that is no number"}},
        {"id": 1},
        update(sessionUpdate="no such update"),
        update(sessionUpdate="tool_call", toolCallId="1"),
        {"method": "session/told", "params": {}},
    ],
    ids=json.dumps,
)
def test_the_official_schema_refuses_what_is_wrong(wrong: Json) -> None:
    assert len(violations(lines(wrong), "agent")) == 1
    assert violations(lines(wrong), "client") == []


def test_an_answer_is_given_once() -> None:
    assert len(violations(lines(RIGHT, RIGHT), "agent")) == 1


def test_a_difference_is_named_by_its_path() -> None:
    without = {"can": {"load": False, "list": None}, "same": 1}
    behind = {"can": {"load": True, "list": None}, "same": 1, "more": 2}
    assert differences(without, behind) == {"can.load": (False, True), "more": (None, 2)}


async def test_a_process_that_is_left_behind_is_noticed_and_ended(place: Place) -> None:
    code = "import os, time; os.fork() or os.setsid(); print('ready', flush=True); time.sleep(60)"
    async with place.client([sys.executable, "-c", code]) as started:
        await started.until(lambda: len(started.odd) == 2)  # both have said that they are ready
        with pytest.raises(AssertionError, match="left behind"):
            await place.family.gone(0.1)
    assert place.family.living() == []
