"""The desks of a daemon's fronts: a front is told what fails, and nothing is left of it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acphold.live.server.pool import PreparedAgent
from acphold.live.server.service import Service
from acphold.machine.first_frame import FirstFrame
from acphold.machine.place import place_of
from acphold.machine.unix import Front
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE
from tests.hub.shared import PuppetAgent, shared
from tests.server.fronts import front_desks
from tests.watched_processes import until

INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


class Editor:
    """An editor behind a front: what it writes and reads goes through pipes."""

    def __init__(self) -> None:
        to_us, self._ours = os.pipe()
        self._theirs, from_us = os.pipe()
        frame = FirstFrame("1", [], ["agent"], Surroundings({}, "/"))
        self.front = Front(frame, to_us, from_us, os.open(os.devnull, os.O_WRONLY))
        self.front.place = place_of()

    async def initialize(self) -> bytes:
        """Introduce itself; return the answer."""
        os.write(self._ours, INITIALIZE)
        return await asyncio.to_thread(os.read, self._theirs, 65536)

    def stderr(self) -> int:
        """A descriptor that reads what the front is shown there, without waiting for it."""
        shown, stderr = os.pipe()
        os.dup2(stderr, self.front.stderr)
        os.close(stderr)
        os.set_blocking(shown, False)
        return shown

    def leave(self) -> None:
        os.close(self._ours)

    async def aclose(self) -> None:
        self.front.close()
        await self.front.transport.aclose()
        os.close(self._theirs)


@asynccontextmanager
async def broken(frame: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
    raise RuntimeError("nobody expected this")
    yield


async def test_a_front_is_answered_when_reading_its_words_fails_in_an_unexpected_way(
    journal: Path,
) -> None:
    editor = Editor()
    async with asyncio.timeout(DEADLINE), shared(journal) as house:
        desks, kept = front_desks(house.hub, broken)
        attending = asyncio.create_task(desks.attend(editor.front))
        answer = await editor.initialize()
        assert b"internal error (incident" in answer
        assert b"nobody expected" not in answer
        editor.leave()
        await attending
        assert editor.front.is_refused  # so that it ends with an error
        await kept.wait_until_none()
        await editor.aclose()


async def test_a_front_is_answered_and_let_go_when_there_is_no_descriptor_for_its_desk(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    editor = Editor()
    async with asyncio.timeout(DEADLINE), shared(journal) as house:
        desks, kept = front_desks(house.hub, broken)
        with monkeypatch.context() as full:
            full.setattr(os, "dup", fail)
            attending = asyncio.create_task(desks.attend(editor.front))
            answer = await editor.initialize()
        assert b"too many files open" in answer
        editor.leave()
        await attending
        await kept.wait_until_none()
        await editor.aclose()


async def test_what_is_said_while_the_words_of_a_front_are_read_is_on_its_stderr(
    journal: Path,
) -> None:
    @asynccontextmanager
    async def prepared(frame: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
        os.write(stderr, b"cannot write the log")
        async with broken(frame, stderr) as fronted:
            yield fronted

    editor = Editor()
    shown = editor.stderr()
    async with asyncio.timeout(DEADLINE), shared(journal) as house:
        desks, kept = front_desks(house.hub, prepared)
        attending = asyncio.create_task(desks.attend(editor.front))
        await editor.initialize()
        assert os.read(shown, 100).startswith(b"cannot write the log")
        editor.leave()
        await attending
        await kept.wait_until_none()
        await editor.aclose()
    os.close(shown)


async def test_the_agent_that_a_front_has_left_is_the_next_ones_alone_with_its_stderr(
    journal: Path,
) -> None:
    agents = list[int]()

    @asynccontextmanager
    async def prepared(frame: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
        agents.append(stderr)
        service = Service(
            make_agent=lambda listener, _: PuppetAgent(listener), options=ServeOptions()
        )
        yield PreparedAgent(service, linger=DEADLINE)

    editors = one, two, three = Editor(), Editor(), Editor()
    shown = two.stderr()
    async with asyncio.timeout(DEADLINE), shared(journal) as house:
        desks, kept = front_desks(house.hub, prepared)
        attending = asyncio.create_task(desks.attend(one.front))
        await one.initialize()
        one.leave()
        await attending
        attending = asyncio.create_task(desks.attend(two.front))
        await two.initialize()
        os.write(agents[0], b"of two")
        assert os.read(shown, 100) == b"of two"
        assert len(agents) == 1
        beside = asyncio.create_task(desks.attend(three.front))
        await three.initialize()
        assert len(agents) == 2
        two.leave()
        await attending
        assert os.read(shown, 100) == b""  # an editor waits for that end
        three.leave()
        await beside
        await kept.aclose()
        await asyncio.gather(*(each.aclose() for each in editors))
    os.close(shown)


@pytest.mark.timeout(DEADLINE)  # a loop that spins hears of no other one
async def test_the_wait_for_the_last_desk_leaves_time_to_serve_it_once_another_has_closed(
    journal: Path,
) -> None:
    @asynccontextmanager
    async def prepared(frame: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
        service = Service(
            make_agent=lambda listener, _: PuppetAgent(listener), options=ServeOptions()
        )
        yield PreparedAgent(service, linger=0)

    one, two = Editor(), Editor()
    async with asyncio.timeout(DEADLINE), shared(journal) as house:
        desks, kept = front_desks(house.hub, prepared)
        attending = [asyncio.create_task(desks.attend(each.front)) for each in (one, two)]
        assert b'"result"' in await one.initialize()
        waiting = asyncio.create_task(kept.wait_until_none())
        own, _, _ = house.hub.desks
        one.leave()
        await until(lambda: len(house.hub.desks) == 2)
        assert own in house.hub.desks
        assert b'"result"' in await two.initialize()
        assert not waiting.done()
        two.leave()
        await waiting
        await asyncio.gather(*attending)
        await asyncio.gather(one.aclose(), two.aclose())
