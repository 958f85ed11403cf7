"""The desks of a daemon's fronts: a front is told what fails, and nothing is left of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from acp_wire.surroundings import Surroundings
from acp_wire.transports.first_frame import FirstFrame
from acp_wire.transports.unix import Front
from acphold.live.server.daemon import FrontDesks, Fronted
from tests.editor import DEADLINE
from tests.hub.shared import shared

INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


@asynccontextmanager
async def broken(frame: FirstFrame, stderr: int) -> AsyncIterator[Fronted]:
    raise RuntimeError("nobody expected this")
    yield


async def test_a_front_is_answered_when_reading_its_words_fails_in_an_unexpected_way(
    journal: Path,
) -> None:
    to_us, ours = os.pipe()
    theirs, from_us = os.pipe()
    frame = FirstFrame("1", [], ["agent"], Surroundings({}, "/"))
    async with asyncio.timeout(DEADLINE), shared(journal) as house:
        desks = FrontDesks(house.hub, broken)
        front = Front(frame, to_us, from_us, os.open(os.devnull, os.O_WRONLY))
        front.pid = os.getpid()
        os.write(ours, INITIALIZE)
        attending = asyncio.create_task(desks.attend(front))
        answer = await asyncio.to_thread(os.read, theirs, 65536)
        assert b"internal error (incident" in answer
        assert b"nobody expected" not in answer
        os.close(ours)
        await attending
        await desks.wait_until_none()
        front.close()
        await front.transport.aclose()
    os.close(theirs)
