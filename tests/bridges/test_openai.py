"""Messages for OpenAI's library, sent by it."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from acphold.bridges.openai import chat_messages
from acphold.conversation.history.timeline import Item
from tests.bridges.conversations import EVERYTHING, ID, NAME, prompt, said, timeline


def sent(items: tuple[Item, ...]) -> list[dict[str, Any]]:
    """The messages as a service gets them, checked by OpenAI's rules."""
    import openai  # takes a second: not where each worker reads all tests

    bodies: list[dict[str, Any]] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        message = {"role": "assistant", "content": "ok"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
        return httpx2.Response(200, json={**answer, "choices": [choice]})

    client = openai.OpenAI(
        api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(serve))
    )
    client.chat.completions.create(model="m", messages=chat_messages(items))
    messages: list[dict[str, Any]] = bodies[0]["messages"]
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == [], "each call has its result at once"
        assert message.get("content") or message.get("tool_calls")
        for call in message.get("tool_calls", []):
            assert ID.fullmatch(call["id"])
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            open_calls.append(call["id"])
    assert open_calls == []
    return messages


def test_a_whole_conversation_is_told_as_the_service_demands() -> None:
    asked, answered, read, shot, image, more, cut, then, bad, failed, last = sent(EVERYTHING)
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert [part["type"] for part in asked["content"]] == ["text", "image_url", "text"]
    assert asked["content"][1] == url
    assert answered["content"] == "I look."
    assert [call["function"]["name"] for call in answered["tool_calls"]] == ["read_file", "other"]
    assert (read["role"], read["content"]) == ("tool", "one")
    assert shot["content"] == "The call has succeeded."
    assert image == {"role": "user", "content": [url]}
    assert (more["content"], len(more["tool_calls"])) == ("I see it.", 1)
    assert "cut off" in cut["content"]
    assert [part["text"] for part in then["content"]] == [
        "(The person cancelled this turn.)",
        "And now?",
    ]
    assert bad["tool_calls"][0]["id"] == "bad"
    assert failed["content"] == '{"code": 1}'
    assert last == {"role": "assistant", "content": "It did not work."}


def test_recordings_are_sent_where_the_service_takes_them() -> None:
    wav = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
    ogg = {"type": "audio", "data": "aGk=", "mimeType": "audio/ogg"}
    [message] = sent(timeline(prompt(wav, ogg)))
    assert message["content"] == [
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "text", "text": "(audio/ogg)"},
    ]


def test_a_turn_of_thoughts_alone_is_no_message() -> None:
    thought = said("hm", "agent_thought_chunk")
    assert [it["role"] for it in sent(timeline(prompt("Go"), thought))] == ["user"]
