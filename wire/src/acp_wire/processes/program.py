"""A foreign program, such as an agent: started, guarded, and ended with all its children.

No asyncio here: `acphold wrap` starts its agent before it has imported that. `transports.child`
turns a running program into a connection.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock

from acp_wire.errors import AgentStartError
from acp_wire.processes import process_tree
from acp_wire.processes.descriptors import close_others_on_exec, keep_stdio_open
from acp_wire.processes.guardian import Guard, Marking
from acp_wire.processes.limits import limiting
from acp_wire.surroundings import NO_LIMITS, Surroundings

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from typing import NoReturn
else:
    import _signal as signal

GRACE_SECONDS = 0.7
"""Seconds for a program to end by itself: at EOF, and after SIGTERM.

Short, so that the total stays below two seconds, which editors and checkers wait: otherwise an
agent that ignores EOF would get acphold killed before it.
"""

DEFAULT_SIGNALS = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)
"""Signals that we or our parent may ignore (Python does SIGPIPE), but a new program must not."""


class Program:
    """A program that `launch` started. The methods may be called from any thread.

    `pid` is its process group too. It stays in the process table until `reap`, so that the number
    is not reused. `fds` are our ends of its pipes, close-on-exec, to be closed by the owner: stdin,
    stdout and stderr, or one for all its output. `guard` ends it if we are killed. `gone` is True
    once nothing of it lives.
    """

    __slots__ = ("_lock", "_stopped", "command", "fds", "gone", "guard", "pid")

    def __init__(
        self, command: Sequence[str], pid: int, fds: tuple[int, ...], guard: Guard
    ) -> None:
        self.command: tuple[str, ...] = tuple(command)
        self.pid: int = pid
        self.fds: tuple[int, ...] = fds
        self.gone: bool = False
        self.guard: Guard = guard
        self._lock = allocate_lock()
        self._stopped: list[int] | None = None

    def stop(self) -> None:
        """Stop it and all its children until `go_on`; if we are killed meanwhile, they end. Blocks
        for a moment."""
        with self._lock:
            if not self.gone and self._stopped is None:
                self.guard.note(stopped=True)
                self._stopped = process_tree.stop(self.pid, self.guard.mark)

    def go_on(self) -> None:
        """Have continue what `stop` has stopped."""
        with self._lock:
            stopped, self._stopped = self._stopped, None
            if not self.gone and stopped is not None:
                process_tree.go_on(self.pid, self.guard.mark, stopped)
                self.guard.note(stopped=False)

    def end(self, grace: float = GRACE_SECONDS) -> bool:
        """End it and all its children: SIGTERM, `grace` seconds, SIGKILL; return True if all are
        gone.

        Blocks meanwhile, but no longer than necessary.
        """
        with self._lock:
            return self._note_end(
                gone=self.gone
                or process_tree.end(
                    self.pid, self.guard.mark, grace, is_stopped=self._stopped is not None
                )
            )

    def look(self) -> bool:
        """Return True if it and all its children have ended by themselves. Blocks for a moment."""
        with self._lock:
            return self._note_end(
                gone=self.gone or not process_tree.living(self.pid, self.guard.mark)
            )

    def await_end(self) -> None:
        """Wait until it has ended by itself, with all its children, as the caller knows."""
        from acp_wire.processes.exit_status import exit_status  # late: few wait for it here

        exit_status(self.pid)
        with self._lock:
            self._note_end(gone=True)

    def reap(self) -> None:
        """Release its pid, once all is gone and the status is known; never blocks."""
        if self.gone:
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pass  # reaped before, or SIGCHLD is ignored in this process

    def abandon(self) -> None:
        """Close the pipes of a program that nobody will talk to, end it and reap it."""
        for fd in self.fds:
            os.close(fd)
        self.end()
        self.reap()

    def _note_end(self, *, gone: bool) -> bool:
        if gone and not self.gone:
            self.gone = True
            self.guard.dismiss()  # not before: it may have to finish our work
        return gone


def launch(
    command: Sequence[str],
    surroundings: Surroundings | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    merged: bool = False,
) -> Program:
    """Start `command` in its own process group, guarded; blocks for some milliseconds.

    It gets the environment, the umask and the limits of `surroundings`, by default ours; `env`
    replaces that environment, and `cwd` is the folder it starts in, by default ours. It gets a pipe
    for each of stdin, stdout and stderr; `merged`: one for all its output, and no input. Do not use
    this for programs that are to outlive us. Raises AgentStartError.
    """
    if not command:
        raise AgentStartError("no command to start the agent was given")
    keep_stdio_open()
    close_others_on_exec()
    # With an inherited "ignore SIGCHLD" the system reaps children before we can read their status.
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except ValueError:
            pass  # not in the main thread: then the status stays unknown
    within = Surroundings.here() if surroundings is None else surroundings
    variables = dict(within.env if env is None else env)
    folder = None if cwd is None else os.fspath(cwd)
    path = _find(command[0], variables, folder)
    guard = Guard()
    pid, fds = spawn(
        path, command, variables, cwd=folder, within=within, merged=merged, guard=guard
    )
    guard.watch(pid)  # after the start, which must not wait the milliseconds this may take
    return Program(command, pid, fds, guard)


def spawn(
    path: str,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str | None = None,
    within: Surroundings | None = None,
    merged: bool = False,
    group: int = 0,
    guard: Guard | None = None,
) -> tuple[int, tuple[int, ...]]:
    """Start the program at `path` in a process group, by default its own, with the mark of
    `guard`, which does not watch it yet.

    Return its pid, and our ends of its pipes, as `Program.fds` has them. Raises AgentStartError.
    """
    if guard is not None:
        env = guard.environment(dict(env))
        with Marking(guard):
            return spawn(path, command, env, cwd=cwd, within=within, merged=merged, group=group)
    opened: list[int] = []
    stdio: tuple[int, int, int]
    fds: tuple[int, ...]
    try:
        # Each end is added to `opened` at once, in case the system has no more of them.
        if merged:
            opened.append(os.open(os.devnull, os.O_RDONLY))
            opened += os.pipe()
            stdio, fds = (opened[0], opened[2], opened[2]), (opened[1],)
        else:
            for _ in range(3):
                opened += os.pipe()
            stdin, to_program, from_program, stdout, errors_from_program, stderr = opened
            stdio, fds = (stdin, stdout, stderr), (to_program, from_program, errors_from_program)
        umask, limits = (None, NO_LIMITS) if within is None else (within.umask, within.limits)
        # posix_spawn can change neither folder nor umask; an editor's agent is not started this
        # way.
        if cwd is not None or umask is not None or limits != NO_LIMITS:
            # Not through a shell: some drop variables whose names they do not accept.
            import subprocess

            process = subprocess.Popen(
                list(command),
                executable=path if cwd is None else os.path.join(cwd, path),
                cwd=cwd,
                umask=-1 if umask is None else umask,
                env=env,
                stdin=stdio[0],
                stdout=stdio[1],
                stderr=stdio[2],
                process_group=group,
                # In the child, so that it never runs without them.
                preexec_fn=limiting(limits) if limits != NO_LIMITS else None,
            )
            process.returncode = 0  # otherwise `subprocess` reaps it behind our back
            pid = process.pid
        else:
            pid = os.posix_spawn(
                path,
                list(command),
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)],
                setpgroup=group,
                setsigmask=[],
                setsigdef=DEFAULT_SIGNALS,
            )
    except (OSError, ValueError) as error:
        for fd in opened:
            os.close(fd)
        raise AgentStartError(_why_not(command[0], path, error)) from error
    for fd in set(stdio):
        os.close(fd)
    return pid, fds


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by `command`; raises AgentStartError."""
    path = _find(command[0], os.environ, None)
    try:
        os.execv(path, list(command))
    except (OSError, ValueError) as error:
        raise AgentStartError(_why_not(command[0], path, error)) from error


def on_path(name: str, path: str | None = None) -> str | None:
    """Return the program `name` from a folder of `path`, by default our PATH; None if there is
    none.

    A name with a slash is a path itself.
    """
    files = [name] if "/" in name else _on_path(name, path)
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), None)


def _on_path(name: str, path: str | None) -> list[str]:
    """Return the possible paths of `name`, ignoring relative parts of the search path.

    A relative part means the current folder, which mostly is a project: it may contain a program of
    any name that nobody has checked.
    """
    parts = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    return [os.path.join(folder, name) for folder in parts if os.path.isabs(folder)]


def _find(name: str, env: Mapping[str, str], cwd: str | None) -> str:
    """Return the path of program `name`, from the PATH of `env`, or relative to `cwd`.

    Raises AgentStartError.
    """
    if cwd is not None and not os.path.isdir(cwd):
        raise AgentStartError(f"cannot start {name!r} in {cwd!r}: there is no such folder")
    if cwd is not None and not os.access(cwd, os.X_OK):
        raise AgentStartError(
            f"cannot start {name!r} in {cwd!r}: no permission to open that folder"
        )
    if "/" in name:
        return _require_executable(name, os.path.join(cwd or "", name))
    path = env.get("PATH", os.defpath)
    if (found := on_path(name, path)) is not None:
        return found
    for refused in _on_path(name, path):
        if os.path.isfile(refused):
            return _require_executable(name, refused)
    for part in path.split(os.pathsep):
        if not os.path.isabs(part) and os.path.isfile(os.path.join(cwd or "", part, name)):
            raise AgentStartError(
                f"cannot start {name!r}: PATH has it in {part or '.'!r} only, and acphold does not "
                "search relative folders; give its full path"
            )
    way = "give its words one by one" if " " in name else "install it, or give its full path"
    raise AgentStartError(f"cannot start {name!r}: no such program on PATH; {way}")


def _require_executable(name: str, path: str) -> str:
    """Return `path` if it is executable; raises AgentStartError, which calls it `name`."""
    if os.path.isdir(path):
        raise AgentStartError(f"cannot start {name!r}: it is a folder; name a program in it")
    if not os.path.exists(path):
        raise AgentStartError(f"cannot start {name!r}: the file does not exist; check the path")
    if not os.access(path, os.X_OK):
        raise AgentStartError(
            f"cannot start {name!r}: {path} is not executable; run `chmod +x` on it, "
            "or put its interpreter in front"
        )
    return path


def _why_not(name: str, path: str, error: OSError | ValueError) -> str:
    """Return the message for a program that was found and still did not start."""
    match error:
        case FileNotFoundError() if not os.path.exists(path):
            reason = f"{path} does not exist any more; install it again"
        case FileNotFoundError():
            reason = f"the interpreter in the first line of {path} does not exist; install it"
        case PermissionError():
            reason = f"no permission to execute {path}; check its permissions"
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            reason = "acphold has too many files open; close sessions, or allow more (ulimit -n)"
        case OSError(errno=8):  # ENOEXEC
            reason = f"{path} is not a program for this system; is its first line missing the #!?"
        case OSError():
            reason = f"{path}: {error.strerror}"
        case ValueError():  # it does not say which value, and that may be a secret
            reason = "its arguments or its environment contain a NUL, or are not Unicode"
    return f"cannot start {name!r}: {reason}"
