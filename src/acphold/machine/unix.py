"""The transport between processes of one user on one machine: a Unix socket.

The kernel tells the user at the other end: a process of another user is refused, whatever the modes
of files say.

A program that stands between an editor and a process, a front, may hand over its own streams: then
the editor itself is served, and no byte passes through a third process. The front sends its
descriptors with its first frame (`transports.first_frame`), and waits for the end of the
connection; if that ends at its side first, the editor is gone.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import struct
import sys
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar

from msgspec import Struct

from acp_wire.errors import ConnectionLostError, SilentPeerError
from acp_wire.tasks import TaskSet, beside, finish, tick, timeout
from acp_wire.transports.pipes import PipeTransport
from acphold.machine.first_frame import HANDED_OVER, LARGEST, STREAMS, FirstFrame, decode_frame
from acphold.machine.folder_watch import LOSSES, FolderWatch
from acphold.machine.place import place_of
from acphold.machine.runtime_folder import RuntimeFolderError, runtime_folder, sweep

log = logging.getLogger(__name__)

T = TypeVar("T")

TAKEN = b"\1"
"""Sent at once to a front; without it, the front does not wait."""

ENDED_WELL = b"\0"
"""Sent to a front when the editor has left."""

REFUSED = b"\2"
"""Sent instead if the front's words could not be used."""

FRAME_BYTES = 64 * 1024
"""Bytes of one read of a first frame."""

FRAME_SECONDS = 10.0
"""Seconds for the rest of a first frame: its sender has it all."""

BACKLOG = 64
"""Connections that may wait to be accepted."""

REBIND_SECONDS = 1.0
"""Seconds between the loss of a name in the socket's folder and the check that ours is still there:
systemd removes a user's runtime folder at the last logout, and makes it anew at the next login."""

LOOK_SECONDS = 10.0
"""Seconds between such checks where the system tells of no loss."""

Moved = Callable[[str], Awaitable[None]]
"""Called with each path that a listener gets."""

PAUSE_SECONDS = 1.0
"""Seconds without accepting after the system was out of descriptors."""

ROOM_SECONDS = 0.02
"""Seconds to wait before trying again if the backlog is full."""


class Credentials(Struct, frozen=True):
    """The process at the other end; `pid` is None if the system does not tell.

    Nor does it tell the number of a process that has none here, of another container.
    """

    uid: int
    pid: int | None


def credentials(connection: socket.socket) -> Credentials:
    """Return what the kernel says about the other end.

    Linux: unix(7), SO_PEERCRED; macOS: sys/un.h, LOCAL_PEERCRED and LOCAL_PEERPID. Raises OSError
    if it does not tell.
    """
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        return Credentials(uid, pid or None)
    raw = connection.getsockopt(0, 1, 128)  # SOL_LOCAL, LOCAL_PEERCRED: a struct xucred
    pid = connection.getsockopt(0, 2)
    return Credentials(struct.unpack_from("2I", raw)[1], pid or None)


def pid_at(path: str) -> int | None:
    """Return the process of this user that listens at `path`, as the kernel says; None if there is
    none.

    Check a number here before signalling it, or telling a person to: a number from a process
    itself, or from the journal, may belong to another process by now, or on this machine.
    """
    found = _about(path, credentials)
    return found.pid if found and found.uid == os.getuid() else None


def is_listening(path: str) -> bool:
    """Return True if a process listens at `path`, whether it accepts anybody or not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        return asking.connect_ex(path) in (0, errno.EAGAIN)


def is_ours(connection: socket.socket) -> bool:
    """Return True if a process of this user in this place is at the other end; raises OSError."""
    return credentials(connection).uid == os.getuid() and place_at(connection) == place_of()


def is_in_our_place(path: str) -> bool:
    """Return True if a process of this user in this place listens at `path`."""
    return _about(path, is_ours) or False


def _about(path: str, look: Callable[[socket.socket], T]) -> T | None:
    """Look at the process that listens at `path`; None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
            return look(asking)
        except OSError:
            return None


SO_PEERPIDFD = 77
"""The option for a descriptor of the process at the other end; source: Linux, asm/socket.h."""


def place_at(connection: socket.socket) -> str | None:
    """Return the place of the process at the other end (`machine.place`); None if it has gone or
    hides."""
    if sys.platform != "linux":
        return place_of()
    try:
        if (pid := credentials(connection).pid) is None:
            return None
        place = place_of(pid)
        # Afterwards: the number may have gone to another process meanwhile.
        descriptor = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as exc:  # before Linux 6.5 only the number is told
        return place if exc.errno == errno.ENOPROTOOPT else None
    try:
        return None if select.select([descriptor], [], [], 0)[0] else place
    finally:
        os.close(descriptor)


class ProcessTransport(PipeTransport):
    """The transport to a process of this user that listens on a socket; `is_here` if that runs in
    this place."""

    is_here = False


def socket_transport(connection: socket.socket, arrived: bytes = b"") -> PipeTransport:
    """Return the transport over a connected socket, which it takes and closes; raises OSError."""
    writes = os.dup(connection.fileno())
    return PipeTransport(connection.detach(), writes, arrived)


async def connect(path: str, seconds: float) -> ProcessTransport:
    """Connect to the process that listens at `path`.

    Raises ConnectionLostError if nothing listens there, or another user's process does, or if the
    system gives us no connection; SilentPeerError if it accepts none within `seconds`.
    """
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | _CLOEXEC)
    except OSError as exc:
        raise ConnectionLostError(f"cannot connect to {path}: {exc.strerror}") from None
    try:
        with connection:  # which the transport takes
            connection.setblocking(False)
            async with timeout(seconds):
                while (status := connection.connect_ex(path)) == errno.EAGAIN:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(ROOM_SECONDS)
            if status:
                raise OSError(status, os.strerror(status))
            if credentials(connection).uid != os.getuid():
                raise ConnectionLostError(f"{path} belongs to another user")
            is_here = False
            with suppress(OSError):  # it has gone, or hides
                is_here = is_ours(connection)
            writes = os.dup(connection.fileno())
            transport = ProcessTransport(connection.detach(), writes)
            transport.is_here = is_here
            return transport
    except TimeoutError:
        raise SilentPeerError(f"{path}: the process there accepts no connection") from None
    except OSError as exc:
        raise ConnectionLostError(f"no process listens at {path}: {exc.strerror}") from None


_CLOEXEC = getattr(socket, "SOCK_CLOEXEC", 0)

Attend = Callable[[PipeTransport, str | None], Awaitable[None]]
"""Serves one connection to its end, from a process in this place, as in `place_at`."""


@asynccontextmanager
async def listening(
    path: str, attend: Attend, moved: Moved, fronts: FrontDoor | None = None
) -> AsyncIterator[UnixListener]:
    """Listen at `path` for the block; each connection is a task that ends with it.

    Fronts are turned away if nothing attends them.

    A file at `path` is replaced: the caller has to make sure that it is nobody's. If its folder
    goes, the socket gets the same name in the present runtime folder. `moved` is called with each
    path, including the first. Raises OSError.
    """
    listener = UnixListener(path, attend, moved, fronts)
    listener.bind()
    try:
        await moved(path)
        sweep()
        async with beside(listener.keep_name(), "keep socket"):
            yield listener
    finally:
        await finish(listener.aclose)


class UnixListener:
    """A listening socket and the connections that came in by it."""

    def __init__(
        self, path: str, attend: Attend, moved: Moved, fronts: FrontDoor | None = None
    ) -> None:
        self._path = path
        self._attend = attend
        self._fronts = fronts
        self._moved = moved
        self._socket: socket.socket | None = None
        self._name: tuple[int, int] | None = None  # the file that our name is
        self._has_stopped = False
        self._connections = TaskSet()

    def bind(self) -> None:
        """Listen, under the name; raises OSError."""
        self._close()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | _CLOEXEC)
        listener.setblocking(False)
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            listener.bind(self._path)
            self._name = identity_at(self._path)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        self._socket = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def keep_name(self) -> None:
        """Bind again whenever the name is gone."""
        await asyncio.sleep(REBIND_SECONDS)
        watch = FolderWatch(LOSSES)
        try:
            while True:
                watch.changed.clear()
                is_told = watch.add([os.path.dirname(self._path)])  # first: no loss is missed
                try:
                    await self.keep_name_once()
                    await (watch.changed.wait() if is_told else tick(LOOK_SECONDS))
                except (OSError, RuntimeFolderError) as exc:
                    log.warning("cannot make the socket %s again: %s", self._path, exc)
                    await tick(LOOK_SECONDS)
                await asyncio.sleep(REBIND_SECONDS)
        finally:
            watch.close()

    async def keep_name_once(self) -> None:
        """Bind again if the name is gone; raises OSError, RuntimeFolderError."""
        if not self._has_stopped and identity_at(self._path) != self._name:
            self._path = os.path.join(runtime_folder(), os.path.basename(self._path))
            self.bind()
            await self._moved(self._path)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                log.warning("cannot accept a connection: %s", exc)
                # No descriptor is free: the waiting connection would be reported again at once.
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(PAUSE_SECONDS, self._resume, listener)
            return
        try:
            is_ours = credentials(connection).uid == os.getuid()
        except OSError:
            is_ours = False
        if not is_ours:
            log.warning("refused a process of another user")
            connection.close()
            return
        connection.setblocking(False)
        self._connections.start(self._serve(connection), "attend connection")

    def _resume(self, listener: socket.socket) -> None:
        if self._socket is listener:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                words, front = await _first_words(connection)
            except (OSError, ValueError) as exc:  # no descriptor is free, say
                log.warning("closed a connection: %s", exc)
                return
            place = place_at(connection)
            if front is None:
                transport = socket_transport(connection, words)
                await _attend_and_close(transport, lambda it: self._attend(it, place))
                return
            front.pid, front.place = credentials(connection).pid, place
            transport, fronts = front.transport, self._fronts

            async def watch() -> None:
                # The front has ended: its editor is gone.
                await _readable(connection)
                await transport.aclose()

            try:
                if fronts is None or fronts.yields_to(front):
                    front.close()
                    await finish(transport.aclose)
                    return
                with suppress(OSError):  # it has gone already; `watch` notices
                    connection.send(TAKEN)
                async with beside(watch(), "watch front"):
                    await _attend_and_close(transport, lambda _: fronts.attend(front))
                    with suppress(OSError):  # killed meanwhile
                        connection.send(REFUSED if front.is_refused else ENDED_WELL)
            finally:
                front.close()

    def _close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    @property
    def is_attending(self) -> bool:
        """True if any client is connected, even if it has sent nothing yet."""
        return bool(self._connections)

    def stop(self) -> None:
        """Accept no more connections, and remove the name; existing ones go on."""
        self._has_stopped = True
        self._close()
        name, self._name = self._name, None
        with suppress(OSError):
            if name is not None and identity_at(self._path) == name:  # not that of our successor
                os.unlink(self._path)

    async def aclose(self) -> None:
        """Stop, and end the existing connections."""
        self.stop()
        await self._connections.aclose()


def identity_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at `path`; None if nothing is. Raises OSError if that
    cannot be found out."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


async def _attend_and_close(
    transport: PipeTransport, attend: Callable[[PipeTransport], Awaitable[None]]
) -> None:
    try:
        await attend(transport)
    except Exception:  # one connection must not end the others; nobody awaits this task
        log.exception("closed a connection after an error")
    finally:
        await finish(transport.aclose)


class Front:
    """A front that has handed its streams over; `stderr` is a descriptor of ours until `close`.

    `pid` is its process, as the kernel says; None if that has no number here. `place` is where that
    runs, as in `place_at`. One that `is_refused` ends with an error.
    """

    def __init__(self, frame: FirstFrame, stdin: int, stdout: int, stderr: int) -> None:
        self.frame = frame
        self.pid: int | None = None
        self.place: str | None = None
        self.is_refused = False
        self.stderr = stderr
        self.transport = PipeTransport(stdin, stdout)

    def close(self) -> None:
        """Let go of its stderr: an editor waits for the end of that."""
        stderr, self.stderr = self.stderr, -1
        if stderr >= 0:
            os.close(stderr)


class FrontDoor(Protocol):
    """Accepts the fronts that come to a listener, and serves their editors."""

    def yields_to(self, front: Front) -> bool:
        """Return True if this process makes room for another: the front is not accepted, and looks
        for that one."""

    async def attend(self, front: Front) -> None:
        """Serve the editor behind a front until it leaves."""


async def _first_words(connection: socket.socket) -> tuple[bytes, Front | None]:
    """Return the first bytes that come, b"" at the end; and the front, if it is one.

    Raises ValueError for a frame that cannot be read, and OSError if the system had no descriptors.
    """
    await _readable(connection)
    try:
        room = socket.CMSG_SPACE(STREAMS * array("i").itemsize)
        words, extra, _, _ = connection.recvmsg(FRAME_BYTES, room)
    except OSError:
        return b"", None
    descriptors = array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    try:
        if not words.startswith(HANDED_OVER):
            return words, None
        if len(descriptors) != STREAMS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        # The frame stands behind its length.
        async with timeout(FRAME_SECONDS):
            while len(words) < 5 or len(words) < (wanted := 5 + int.from_bytes(words[1:5], "big")):
                if len(words) >= 5 and wanted > 5 + LARGEST:
                    raise ValueError(f"a front sent a frame of {wanted} bytes")
                await _readable(connection)
                if not (more := connection.recv(FRAME_BYTES)):
                    raise ValueError("a front left before it had said what it wants")
                words += more
        front = Front(decode_frame(words[5:wanted]), *descriptors)
        del descriptors[:]
        return b"", front
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


async def _readable(connection: socket.socket | int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
