"""Hostile bytes: each has one clear reaction, and nothing but JSON-RPC in UTF-8 ever goes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from acp_wire.rpc import (
    MalformedReceived,
    NotificationReceived,
    Protocol,
    RequestReceived,
    ResponseReceived,
    wire_error,
)
from acp_wire.rpc.framing import HEAD
from acp_wire.rpc.protocol import refusal
from tests.rpc.test_protocol import one, reply, strictly


@pytest.mark.parametrize("end", ["", ',"_meta":{"acphold/seq":7}'])
def test_a_notification_over_the_limit_still_tells_what_it_was_about(end: str) -> None:
    text = '"params":{"said":["sessionId",{"sessionId":"no"}],"sessionId":"s","update":"%s"%s}'
    for line in (
        '{"jsonrpc":"2.0","method":"told",' + text % ("x" * 9_000, end) + "}",
        "{" + text % ("x" * 9_000, end) + ',"jsonrpc":"2.0","method":"told"}',
    ):
        [event] = Protocol(5_000).feed(line.encode() + b"\n")
        assert isinstance(event, MalformedReceived)
        assert event.cut is not None
        assert event.cut.method == "told"
        assert event.cut.params["sessionId"] == b'"s"'
        assert event.cut.problem == f"a message of {len(line)} bytes is over the limit of 5000"
        assert line.encode().endswith(event.cut.tail)


def test_what_is_asked_over_the_limit_is_no_notification() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"asked","params":{"a":"%b"}}\n' % (b"x" * 9_000)
    [event] = Protocol(5_000).feed(line)
    assert isinstance(event, MalformedReceived)
    assert event.asked
    assert event.cut is None


NO_IDS = (
    rb""""\uZZZZ" "\u12" "\x" "\ud83d" "\ude00\ud83d" "open 01 -01 - --1 +1 1.5 1.0 1e3 .5"""
    b""" 0x1 1_000 NaN Infinity true nul {} [] "\xff" "\xed\xa0\xbd" "a\x00" "a\tb" """
).split(b" ")
IDS = [*rb'''0 -0 7 -7 null "" "a" "\u00e4" "\ud83d\ude00"'''.split(), b"9" * 40]


def refused(line: bytes, protocol: Protocol | None = None) -> tuple[object, int]:
    """The id and the code with which a line is refused."""
    answer = reply(line, protocol)
    return answer["id"], answer["error"]["code"]


# -- ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{}}',
        b'{"jsonrpc":"2.0","id": %b ,"method":"m","params":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","method":"m","params":{},"id":%b}',
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"x":',
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":"%b"}' % (b"%b", b"y" * 2000),
        b'{"jsonrpc":"2.0","method":"m","params":{"x":"%b"},"id":%b}' % (b"y" * 2000, b"%b"),
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":%b1%b}' % (b"%b", b"[" * 600, b"]" * 600),
    ],
)
def test_an_id_that_is_none_is_answered_as_null(line: bytes) -> None:
    for id_ in NO_IDS:
        id_sent, code = refused(line % id_, Protocol(limit=1900))
        assert id_sent is None, id_
        assert code in (-32700, -32600), id_


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":7}',
        b'{"jsonrpc":"2.0","id": %b ,"method":"m","params":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"x":',
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":"%b"}' % (b"%b", b"y" * 2000),
        b'{"jsonrpc":"2.0","id":%b,"method":"m","params":%b1%b}' % (b"%b", b"[" * 600, b"]" * 600),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_with_its_id(line: bytes) -> None:
    for id_ in IDS:
        event = one(line % id_, Protocol(limit=1900))
        assert isinstance(event, MalformedReceived), id_
        assert b'"id":%b,' % id_ in event.reply
        strictly(event.reply)


def test_an_id_inside_of_params_is_never_taken_for_the_messages() -> None:
    assert refused(b'{"jsonrpc":"2.0","method":"m","params":{"id":7}') == (None, -32700)
    assert refused(b'{"jsonrpc":"2.0","method":"m","params":[{"id":7}') == (None, -32700)
    assert refused(b'{"jsonrpc":"2.0","method":"m","params":{"id":7,"x":"\xff"}}') == (None, -32700)


def test_the_request_of_another_is_not_taken_for_the_answer_to_one_of_ours() -> None:
    protocol = Protocol()
    protocol.request("m", b"{}")
    line = b'{"jsonrpc":"2.0","id":1,"params":{"x":"%b"},"method":"m","y":[]}' % (b"y" * 2 * HEAD)
    assert refused(line.replace(b"yy", b"\xffy", 1), protocol) == (1, -32700)
    answer = one(b'{"jsonrpc":"2.0","id":1,"result":{}}', protocol)
    assert answer == ResponseReceived(1, b"{}")


# -- bytes ------------------------------------------------------------------------------------


def test_a_byte_order_mark_is_skipped() -> None:
    told = NotificationReceived("m", b"")
    assert one(b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m"}') == told
    assert one(b'\xef\xbb\xbf {"jsonrpc":"2.0","method":"m"}\r') == told
    surrogate = b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m","params":["\\ud83d"]}'
    assert one(surrogate) == NotificationReceived("m", b'["\\ufffd"]')


@pytest.mark.parametrize("marks", [2, 20_000])
def test_more_than_one_byte_order_mark_is_no_json(marks: int) -> None:
    line = b"\xef\xbb\xbf" * marks + b'{"jsonrpc":"2.0","method":"m"}'
    assert refused(line) == (None, -32700)


@pytest.mark.parametrize(
    ("line", "id_"),
    [
        (b"Welcome to the agent!", None),
        (b'{"jsonrpc":"2.0","method":"m"', None),
        (b'{"jsonrpc":"2.0","method":"m"}}', None),
        (b'{"jsonrpc":"2.0","method":"m","params":{"x":NaN}}', None),
        (b"{'a': 1}", None),
        (b'{"a" 1}', None),
        (b"{,}", None),
        (b"[1,", None),
        (b'{"method":"\xff"}', None),
        (b'"\xc3\x28"', None),
        (b"\xff\xfe{\x00}\x00", None),
        (b"\x00", None),
        (b'\x00{"jsonrpc":"2.0","id":1,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"}\x00', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\x00"}}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16-le"), None),
        ('\ufeff{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16-be"), None),
        ('{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-32-le"), None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"\xc3\x28":1}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\xbd"}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":["\xf8\x88\x80\x80\x80"]}', 1),
    ],
)
def test_a_line_that_is_not_json_in_utf_8_is_a_parse_error(line: bytes, id_: int | None) -> None:
    assert refused(line.replace(b"\n", b"")) == (id_, -32700)


def test_text_is_found_not_to_be_utf_8_wherever_it_is_cut() -> None:
    head, tail = b'{"jsonrpc":"2.0","id":1,"method":"m","params":["', b'"]}'
    for letter in ("é", "€", "😀"):
        text = letter.encode() * 400_000
        event = one(head + text + tail)
        assert event == RequestReceived(b"1", "m", b'["%b"]' % text)
        assert refused(head + text[:-1] + tail) == (1, -32700)


def test_an_escaped_nul_is_a_character_like_any_other() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"m\\u0000","params":["\\u0000"]}'
    assert one(line) == RequestReceived(b"1", "m\x00", b'["\\u0000"]')


def test_a_batch_of_many_megabytes_is_not_made_into_objects() -> None:
    assert refused(b"[" + b"[]," * 2_000_000 + b"1]") == (None, -32600)


def test_an_error_code_that_no_other_reader_takes_becomes_an_internal_error() -> None:
    for code in (b"2147483648", b"-99999999999999999999", b"1e400", b"9" * 5000):
        protocol = Protocol()
        protocol.request("m", b"{}")
        line = b'{"jsonrpc":"2.0","id":1,"error":{"code":%b,"message":"no","data":1}}' % code
        event = one(line, protocol)
        assert isinstance(event, ResponseReceived)
        assert event.error is not None
        assert json.loads(event.error.raw) == {"code": -32603, "message": "no", "data": 1}


# -- everything that goes out -----------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b'{"jsonrpc":"2.0","id":',
        b',"method":"m"',
        b',"method":"\\ud83d"',
        b',"params":{"a":1}',
        b',"params":["\\ud83d"]',
        b',"params":',
        b'"x":"\xff"',
        b',"result":{}',
        b',"error":{"code":1.5,"message":"\\udead"}',
        b"}",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xef\xbb\xbf",
        b"[" * 600,
        b"]" * 600,
        b"y" * 3000,
        b" ",
        *NO_IDS,
        *IDS,
    ]
)


@given(st.lists(PIECES | st.binary(max_size=4), max_size=14), st.integers(1, 3000))
@example([b'{"jsonrpc":"2.0","id":', b'"\xff"', b',"method":"m"', b"}"], 3000)
def test_whatever_comes_in_what_goes_out_and_what_is_handed_on_is_json_in_utf_8(
    pieces: list[bytes], size: int
) -> None:
    protocol = Protocol(limit=2500)
    sent = [protocol.request("m", b"{}")[1] for _ in range(8)]
    stream = b"".join(pieces) + b"\n"
    for start in range(0, len(stream), size):
        for event in protocol.feed(stream[start : start + size]):
            if isinstance(event, RequestReceived | NotificationReceived) and event.params:
                assert isinstance(json.loads(event.params.decode()), dict | list)
            match event:
                case RequestReceived(id=id_, method=method):
                    sent += [protocol.result(id_, b"{}"), protocol.notification(method, b"")]
                    sent.append(refusal(id_, wire_error(-32601, method)))
                case MalformedReceived(reply=reply, asked=asked) if reply:
                    sent.append(reply)
                    assert asked == (json.loads(reply)["id"] is not None)
                case NotificationReceived(method=method):
                    sent.append(protocol.notification(method, b""))
                case _:
                    pass
    for line in sent:
        strictly(line)
