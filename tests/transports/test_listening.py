"""Listening on a Unix socket whose name others may take away."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from acphold.transports.pipes import PipeTransport
from acphold.transports.unix import Listener


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short
    return "owner.sock"


def is_there(path: str) -> bool:
    return os.path.exists(path)


async def until_it_ends(transport: PipeTransport) -> None:
    while await transport.receive():
        pass


async def test_who_ends_leaves_the_name_to_the_one_that_has_it_now(path: str) -> None:
    one, two = Listener(path, until_it_ends), Listener(path, until_it_ends)
    one.bind()
    os.unlink(path)  # as systemd does at the last logout
    two.bind()
    await one.aclose()
    assert is_there(path)
    await two.aclose()
    assert not is_there(path)


async def test_a_name_that_has_gone_is_made_anew_and_removed_at_the_end(path: str) -> None:
    listener = Listener(path, until_it_ends)
    listener.bind()
    os.unlink(path)
    listener.keep_name_once()
    assert is_there(path)
    await listener.aclose()
    assert not is_there(path)


async def test_who_comes_when_it_has_stopped_is_not_let_in_and_who_is_there_stays(
    path: str,
) -> None:
    listener = Listener(path, until_it_ends)
    listener.bind()
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as late:
        assert not listener.is_attending
        first.connect(path)  # and says nothing
        async with asyncio.timeout(20):
            while not listener.is_attending:  # noqa: ASYNC110
                await asyncio.sleep(0)
        late.connect(path)
        listener.stop()
        listener.keep_name_once()
        assert not is_there(path)
        late.settimeout(20)
        with suppress(ConnectionResetError):
            assert await asyncio.to_thread(late.recv, 1) == b""
        assert listener.is_attending
        other = Listener(path, until_it_ends)
        other.bind()
        await listener.aclose()
        assert is_there(path)
        await other.aclose()
