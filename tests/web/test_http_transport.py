"""The way of a message over HTTP: in the step that has it, and no more often than it has to."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from acp_wire.rpc.transport import OfferingTransport
from acphold.web import bounds
from acphold.web.connections import STATE, Message
from acphold.web.exchange import EventStream, HttpExchange, event
from acphold.web.http_clients import HttpTransport, read

LINE = b'{"method":"x"}\n'


def test_white_space_of_an_agent_ends_no_line_of_an_event_whatever_letters_are_beside_it() -> None:
    for text in ("plain", "café", "中文😀 \\r", 'a \\"quote\\" \\\\ ü\\n', "\x7f\u2028"):
        line = f'{{\t"method"\r:\r"x","params":\r{{"text":"{text}"}}}}'
        said = event(line.encode())
        assert said.isascii()
        assert said.count(b"\r") == 0
        assert said.count(b"\n") == 2
        assert json.loads(said.removeprefix(b"data: ")) == json.loads(line)


async def test_a_position_alone_is_said_with_what_follows_and_else_in_a_moment() -> None:
    stream = EventStream(lambda _: None)
    events = stream.open()

    async def next_() -> bytes:
        async with asyncio.timeout(10):
            return await anext(events)

    reading = asyncio.create_task(next_())
    await asyncio.sleep(0)
    stream.add(b"id: 1\n\n", may_wait=True)
    stream.add(b"id: 2\ndata: x\n\n")
    assert await reading == b"id: 1\n\nid: 2\ndata: x\n\n"
    reading = asyncio.create_task(next_())
    await asyncio.sleep(0)
    stream.add(b"id: 3\n\n", may_wait=True)
    assert await reading == b"id: 3\n\n"


async def test_what_comes_while_a_reader_waits_is_said_in_that_step_and_in_order() -> None:
    stream = EventStream(lambda _: None)
    said: list[bytes] = []
    has_room = True

    def at_once(events: bytes) -> bool:
        if has_room:
            said.append(events)
        return has_room

    events = stream.open(at_once)
    stream.add(b"1")  # nobody has begun to read
    assert await anext(events) == b"1"
    stream.add(b"2")  # while that one is on its way
    assert await anext(events) == b"2"
    reading = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    stream.add(b"3", may_wait=True)
    stream.add(b"4")
    assert (said, stream.size) == ([b"34"], 0)
    has_room = False
    stream.add(b"5")
    has_room = True
    stream.add(b"6")  # takes those along that still wait
    assert said == [b"34", b"56"]
    has_room = False
    stream.add(b"7")
    async with asyncio.timeout(10):
        assert await reading == b"7"
    stream.end()
    has_room = True
    stream.add(b"8")
    assert said == [b"34", b"56"]
    await events.aclose()  # type: ignore[attr-defined]


async def test_behind_a_server_of_somebody_elses_events_go_out_in_that_step_and_in_order() -> None:
    sent = asyncio.Queue[bytes]()
    room = asyncio.Event()
    room.set()

    async def send(message: Message) -> None:
        await room.wait()
        sent.put_nowait(message.get("body", b""))

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    exchange = HttpExchange({"type": "http", "method": "GET"}, receive, send)
    stream = EventStream(lambda _: None)
    streaming = asyncio.create_task(exchange.stream(stream.open(exchange.send_at_once)))
    async with asyncio.timeout(10):
        assert [await sent.get() for _ in range(2)] == [b"", b":\n\n"]
        stream.add(b"1")
        assert sent.get_nowait() == b"1"
        room.clear()
        for event in (b"2", b"3", b"4"):
            stream.add(event)
        assert sent.empty()
        room.set()
        said = b""
        while len(said) < 3:
            said += await sent.get()
        assert said == b"234"
        stream.end()
        await streaming


@pytest.mark.parametrize("has_room", [True, False], ids=["who reads", "who reads nothing"])
async def test_a_stream_that_is_cut_short_here_is_answered_to_its_end(has_room: bool) -> None:
    sent: list[Message] = []
    begun, aborted = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        if begun.is_set() and not has_room:
            await aborted.wait()
        sent.append(message)
        if message.get("body"):
            begun.set()

    async def receive() -> Message:
        await aborted.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "state": {STATE: SimpleNamespace(abort=aborted.set, peer="")},
    }
    exchange = HttpExchange(scope, receive, send)
    streaming = asyncio.create_task(exchange.stream(EventStream(lambda _: None).open()))
    async with asyncio.timeout(10):
        await begun.wait()
        streaming.cancel()
        await asyncio.wait([streaming])
    assert aborted.is_set() is not has_room
    if has_room:
        assert not sent[-1].get("more_body", False)


async def test_what_waits_is_what_was_not_written_to_streams_that_somebody_reads() -> None:
    transport = HttpTransport("token")
    transport.send(b'{"method":"x"}\n')
    waiting = len(b'data: {"method":"x"}\n\n')
    assert transport.buffered == waiting  # its client opens that one next
    streams = [transport.stream(None, None), transport.stream("s", None)]
    for expected in (2 * waiting, 3 * waiting):
        transport.send(b'{"method":"x"}\n')
        assert transport.buffered == expected
    about = b'{"method":"x","params":{"sessionId":"s"}}'
    transport.send(about + b"\n")
    assert transport.buffered == 3 * waiting + len(about) + len(b"data: \n\n")
    for stream in streams:
        assert stream is not None
        await anext(stream)
        waits = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
    assert transport.buffered == 0
    transport.send(about + b"\n")  # nobody reads that one any more
    assert transport.buffered == len(about) + len(b"data: \n\n")
    transport.end()


async def test_streams_that_nobody_reads_any_more_take_no_place_from_new_ones() -> None:
    transport = HttpTransport("token")
    for number in range(bounds.STREAMS + 1):
        stream = transport.stream(f"left {number}", None)
        assert stream is not None
        async with asyncio.timeout(10):
            reading = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
    reading_on = [transport.stream(f"read {number}", None) for number in range(bounds.STREAMS)]
    assert None not in reading_on
    assert transport.stream("one more", None) is None
    transport.end()


async def test_what_is_posted_is_taken_in_that_step_by_who_waits_for_it() -> None:
    transport = HttpTransport("token")
    assert isinstance(transport, OfferingTransport)
    taken: list[bytes] = []

    def take(line: bytes) -> bool:
        taken.append(line)
        return len(taken) == 1

    transport.offer_to(take)
    receiving = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    for _ in range(2):
        await transport.post(LINE, read(LINE))
    assert taken == [LINE, LINE]
    async with asyncio.timeout(10):
        assert await receiving == LINE  # the second, which was refused
        transport.end()
        assert await transport.receive() == b""
    assert not transport.is_read


async def test_what_fails_in_that_step_is_told_to_who_receives() -> None:
    transport = HttpTransport("token")

    def take(_: bytes) -> bool:
        raise ValueError("it fails")

    transport.offer_to(take)
    receiving = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    await transport.post(LINE, read(LINE))
    with pytest.raises(ValueError, match="it fails"):
        async with asyncio.timeout(10):
            await receiving


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_stream_that_comes_back_resumes_its_session_unless_that_was_closed(
    is_closed: bool,
) -> None:
    transport = HttpTransport("token")
    for id_, method in enumerate(["session/load", "session/close"][: 1 + is_closed]):
        line = b'{"id":%d,"method":"%b","params":{"sessionId":"s"}}\n' % (id_, method.encode())
        await transport.post(line, read(line))
        assert await transport.receive() == line
        transport.send(b'{"id":%d,"result":{}}\n' % id_)
    assert transport.stream("s", 7) is not None
    await transport.post(LINE, read(LINE))
    assert (await transport.receive() == LINE) is is_closed
    transport.end()


async def test_the_answer_of_a_load_is_read_apart_from_the_replay_before_it() -> None:
    """The Python SDK may handle an answer before updates of the same read."""
    transport = HttpTransport("token")
    load = b'{"id":1,"method":"session/load","params":{"sessionId":"s"}}\n'
    await transport.post(load, read(load))
    stream = transport.stream("s", None)
    assert stream is not None
    update = b'{"method":"session/update","params":{"sessionId":"s","update":{}}}\n'
    answer = b'{"id":1,"result":{}}\n'
    transport.send(update + update + answer + update)
    chunks: list[bytes] = []
    async with asyncio.timeout(10):
        while b"".join(chunks).count(b"data:") < 4:
            chunks.append(await anext(stream))
    replayed, later = chunks
    assert replayed.count(b"session/update") == 2
    assert later.index(b'"result"') < later.index(b"session/update")
    transport.end()
