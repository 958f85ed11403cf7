"""PipeTransport on descriptors that are not a fresh pair of pipes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import time
from collections.abc import Coroutine, Generator
from pathlib import Path
from types import coroutine
from typing import Any

import pytest

from acp_wire.transports.pipes import LOW_WATER, READ_SIZE, TURN_BYTES, PipeTransport


def devnull() -> int:
    return os.open(os.devnull, os.O_RDWR)


async def test_regular_files_serve_as_input_and_output(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from a file")
    read_fd = os.open(tmp_path / "in", os.O_RDONLY)
    write_fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    transport = PipeTransport(read_fd, write_fd)
    assert await transport.receive() == b"from a file"
    assert await transport.receive() == b""
    transport.send(b"to a file")
    await transport.drain()
    await transport.aclose()
    assert (tmp_path / "out").read_bytes() == b"to a file"


async def test_a_file_that_was_not_read_to_its_end_can_be_closed(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 1_000_000)
    transport = PipeTransport(os.open(tmp_path / "in", os.O_RDONLY), devnull())
    assert await transport.receive()
    await transport.hang_up()
    await transport.aclose()


async def test_dev_null_is_an_empty_input_and_an_endless_output() -> None:
    transport = PipeTransport(devnull(), devnull())
    assert await transport.receive() == b""
    transport.send(b"x" * 1_000_000)
    await transport.drain()
    assert transport.buffered == 0
    await transport.aclose()


async def test_no_more_than_a_turn_s_worth_is_written_in_one_step_even_if_all_would_fit() -> None:
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, 1 << 20)
    silent_fd, ours = os.pipe()
    transport = PipeTransport(silent_fd, write_fd)
    transport.send(b"x" * 500_000)
    assert len(os.read(read_fd, 1 << 20)) == TURN_BYTES
    await transport.drain()
    assert len(os.read(read_fd, 1 << 20)) > TURN_BYTES
    await transport.aclose()
    os.close(read_fd)
    os.close(ours)


async def test_closing_gives_back_a_shared_pipe_in_blocking_mode() -> None:
    ours, theirs = os.pipe()
    shared = os.dup(ours)
    transport = PipeTransport(ours, devnull())
    assert not os.get_blocking(shared)
    await transport.aclose()
    assert os.get_blocking(shared)
    os.close(shared)
    os.close(theirs)


async def test_a_shared_socket_never_leaves_blocking_mode() -> None:
    left, right = socket.socketpair()
    with left, right:
        transport = PipeTransport(os.dup(left.fileno()), os.dup(left.fileno()))
        transport.send(b"x" * 10_000_000)
        assert transport.buffered > 0
        assert os.get_blocking(left.fileno())
        right.close()
        await transport.aclose()


async def test_a_socket_that_is_reset_reads_as_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        fd = accepted.detach()
        transport = PipeTransport(fd, os.dup(fd))
        client.send(b"never read")
        transport.send(b"never read")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        async with asyncio.timeout(5):
            while await transport.receive():
                pass
        await transport.aclose()


async def test_while_nobody_receives_the_loop_rests_and_the_pipe_stays_full() -> None:
    ours, theirs = os.pipe()
    transport = PipeTransport(ours, devnull())
    receiving = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    os.write(theirs, b"first")
    assert await receiving == b"first"
    os.write(theirs, b"second")
    busy = time.process_time()
    await asyncio.sleep(0.3)  # the test measures CPU time over a fixed while
    assert time.process_time() - busy < 0.1
    assert os.read(ours, 99) == b"second"
    await transport.aclose()
    os.close(theirs)


async def test_two_tasks_may_not_wait_in_receive() -> None:
    ours, theirs = os.pipe()
    transport = PipeTransport(ours, devnull())
    first = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task"):
        await transport.receive()
    await transport.aclose()
    assert await first == b""
    os.close(theirs)


async def test_after_hanging_up_a_waiting_receiver_still_hears_the_last_words() -> None:
    (ours, theirs), (their_input, our_output) = os.pipe(), os.pipe()
    transport = PipeTransport(ours, our_output)
    receiving = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    await transport.hang_up()
    assert os.read(their_input, 1) == b""
    os.write(theirs, b"bye")
    async with asyncio.timeout(5):
        assert await receiving == b"bye"
    await transport.aclose()
    os.close(theirs)
    os.close(their_input)


async def test_after_hanging_up_what_nobody_receives_is_thrown_away() -> None:
    (ours, theirs), (their_input, our_output) = os.pipe(), os.pipe()
    transport = PipeTransport(ours, our_output)
    await transport.hang_up()
    async with asyncio.timeout(5):
        await asyncio.to_thread(os.write, theirs, b"x" * 1_000_000)
        assert await transport.receive() == b""
    await transport.aclose()
    os.close(theirs)
    os.close(their_input)


async def test_a_peer_that_has_said_all_can_still_be_answered() -> None:
    theirs, ours = os.pipe()
    answers, answered = os.pipe()
    os.write(ours, b"one request")
    os.close(ours)
    transport = PipeTransport(theirs, answered)
    assert await transport.receive() == b"one request"
    assert await transport.receive() == b""
    transport.send(b"its answer")
    await transport.drain()
    await transport.aclose()
    assert os.read(answers, 100) == b"its answer"
    os.close(answers)


@coroutine
def counted(work: Coroutine[Any, Any, None], steps: list[None]) -> Generator[Any, Any, None]:
    """Do `work`, and note each step that it takes."""
    while True:
        steps.append(None)
        try:
            awaited = work.send(None)
        except StopIteration:
            return
        yield awaited


async def test_who_waits_for_room_is_woken_only_once_there_is_room() -> None:
    theirs, ours = os.pipe()
    silent, open_end = os.pipe()
    transport = PipeTransport(silent, ours)
    transport.send(b"x" * 20 * LOW_WATER)
    steps: list[None] = []
    draining = asyncio.create_task(counted(transport.drain(), steps))
    async with asyncio.timeout(10):
        while not draining.done():
            await asyncio.to_thread(os.read, theirs, READ_SIZE)
            await asyncio.sleep(0)
    assert len(steps) == 2
    os.close(theirs)
    await transport.aclose()
    os.close(open_end)
