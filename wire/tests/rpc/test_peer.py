"""One end of a connection: order, cancellation, errors, back pressure, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from acp_wire.errors import (
    AcpError,
    ConnectionLostError,
    InvalidParamsError,
    MethodNotFoundError,
    RemoteError,
)
from acp_wire.rpc import NotificationReceived, Peer, connected, to_wire
from acp_wire.rpc.peer import AT_ONCE, HIGH_WATER, UNREAD, OnAnswer
from acp_wire.rpc.requests import Answer, Request
from acp_wire.rpc.wire_errors import TOO_MANY_FILES
from acp_wire.schema import (
    LIST_SESSIONS,
    PROMPT,
    ListSessionsRequest,
    PromptRequest,
    decode_blocks,
)
from acp_wire.transports.streams import MemoryTransport, memory_pair

DEADLINE = 10.0

Handler = Callable[[Request], Awaitable[bytes | None]]


class Ear:
    """A receiver that keeps everything and answers as it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.batches: list[list[NotificationReceived]] = []
        self.requests: list[Request] = []
        self.handler: Handler = echo
        self.hear: Callable[[list[NotificationReceived]], Awaitable[None]] = nothing

    async def on_request(self, request: Request) -> bytes | None:
        self.heard.append(request.method)
        self.requests.append(request)
        return await self.handler(request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        self.batches.append(batch)
        await self.hear(batch)
        self.heard += [notification.method for notification in batch]


async def keep(request: Request) -> None:
    return None


async def echo(request: Request) -> bytes:
    return request.params or b"{}"


async def nothing(batch: list[NotificationReceived]) -> None:
    return None


def fails(error: Exception) -> Callable[[object], Awaitable[Any]]:
    """A handler of anything that raises this."""

    async def fail(_: object) -> None:
        raise error

    return fail


def waits(event: asyncio.Event, ended: list[str] | None = None, only: str = "") -> Handler:
    """A handler that waits for this, with one method or any, and notes that it has ended."""

    async def wait(request: Request) -> bytes:
        try:
            if only in ("", request.method):
                await event.wait()
        finally:
            if ended is not None:
                ended.append(request.method)
        return b"{}"

    return wait


def says(answer: bytes) -> Handler:
    async def say(request: Request) -> bytes:
        return answer

    return say


def keeps(told: list[str]) -> Handler:
    """A handler that keeps the request and notes that it is cancelled."""

    async def keep_and_hear(request: Request) -> None:
        request.on_cancel = lambda: told.append(request.method)

    return keep_and_hear


def cancel(id_: object) -> dict[str, Any]:
    return {"method": "$/cancel_request", "params": {"requestId": id_}}


class Wire:
    """The other end, byte for byte."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._buffer = b""

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        """All in one write, so in one read of the other side."""
        raw = [line if isinstance(line, bytes) else message(**line) for line in lines]
        self.transport.send(b"".join(line + b"\n" for line in raw))

    async def line(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            chunk = await asyncio.wait_for(self.transport.receive(), DEADLINE)
            assert chunk, "the connection has ended"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


async def until(what: Callable[[], object]) -> None:
    """Let the others run until `what()` holds; nothing announces it."""
    while not what():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def rounds(number: int) -> None:
    """Let the others run for so many rounds: anything not done by then will never be."""
    for _ in range(number):
        await asyncio.sleep(0)


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


class Offering(MemoryTransport):
    """A transport that, like pipes, hands its data to a reader that takes it at once."""

    _take: Callable[[bytes], bool]
    is_read = True

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        self._take = take

    async def receive(self) -> bytes:
        while chunk := await super().receive():
            if not self._take(chunk):
                return chunk
        return b""


def offering_pair() -> tuple[MemoryTransport, MemoryTransport]:
    ours, theirs = memory_pair()
    ours.__class__ = Offering
    return ours, theirs


PAIRS = {"receives": memory_pair, "is offered": offering_pair}
pair = memory_pair


@pytest.fixture(autouse=True, params=PAIRS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is run in both ways in which a peer gets its transport's data."""
    monkeypatch.setitem(globals(), "pair", PAIRS[request.param])


@asynccontextmanager
async def peer_and_wire(**options: Any) -> AsyncIterator[tuple[Peer, Ear, Wire]]:
    ours, theirs = pair()
    ear = Ear()
    peer = Peer(ours, ear, **options)
    async with asyncio.timeout(3 * DEADLINE), connected(peer):
        yield peer, ear, Wire(theirs)


# -- asking and telling -------------------------------------------------------------------------


async def test_a_typed_call_sends_the_method_and_reads_the_typed_answer() -> None:
    async with peer_and_wire() as (peer, _, wire):
        blocks = decode_blocks(b'[{"type":"text","text":"hi"},{"type":"newer","x":[1]}]').value
        call = asyncio.create_task(peer.call(PROMPT, PromptRequest("s", blocks)))
        asked = await wire.line()
        assert asked["method"] == "session/prompt"
        assert asked["params"] == {
            "sessionId": "s",
            "prompt": [{"type": "text", "text": "hi"}, {"type": "newer", "x": [1]}],
        }
        wire.send({"id": asked["id"], "result": {"stopReason": "end_turn", "newer": 1}})
        assert (await call).stop_reason == "end_turn"


async def test_a_result_of_another_shape_fails_its_call_alone() -> None:
    async with peer_and_wire() as (peer, _, wire):
        call = asyncio.create_task(peer.call(LIST_SESSIONS, ListSessionsRequest()))
        wire.send({"id": (await wire.line())["id"], "result": "none"})
        with pytest.raises(InvalidParamsError):
            await call
        again = asyncio.create_task(peer.call(LIST_SESSIONS, ListSessionsRequest()))
        wire.send({"id": (await wire.line())["id"], "result": {"sessions": []}})
        assert not (await again).sessions


async def test_a_refusal_reaches_the_caller_with_its_code_and_bytes() -> None:
    async with peer_and_wire() as (peer, _, wire):
        call = asyncio.create_task(peer.call_raw("m", b"{}"))
        error = {"code": -32000, "message": "sign in", "data": {"url": "x"}}
        wire.send({"id": (await wire.line())["id"], "error": error})
        with pytest.raises(RemoteError) as caught:
            await call
        assert (caught.value.code, caught.value.message) == (-32000, "sign in")
        assert json.loads(caught.value.raw) == error
        assert json.loads(to_wire(caught.value).raw) == error


# -- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_comes_behind_an_update_that_takes_its_time_waits_in_any_read(
    at_once: bool,
) -> None:
    async with peer_and_wire() as (peer, ear, wire):
        go_on = held(ear)
        call = asyncio.create_task(peer.call_raw("m", b"{}"))
        answer = {"id": (await wire.line())["id"], "result": {}}
        wire.send({"method": "update"}, *[answer] * at_once)
        await until(lambda: ear.batches)
        wire.send(*[answer] * (not at_once), {"id": 1, "method": "r"}, {"method": "behind"})
        await rounds(20)
        assert not call.done()
        assert ear.heard == []
        go_on.set()
        await call
        assert (await wire.line())["id"] == 1
        await until(lambda: "behind" in ear.heard)
        assert ear.heard == ["update", "r", "behind"]


def held(ear: Ear) -> asyncio.Event:
    """Notifications take until this is set."""
    go_on = asyncio.Event()

    async def wait(batch: list[NotificationReceived]) -> None:
        await go_on.wait()

    ear.hear = wait
    return go_on


async def test_what_follows_an_answer_is_handled_behind_what_the_answer_sets_off() -> None:
    async with peer_and_wire() as (peer, ear, wire):
        order: list[str] = []

        async def answered(answer: Answer) -> None:
            await asyncio.sleep(0.01)  # takes its time, and the lane waits
            order.append(f"answer {answer!r}")

        async def hear(batch: list[NotificationReceived]) -> None:
            order.extend(notification.method for notification in batch)

        ear.hear = hear
        number = peer.begin("m", b"{}", answered)
        await wire.line()
        wire.send({"method": "a"}, {"method": "b"}, {"id": number, "result": 1}, {"method": "c"})
        wire.send({"id": "end", "method": "end"})
        await wire.line()
        assert order == ["a", "b", "answer b'1'", "c"]


async def test_notifications_in_one_read_come_as_one_batch() -> None:
    async with peer_and_wire() as (_, ear, wire):
        wire.send(*[{"method": f"n{number}"} for number in range(5)], {"id": 1, "method": "r"})
        await wire.line()
        assert [len(batch) for batch in ear.batches] == [5]
        assert ear.heard == ["n0", "n1", "n2", "n3", "n4", "r"]


async def test_requests_start_in_the_order_of_the_wire_and_run_side_by_side() -> None:
    async with peer_and_wire() as (_, ear, wire):
        released = asyncio.Event()
        ear.handler = waits(released, only="r0")
        wire.send(
            {"method": "n0"},
            *[{"id": number, "method": f"r{number}"} for number in range(4)],
            {"method": "n1"},
        )
        assert [(await wire.line())["id"] for _ in range(3)] == [1, 2, 3]
        released.set()
        assert (await wire.line())["id"] == 0
        assert ear.heard == ["n0", "r0", "r1", "r2", "r3", "n1"]


async def test_between_many_requests_of_one_read_the_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acp_wire.rpc.peer.AT_ONCE_SECONDS", 0.0)
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = keep
        wire.send(*[{"id": number, "method": "r"} for number in range(3 * AT_ONCE)])
        seen: list[int] = []
        while len(ear.heard) < 3 * AT_ONCE:
            await asyncio.sleep(0)
            seen.append(len(ear.heard))
        assert {0, *seen} == {0, AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE}


async def test_the_end_of_the_other_side_waits_for_what_it_said_before() -> None:
    async with peer_and_wire() as (peer, ear, wire):
        go_on = held(ear)
        call = asyncio.create_task(peer.call_raw("m", b"{}"))
        await wire.line()
        wire.send({"method": "update"})
        await until(lambda: ear.batches)
        await wire.transport.aclose()
        await rounds(20)
        assert not call.done()
        go_on.set()
        with pytest.raises(ConnectionLostError):
            await call
        assert ear.heard == ["update"]


async def test_closing_ends_a_handler_of_a_notification_that_waits() -> None:
    ended = asyncio.Event()

    async def wait(batch: list[NotificationReceived]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with peer_and_wire() as (_, ear, wire):
        ear.hear = wait
        wire.send({"method": "update"})
        await until(lambda: ear.batches)
    assert ended.is_set()


# -- requests that are kept ---------------------------------------------------------------------


async def test_a_request_that_is_kept_is_answered_by_who_has_it() -> None:
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = keep
        wire.send({"id": 1, "method": "m"}, {"id": 2, "method": "n"})
        await until(lambda: len(ear.requests) == 2)
        ear.requests[1].answer(b'"second"')
        ear.requests[0].answer(b'"first"')
        assert [(await wire.line())["result"] for _ in range(2)] == ["second", "first"]


async def test_a_cancel_request_is_told_to_who_keeps_the_request_and_answered() -> None:
    async with peer_and_wire() as (_, ear, wire):
        told: list[str] = []
        ear.handler = keeps(told)
        wire.send({"id": 1, "method": "m"}, {"id": 2, "method": "n"})
        wire.send(cancel(1))
        wire.send(cancel(1))
        answer = await wire.line()
        assert (answer["id"], answer["error"]["code"], told) == (1, -32800, ["m"])
        ear.requests[0].answer(b"1")
        ear.requests[1].answer(b"2")
        assert (await wire.line())["result"] == 2
        assert ear.requests[1].on_cancel is None  # it holds on to nobody any more


async def test_what_waits_for_nothing_needs_no_coroutine() -> None:
    class PlainEar(Ear):
        def on_request(self, request: Request) -> Awaitable[bytes | None] | None:  # type: ignore[override]
            if request.method == "wait":
                return echo(request)
            if request.method == "refuse":
                raise InvalidParamsError("no", "$")
            request.answer(b'"at once"')
            return None

    ours, theirs = memory_pair()
    wire = Wire(theirs)
    async with connected(Peer(ours, PlainEar())):
        wire.send({"id": 1, "method": "refuse"}, {"id": 2, "method": "m"})
        wire.send({"id": 3, "method": "wait", "params": {"a": 1}})
        refused, *answers = [await wire.line() for _ in range(3)]
    assert (refused["id"], refused["error"]["code"]) == (1, InvalidParamsError.code)
    assert [(answer["id"], answer["result"]) for answer in answers] == [
        (2, "at once"),
        (3, {"a": 1}),
    ]


async def test_closing_is_told_to_who_keeps_a_request() -> None:
    told: list[str] = []
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = keeps(told)
        wire.send({"id": 1, "method": "m"}, {"id": 2, "method": "n"})
        await until(lambda: len(ear.requests) == 2)
        ear.requests[0].answer(b"1")
    assert told == ["n"]


# -- cancellation -------------------------------------------------------------------------------


async def test_cancelling_a_call_sends_a_cancel_request_and_ignores_the_late_answer() -> None:
    async with peer_and_wire() as (peer, _, wire):
        call = asyncio.create_task(peer.call_raw("m", b"{}"))
        asked = await wire.line()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        told = await wire.line()
        assert told["method"] == "$/cancel_request"
        assert told["params"] == {"requestId": asked["id"]}
        wire.send({"id": asked["id"], "error": {"code": -32800, "message": "cancelled"}})
        wire.send({"id": asked["id"], "result": {}})
        wire.send({"id": "next", "method": "m"})
        assert await wire.line() == {"jsonrpc": "2.0", "id": "next", "result": {}}


@pytest.mark.parametrize("id_", [7, "seven", None, -1])
async def test_a_cancel_request_ends_the_handler_and_answers_cancelled(id_: object) -> None:
    async with peer_and_wire() as (_, ear, wire):
        ended: list[str] = []
        ear.handler = waits(asyncio.Event(), ended)
        wire.send({"id": id_, "method": "m"}, cancel(id_))
        answer = await wire.line()
        assert (answer["id"], answer["error"]["code"], ended) == (id_, -32800, ["m"])
        assert "$/cancel_request" not in ear.heard


async def test_a_handler_may_finish_all_the_same_when_it_is_cancelled() -> None:
    async with peer_and_wire() as (_, ear, wire):

        async def partly(request: Request) -> bytes:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return b'"so far"'
            return b""

        ear.handler = partly
        wire.send({"id": 1, "method": "m"}, cancel(1))
        assert (await wire.line())["result"] == "so far"


@pytest.mark.parametrize(
    "params", [{"requestId": 99}, {"requestId": "1"}, {"requestId": {}}, {}, [1], None]
)
async def test_a_cancel_request_for_nothing_changes_nothing(params: object) -> None:
    async with peer_and_wire() as (_, ear, wire):
        released = asyncio.Event()
        ear.handler = waits(released, only="first")
        wire.send(
            {"id": 1, "method": "first"},
            {"method": "$/cancel_request", "params": params},
            {"id": 2, "method": "second"},
        )
        assert (await wire.line())["id"] == 2
        released.set()
        assert await wire.line() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_two_requests_with_one_id_are_both_answered_and_both_cancelled() -> None:
    async with peer_and_wire() as (_, ear, wire):
        wire.send({"id": 1, "method": "m"}, {"id": 1, "method": "n"})
        assert [(await wire.line())["id"] for _ in range(2)] == [1, 1]
        ear.handler = waits(asyncio.Event())
        wire.send({"id": 1, "method": "m"}, {"id": 1, "method": "n"}, cancel(1))
        assert [(await wire.line())["error"]["code"] for _ in range(2)] == [-32800, -32800]


async def test_a_handler_that_is_cancelled_from_within_is_answered_for() -> None:
    async with peer_and_wire() as (_, ear, wire):

        async def waits_for_something_cancelled(request: Request) -> bytes:
            task = asyncio.create_task(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(task.cancel)
            await task
            return b""

        ear.handler = waits_for_something_cancelled
        wire.send({"id": 1, "method": "m"})
        assert (await wire.line())["error"]["code"] == -32800


# -- errors -------------------------------------------------------------------------------------


async def test_an_error_to_the_peer_carries_no_exception_text_but_an_incident_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = fails(RuntimeError("secret of the house"))
        wire.send({"id": 1, "method": "m"})
        answer = await wire.line()
        assert answer["error"]["code"] == -32603
        assert "secret" not in json.dumps(answer)
        incident = answer["error"]["data"]["incident"]
        assert incident in caplog.text
        assert "secret of the house" in caplog.text


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_that_nothing_more_can_be_opened_is_said(number: int) -> None:
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = fails(OSError(number, "no more"))
        wire.send({"id": 1, "method": "m"})
        assert (await wire.line())["error"] == {
            "code": -32603,
            "message": TOO_MANY_FILES,
        }


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (
            InvalidParamsError("cwd: not absolute", "cwd"),
            {"code": -32602, "message": "cwd: not absolute", "data": {"field": "cwd"}},
        ),
        (
            MethodNotFoundError("x/y"),
            {"code": -32601, "message": "method not found: x/y", "data": {"method": "x/y"}},
        ),
        (AcpError("two\nlines"), {"code": -32603, "message": "two lines"}),
        (AcpError(""), {"code": -32603, "message": "error"}),
    ],
)
async def test_our_own_errors_speak_for_themselves(
    raised: AcpError, expected: dict[str, Any]
) -> None:
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = fails(raised)
        wire.send({"id": 1, "method": "m"})
        assert (await wire.line())["error"] == expected


async def test_a_handler_that_raises_on_a_notification_does_not_end_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with peer_and_wire() as (_, ear, wire):
        ear.hear = fails(RuntimeError("bad day"))
        wire.send({"method": "n"}, {"id": 1, "method": "m"})
        assert (await wire.line())["result"] == {}
        assert "bad day" in caplog.text


async def test_a_receiver_that_has_nothing_to_wait_for_hears_in_the_order_of_the_wire(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer_and_wire() as (peer, ear, wire):

        def hear(batch: list[NotificationReceived]) -> None:
            ear.heard += [notification.method for notification in batch]
            if "n2" in [notification.method for notification in batch]:
                raise RuntimeError("bad day")

        monkeypatch.setattr(ear, "on_notifications", hear)
        number = peer.begin("ask", b"{}", lambda _: ear.heard.append("answer"))
        wire.send({"method": "n1"})
        wire.send({"id": number, "result": {}})
        wire.send({"method": "n2"})
        wire.send({"method": "n3"}, {"method": "n4"}, {"id": 1, "method": "m"})
        assert (await wire.line())["method"] == "ask"
        assert (await wire.line())["id"] == 1
        assert ear.heard == ["n1", "answer", "n2", "n3", "n4", "m"]
        assert "bad day" in caplog.text


def fail_at_once(answer: Answer) -> None:
    raise RuntimeError("bad day")


@pytest.mark.parametrize("fail", [fail_at_once, fails(RuntimeError("bad day"))])
async def test_an_answer_that_cannot_be_handled_does_not_end_the_connection(
    caplog: pytest.LogCaptureFixture, fail: OnAnswer
) -> None:
    async with peer_and_wire() as (peer, _, wire):
        number = peer.begin("m", b"{}", fail)
        wire.send({"id": number, "result": {}}, {"id": 1, "method": "m"})
        assert (await wire.line())["method"] == "m"
        assert (await wire.line())["id"] == 1
        assert "bad day" in caplog.text


async def test_garbage_is_answered_and_the_connection_lives_on() -> None:
    async with peer_and_wire(limit=3000) as (_, _ear, wire):
        wire.send(b"garbage", b"[]", b"x" * 5000, b"[" * 2000, b"\xff", {"id": 1, "method": "m"})
        answers = [await wire.line() for _ in range(6)]
        codes = [answer["error"]["code"] for answer in answers[:5]]
        assert codes == [-32700, -32600, -32600, -32600, -32700]
        assert answers[5] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_what_a_program_prints_by_accident_gets_no_reply_but_its_requests_do() -> None:
    async with peer_and_wire(limit=1000, is_agent=True) as (_, _ear, wire):
        wire.send(
            b"Welcome!",
            b"[1]",
            b"{}",
            {"id": 5, "method": "m", "params": {"x": "y" * 5000}},
            {"id": 6, "method": 1},
            {"id": 7, "method": "m"},
        )
        answers = [await wire.line() for _ in range(3)]
        assert [answer["id"] for answer in answers] == [5, 6, 7]
        assert [answer.get("error", {}).get("code") for answer in answers] == [-32600, -32600, None]


@pytest.mark.parametrize("is_agent", [True, False])
async def test_what_an_agent_prints_is_in_the_log_and_what_a_client_says_is_not(
    caplog: pytest.LogCaptureFixture, *, is_agent: bool
) -> None:
    async with peer_and_wire(is_agent=is_agent) as (_, _, wire):
        wire.send(b"Welcome!", {"id": 1, "method": "m"})
        await until(lambda: "not JSON" in caplog.text or "no object" in caplog.text)
    assert ("Welcome!" in caplog.text) is is_agent


# -- back pressure ------------------------------------------------------------------------------


async def test_a_peer_that_tells_much_waits_for_one_that_reads_slowly() -> None:
    async with peer_and_wire() as (peer, _, wire):
        big = json.dumps("x" * 2 * HIGH_WATER).encode()
        peer.tell("n", big)
        telling = asyncio.create_task(peer.drain())
        await rounds(20)
        assert not telling.done()
        assert peer.buffered > 0
        assert (await wire.line())["method"] == "n"
        await asyncio.wait_for(telling, DEADLINE)


async def test_a_peer_that_asks_much_and_reads_nothing_is_not_read_either() -> None:
    async with peer_and_wire() as (peer, ear, wire):
        ear.handler = says(json.dumps("x" * 1_000_000).encode())
        for number in range(40):
            wire.send({"id": number, "method": "m", "params": {"pad": "x" * 100_000}})
        await until(lambda: peer.buffered >= UNREAD)
        await rounds(200)
        assert peer.buffered < UNREAD + 5_000_000
        assert [(await wire.line())["id"] for _ in range(40)] == list(range(40))


async def test_an_agent_is_read_however_much_is_on_its_way_to_it() -> None:
    async with peer_and_wire(is_agent=True) as (peer, ear, wire):
        peer.tell("big", json.dumps("x" * 2 * UNREAD).encode())
        wire.send({"method": "n"})
        await until(lambda: peer.buffered >= UNREAD)
        wire.send({"method": "n"}, {"id": 1, "method": "m"})
        await until(lambda: ear.requests)
        assert peer.buffered >= UNREAD


async def test_requests_of_a_client_beyond_what_may_wait_for_an_answer_are_refused() -> None:
    async with peer_and_wire() as (_, ear, wire):
        released = asyncio.Event()
        ear.handler = waits(released)
        ask_much(wire)
        refused = [await wire.line() for _ in range(3)]
        assert [answer["id"] for answer in refused] == [17, 18, 19]
        assert "try again later" in refused[0]["error"]["message"]
        released.set()
        answered = [await wire.line() for _ in range(17)]
        assert all(answer["result"] == {} for answer in answered)


def ask_much(wire: Wire, count: int = 20) -> None:
    """Requests of a megabyte each; the first 17 are as many as may wait for their answers."""
    for number in range(count):
        wire.send({"id": number, "method": "m", "params": {"pad": "x" * 1_000_000}})


async def test_an_agent_that_asks_much_is_held_up_until_it_is_answered() -> None:
    async with peer_and_wire(is_agent=True) as (_, ear, wire):
        ear.handler = keep
        ask_much(wire, 40)
        for number in range(40):
            while len(ear.requests) <= number:
                await rounds(1)
            await rounds(20)
            assert len(ear.requests) <= number + 17
            ear.requests[number].answer(b"{}")
            assert (await wire.line()) == {"jsonrpc": "2.0", "id": number, "result": {}}


async def test_an_agent_is_not_held_up_for_ever_by_one_who_waits_for_what_it_says_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acp_wire.rpc.peer.HOLD_SECONDS", 0.1)
    async with peer_and_wire(is_agent=True) as (peer, ear, wire):

        async def ask_back(_: Request) -> bytes:
            return await asked_back

        asked_back = asyncio.ensure_future(peer.call_raw("back", b"{}"))
        ear.handler = ask_back
        back = await wire.line()
        ask_much(wire)
        wire.send({"id": back["id"], "result": {"at": "last"}})
        assert await asyncio.wait_for(asked_back, DEADLINE) == b'{"at": "last"}'
        answers = {answer["id"]: answer for answer in [await wire.line() for _ in range(20)]}
        refused = [number for number, answer in answers.items() if "error" in answer]
        assert refused == [17, 18, 19]
        ask_much(wire, 40)  # now that somebody answers
        for _ in range(40):
            assert "result" in await wire.line()


async def test_what_an_agent_said_that_has_ended_is_read_to_its_end_however_much_it_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acp_wire.rpc.peer.HOLD_SECONDS", 3600.0)
    async with peer_and_wire(is_agent=True) as (peer, ear, wire):
        ear.handler = keep
        ask_much(wire)
        wire.send({"method": "last words"})
        await until(lambda: len(ear.requests) == 17)
        peer.hold_no_more()
        await until(lambda: "last words" in ear.heard)


@pytest.mark.parametrize("is_agent", [False, True])
async def test_many_small_requests_that_wait_are_bounded_too(
    is_agent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_wire.rpc.peer.HOLD_SECONDS", 0.01)
    async with peer_and_wire(is_agent=is_agent) as (_, ear, wire):
        ear.handler = keep
        for _ in range(10):
            wire.send(*[{"id": 1, "method": "m"}] * 1000)
        refused = await wire.line()
        assert "try again later" in refused["error"]["message"]
        assert len(ear.requests) < 5000
        for request in ear.requests:
            request.answer(b"{}")


async def test_an_agent_that_asks_on_and_reads_no_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("acp_wire.rpc.peer.UNREAD", 100_000)
    async with peer_and_wire(is_agent=True, limit=100_000) as (peer, ear, wire):
        ear.handler = says(json.dumps("x" * 10_000).encode())
        waiting = asyncio.create_task(peer.call_raw("m", b"{}"))
        for number in range(100):
            wire.send({"id": number, "method": "m", "params": {"pad": "x" * 10_000}})
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(waiting, DEADLINE)
        assert peer.is_lost
        assert peer.buffered < 500_000
        assert "does not read" in caplog.text


async def test_replies_to_garbage_do_not_pile_up_for_a_peer_that_does_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with peer_and_wire() as (peer, ear, wire):
        caplog.set_level(logging.CRITICAL, "acp_wire.rpc.peer")
        for _ in range(20):
            wire.send(*[b"garbage"] * 1000)
        wire.send({"id": 1, "method": "m"})
        await until(lambda: ear.requests)
        assert peer.buffered <= 2 * HIGH_WATER


# -- the end ------------------------------------------------------------------------------------


async def test_when_the_other_side_goes_pending_calls_fail() -> None:
    async with peer_and_wire() as (peer, _, wire):
        calls = [asyncio.create_task(peer.call_raw("m", b"{}")) for _ in range(3)]
        await wire.line()
        await wire.transport.aclose()
        for call in calls:
            with pytest.raises(ConnectionLostError):
                await call
        with pytest.raises(ConnectionLostError):
            await peer.call_raw("m", b"{}")


async def test_a_request_that_nobody_reads_any_more_fails_at_once_and_is_not_told_of_again() -> (
    None
):
    ours, _ = offering_pair()
    peer = Peer(ours, Ear())
    told: list[Answer] = []
    ours.is_read = False  # type: ignore[attr-defined]
    with pytest.raises(ConnectionLostError):
        peer.begin("m", b"{}", told.append)
    await peer.aclose()
    assert told == []


async def test_each_pending_answer_is_told_once_that_the_connection_is_lost() -> None:
    peer = Peer(pair()[0], Ear())
    told: list[Answer] = []
    peer.begin("m", b"{}", told.append)
    await peer.aclose()
    await peer.aclose()
    assert [type(answer) for answer in told] == [ConnectionLostError]


async def test_an_answer_that_is_being_handled_when_the_peer_is_ended_is_handled_to_the_end() -> (
    None
):
    ours, theirs = pair()
    peer, wire = Peer(ours, Ear()), Wire(theirs)
    begun, may_end = asyncio.Event(), asyncio.Event()
    told: list[Answer] = []

    async def answered(answer: Answer) -> None:
        begun.set()
        await may_end.wait()
        told.append(answer)

    number = peer.begin("m", b"{}", answered)
    pump = asyncio.create_task(peer.pump())
    wire.send({"id": number, "result": {}})
    await asyncio.wait_for(begun.wait(), DEADLINE)
    pump.cancel()
    await rounds(10)
    may_end.set()
    await asyncio.wait([pump], timeout=DEADLINE)
    assert told == [b"{}"]
    await peer.aclose()


async def test_an_end_that_is_cut_short_still_tells_everybody_who_waits() -> None:
    ours, theirs = pair()
    peer = Peer(ours, Ear())
    begun, may_end = asyncio.Event(), asyncio.Event()
    told: list[int] = []

    def answered(number: int) -> Callable[[Answer], Awaitable[None]]:
        async def tell(answer: Answer) -> None:
            begun.set()
            await may_end.wait()
            told.append(number)

        return tell

    for number in range(3):
        peer.begin("m", b"{}", answered(number))
    pump = asyncio.create_task(peer.pump())
    await theirs.aclose()
    await asyncio.wait_for(begun.wait(), DEADLINE)
    pump.cancel()
    await rounds(10)
    may_end.set()
    await asyncio.wait([pump], timeout=DEADLINE)
    await peer.aclose()
    assert told == [0, 1, 2]


async def test_closing_ends_the_handlers_that_run() -> None:
    ended: list[str] = []
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = waits(asyncio.Event(), ended)
        wire.send({"id": 1, "method": "m"}, {"id": 1, "method": "n"}, {"id": 2, "method": "o"})
        await until(lambda: len(ear.requests) == 3)
    assert sorted(ended) == ["m", "n", "o"]


async def test_the_other_side_sees_the_end_of_a_peer_that_is_closed() -> None:
    async with peer_and_wire() as (_, _, wire):
        pass
    assert await asyncio.wait_for(wire.transport.receive(), DEADLINE) == b""


async def test_no_task_is_left_of_a_peer_that_is_closed() -> None:
    before = asyncio.all_tasks()
    async with peer_and_wire() as (_, _, wire):
        wire.send({"id": 1, "method": "m"})
        await wire.line()
    await rounds(2)
    assert asyncio.all_tasks() == before


async def test_who_sends_nothing_but_what_cannot_be_read_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with peer_and_wire() as (_, ear, wire):
        ear.handler = echo
        for number in range(1000):
            wire.send(b"no JSON", {"id": number, "method": "m"})
            while (await wire.line()).get("id") != number:
                pass
        told = [it for it in caplog.records if it.name == "acp_wire.rpc.peer"]
        assert len(told) < 110
        assert "; 512 so far" in caplog.text
