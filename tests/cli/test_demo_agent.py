"""The demo's agent: words in a prompt steer it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

Json = dict[str, Any]


class Talk:
    """A conversation with the agent itself, nothing in front of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._last = 0

    def send(self, method: str, params: Json) -> None:
        self._last += 1
        self.write(id=self._last, method=method, params=params)

    def write(self, **message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def read(self) -> Json:
        assert self.process.stdout is not None
        message: Json = json.loads(self.process.stdout.readline())
        return message

    def prompt(self, session_id: str, text: str) -> list[Json]:
        """All that it sends in a turn; permission is given."""
        self.send(
            "session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
        )
        told = [self.read()]
        while "result" not in told[-1]:
            if told[-1]["method"] == "session/request_permission":
                outcome = {"outcome": "selected", "optionId": "yes"}
                self.write(id=told[-1]["id"], result={"outcome": outcome})
            if "tick 3 " in json.dumps(told[-1]):
                self.write(method="session/cancel", params={"sessionId": session_id})
            told.append(self.read())
        return told


@pytest.fixture
def talk() -> Iterator[Talk]:
    """The agent, started."""
    with subprocess.Popen(
        [sys.executable, "-m", "acphold", "demo-agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield Talk(process)
        process.communicate(timeout=20)


@pytest.fixture
def session(talk: Talk) -> str:
    """The id of a new session."""
    talk.send("initialize", {"protocolVersion": 1})
    assert "loadSession" not in talk.read()["result"]["agentCapabilities"]
    talk.send("session/new", {"cwd": "/", "mcpServers": []})
    return str(talk.read()["result"]["sessionId"])


def said(told: list[Json]) -> str:
    updates = [
        message["params"]["update"] for message in told if "update" in message.get("params", {})
    ]
    return "".join(
        update["content"]["text"]
        for update in updates
        if update["sessionUpdate"] == "agent_message_chunk"
    )


def test_it_edits_a_file_when_it_is_permitted(talk: Talk, session: str) -> None:
    told = talk.prompt(session, "hello")
    assert "Done." in said(told)
    assert "newText" in json.dumps(told)
    assert told[-1]["result"] == {"stopReason": "end_turn"}


def test_each_edit_goes_on_where_the_one_before_ended(talk: Talk, session: str) -> None:
    first, second = (json.dumps(talk.prompt(session, "hello")) for _ in range(2))
    assert "Hello, friend!" in first
    assert "Hello, dear friend!" not in first
    assert "Hello, friend!" in second
    assert "Hello, dear friend!" in second


def test_quick_is_an_echo_and_recall_repeats_the_conversation(talk: Talk, session: str) -> None:
    assert said(talk.prompt(session, "quick one")) == "You said: quick one"
    assert said(talk.prompt(session, "recall")) == "I know: quick one"


def test_slow_goes_on_until_it_is_cancelled(talk: Talk, session: str) -> None:
    assert talk.prompt(session, "slow")[-1]["result"] == {"stopReason": "cancelled"}


def test_crash_ends_it_in_mid_turn(talk: Talk, session: str) -> None:
    talk.send(
        "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "crash"}]}
    )
    assert "about to crash" in said([talk.read()])
    assert talk.process.wait(20) == 3


def test_it_can_neither_list_nor_load(talk: Talk, session: str) -> None:
    for method in ("session/list", "session/load"):
        talk.send(method, {"sessionId": session})
        assert talk.read()["error"]["code"] == -32601
