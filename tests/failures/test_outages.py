"""A PostgreSQL that is away for a while: what runs waits, and goes on where it was."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from shutil import rmtree

import psutil
import pytest

from tests.editor import wrapped
from tests.postgresql import Server

pytestmark = pytest.mark.postgresql

PIECES = 100
PACE = 0.1


@contextmanager
def own_server() -> Iterator[Server]:
    server = Server(Path(tempfile.mkdtemp(prefix="acphold-pg-")))
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        rmtree(server.folder)


def processes(server: Server) -> list[psutil.Process]:
    first = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    return [psutil.Process(first), *psutil.Process(first).children(recursive=True)]


@contextmanager
def ended(server: Server) -> Iterator[None]:
    """It has ended for the block, as in a restart or a failover."""
    server.stop()
    yield
    server.start()


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """It answers nothing for the block, and its connections stand."""
    found = processes(server)
    for process in found:
        process.suspend()
    try:
        yield
    finally:
        for process in found:
            process.resume()


def numbers(text: str) -> list[int]:
    """The numbers that a paced agent has said, in order."""
    return [int(word) for word in re.findall(r"#(\d+) ", text)]


@pytest.mark.parametrize("seconds", [2.0, 8.0])
@pytest.mark.parametrize("away", [ended, frozen])
async def test_a_streaming_turn_goes_on_behind_an_outage(
    away: Callable[[Server], AbstractContextManager[None]], seconds: float
) -> None:
    with own_server() as server:
        url = server.url()
        async with wrapped(url) as editor:
            session = await editor.new()
            turn = editor.begin_prompt(session, {"paced": [PIECES, PACE]})
            await editor.until_text("#20 ")
            with away(server):
                await asyncio.sleep(seconds)
            assert await turn == {"stopReason": "end_turn"}
            assert numbers(editor.text()) == [*range(PIECES)]
        async with wrapped(url) as second:
            await second.load(session)
            assert numbers(second.text()) == [*range(PIECES)]
