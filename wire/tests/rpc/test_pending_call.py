"""A sent request, and the caller that waits for its answer: the same for every peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from acp_wire.errors import ConnectionLostError, RemoteError
from acp_wire.rpc.requests import SILENCE_CHECKS, PendingCall

SHORT = 0.01


class Withdrawals:
    """Counts how often the other side is told that nobody waits."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> None:
        self.number += 1


@pytest.fixture
def withdraw() -> Withdrawals:
    return Withdrawals()


HEARD: dict[str, Callable[[], int] | None] = {"at all": None, "in silence": lambda: 0}
bounds = pytest.mark.parametrize("heard", HEARD.values(), ids=HEARD)


@bounds
async def test_the_answer_is_the_result(
    withdraw: Withdrawals, heard: Callable[[], int] | None
) -> None:
    call = PendingCall()
    waiting = asyncio.create_task(call.answer(withdraw, 30.0, heard))
    await asyncio.sleep(0)
    call.take(b"1")
    assert await waiting == b"1"
    assert not withdraw.number


async def test_an_answer_that_came_before_anybody_waits_is_there(withdraw: Withdrawals) -> None:
    call = PendingCall()
    call.take(b"1")
    assert not call.is_awaited
    assert await call.answer(withdraw) == b"1"


@bounds
@pytest.mark.parametrize("error", [RemoteError(-1, "no"), ConnectionLostError("gone")])
async def test_a_refusal_and_the_end_of_the_peer_are_raised(
    withdraw: Withdrawals, heard: Callable[[], int] | None, error: RemoteError | ConnectionLostError
) -> None:
    call = PendingCall()
    waiting = asyncio.create_task(call.answer(withdraw, 30.0, heard))
    await asyncio.sleep(0)
    call.take(error)
    with pytest.raises(type(error)):
        await waiting
    assert not withdraw.number


@bounds
async def test_who_has_waited_long_enough_withdraws_the_request_and_drops_a_late_answer(
    withdraw: Withdrawals, heard: Callable[[], int] | None
) -> None:
    results: list[bytes] = []
    call = PendingCall(results.append)
    with pytest.raises(TimeoutError):
        await call.answer(withdraw, SHORT, heard)
    assert withdraw.number == 1
    assert not call.is_awaited
    call.take(b"1")
    call.take(ConnectionLostError("gone"))
    assert not results


@bounds
async def test_who_is_cancelled_withdraws_the_request_and_drops_a_late_answer(
    withdraw: Withdrawals, heard: Callable[[], int] | None
) -> None:
    results: list[bytes] = []
    call = PendingCall(results.append)
    waiting = asyncio.create_task(call.answer(withdraw, 30.0, heard))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert withdraw.number == 1
    call.take(b"1")
    assert not results


async def test_a_peer_that_says_something_is_waited_for(withdraw: Withdrawals) -> None:
    looked = 0

    def heard() -> int:
        nonlocal looked
        looked += 1
        if looked == 4 * SILENCE_CHECKS:
            call.take(b"1")
        return looked

    call = PendingCall()
    assert await call.answer(withdraw, SHORT, heard) == b"1"
    assert not withdraw.number


async def test_what_the_handler_of_a_result_raises_is_raised_where_it_is_waited_for(
    withdraw: Withdrawals,
) -> None:
    def fail(result: bytes) -> None:
        raise ValueError(result)

    call = PendingCall(fail)
    waiting = asyncio.create_task(call.answer(withdraw))
    await asyncio.sleep(0)
    call.take(b"1")
    with pytest.raises(ValueError, match="1"):
        await waiting


async def test_an_answer_that_nobody_ever_waits_for_is_no_trouble() -> None:
    call = PendingCall()
    call.take(RemoteError(-1, "no"))  # asyncio would complain of it at the end, as a failure
    del call
