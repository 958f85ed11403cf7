"""Long texts in pieces, for clients that close at a long message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acphold.web import bounds
from acphold.web.connections import in_pieces, takes_long_messages


def line(update: dict[str, Any], **params: Any) -> bytes:
    said = {"sessionId": "s", "update": update, **params}
    message = {"jsonrpc": "2.0", "method": "session/update", "params": said}
    return json.dumps(message, ensure_ascii=False).encode()


def chunk(text: str, **more: Any) -> dict[str, Any]:
    content = {"type": "text", "text": text, "annotations": {"audience": ["user"]}}
    return {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content, **more}


@pytest.mark.parametrize("letter", ["x", "ü", "中", "😀", '"', "\x01"])
def test_the_pieces_are_the_same_text_and_any_client_takes_each(letter: str) -> None:
    text = letter * (bounds.ANY_CLIENT_BYTES + 1)
    pieces = in_pieces(line(chunk(text, _meta={"theirs": 1}), _meta={"acphold/seq": 7, "a": 1}))
    assert len(pieces) > 1
    assert all(len(piece) <= bounds.ANY_CLIENT_BYTES for piece in pieces)
    told = [json.loads(piece) for piece in pieces]
    said = "".join(each["params"]["update"]["content"].pop("text") for each in told)
    assert said == text
    assert all(each["params"]["update"] == told[0]["params"]["update"] for each in told)
    assert told[0]["params"]["update"]["_meta"] == {"theirs": 1}
    assert [each["params"]["_meta"].get("acphold/seq") for each in told[:-1]] == [None] * (
        len(told) - 1
    )
    assert told[-1]["params"]["_meta"] == {"acphold/seq": 7, "a": 1}


def test_what_is_short_or_no_text_stays_as_it_is() -> None:
    long = "x" * (bounds.ANY_CLIENT_BYTES + 1)
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": long}
    image = {"type": "image", "data": long, "mimeType": "image/png"}
    for kept in (
        line(chunk("x" * bounds.PIECE_CHARACTERS)),
        line(call),
        line({"sessionUpdate": "agent_message_chunk", "content": image}),
        b'{"jsonrpc":"2.0","id":1,"result":"' + long.encode() + b'"}',
        b"[" + long.encode(),
        line(chunk(long)).replace(b'"type": "text"', b'"type": \xff'),
    ):
        assert in_pieces(kept) == [kept]


def test_our_own_clients_and_browsers_are_told_them_as_they_are() -> None:
    assert takes_long_messages({"user-agent": "acphold"})
    assert takes_long_messages({"user-agent": "Mozilla", "origin": "http://localhost:8260"})
    assert not takes_long_messages({"user-agent": "Python/3.11 websockets/15.0"})
