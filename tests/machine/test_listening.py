"""Listening on a Unix socket whose name others may take away."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
from contextlib import suppress
from tempfile import TemporaryDirectory

import pytest

from acp_wire.surroundings import Surroundings
from acp_wire.transports.pipes import PipeTransport
from acphold.machine.first_frame import FirstFrame
from acphold.machine.place import place_of
from acphold.machine.runtime_folder import own_socket
from acphold.machine.unix import (
    ENDED_WELL,
    TAKEN,
    Front,
    UnixListener,
    connect,
    listening,
    pid_at,
)
from tests.watched_processes import until


@pytest.fixture
def path() -> str:
    return own_socket()


def is_there(path: str) -> bool:
    return os.path.exists(path)


async def until_it_ends(transport: PipeTransport, _: str | None) -> None:
    while await transport.receive():
        pass


async def nowhere(path: str) -> None:
    """Nobody is told where it listens."""


async def test_a_process_that_connects_is_attended_and_heard_from_its_first_byte(path: str) -> None:
    async def repeat(transport: PipeTransport, place: str | None) -> None:
        assert place == place_of()
        transport.send(await transport.receive())

    async with asyncio.timeout(20), listening(path, repeat, nowhere):
        client = await connect(path, 20)
        client.send(b"hello")
        assert await client.receive() == b"hello"
        await client.aclose()


class Door:
    """Takes every front, which leaves at once; the releases of those that came."""

    def __init__(self) -> None:
        self.releases: list[str] = []

    def yields_to(self, front: Front) -> bool:
        return False

    async def attend(self, front: Front) -> None:
        self.releases.append(front.frame.release)


async def test_the_frame_of_a_front_may_come_in_pieces(path: str) -> None:
    door = Door()
    frame = FirstFrame("1.2.3", [], [], Surroundings({}, "/")).encode()
    async with listening(path, until_it_ends, nowhere, door):
        editor, theirs = socket.socketpair()
        with socket.socket(socket.AF_UNIX) as front, editor, theirs:
            front.connect(path)
            socket.send_fds(front, [frame[:1]], [theirs.fileno()] * 3)
            for byte in frame[1:]:
                await asyncio.sleep(0)
                front.send(bytes([byte]))
            front.settimeout(20)
            assert await asyncio.to_thread(front.recv, 1) == TAKEN
            assert await asyncio.to_thread(front.recv, 1) == ENDED_WELL
    assert door.releases == ["1.2.3"]


async def test_a_listener_that_ends_leaves_the_name_to_the_one_that_has_it_now(path: str) -> None:
    one, two = (
        UnixListener(path, until_it_ends, nowhere),
        UnixListener(path, until_it_ends, nowhere),
    )
    one.bind()
    os.unlink(path)  # as systemd does at the last logout
    two.bind()
    await one.aclose()
    assert is_there(path)
    await two.aclose()
    assert not is_there(path)


async def test_a_name_that_has_gone_is_made_anew_and_removed_at_the_end(path: str) -> None:
    told: list[str] = []

    async def moved(path: str) -> None:
        told.append(path)

    async with listening(path, until_it_ends, moved) as listener:
        shutil.rmtree(os.path.dirname(path))  # as at the last logout
        await listener.keep_name_once()
        assert is_there(path)
        assert told == [path, path]
    assert not is_there(path)


async def test_a_listener_whose_folder_is_another_by_now_goes_there_and_says_so(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def moved(path: str) -> None:
        told.append(path)

    with TemporaryDirectory(dir="/tmp") as folder:  # a socket's path has to be short
        async with listening(path, until_it_ends, moved) as listener:
            shutil.rmtree(os.path.dirname(path))
            monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
            await listener.keep_name_once()
            assert told == [path, f"{folder}/acphold/{os.path.basename(path)}"]
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(told[-1])


async def test_a_stopped_listener_lets_nobody_in_and_keeps_who_is_there(
    path: str,
) -> None:
    listener = UnixListener(path, until_it_ends, nowhere)
    listener.bind()
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as late:
        assert not listener.is_attending
        first.connect(path)  # and says nothing
        await until(lambda: listener.is_attending)
        late.connect(path)
        listener.stop()
        await listener.keep_name_once()
        assert not is_there(path)
        late.settimeout(20)
        with suppress(ConnectionResetError):
            assert await asyncio.to_thread(late.recv, 1) == b""
        assert listener.is_attending
        other = UnixListener(path, until_it_ends, nowhere)
        other.bind()
        await listener.aclose()
        assert is_there(path)
        await other.aclose()


class ElsewhereSocket(socket.socket):
    """A connection to a process that has no process id here, as one in another container."""

    def getsockopt(self, *_: int) -> bytes:  # type: ignore[override]
        return struct.pack("3i", 0, os.getuid(), os.getgid())


def test_a_process_that_has_no_number_here_is_not_called_by_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as listens:
        listens.bind(path)
        listens.listen()
        assert pid_at(path) == os.getpid()
        monkeypatch.setattr(socket, "socket", ElsewhereSocket)
        assert pid_at(path) is None  # and not 0, which `kill` takes for all of one's own
    assert pid_at(path) is None
