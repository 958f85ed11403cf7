"""The line of a server to its daemon, without either."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from acp_wire.rpc import NotificationReceived
from acp_wire.schema import encode
from acp_wire.tasks import beside
from acp_wire.transports.pipes import READ_SIZE
from acp_wire.transports.streams import MemoryTransport, memory_pair
from acphold.errors import AgentStartError
from acphold.live.hub.alerts import Activity
from acphold.live.server.principals import Principal
from acphold.live.server.relay_protocol import STIRRED, DeedTold, Registration, Stirred
from acphold.web import bounds
from acphold.web.relay import DaemonLine, ReachedDaemon, _pass_on
from tests.watched_processes import until


@pytest.fixture
def tries() -> list[None]:
    return []


@pytest.fixture
def line(tries: list[None]) -> DaemonLine:
    """One that finds no room for its way."""

    @asynccontextmanager
    async def reach() -> AsyncIterator[ReachedDaemon]:
        tries.append(None)
        raise OSError(errno.EMFILE, "Too many open files")
        yield

    return DaemonLine(reach, Registration((), None, None), Activity())


async def test_the_daemons_last_words_of_a_client_are_noted_for_a_moment(
    line: DaemonLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LAST_DEEDS_SECONDS", 0.05)
    noted = list[tuple[str, int]]()

    def note(deed: str, session: str | None, *, at: int = 0) -> None:
        noted.append((deed, at))

    def refuse(deed: str, session: str | None, *, at: int = 0) -> None:
        noted.append((f"refused: {deed}", at))

    who = Principal(name="ann", note=note, refused=refuse)
    with line.number(who) as number:
        pass

    def tell(deed: str, *, is_refused: bool) -> None:
        told = encode(Stirred((DeedTold(number, deed, None, 7, is_refused),)))
        line.on_notifications([NotificationReceived(STIRRED, told)])

    tell("prompted", is_refused=False)
    tell("deleted", is_refused=True)
    assert noted == [("prompted", 7), ("refused: deleted", 7)]
    await until(lambda: not line._clients)
    tell("prompted", is_refused=False)
    assert len(noted) == 2


async def test_a_way_to_the_daemon_is_tried_again_and_no_error_until_it_was_there(
    line: DaemonLine, tries: list[None], caplog: pytest.LogCaptureFixture
) -> None:
    async with beside(line.keep(), "keep"):
        with pytest.raises(AgentStartError, match="Too many open files"):
            await line.wait_until_registered()
        await until(lambda: len(tries) >= 2)
    assert [it.message for it in caplog.records if it.levelno >= logging.ERROR] == []


class Source(MemoryTransport):
    """Offers each chunk."""

    is_read = True

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        self.take = take


async def test_what_comes_is_passed_on_at_once_but_to_who_lags() -> None:
    quiet, _ = memory_pair()
    source, (sink, reader) = Source(quiet._source, quiet._sink), memory_pair()
    async with beside(_pass_on(source, sink), "pass on"):
        await asyncio.sleep(0)
        assert source.take(b"one")
        assert await reader.receive() == b"one"
        assert source.take(b"x" * (bounds.RELAYED_AHEAD_BYTES + READ_SIZE + 1))
        assert not source.take(b"two")
