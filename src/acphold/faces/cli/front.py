"""`acphold wrap`: a front, which connects an editor to the daemon of a journal.

The daemon has the journal, its sessions and their agents, and outlives the editor. It is started if
there is none yet, and found by the file beside the journal that it holds, whatever our variables
are. It gets our stdin, stdout and stderr, as a tmux server does; so this program stays, for the
editor to see it, but no byte passes through it. Nothing else is imported: an editor waits for it.
"""

# See docs/decisions.md, 18 and 25.

from __future__ import annotations

import os
import select
import sys
import time

from acp_wire.processes.own_python import own_python
from acp_wire.surroundings import Surroundings
from acphold.errors import AcpError, AgentStartError, JournalUnavailableError
from acphold.journal_location import (
    VARIABLE as JOURNAL,
    belongings,
    default_location,
    real_location,
    scheme_of,
    short_mark,
    without_password,
)
from acphold.machine.first_frame import EDITOR, FirstFrame
from acphold.machine.locked_file import holder, is_held, read_note
from acphold.machine.own_program import start_detached
from acphold.machine.place import place_of
from acphold.machine.runtime_folder import login_folder
from acphold.version import __version__

TYPE_CHECKING = False  # see quick_start
if TYPE_CHECKING:
    import signal
    import socket
    import struct
    from collections.abc import Mapping, Sequence
else:
    import _signal as signal
    import _socket as socket
    import _struct as struct

START_SECONDS = 30.0
"""A daemon has this long to listen; a loaded machine takes seconds to start Python."""

NAME_SECONDS = 5.0
"""After this much silence the daemon is named on stderr, with what to do: it may be stopped."""

TAKE_SECONDS = 9.0
"""A daemon has this long to accept an editor: normally at once, but never if it is stopped."""

QUIET_SECONDS = 5.0
"""Seconds behind its start after which a front looks if its daemon falls silent."""

RETRY_SECONDS = 0.01
"""Pause between two checks whether another daemon of the name listens by now, or has ended."""

OWN = (
    *Surroundings.HOMES,
    "XDG_RUNTIME_DIR",
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "PYTHONPATH",
)
"""The variables of a front that a daemon gets for itself, besides those that begin as in OWN_TOO;
all others are for agents alone."""

OWN_TOO = ("PG", "ACPHOLD_")
"""Variables of the database (libpq), and those of acphold itself."""

GUARDED = "ACPHOLD_GUARD"
"""The mark by which `processes.guardian` finds the processes to end."""

REFUSED = b"\2"
"""As in `acphold.machine.unix`: the daemon cannot use our words, and has said why."""

OK, ERROR, USAGE, AGENT = 0, 1, 2, 5
"""Exit codes; acphold.faces.cli.command_line has all of them, but takes too long to import here."""


def daemon_lock(journal: str) -> str:
    """Return the file that the daemon of this journal in this place holds: beside the journal's
    real file, or in a folder of this user for one in a database.

    Raises JournalUnavailableError for a file of another user.
    """
    place = short_mark(place_of())
    if scheme_of(journal) is not None:
        return os.path.join(
            login_folder(), f"daemon-{short_mark(without_password(journal))}-{place}"
        )
    try:
        owner = os.stat(journal).st_uid
    except OSError:  # it is not there yet
        owner = os.getuid()
    if owner != os.getuid():
        raise JournalUnavailableError(
            f"the journal {journal} belongs to another user, with the number {owner}; run acphold "
            "as that user"
        )
    return f"{journal}-daemon-{place}"


def daemon_address(held: str) -> str:
    """Return the path of the socket of the daemon that holds, or has held, this file; "" if that
    says none. A copy of the file, with a copy of the journal, leads to no daemon."""
    return read_note(held)


def journal_of(options: Sequence[str], named: object = None) -> str:
    """Return the journal that these options of `wrap` mean, as an absolute path or a URL; `named`
    is the agent's own, of the settings file. Raises JournalUnavailableError."""
    given = str(named or "") or default_location()
    for option, value in zip(options, [*options, ""][1:], strict=True):
        name, equals, joined = option.partition("=")
        if name == "--journal":
            given = joined if equals else value
    return real_location(given)


def start_front(
    words: list[str],
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
    journal: object = None,
) -> int:
    """Stay until the editor leaves or the daemon ends; returns the exit code. `words` follow
    `wrap`.

    For an agent that the words only name, `command` is its command, `env` are its variables besides
    ours, and `journal` is its own, if it has one.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for an editor's log
    if sys.stdin is not None and sys.stdin.isatty():
        print("acphold wrap: waiting for an editor on stdin", file=sys.stderr)
    place = words.index("--") if "--" in words and not command else len(words)
    try:
        location = journal_of(words[:place], journal)
        frame = first_frame(words, command or words[place + 1 :], env)
        connection = hand_over(frame, location, (0, 1, 2))
    except AcpError as exc:
        return _refuse(exc)
    except (OSError, ValueError) as exc:
        return _refuse(AgentStartError(str(exc)))
    try:
        if not _is_readable(connection, QUIET_SECONDS):
            _watch_daemon(daemon_lock(location), str(connection.getpeername()))
        if end := connection.recv(1):
            return USAGE if end == REFUSED else OK
    except OSError:
        pass  # reset: it was killed
    print(
        "acphold wrap: the acphold daemon ended, and this agent with it; begin the agent again",
        file=sys.stderr,
    )
    return AGENT


def _watch_daemon(held: str, path: str) -> None:
    """Tell the editor's log, from a thread, when the daemon at this socket falls silent, and when
    it answers again."""
    from contextlib import suppress  # late: an editor waits for us

    # Here, not in the thread: whichever imports it first counts as the main one, and our exit waits
    # for that.
    from threading import Thread

    try:
        from acphold.faces.cli.heartbeat import watch
    except ModuleNotFoundError:  # an upgrade removed our files; the daemon keeps its code
        return

    def say(is_silent: bool) -> None:
        words = "the daemon answers again"
        if is_silent:
            from acphold.live.reading.processes import SilentProcess

            words = SilentProcess.that_holds(held, path).words
        print(f"acphold: {words}", file=sys.stderr, flush=True)

    def run() -> None:
        with suppress(OSError):  # the runtime folder has gone, or nobody reads our stderr
            watch(path, say)

    Thread(target=run, daemon=True).start()


def first_frame(
    words: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    folder: str | None = None,
    *,
    kind: str = EDITOR,
) -> bytes:
    """Return the first frame of a front of this kind with these words, here or in this folder.

    Raises ValueError if it is too long, OSError if our own folder is gone.
    """
    here = Surroundings.here(whole=True)
    own = {**here.env, **(env or {})}
    own.pop(GUARDED, None)  # our guardian must not end the agent
    within = Surroundings(own, folder or here.folder, here.umask, here.limits)
    return FirstFrame(__version__, words, command, within, kind).encode()


class OwnFront:
    """A front in this process, without an editor: its streams are pipes to us.

    It is handed over in a thread, because the daemon may have to be started first; `accepted` is
    done once the daemon serves it, or has the error: AgentStartError, JournalUnavailableError,
    RuntimeFolderError. What its agents say on stderr, and its log, go to the descriptor `stderr`,
    None for nowhere. Raises AgentStartError where there are no more descriptors or threads.
    """

    def __init__(self, frame: bytes, location: str, stderr: int | None = None) -> None:
        from concurrent.futures import Future  # late: an editor waits for this module
        from threading import Thread

        self.accepted: Future[None] = Future()
        self._is_closed = False
        self.connection: socket.socket | None = None
        """To the daemon, once it has accepted us: a byte comes when all has ended."""
        nowhere = (os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        made: list[int] = []
        try:
            made += os.pipe()
            made += os.pipe()
            made.append(os.open(*nowhere) if stderr is None else os.dup(stderr))
            its_stdin, writing, reading, its_stdout, its_stderr = made
            self._pipes = [reading, writing]
            handing = (frame, location, (its_stdin, its_stdout, its_stderr))
            Thread(target=self._hand_over, args=handing, daemon=True).start()
        except (OSError, RuntimeError) as exc:  # of a machine that has no more of them
            for descriptor in made:
                os.close(descriptor)
            raise AgentStartError(str(exc)) from None

    def _hand_over(self, frame: bytes, location: str, streams: tuple[int, int, int]) -> None:
        self.accepted.set_running_or_notify_cancel()  # from now on nobody can cancel it
        try:
            self.connection = hand_over(frame, location, streams)
            if self._is_closed:  # meanwhile
                self.connection.close()
        except AcpError as exc:
            self.accepted.set_exception(exc)
        except OSError as exc:
            self.accepted.set_exception(AgentStartError(str(exc)))
        else:
            self.accepted.set_result(None)
        finally:
            for descriptor in streams:
                os.close(descriptor)

    def take_pipes(self) -> tuple[int, int]:
        """Return our descriptors to read and to write, which the caller closes from now on."""
        reading, writing = self._pipes
        self._pipes = []
        return reading, writing

    def close(self) -> None:
        """Leave the daemon, which then ends the agent; may be called again."""
        self._is_closed = True
        while self._pipes:
            os.close(self._pipes.pop())
        if self.connection is not None:
            self.connection.close()


def hand_over(frame: bytes, location: str, streams: tuple[int, int, int]) -> socket.socket:
    """Let the daemon of this journal serve a front with these streams, and start it if there is
    none; return the connection, over which a byte comes when the front is to end.

    Raises RuntimeFolderError, JournalUnavailableError, OSError.
    """
    held = daemon_lock(location)
    deadline = time.monotonic() + START_SECONDS
    while True:
        noted = daemon_address(held)  # of one that was killed, any program may listen there now
        connection = (
            _connect(held, noted) if noted and is_held(held) else None
        ) or _start_and_connect(held, location, frame)
        if _is_accepted(held, connection, frame, streams):
            return connection
        connection.close()
        if time.monotonic() > deadline:
            raise OSError(
                "every daemon exits before it accepts the editor; see its log in "
                f"{belongings(location)}"
            )


def _refuse(error: AcpError) -> int:
    """Answer all of the editor's requests with the error: it shows that, but not our stderr."""
    from acp_wire.transports.stdio import claim_stdio
    from acphold.faces.cli.wrap import refuse_all

    refuse_all(error, claim_stdio())
    return ERROR


# -- the daemon ------------------------------------------------------------------------------


def _connect(held: str, path: str) -> socket.socket | None:
    """Connect to the daemon that holds this file, at its socket; None when it does not listen.

    Raises OSError for another user's, and for one that accepts nobody.
    """
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Without waiting: a stopped daemon, before which many wait already, would keep us for ever.
    connection.setblocking(False)
    silence = _Silence(held, path)
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
    pid = 0  # it has no number here, or the system tells none
    if sys.platform == "linux":  # unix(7), SO_PEERCRED
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, user, _ = struct.unpack("3i", raw)
    else:
        raw = connection.getsockopt(0, 1, 128)  # SOL_LOCAL, LOCAL_PEERCRED: a struct xucred
        user = int(struct.unpack_from("2I", raw)[1])
    if user != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    if pid and holder(held) not in (None, pid):  # the daemon makes its socket again
        connection.close()
        return None
    return connection


class _Silence:
    """The time for which the daemon that holds this file, at this socket if it says none, has not
    accepted us."""

    def __init__(self, held: str, path: str = "") -> None:
        self._held = held
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
        from acphold.live.reading.processes import SilentProcess  # late: an editor waits for us

        path = daemon_address(self._held) or self._path
        words = SilentProcess.that_holds(self._held, path).words
        if time.monotonic() - self._began >= TAKE_SECONDS:
            raise OSError(words)
        self._is_named = True
        print(f"acphold: {words}", file=sys.stderr)


def _start_and_connect(held: str, journal: str, frame: bytes) -> socket.socket:
    """Start the daemon and connect; raises JournalUnavailableError, or OSError with the reason.

    Another one may still hold the file: one that starts to listen, or one that ends. Or one runs
    whose file somebody removed, which the new one finds and names: it takes the file back.
    """
    silence, was_killed = _Silence(held), False
    while True:
        kind, _, why = _start(held, journal, frame).partition(" ")
        if not kind and not was_killed:  # before it could say anything: another may come further
            was_killed = True
            continue
        if kind == JOURNAL_FAILED:
            raise JournalUnavailableError(why)
        if kind not in (LISTENS, TAKEN):
            raise OSError(why or f"the daemon exited at once; see its log in {belongings(journal)}")
        if kind == TAKEN and not daemon_address(held):
            _rouse(held)
        while True:
            path = daemon_address(held) or (why if kind == TAKEN else "")
            if (connection := _connect(held, path)) is not None:
                return connection
            silence.check()
            if not is_held(held):
                break  # it has ended: start another
            time.sleep(RETRY_SECONDS)


def _rouse(held: str) -> None:
    """Have the daemon that holds this file look where that is: something is lost beside it. Nothing
    tells the daemon that a folder above was moved, and then it makes room for another here."""
    try:
        os.mkdir(beside := f"{held}-{os.getpid()}", 0o700)
        os.rmdir(beside)
    except OSError:
        pass


FRAME, REPORT = 8, 9
"""The descriptors on which a daemon gets the first frame already (`cli.early_agent`), and reports,
in one line, that it listens, or why it does not."""

FRAME_SECONDS = 1.0
"""Seconds for that frame to come: the front has written it before it starts the daemon."""

FRAME_BYTES = 1 << 16
"""Most bytes of a frame that is given already: a pipe takes them at once."""

MAIN = "from acphold.__main__ import main; main()"
"""Runs a command; `-m acphold` takes three milliseconds more, for the search of the module."""

LISTENS, TAKEN, JOURNAL_FAILED, FAILED = "listens", "taken", "journal", "failed"
"""The first word of that line. JOURNAL_FAILED and FAILED are followed by the reason; TAKEN by the
socket of the other daemon, if it was found in the journal and not by its lock."""


def _start(held: str, journal: str, frame: bytes) -> str:
    """Start a daemon, which begins with the agent of this frame; returns its report."""
    read_end, write_end = os.pipe()
    its_frame, giving = os.pipe()
    own = {
        name: value
        for name, value in os.environ.items()
        if name in OWN or (name.startswith(OWN_TOO) and name != GUARDED)
    }
    own[JOURNAL] = journal  # not on the command line: it may have a password
    try:
        # It gets none of our descriptors but these: an editor waits for the end of the others.
        started: int | None = None
        try:
            os.set_blocking(giving, False)
            if not _start_service(held, own, frame, (its_frame, write_end, giving)):
                _give(giving, frame)
                streams = {FRAME: its_frame, REPORT: write_end}
                started = start_detached(own_python("-c", MAIN, "daemon", held), streams, own)
        finally:
            for descriptor in (write_end, its_frame, giving):
                os.close(descriptor)
        if started is not None:
            os.waitpid(started, 0)  # it leaves its child, the daemon, to the system at once
        line = b""
        deadline = time.monotonic() + START_SECONDS
        while not line.endswith(b"\n"):
            if not _is_readable(read_end, deadline - time.monotonic()):
                return f"{FAILED} the daemon does not listen; see its log in {belongings(journal)}"
            if not (piece := os.read(read_end, 4096)):
                break
            line += piece
        return line.decode(errors="replace").strip()
    finally:
        os.close(read_end)


def _give(giving: int, frame: bytes) -> None:
    """Give a daemon its first frame already, if the pipe takes it at once: it can do without."""
    try:
        if len(frame) <= FRAME_BYTES:
            os.write(giving, frame)
    except OSError:
        pass


def _start_service(
    held: str, own: Mapping[str, str], frame: bytes, streams: tuple[int, int, int]
) -> bool:
    """Have a manager of this user start the daemon; return False if there is none."""
    if not os.path.exists(f"{own.get('XDG_RUNTIME_DIR', '')}/systemd/private"):
        return False
    from acphold.machine.transient_service import pack_variables, start_as_service

    its_frame, write_end, giving = streams
    variables = pack_variables(own)
    os.write(giving, variables)
    if start_as_service(own_python("-c", MAIN, "daemon", held), own, its_frame, write_end):
        _give(giving, frame)
        return True
    if _is_readable(its_frame, 0):  # it has not come as far as to read them
        os.read(its_frame, len(variables))
    return False


def _is_readable(source: int | socket.socket, seconds: float) -> bool:
    """Return True if something can be read within `seconds`, or the other side has ended."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(max(0, round(seconds * 1000))))


# -- the editor ------------------------------------------------------------------------------


def _is_accepted(
    held: str, connection: socket.socket, frame: bytes, streams: tuple[int, int, int]
) -> bool:
    """Send the frame with the streams; return False if the daemon has ended before it accepted
    them, and so read nothing from them. OSError if it stays silent."""
    passed = struct.pack("3i", *streams)
    silence = _Silence(held, str(connection.getpeername()))
    connection.settimeout(TAKE_SECONDS)  # a stopped one may not read all of a long frame
    try:
        sent = connection.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        connection.sendall(frame[sent:])
    except OSError:
        pass  # it has ended, perhaps after it served them: what it has said about that comes first
    connection.settimeout(None)
    while not _is_readable(connection, silence.seconds_left):
        silence.check()
    try:
        return bool(connection.recv(1))
    except OSError:
        return False
