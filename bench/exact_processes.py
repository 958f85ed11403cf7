"""What a prompt costs a process: system calls, and the bytecodes of all of its threads.

A client sends a prompt only behind the answer to the last, over pipes or a WebSocket. The system
calls are those that strace sees, without waits (`epoll_wait`, `futex`), the fewest of several runs.
Bytecodes are counted until BEHIND_SECONDS after the last answer, as the difference of two runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.editors import daemon_pid
from bench.exact import BEHIND_SECONDS
from bench.far_wire import FarSocket
from bench.programs import PEERS, library, library_server, lone_hub, scripted_agent, wrap
from bench.run import Run, stop_all
from bench.serve import TOKEN, sdk_server
from bench.table import Figure, Goal
from bench.wire import Wire

KINDS: Final = {
    "hub": os.fspath(PEERS.parents[1] / "tests" / "lone_hub.py"),
    "daemon": "daemon",
    "library on stdio": os.fspath(PEERS / "library_agent.py"),
    "library over WebSocket": os.fspath(PEERS / "library_server.py"),
}
"""The processes, and a word in the command of each."""

WORK: Final = {"prompt": "flood 0", "prompt with ten updates": "flood 10"}
GOALS: Final = {("hub", "prompt"): 27}
"""System calls."""

TIMES: Final = 5
WARM_UP: Final = 20
PROMPTS: Final = 40
ATTACH_SECONDS: Final = 5.0

WAITS: Final = "trace=!epoll_wait,epoll_pwait,futex,restart_syscall"


def lacks() -> str | None:
    """Say what has to be there."""
    if shutil.which("strace") is None:
        return "no strace: on Debian, `apt-get install strace`"
    return None


def figures(run: Run) -> Iterator[Figure]:
    """One for each process and kind of work."""
    for kind in KINDS:
        for name, words in WORK.items():
            calls = min(_system_calls(run, kind, words) for _ in range(run.size(TIMES, 2)))
            goals = (Goal(GOALS[kind, name]),) if (kind, name) in GOALS else ()
            yield Figure(f"{kind}: {name}", "system calls", [calls], goals=goals)
            bytecodes = _bytecodes(run, kind, words)
            yield Figure(f"{kind}: {name}, all threads", "bytecodes", [bytecodes])


@contextmanager
def _prompting(run: Run, kind: str, words: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yield the process of this kind, and what runs one turn in it."""
    journal = run.fresh("journal.db")
    with ExitStack() as stack:
        if kind == "library over WebSocket":
            server = stack.enter_context(sdk_server(library_server(journal, TOKEN), TOKEN))
            client = FarSocket(server.url, TOKEN)
            stack.callback(client.close)
            client.initialize()
            client.new_session()

            def turn() -> None:
                client.prompt(words)
                for _ in client.until_answer():
                    pass

            pid = server.pids[0]
        else:
            command = {
                "hub": lone_hub(scripted_agent(), journal),
                "daemon": wrap(scripted_agent(), journal),
                "library on stdio": library(),
            }[kind]
            if kind == "daemon":
                stack.callback(stop_all)
            wire = stack.enter_context(Wire(command, journal=journal))
            wire.initialize()
            wire.new_session()

            def turn() -> None:
                wire.prompt(words)

            pid = daemon_pid() if kind == "daemon" else wire.process.pid
        for _ in range(WARM_UP):
            turn()
        yield pid, turn


def _system_calls(run: Run, kind: str, words: str) -> float:
    out = run.fresh("calls")
    with _prompting(run, kind, words) as (pid, turn):
        command = ["strace", "-f", "-qq", "-e", WAITS, "-e", "signal=none", "-o", os.fspath(out)]
        with subprocess.Popen([*command, "-p", str(pid)]) as strace:
            _wait_for(lambda: _tracer(pid) == strace.pid, f"strace to attach to {kind}")
            for _ in range(PROMPTS):
                turn()
            strace.send_signal(signal.SIGINT)
    return sum(b"resumed>" not in line for line in out.read_bytes().splitlines()) / PROMPTS


def _tracer(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])


def _bytecodes(run: Run, kind: str, words: str) -> float:
    """Bytecodes of a prompt, from a run of some and a run of three times as many."""
    few, many = (_count(run, kind, words, prompts) for prompts in (PROMPTS, 3 * PROMPTS))
    return (many - few) / (2 * PROMPTS)


def _count(run: Run, kind: str, words: str, prompts: int) -> int:
    file = run.fresh("count")
    env = {
        "PYTHONPATH": os.fspath(PEERS / "counted"),
        "PYTHONHASHSEED": "0",
        "ACPHOLD_COUNTED": KINDS[kind],
        "ACPHOLD_COUNT": os.fspath(file),
    }
    before = {name: os.environ.get(name) for name in env}
    os.environ |= env
    try:
        with _prompting(run, kind, words) as (pid, turn):
            began = _read(pid, file)
            for _ in range(prompts):
                turn()
            time.sleep(BEHIND_SECONDS)
            return _read(pid, file) - began
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _read(pid: int, file: Path) -> int:
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    _wait_for(file.exists, "the count")
    return int(file.read_text())


def _wait_for(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ATTACH_SECONDS
    while not happens():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.01)
