"""`acphold wrap --background`: a pipe between an editor and the process that keeps its sessions.

That process, the owner, has the agent, the journal and the sessions, and outlives the editor. The
first pipe starts it; later ones find it by its socket, whose name is made from what it was started
with. Nothing is imported here but what moving bytes takes: an editor waits for this, and it stays
for as long as the editor does.
"""

from __future__ import annotations

import os
import select
import sys
import time
from _thread import start_new_thread
from zlib import adler32, crc32

from acphold.errors import AcpholdError
from acphold.transports.runtime_folder import background_socket

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    import signal
    import socket
    import struct
else:
    import _signal as signal  # without its enums
    import _socket as socket  # without what only servers need
    import _struct as struct

START_SECONDS = 30.0
"""What an owner has to listen; a loaded machine takes seconds to start a Python program."""

RETRY_SECONDS = 0.01
"""How often is looked whether an owner that another pipe has started listens by now."""

PIECE = 64 * 1024
"""Bytes moved at once: what a Linux pipe holds."""

SURROUNDINGS = ("ACPHOLD_JOURNAL", "ACPHOLD_SETTINGS", "XDG_DATA_HOME", "HOME")
"""Variables that say where an owner keeps its sessions: with others, it is another one."""

GUARDED = "ACPHOLD_GUARD"
"""The mark of `processes.guardian`, by which it finds what it is to end."""

OK, ERROR, AGENT = 0, 1, 5
"""Exit codes; acphold.cli.command_line has them all, and takes too long to import here."""


def owner_socket(words: list[str]) -> str:
    """Where the owner that is started with these words listens; RuntimeFolderError."""
    surroundings = [os.environ.get(name, "") for name in SURROUNDINGS]
    key = "\0".join([*words, "", *surroundings]).encode(errors="surrogateescape")
    return background_socket(f"{crc32(key):08x}{adler32(key):08x}")


def start_pipe(words: list[str], env: dict[str, str] | None = None) -> int:
    """Move bytes until one side ends; the exit code. `words` follow `wrap`.

    `env` are variables that the owner has beyond ours.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for an editor's log
    if sys.stdin is not None and sys.stdin.isatty():
        print("acphold wrap: waits for an editor on stdin", file=sys.stderr)
    try:
        path = owner_socket(words)
        connection = _connect(path) or _started(path, words, env or {})
    except (AcpholdError, OSError) as exc:
        print(f"acphold wrap: {exc}", file=sys.stderr)
        return ERROR
    return _move(connection)


# -- the owner ------------------------------------------------------------------------------


def _connect(path: str) -> socket.socket | None:
    """A connection to the owner; None when none listens. Raises OSError for another user's."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        user = struct.unpack("3i", raw)[1]
    else:
        raw = connection.getsockopt(0, 1, 128)  # SOL_LOCAL, LOCAL_PEERCRED: a struct xucred
        user = struct.unpack_from("2I", raw)[1]
    if user != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return connection


def _started(path: str, words: list[str], env: dict[str, str]) -> socket.socket:
    """Start the owner and connect; raises OSError with the reason when that fails."""
    told, tells = os.pipe()
    try:
        _spawn(path, words, env, tells)
        os.close(tells)
        word = _read_line(told)
    finally:
        os.close(told)
    if word not in ("ready", "taken"):
        raise OSError(word or "the background process ended at once; its log says why")
    deadline = time.monotonic() + START_SECONDS
    while (connection := _connect(path)) is None:
        if time.monotonic() > deadline:
            raise OSError(f"the background process does not listen at {path}")
        time.sleep(RETRY_SECONDS)
    return connection


READY = 9
"""The descriptor on which an owner tells, in one line, that it listens, or why it does not."""


def _spawn(path: str, words: list[str], env: dict[str, str], tells: int) -> None:
    """Start it in a session of its own, with none of our descriptors: an editor waits for them."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                pass  # the one that listed the folder
    surroundings = {**os.environ, **env}
    surroundings.pop(GUARDED, None)  # whatever guards us is not to end it
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "acphold", "owner", path, *words],
        surroundings,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, tells, READY),
            *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )


def _read_line(descriptor: int) -> str:
    line = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + START_SECONDS
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return "the background process does not begin to listen; its log says why"
        piece = os.read(descriptor, 4096)
        if not piece:
            break
        line += piece
    return line.decode(errors="replace").strip()


# -- bytes ----------------------------------------------------------------------------------


def _move(connection: socket.socket) -> int:
    """Move bytes both ways until the owner closes, or the editor reads no more.

    Each way has a thread: an owner that waits to be read is read, whatever it reads itself.
    """
    editor_has_left: list[bool] = []

    def to_owner() -> None:
        try:
            while piece := os.read(0, PIECE):
                connection.sendall(piece)
            editor_has_left.append(True)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the owner has closed, which the other way finds out

    start_new_thread(to_owner, ())
    while piece := _received(connection):
        try:
            while piece:
                piece = piece[os.write(1, piece) :]
        except BrokenPipeError:
            return OK
    if not editor_has_left:
        print("acphold wrap: the background process has ended; start anew", file=sys.stderr)
    return OK if editor_has_left else AGENT


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(PIECE)
    except OSError:
        return b""
