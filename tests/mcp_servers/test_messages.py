"""Lines of a program, and the messages they become."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from acphold.mcp_servers.messages import UnreadableError, decode_message, encode_message, readable

ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {"text": "a } b { c"}}
WHOLE = json.dumps(ANSWER).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text("ab", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xy"), inner, max_size=3),
)


@given(st.dictionaries(st.text("pq"), JSON, max_size=4))
def test_a_message_is_read_as_it_was_sent(result: dict[str, object]) -> None:
    found = readable(json.dumps({**ANSWER, "result": result}).encode())
    assert isinstance(found, SessionMessage)
    assert isinstance(found.message, JSONRPCResponse)
    assert found.message.result == result
    assert decode_message(encode_message(found)).message == found.message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Welcome!",
        b"[]",
        b"5",
        b"\xff\xfe",
        b'{"id": 7, "level": "info"}',
        b'{"foo": 1}',
        b'{"jsonrpc": "2.0", "id": [7], "result": {}}',
        b'{"jsonrpc": "2.0", "id": 7.5, "result": {}}',
    ],
)
def test_what_is_not_an_answer_fails_no_call(line: bytes) -> None:
    found = readable(line)
    assert isinstance(found, UnreadableError)
    assert found.id is None


def test_an_answer_that_is_cut_off_fails_its_call() -> None:
    cut_off = readable(WHOLE[:40])
    assert isinstance(cut_off, UnreadableError)
    assert (cut_off.id, cut_off.asks) == (7, False)


def test_a_byte_order_mark_before_the_first_message_does_no_harm() -> None:
    assert isinstance(readable(b"\xef\xbb\xbf" + WHOLE), SessionMessage)


@pytest.mark.parametrize("unit", [b"[],", b"{},", b'"",', b"1,", b'"\\\\","\\"",'])
def test_a_message_of_very_many_parts_is_refused_at_once(unit: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":7,"result":{"a":[' + unit * 2_000_000 + b"1]}}"
    began = time.process_time()
    with pytest.raises(UnreadableError, match="more than 500000 parts") as caught:
        decode_message(line)
    assert caught.value.id == 7
    assert time.process_time() - began < 2


def test_long_texts_have_few_parts() -> None:
    text = 'a, [b], {c}, "d", \\' * 200_000
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"text": text}}).encode()
    message = decode_message(line).message
    assert isinstance(message, JSONRPCResponse)
    assert message.result == {"text": text}


def test_not_a_number_is_read_all_the_same() -> None:
    message = decode_message(b'{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}')
    assert encode_message(message) == b'{"jsonrpc":"2.0","id":7,"result":{"a":null}}'


def test_a_request_that_cannot_be_read_is_told_from_an_answer() -> None:
    with pytest.raises(UnreadableError) as caught:
        decode_message(b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": 5}')
    assert (caught.value.id, caught.value.asks) == (7, True)
