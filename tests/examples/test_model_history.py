"""The example of a conversation for a model: what it sends is such as a service accepts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import model_history
from acphold.conversation.history.entries import PROMPT, TURN_END, UPDATE, Entry
from acphold.conversation.history.fold import fold
from acphold.conversation.history.timeline import Item
from acphold.testing import connect

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def said(words: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": words}}


def called(tool_call_id: str, **fields: Any) -> dict[str, Any]:
    title = {"title": tool_call_id, "status": "completed"}
    return {"sessionUpdate": "tool_call", "toolCallId": tool_call_id, **title, **fields}


def prompt(*blocks: Any) -> tuple[str, Any]:
    return PROMPT, [{"type": "text", "text": it} if isinstance(it, str) else it for it in blocks]


def end(reason: str = "end_turn") -> tuple[str, Any]:
    return TURN_END, {"stopReason": reason}


def timeline(*happened: Any) -> tuple[Item, ...]:
    """The timeline of a session in which this has happened."""
    entries = [one if isinstance(one, tuple) else (UPDATE, one) for one in happened]
    state = fold(
        Entry(seq, kind, 0, json.dumps(what).encode())
        for seq, (kind, what) in enumerate(entries, 1)
    )
    return state.timeline


def messages(*happened: Any) -> list[dict[str, Any]]:
    """The messages of a session, checked by the rules of the services."""
    made = model_history.chat_messages(timeline(*happened))
    assert [it["role"] for it in made[:1]] in ([], ["user"])
    open_calls: list[str] = []
    for message in made:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == [], "each call has its result at once"
        assert message["content"] or message["tool_calls"]
        for call in message.get("tool_calls", ()):
            assert re.fullmatch("[a-zA-Z0-9_-]{1,40}", call["id"])
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            open_calls.append(call["id"])
    assert open_calls == []
    return made


def words(*happened: Any) -> list[str]:
    """Each message in a line."""
    return [
        it["role"]
        + ": "
        + (it["content"] if isinstance(it["content"], str) else " ".join(_texts(it["content"])))
        for it in messages(*happened)
    ]


def _texts(parts: list[dict[str, Any]]) -> list[str]:
    return [part.get("text", part["type"]) for part in parts]


def test_a_whole_conversation_is_told_as_services_demand() -> None:
    asked, look, read, shot, seen, cut, then, bad, failed, last = messages(
        prompt("Look", IMAGE, {"type": "resource_link", "name": "a", "uri": "file:///a"}),
        said("Hm.", "agent_thought_chunk"),
        said("I look."),
        called("read/1", name="read file", rawInput={"path": "a"}, rawOutput="one"),
        called("shot", rawInput=[1], content=[{"type": "content", "content": IMAGE}]),
        said("I see it."),
        called("cut", status="in_progress"),
        end("cancelled"),
        *(prompt("Something bad"), said("Never!"), end("refusal")),
        prompt("And now?"),
        called("bad", status="failed", rawOutput={"code": 1}),
        *(said("It did not work."), end()),
    )
    assert asked["content"][1:] == [URL, {"type": "text", "text": "[a](file:///a)"}]
    assert look["content"] == "I look."
    names = [call["function"]["name"] for call in look["tool_calls"]]
    assert (names, read["content"], shot["content"]) == (
        ["read_file", "other"],
        "one",
        "(image/png)",
    )
    assert json.loads(look["tool_calls"][1]["function"]["arguments"]) == {"input": [1]}
    assert (seen["content"], cut["content"]) == (
        "I see it.",
        "The call was cut off before it had a result.",
    )
    assert _texts(then["content"]) == ["(The person cancelled this turn.)", "And now?"]
    assert (len(bad["tool_calls"]), failed["content"]) == (1, '{"code": 1}')
    assert last == {"role": "assistant", "content": "It did not work."}


COMPACTED = {
    "sessionUpdate": "compaction_update",
    "compactionId": "c",
    "status": "completed",
    "summary": [{"type": "text", "text": "They said hello."}],
}
DIFF = {"type": "diff", "path": "/w/a", "newText": "x"}
FILE = {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        ((), []),
        ((said(" "), said("Hello")), ["user: (The beginning is not known.)", "assistant:  Hello"]),
        ((prompt("Go"), said("\n\n"), end()), ["user: Go"]),
        ((prompt("Go"), said("hm", "agent_thought_chunk")), ["user: Go"]),
        (
            (prompt("Go"), called("t", status="failed", content=[DIFF])),
            ["user: Go", "assistant: ", "tool: /w/a was changed."],
        ),
        (
            (prompt("Go"), called("t")),
            ["user: Go", "assistant: ", "tool: The call has completed."],
        ),
        (
            (prompt("1"), ("turn_end", {"interrupted": True}), prompt("2")),
            ["user: 1 (The turn was interrupted.) 2"],
        ),
        (
            (prompt("Hello"), said("Hello!"), end(), COMPACTED, prompt("And now?"), said("Bye.")),
            ["user: They said hello. And now?", "assistant: Bye."],
        ),
        (
            (prompt("Hello"), end(), {**COMPACTED, "summary": None}, prompt("So?")),
            ["user: Hello So?"],
        ),
        (
            (prompt(FILE, {"type": "audio", "data": "", "mimeType": "audio/ogg"}, {"type": "x"}),),
            ['user: <file uri="file:///a">\nx\n</file> (audio/ogg) (something that is no text)'],
        ),
    ],
)
def test_what_a_service_would_refuse_is_repaired(happened: Any, told: list[str]) -> None:
    assert words(*happened) == told


async def test_the_agent_goes_on_with_its_conversation_after_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[list[dict[str, Any]]] = []

    async def complete(asked: list[dict[str, Any]]) -> str:
        given.append(asked)
        return f"answer {len(given)}"

    monkeypatch.setattr(model_history, "complete", complete)
    async with connect(model_history.agent) as client:
        session = await client.new_session()
        await session.prompt("one")
        await client.restart(kill=True)
        session = await client.load_session(session.id)
        assert (await session.prompt("two")).text == "answer 2"
    assert [it["content"] for it in given[1]] == [
        [{"type": "text", "text": "one"}],
        "answer 1",
        "two",
    ]
