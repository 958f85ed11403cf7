"""JSON-RPC bytes in, events out: every kind of message, and every kind of garbage."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from acp_wire.rpc import (
    Event,
    MalformedReceived,
    NotificationReceived,
    Protocol,
    RequestReceived,
    ResponseReceived,
    WireError,
    wire_error,
)
from acp_wire.rpc.protocol import MAX_DEPTH, refusal


def one(line: bytes, protocol: Protocol | None = None) -> Event:
    (event,) = (protocol or Protocol()).feed(line + b"\n")
    return event


def reply(line: bytes, protocol: Protocol | None = None) -> dict[str, Any]:
    """The error that a malformed line is answered with; the next line is read all the same."""
    protocol = protocol or Protocol()
    event = one(line, protocol)
    assert isinstance(event, MalformedReceived)
    assert isinstance(one(b'{"jsonrpc":"2.0","method":"next"}', protocol), NotificationReceived)
    answer = strictly(event.reply)
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert event.asked == (answer["id"] is not None)
    return answer


def strictly(line: bytes) -> dict[str, Any]:
    """A line as the strictest of readers reads it."""
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    line.decode()
    message: dict[str, Any] = msgspec.json.decode(line)
    assert message["jsonrpc"] == "2.0"
    assert isinstance(message.get("id"), str | int | None)
    return message


def asking(count: int = 1, limit: int | None = None) -> Protocol:
    """A protocol that waits for the answers to requests 1 to `count`."""
    protocol = Protocol() if limit is None else Protocol(limit)
    for _ in range(count):
        protocol.request("m", b"{}")
    return protocol


# -- well formed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id_",
    rb'1 0 -7 null "a" "" "\u00e4" 9007199254740993 123456789012345678901234567890'.split(),
)
def test_an_id_is_given_back_exactly(id_: bytes) -> None:
    event = one(b'{"jsonrpc":"2.0","id": %b ,"method":"m"}' % id_)
    assert event == RequestReceived(id_, "m", b"")
    assert Protocol.result(id_, b"{}") == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % id_


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"jsonrpc":"2.0","method":"m"}', NotificationReceived("m", b"")),
        (b'{"jsonrpc":"2.0","method":"m","params":null}', NotificationReceived("m", b"")),
        (b'{"jsonrpc":"2.0","method":"m","params":{}}', NotificationReceived("m", b"{}")),
        (b'{"jsonrpc":"2.0","method":"m","params":[1]}', NotificationReceived("m", b"[1]")),
        (b'{"jsonrpc":"2.0","method":"\\u006d\\n"}', NotificationReceived("m\n", b"")),
        (b'{"jsonrpc":"2.0","method":"\\ud83d"}', NotificationReceived("\ufffd", b"")),
        ('{"jsonrpc":"2.0","method":"é"}'.encode(), NotificationReceived("é", b"")),
        (b'{"method":"m","more":1,"id":2}', RequestReceived(b"2", "m", b"")),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', RequestReceived(b"1", "b", b"")),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', RequestReceived(b"2", "m", b"")),
        (b' {"jsonrpc" : "2.0" , "method" : "m" } \r', NotificationReceived("m", b"")),
        (
            b'{"jsonrpc":"2.0","method":"m","params":{"x":1.0,"y":"\\ud83d","x":2}}',
            NotificationReceived("m", b'{"x":1.0,"y":"\\ufffd","x":2}'),
        ),
    ],
)
def test_what_is_asked_and_told_arrives_with_the_bytes_of_its_params(
    line: bytes, event: Event
) -> None:
    assert one(line) == event


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"a": 1}}', b'{"a": 1}'),
        (b'{"jsonrpc":"2.0","id":"1","result":1}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"result":null}', b"null"),
        (b'{"jsonrpc":"2.0","id":1,"result":"\\udead"}', b'"\\ufffd"'),
        (b'{"jsonrpc":"2.0","id":1,"error":null,"result":[]}', b"[]"),
        (b'{"id":1,"result":{}}', b"{}"),
        (b'{"jsonrpc":"2.0","id":1}', b"null"),
    ],
)
def test_an_answer_settles_the_request_with_its_id(line: bytes, result: bytes) -> None:
    assert one(line, asking()) == ResponseReceived(1, result)


def test_an_error_with_a_result_is_an_error() -> None:
    error = b'"error":{"code":-1,"message":"no"}'
    for result in (b'"result":null', b'"result":{}'):
        for members in ((result, error), (error, result)):
            event = one(b'{"jsonrpc":"2.0","id":1,%b,%b}' % members, asking())
            assert isinstance(event, ResponseReceived)
            assert event.error == wire_error(-1, "no")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (b'{"code":-32000,"message":"no","data":[1]}', -32000, "no"),
        (b'{"code":-32000,"message":"\\ud83d!"}', -32000, "\ufffd!"),
        (b'{"code":1.5,"message":"no"}', -32603, "no"),
        (b'{"message":"no","data":{"x":1}}', -32603, "no"),
        (b'{"code":-1}', -1, "the other side refused without a reason"),
        (b'"boom"', -32603, "boom"),
        (b"7", -32603, "the other side refused without a reason"),
    ],
)
def test_an_error_is_handed_on_as_it_came_or_made_whole(
    error: bytes, code: int, message: str
) -> None:
    event = one(b'{"jsonrpc":"2.0","id":1,"error":%b}' % error, asking())
    assert isinstance(event, ResponseReceived)
    assert event.error is not None
    assert (event.error.code, event.error.message) == (code, message)
    raw = json.loads(event.error.raw)
    assert (raw["code"], raw["message"].replace("\ud83d", "\ufffd")) == (code, message)
    if b'"data"' in error:
        assert raw["data"] == json.loads(error)["data"]


# -- malformed ----------------------------------------------------------------------------------


def test_no_message_hides_another_behind_what_some_programs_take_for_a_line_end() -> None:
    event = one(b'{"jsonrpc":"2.0","method":"a","params":{"x":[\r{"method":"b"}\r\n')
    assert isinstance(event, MalformedReceived)
    event = one(b'{"jsonrpc":"2.0","method":"a","params":{"x":[\r{"method":"b"}\r]}}\r\n')
    assert isinstance(event, NotificationReceived)
    assert event.params == b'{"x":[\t{"method":"b"}\t]}'
    assert isinstance(one(b'{"jsonrpc":"2.0","method":"a\rb"}\n'), MalformedReceived)


@pytest.mark.parametrize(
    ("line", "id_"),
    [
        (b"1", None),
        (b'"text"', None),
        (b"null", None),
        (b"true", None),
        (b"[]", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', None),
        (b"{}", None),
        (b'{"jsonrpc":"2.0"}', None),
        (b'{"jsonrpc":"2.0","id":5}', 5),
        (b'{"jsonrpc":"2.0","id":5,"params":{}}', 5),
        (b'{"jsonrpc":"1.0","id":5,"method":"m"}', 5),
        (b'{"jsonrpc":2.0,"id":5,"method":"m"}', 5),
        (b'{"jsonrpc":null,"id":5,"method":"m"}', 5),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', 5),
        (b'{"jsonrpc":"2.0","id":5,"method":null}', 5),
        (b'{"jsonrpc":"2.0","id":5,"method":{"a":1}}', 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":"x"}', 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":7}', 5),
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(line: bytes, id_: object) -> None:
    answer = reply(line)
    assert (answer["id"], answer["error"]["code"]) == (id_, -32600)


def test_a_batch_is_refused_by_its_name() -> None:
    assert "batch" in reply(b'[{"jsonrpc":"2.0","method":"m"}]')["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":2,"result":{}}',  # the second one
        b'{"jsonrpc":"2.0","id":3,"result":{}}',
        b'{"jsonrpc":"2.0","id":-1,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
        b'{"jsonrpc":"2.0","id":"one","result":{}}',
        b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"1.0","id":2,"result":{}}',
    ],
)
def test_an_answer_to_nothing_is_ignored(line: bytes) -> None:
    protocol = asking(2)
    assert one(b'{"jsonrpc":"2.0","id":2,"result":{}}', protocol) == ResponseReceived(2, b"{}")
    event = one(line, protocol)
    assert isinstance(event, MalformedReceived)
    assert event.reply == b""
    assert isinstance(one(b'{"jsonrpc":"2.0","id":1,"result":1}', protocol), ResponseReceived)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":',
        b'{"jsonrpc":"2.0","id":1,"result":"\xe4"}',
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"jsonrpc":"2.0","result":' + b"[" * 5000 + b"]" * 5000 + b',"id":1}',
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_call(line: bytes) -> None:
    event = one(line, asking())
    assert isinstance(event, ResponseReceived)
    assert event.id == 1
    assert event.error is not None
    assert event.error.code in (-32700, -32600)


def test_a_log_line_in_json_is_not_taken_for_an_answer() -> None:
    assert isinstance(one(b'{"level":"info","id":1}', asking()), MalformedReceived)


# -- too long, too deep -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        (b'{"jsonrpc":"2.0","id":"big","method":"m","params":{"x":"', b'"}}'),
        (b'{"jsonrpc":"2.0","method":"m","params":{"x":"', b'"},"id":"big"}'),
        (b'{"params":{"x":"', b'"},"jsonrpc":"2.0", "id" : "big" , "method":"m" }\r'),
        (b'{"id":"big","params":[[{"id":1,"x":"', b'"}]],"method":"m"}'),
    ],
)
def test_a_request_over_the_limit_is_refused_with_its_id(parts: tuple[bytes, bytes]) -> None:
    answer = reply((b"y" * 200_000).join(parts), Protocol(limit=100_000))
    assert (answer["id"], answer["error"]["code"]) == ("big", -32600)
    assert "limit of 100000" in answer["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"m","params":{"x":"%b"}}',
        b'{"jsonrpc":"2.0","id":9,"result":{"x":"%b"}}',
        b'{"jsonrpc":"2.0","params":{"id":3,"x":"%b\\",\\"id\\":4}"}}',
        b'"%b"',
        b"%b",
        b'{"%b":1}',
    ],
)
def test_what_has_no_id_is_refused_without_one(line: bytes) -> None:
    answer = reply(line % (b"y" * 200_000), Protocol(limit=100_000))
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"x":"%b"}}',
        b'{"jsonrpc":"2.0","result":{"x":"%b"},"id":1}',
        b'{"result":"%b","id":"1","jsonrpc":"2.0"}',
    ],
)
def test_an_answer_over_the_limit_fails_its_call(line: bytes) -> None:
    event = one(line % (b"y" * 200_000), asking(limit=100_000))
    assert isinstance(event, ResponseReceived)
    assert event.error is not None
    assert "over the limit" in event.error.message
    assert json.loads(event.error.raw)["code"] == -32600


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 970, 985, 1000, 5000, 100_000])
def test_deep_nesting_is_refused_and_harms_nothing(opening: bytes, depth: int) -> None:
    closing = opening[::-1].translate(bytes.maketrans(b"[{", b"]}"), b'"a:')
    body = opening * depth + b"1" + closing * depth
    asked = b'{"jsonrpc":"2.0","id":3,"method":"m","params":'
    told = b'{"jsonrpc":"2.0","method":"m","params":'
    for head in (asked, told, b""):
        for line in (head + body + b"}" * bool(head), head + opening * depth):
            answer = reply(line)
            assert answer["error"]["code"] in (-32600, -32700)
            assert answer["id"] == (3 if head == asked else None)


def test_nesting_as_deep_as_it_may_be_is_read() -> None:
    deepest = b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
    event = one(b'{"jsonrpc":"2.0","method":"m","params":%b}' % deepest)
    assert event == NotificationReceived("m", deepest)


# -- properties ---------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": JSON,
        "method": st.text(max_size=6) | JSON,
        "params": JSON,
        "result": JSON,
        "error": JSON,
    },
)
MESSAGES = st.builds(
    lambda value, ascii_: json.dumps(value, ensure_ascii=ascii_).encode(errors="surrogatepass"),
    MEMBERS | JSON,
    st.booleans(),
)
LINES = st.lists(MESSAGES | st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=5)


@given(LINES, st.integers(1, 40))
@example([b'{"method":"\xff"}', b"{}"], 14)
@example([b'{"method":"\xff","a":"b"}'], 14)
def test_events_do_not_depend_on_where_reads_fall(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    at_once, in_pieces = asking(3, 60), asking(3, 60)
    reads = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [event for read in reads for event in in_pieces.feed(read)] == at_once.feed(stream)


@given(MESSAGES)
def test_a_message_has_the_meaning_that_the_standard_library_reads_in_it(line: bytes) -> None:
    value = json.loads(line.decode(errors="surrogatepass"))
    event = one(line) if line.strip() else None
    match event:
        case RequestReceived() | NotificationReceived():
            assert isinstance(value["method"], str)
            assert isinstance(value.get("params"), dict | list | None)
            assert value.get("jsonrpc", "2.0") == "2.0"
            assert ("id" in value) == isinstance(event, RequestReceived)
            if event.params:
                assert json.loads(event.params) == value["params"]
        case ResponseReceived():
            raise AssertionError("nothing was asked")


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=5), JSON, max_size=3), JSON)
def test_what_one_side_sends_the_other_reads(
    method: str, params: dict[str, Any], result: object
) -> None:
    here, there = Protocol(), Protocol()
    raw, answer = json.dumps(params).encode(), json.dumps(result).encode()
    number, line = here.request(method, raw)
    (asked,) = there.feed(line)
    assert asked == RequestReceived(b"%d" % number, method, raw)
    assert isinstance(asked, RequestReceived)
    assert here.feed(there.result(asked.id, answer)) == [ResponseReceived(number, answer)]
    assert there.feed(here.notification(method, raw)) == [NotificationReceived(method, raw)]
    number, line = here.request(method, b"")
    assert there.feed(line) == [RequestReceived(b"%d" % number, method, b"")]
    refused = wire_error(-1, "no\nway", {"why": "so"})
    expected = WireError(-1, "no way", b'{"code":-1,"message":"no way","data":{"why":"so"}}')
    assert here.feed(refusal(b"%d" % number, refused)) == [ResponseReceived(number, b"", expected)]


def test_what_waits_can_be_forgotten_when_the_connection_is_over() -> None:
    protocol = asking(3)
    one(b'{"jsonrpc":"2.0","id":2,"result":1}', protocol)
    assert protocol.forget() == [1, 3]
    assert protocol.forget() == []
