"""A program's output is read to its end, and a flood of it leaves room for others."""

from __future__ import annotations

import asyncio
import os
import threading

from acp_wire.processes import output
from acp_wire.processes.output import OutputReader


async def test_all_that_is_printed_is_handed_on_and_its_end_once() -> None:
    reading, writing = os.pipe()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    reader = OutputReader(asyncio.get_running_loop(), reading, pieces.put_nowait)
    async with asyncio.timeout(10):
        os.write(writing, b"one")
        assert await pieces.get() == b"one"
        os.write(writing, b"two")
        os.close(writing)
        assert [await pieces.get(), await pieces.get()] == [b"two", b""]
    reader.read_rest()
    reader.close()
    assert pieces.empty()


async def test_what_is_there_can_be_read_at_once() -> None:
    reading, writing = os.pipe()
    pieces: list[bytes] = []
    reader = OutputReader(asyncio.get_running_loop(), reading, pieces.append)
    os.write(writing, b"last words")
    reader.read_rest()
    assert pieces == [b"last words"]
    reader.close()
    os.close(writing)


async def test_a_flood_waits_in_its_pipe_while_others_run() -> None:
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    taken: list[int] = []
    done = asyncio.Event()

    def take(data: bytes) -> None:
        taken.append(len(data))
        if not data:
            done.set()

    def flood() -> None:
        for _ in range(400):
            os.write(writing, b"x" * output.READ_SIZE)
        os.close(writing)

    reader = OutputReader(loop, reading, take)
    began = loop.time()
    thread = threading.Thread(target=flood)
    thread.start()
    async with asyncio.timeout(30):
        await done.wait()
    thread.join()
    windows = sum(taken) / output.WINDOW_BYTES
    assert sum(taken) == 400 * output.READ_SIZE
    # Each window also takes the bytes beyond it: those of one read.
    assert loop.time() - began > (windows / 2 - 1) * output.WINDOW_SECONDS
    reader.close()
