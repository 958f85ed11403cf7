"""`acphold` in a process of its own, forked from one that has imported its modules already.

Nearly all that a start of Python costs is imports, and the tests start a program of ours a thousand
times. So in all tests `subprocess` forks what begins with `python -m acphold`: a child of ours like
any other, with its arguments, variables, folder and streams. It is started, as every other program
is, where the test does something before its start or has changed Python's own variables, outside
of Linux, and everywhere with COLD=1, as `make slow` and `make interop` do; so is what acphold
starts itself.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

ACPHOLD = [sys.executable, "-m", "acphold"]

IMPORTED = (
    "acphold.cli.main",
    *(f"acphold.cli.{name}" for name in ("ask", "chat", "check", "demo_agent", "list", "owner")),
    *(f"acphold.cli.{name}" for name in ("run_agent", "serve", "show", "thin_wrap", "wrap")),
    "acphold.hub.hub",
    "acphold.journal.sqlite.store",
    "acphold.library",
    "acphold.screen.chat",
    "acphold.server.service",
    "acphold.web.server",
)
"""What the commands begin with that tests start most."""

EXECUTE_CHILD = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
"""Our end and its end of its three streams, by the names of `EXECUTE_CHILD`."""

IS_FORKED = sys.platform == "linux" and not os.environ.get("COLD")

AT_FIRST = dict(os.environ)
"""Our variables before any test changed them."""


class Forked(subprocess.Popen[Any]):
    """Like `subprocess.Popen`, but for `python -m acphold`."""

    def _execute_child(self, args: Any, *how: Any) -> None:
        given = EXECUTE_CHILD.bind(self, args, *how).arguments
        variables = dict(os.environ if given["env"] is None else given["env"])
        is_ours = [*args][:3] == ACPHOLD and read_at_first(variables) == read_at_first(AT_FIRST)
        is_plain = not any(given[it] for it in ("executable", "preexec_fn", "pass_fds"))
        if not (IS_FORKED and is_ours and is_plain):
            super()._execute_child(args, *how)  # type: ignore[misc]
            return
        order = {
            "words": [os.fsdecode(word) for word in args][3:],
            "variables": variables,
            "folder": os.fsdecode(given["cwd"] or os.getcwd()),
            "leads": bool(given["start_new_session"]),
        }
        pipes = [given[it] for it in PIPES]
        streams = enumerate((pipes[0], pipes[3], pipes[5]))
        self.pid = stem().fork(order, [place if fd == -1 else fd for place, fd in streams])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def read_at_first(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python, or a module of ours, reads as it starts."""
    return {name: it for name, it in variables.items() if name.startswith(("PYTHON", "HOME"))}


class Stem:
    """The process that all others are forked from; it ends with ours."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno())]
            self._process = subprocess.Popen(command, env=AT_FIRST, pass_fds=[theirs.fileno()])
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None).prctl

    def fork(self, order: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Fork a child of ours that does this; returns its pid."""
        told, theirs = socket.socketpair()
        with self._lock, told, theirs:
            # It forks twice. Whose parent has ended gets the nearest forebear that asks for it.
            self._prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._orders, [b"!"], [theirs.fileno(), *streams])
                theirs.close()
                told.sendall(json.dumps(order).encode() + b"\n")
                with told.makefile() as answer:
                    return int(answer.readline())
            finally:
                self._prctl(PR_SET_CHILD_SUBREAPER, 0)

    def end(self) -> None:
        self._orders.close()
        self._process.wait()


PR_SET_CHILD_SUBREAPER = 36


@cache
def stem() -> Stem:
    """Our stem, which begins with the first that is forked."""
    made = Stem()
    atexit.register(made.end)
    return made


# -- the stem, and what is forked from it ----------------------------------------------------------


def serve(orders: socket.socket) -> None:
    """Fork a process for each order, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    while fds := socket.recv_fds(orders, 1, 4)[1]:
        between = os.fork()
        if between == 0:
            if (child := os.fork()) == 0:
                become(*fds)
            os.write(fds[0], str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        os.write(fds[0], b"\n")  # not before the child has its new parent
        for fd in fds:
            os.close(fd)


def become(told: int, *streams: int) -> NoReturn:
    """Do what is ordered, as a program that was started for it."""
    with open(told, closefd=False) as lines:
        order = json.loads(lines.readline())
    for place, fd in enumerate(streams):
        os.dup2(fd, place)
    os.closerange(3, 256)
    if order["leads"]:
        os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["variables"])
    sys.path.insert(0, os.getcwd())
    sys.argv = ["acphold", *order["words"]]
    errors = sys.stdin.errors
    given, out, err = (FileIO(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    sys.stdin = sys.__stdin__ = TextIOWrapper(BufferedReader(given), errors=errors)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = TextIOWrapper(  # type: ignore[misc]
        BufferedWriter(out), errors=errors, line_buffering=out.isatty()
    )
    sys.stderr = sys.__stderr__ = TextIOWrapper(  # type: ignore[misc]
        BufferedWriter(err), errors="backslashreplace", line_buffering=True
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from acphold.__main__ import main

    code: str | int | None = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    # As Python ends, but for taking all modules to pieces, which takes longer than the rest.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
