"""`acphold wrap --background`: connects an editor to the process that keeps its sessions.

That process, the owner, has the agent, the journal and the sessions, and outlives the editor. It is
started if there is none yet, and found by its socket, whose name is made from the words it was
started with. It gets our stdin and stdout, as a tmux server does; so this program stays, for the
editor to see it, but no byte passes through it. Nothing else is imported: an editor
waits for it.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import os
import select
import sys
import time
from zlib import adler32, crc32

from acp_wire.processes.own_program import own_command, start_detached
from acp_wire.transports.runtime_folder import background_socket, lock, noted_place
from acphold.errors import AcpError, AgentStartError
from acphold.faces.cli.words_of_folders import FILES, mean_files_here

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    import signal
    import socket
    import struct
    from collections.abc import Sequence
else:
    import _signal as signal  # without its enums
    import _socket as socket  # without what only servers need
    import _struct as struct

START_SECONDS = 30.0
"""An owner has this long to listen; a loaded machine takes seconds to start Python."""

NAME_SECONDS = 5.0
"""After this much silence the owner is named on stderr, with what to do: it may be stopped."""

TAKE_SECONDS = 30.0
"""An owner has this long to accept an editor: normally at once, but never if it is stopped."""

RETRY_SECONDS = 0.01
"""Pause between two checks whether another owner of the name listens by now, or has ended."""

HANDED_OVER = b"\0"
"""The byte sent with the descriptors; see acp_wire.transports.unix."""

SURROUNDINGS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME")
"""Variables that set an owner's folders for sessions, settings and log: other values mean another
owner. The same holds for FILES."""

GUARDED = "ACPHOLD_GUARD"
"""The mark by which `processes.guardian` finds the processes to end."""

OK, ERROR, AGENT = 0, 1, 5
"""Exit codes; acphold.faces.cli.command_line has all of them, but takes too long to import here."""


def owner_socket(words: list[str], command: Sequence[str] = ()) -> str:
    """Return the socket of the owner that is started with these words; RuntimeFolderError.

    `command` is the agent's, if the words only name it.
    """
    surroundings = [os.environ.get(name, "") for name in (*SURROUNDINGS, *FILES)]
    place = words.index("--") if "--" in words and not command else len(words)
    if mean_files_here(words[:place], command or words[place + 1 :]):
        surroundings.append(os.getcwd())
    key = "\0".join([*words, "", *surroundings]).encode(errors="surrogateescape")
    return background_socket(f"{crc32(key):08x}{adler32(key):08x}")


def start_thin_wrap(
    words: list[str], env: dict[str, str] | None = None, command: Sequence[str] = ()
) -> int:
    """Stay until the editor leaves or the owner ends; returns the exit code. `words` follow `wrap`.

    `env` are variables for the owner besides ours, `command` is the command of an agent that the
    words only name.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for an editor's log
    if sys.stdin is not None and sys.stdin.isatty():
        print("acphold wrap: waiting for an editor on stdin", file=sys.stderr)
    try:
        path = owner_socket(words, command)
        deadline = time.monotonic() + START_SECONDS
        # Find an owner, or start one, until one accepts the editor.
        while (
            code := _hand_over(
                path, _connect_to_owner(path) or _start_and_connect(path, words, env or {})
            )
        ) is None:
            if time.monotonic() > deadline:
                raise OSError(
                    "every background process exits before it accepts the editor; see its log"
                )
        return code
    except AcpError as exc:
        return _refuse(exc)
    except OSError as exc:
        return _refuse(AgentStartError(str(exc)))


def _refuse(error: AcpError) -> int:
    """Answer all of the editor's requests with the error: it shows that, but not our stderr."""
    from acp_wire.transports.stdio import claim_stdio
    from acphold.faces.cli.wrap import refuse_all

    refuse_all(error, claim_stdio())
    return ERROR


# -- the owner ------------------------------------------------------------------------------


def _connect_to_owner(path: str) -> socket.socket | None:
    """Connect to the owner at its socket's name, or at another place that it has noted."""
    if (connection := _connect(path)) is None and (noted := noted_place(path)) not in ("", path):
        connection = _connect(noted)
    return connection


def _connect(path: str) -> socket.socket | None:
    """Connect to the owner; None when none listens. Raises OSError for another user's, and for one
    that accepts nobody."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Without waiting: a stopped owner, before which many wait already, would keep us for ever.
    connection.setblocking(False)
    silence = _Silence(path)
    while True:
        try:
            connection.connect(path)
            break
        except BlockingIOError:
            silence.check()
            time.sleep(RETRY_SECONDS)
        except OSError:
            connection.close()
            return None
    connection.setblocking(True)
    if _peer(connection) != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return connection


def _peer(connection: socket.socket) -> int:
    """Return the user of the listener."""
    if sys.platform == "linux":  # unix(7), SO_PEERCRED
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int(struct.unpack("3i", raw)[1])
    raw = connection.getsockopt(0, 1, 128)  # SOL_LOCAL, LOCAL_PEERCRED: a struct xucred
    return int(struct.unpack_from("2I", raw)[1])


class _Silence:
    """The time for which the owner at `path` has not accepted us."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._began = time.monotonic()
        self._is_named = False

    @property
    def seconds_left(self) -> float:
        """The time until `check` has something to say."""
        bound = TAKE_SECONDS if self._is_named else min(NAME_SECONDS, TAKE_SECONDS)
        return self._began + bound - time.monotonic()

    def check(self) -> None:
        """Say on stderr which process is silent, and what to do; raise OSError with that at the
        end."""
        if self.seconds_left > 0:
            return
        from acphold.live.reading.neighbours import SilentProcess  # late: an editor waits for us

        words = SilentProcess.at(self._path).words
        if time.monotonic() - self._began >= TAKE_SECONDS:
            raise OSError(words)
        self._is_named = True
        print(f"acphold wrap: {words}", file=sys.stderr)


def _start_and_connect(path: str, words: list[str], env: dict[str, str]) -> socket.socket:
    """Start the owner and connect; raises OSError with the reason if that fails.

    Another owner may still have the name: one that starts to listen, or one that ends.
    """
    silence = _Silence(path)
    while True:
        report = _start(path, words, env)
        if report not in ("ready", "taken"):
            raise OSError(report or "the background process exited at once; see its log")
        while True:
            if (connection := _connect_to_owner(path)) is not None:
                return connection
            silence.check()
            if (free := lock(path)) is not None:
                os.close(free)
                break  # it has ended: start another
            time.sleep(RETRY_SECONDS)


READY = 9
"""The descriptor on which an owner reports, in one line, that it listens, or why it does not."""


def _start(path: str, words: list[str], env: dict[str, str]) -> str:
    """Start an owner; returns its report."""
    read_end, write_end = os.pipe()
    surroundings = {**os.environ, **env}
    surroundings.pop(GUARDED, None)  # our guardian must not end it
    try:
        # It gets none of our descriptors but this one: an editor waits for the end of the others.
        try:
            start_detached(own_command("owner", path, *words), {READY: write_end}, surroundings)
        finally:
            os.close(write_end)
        line = b""
        deadline = time.monotonic() + START_SECONDS
        while not line.endswith(b"\n"):
            if not _is_readable(read_end, deadline - time.monotonic()):
                return "the background process did not start listening; see its log"
            if not (piece := os.read(read_end, 4096)):
                break
            line += piece
        return line.decode(errors="replace").strip()
    finally:
        os.close(read_end)


def _is_readable(source: int | socket.socket, seconds: float) -> bool:
    """Return True if something can be read within `seconds`, or the other side has ended."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(max(0, round(seconds * 1000))))


# -- the editor ------------------------------------------------------------------------------


def _hand_over(path: str, connection: socket.socket) -> int | None:
    """Let the owner talk to the editor itself until that is over; returns the exit code.

    None if it ended before it accepted the editor, and so read nothing from it.
    """
    streams = struct.pack("2i", 0, 1)
    is_accepted = False
    try:
        connection.sendmsg([HANDED_OVER], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        silence = _Silence(path)
        while not _is_readable(connection, silence.seconds_left):
            try:
                silence.check()
            except OSError as exc:
                return _refuse(AgentStartError(str(exc)))
        is_accepted = bool(connection.recv(1))
        if is_accepted and connection.recv(1):
            return OK
    except OSError:
        pass  # reset: it was killed
    connection.close()
    if not is_accepted:
        return None
    print("acphold wrap: the background process has ended; start it again", file=sys.stderr)
    return AGENT
