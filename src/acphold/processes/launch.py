"""Start an agent as early as can be: before asyncio or anything else heavy is imported."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from acphold.errors import AgentStartError
from acphold.processes import process_tree
from acphold.processes.guardian import Guard

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

END_SECONDS = 2.0
"""What `Launched.end` waits after SIGTERM, and again after SIGKILL."""

DEFAULT_SIGNALS = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)
"""What we or our own parent may ignore (Python does SIGPIPE), and a new program must not."""


class Launched:
    """A program that runs: its pid, which is its process group too, and our ends of its pipes.

    `stdin_fd` is for writing, `stdout_fd` and `stderr_fd` are for reading; all close-on-exec.
    """

    __slots__ = ("command", "guard", "pid", "stderr_fd", "stdin_fd", "stdout_fd")

    def __init__(self, command: Sequence[str], pid: int, fds: Sequence[int], guard: Guard) -> None:
        self.command = tuple(command)
        self.pid = pid
        self.stdin_fd, self.stdout_fd, self.stderr_fd = fds
        self.guard = guard

    def end(self, grace: float = END_SECONDS) -> bool:
        """End what is left of the program and dismiss its guardian; True when all is gone.

        Blocks for at most 2 * `grace` + 1 s. Leaves the descriptors open, the leader to be reaped.
        """
        gone = process_tree.end(self.pid, self.guard.token, grace)
        if gone:  # else the guardian stays, and tries again when we are gone
            self.guard.dismiss()
        return gone

    def abandon(self) -> None:
        """Close the pipes of a program that nobody is going to talk to, end it and reap it."""
        for fd in (self.stdin_fd, self.stdout_fd, self.stderr_fd):
            os.close(fd)
        if self.end():
            reap(self.pid)


def launch(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Launched:
    """Start `command` in a process group of its own, guarded, with pipes for its stdio.

    `env` replaces our environment; `cwd` is the folder it starts in. Raises AgentStartError.
    """
    if not command:
        raise AgentStartError("no command was given to start the agent with")
    keep_stdio_open()
    _close_others_on_exec()
    _keep_exit_statuses()
    surroundings = dict(os.environ if env is None else env)
    folder = None if cwd is None else os.fspath(cwd)
    program = _find(command[0], surroundings, folder)
    guard = Guard()
    guard.start()
    try:
        pid, fds = _spawn(program, command, guard.environment(surroundings), folder)
    except OSError as error:
        guard.dismiss()
        raise AgentStartError(_why_not(command[0], program, error)) from error
    guard.watch(pid)
    return Launched(command, pid, fds, guard)


def keep_stdio_open() -> None:
    """Put /dev/null where descriptor 0, 1 or 2 is closed, lest a pipe of ours takes its place."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is `fd`
            os.set_inheritable(null, True)


def reap(pid: int) -> None:
    """Take child `pid` off the process table if it has ended; never blocks."""
    with suppress(ChildProcessError):  # reaped before, or SIGCHLD is ignored in this process
        os.waitpid(pid, os.WNOHANG)


def _keep_exit_statuses() -> None:
    """Undo an inherited "ignore SIGCHLD": with it the system reaps children before we can ask."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        with suppress(ValueError):  # not in the main thread: then the status stays unknown
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _close_others_on_exec() -> None:
    """Keep what we inherited (an editor's sockets, say) from reaching the agent."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return  # Python's own descriptors are close-on-exec anyway
    for fd in inherited:
        if fd > 2:
            with suppress(OSError):  # one of them listed the folder and is closed again
                os.set_inheritable(fd, False)


def _spawn(
    program: str, command: Sequence[str], env: dict[str, str], cwd: str | None
) -> tuple[int, list[int]]:
    """Start `program`; return its pid and our ends of its stdin, stdout and stderr."""
    argv = list(command)
    if cwd is not None:  # posix_spawn cannot change the folder; a shell that becomes it can
        argv = ["sh", "-c", 'cd -- "$0" && exec "$@"', cwd, program, *argv[1:]]
        program = "/bin/sh"
    stdin, to_child = os.pipe()
    from_child, stdout = os.pipe()
    errors_from_child, stderr = os.pipe()
    ours = [to_child, from_child, errors_from_child]
    try:
        pid = os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ],
            setpgroup=0,
            setsigmask=[],
            setsigdef=DEFAULT_SIGNALS,
        )
    except OSError:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
    return pid, ours


def _find(name: str, env: Mapping[str, str], cwd: str | None) -> str:
    """The path of program `name`, as a shell with `env` in `cwd` finds it; AgentStartError."""
    if cwd is not None and not os.path.isdir(cwd):
        raise AgentStartError(f"cannot start {name!r} in {cwd!r}: there is no such folder")
    if "/" in name:
        return _checked(name, os.path.join(cwd or "", name))
    refused = None
    for folder in os.get_exec_path(env):
        path = os.path.join(folder, name)
        seen = os.path.join(cwd or "", path)
        if os.path.isfile(seen):
            if os.access(seen, os.X_OK):
                return path
            refused = refused or seen
    if refused is not None:
        return _checked(name, refused)
    raise AgentStartError(
        f"cannot start {name!r}: no such program on PATH; install it, or give its full path"
    )


def _checked(name: str, path: str) -> str:
    """`path` if it can be executed; AgentStartError, which calls it `name`."""
    if os.path.isdir(path):
        raise AgentStartError(f"cannot start {name!r}: it is a folder; name a program in it")
    if not os.path.exists(path):
        raise AgentStartError(f"cannot start {name!r}: there is no such file; check the path")
    if not os.access(path, os.X_OK):
        raise AgentStartError(
            f"cannot start {name!r}: {path} is not executable; run `chmod +x` on it, "
            "or put its interpreter in front"
        )
    return path


def _why_not(name: str, program: str, error: OSError) -> str:
    """The sentence for a program that was found and still did not start."""
    match error:
        case FileNotFoundError():
            reason = f"the interpreter in the first line of {program} does not exist; install it"
        case PermissionError():
            reason = f"the system does not permit to execute {program}; check its permissions"
        case OSError(errno=8):  # ENOEXEC
            reason = f"{program} is no program for this system; does it lack a #! first line?"
        case _:
            reason = f"{program}: {error.strerror}"
    return f"cannot start {name!r}: {reason}"
