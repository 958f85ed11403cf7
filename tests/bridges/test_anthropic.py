"""Messages for Anthropic's library, sent by it."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from acphold.bridges.anthropic import messages
from acphold.conversation.history.timeline import Item
from tests.bridges.conversations import EVERYTHING, ID, NAME, called, prompt, said, timeline


def sent(items: tuple[Item, ...]) -> list[dict[str, Any]]:
    """The messages as a service gets them, checked by Anthropic's rules."""
    import anthropic  # takes a second: not where each worker reads all tests

    bodies: list[dict[str, Any]] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        usage = {"input_tokens": 1, "output_tokens": 1}
        text = {"type": "text", "text": "ok"}
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
        end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        return httpx2.Response(200, json={**answer, "content": [text], **end})

    client = anthropic.Anthropic(
        api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(serve))
    )
    client.messages.create(model="m", max_tokens=1, messages=messages(items))
    told: list[dict[str, Any]] = bodies[0]["messages"]
    assert told[0]["role"] == "user"
    open_calls: list[str] = []
    for message in told:
        results = [it for it in message["content"] if it["type"] == "tool_result"]
        assert [it["tool_use_id"] for it in results] == open_calls, "each in the next message"
        assert results == message["content"][: len(results)], "before all else"
        open_calls = [it["id"] for it in message["content"] if it["type"] == "tool_use"]
        assert message["content"]
        for block in message["content"]:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_use":
                assert isinstance(block["input"], dict)
                assert ID.fullmatch(block["id"])
                assert NAME.fullmatch(block["name"])
    assert open_calls == []
    return told


def test_a_whole_conversation_is_told_as_the_service_demands() -> None:
    asked, look, seen, more, then, bad, failed, last = sent(EVERYTHING)
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    assert [block["type"] for block in asked["content"]] == ["text", "image", "text"]
    assert asked["content"][1] == image
    assert [block["type"] for block in look["content"]] == ["text", "tool_use", "tool_use"]
    assert look["content"][2]["input"] == {"input": [1]}
    assert seen["content"][0]["content"] == [{"type": "text", "text": "one"}]
    assert seen["content"][1]["content"][1] == image
    assert [block.get("text") for block in more["content"]] == ["I see it.", None]
    assert then["content"][0]["is_error"] is True
    assert [block["text"] for block in then["content"][1:]] == [
        "(The person cancelled this turn.)",
        "And now?",
    ]
    assert bad["content"][0]["type"] == "tool_use"
    assert failed["content"][0]["is_error"] is True
    assert last["content"] == [{"type": "text", "text": "It did not work."}]


def test_an_image_of_another_kind_is_named() -> None:
    svg = {"type": "image", "data": "aGk=", "mimeType": "image/svg+xml"}
    [message] = sent(timeline(prompt(svg)))
    assert message["content"] == [{"type": "text", "text": "(image/svg+xml)"}]


def test_a_turn_of_thoughts_alone_is_no_message() -> None:
    thought = said("hm", "agent_thought_chunk")
    assert [it["role"] for it in sent(timeline(prompt("Go"), thought))] == ["user"]


def test_a_call_that_nothing_follows_has_its_result() -> None:
    _, asked, result = sent(timeline(prompt("Go"), called("read", rawOutput="one")))
    assert (asked["content"][0]["type"], result["role"]) == ("tool_use", "user")
    assert result["content"][0]["tool_use_id"] == "read"
