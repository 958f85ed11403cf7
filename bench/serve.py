"""What serves an agent, over WebSocket and HTTP: ours beside what the official SDKs have for it.

    library        an agent of the library, in the server that its author has made of it: the like
                   of the SDKs' servers, but for the journal, which has each update first
    behind serve   `acphold serve` and its daemon, with the agent in a process of its own, to which
                   each prompt goes through a socket and a pipe, and back: a relay that hands on and
                   commits, and does nothing else, shows what that costs whoever does it

Beside the time stands what the server's processor was busy: other programs of the machine do not
change that.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import clock_gettime_ns, monotonic_ns, perf_counter

import psutil

from acphold.faces.cli.front import daemon_lock
from acphold.machine.locked_file import holder
from bench.far_wire import PATIENCE_SECONDS, FarHttp, FarSocket, FarWire
from bench.latency import TEXT, one_way, round_trip
from bench.memory import MIB
from bench.programs import (
    Command,
    bare_socket_relay,
    library_server,
    python_sdk,
    scripted_agent,
    typescript_server,
    wrap,
)
from bench.run import Run, own_sockets
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire, session_with

LIBRARY, OURS, STDIO = "library", "behind serve", "wrap, on pipes"
RELAY = "bare relay of frames"
PYTHON, TYPESCRIPT = "Python SDK's server", "TypeScript SDK's server"
WATCHERS = (1, 10, 100)
MISSED = 10_000
END_SECONDS = 3.0
IDLE = 100
FIRST = 10
"""Clients who come before those that are counted: with them come what all share."""
SEQ = b'"acphold/seq":'
TOKEN = "for the library's server alone"
WAYS: dict[str, type[FarWire]] = {"WebSocket": FarSocket, "HTTP": FarHttp}


class Server:
    """One that runs, in these processes: where it is, and who may come; `pair` is the code for a
    browser."""

    def __init__(
        self, url: str, pids: Sequence[int], token: str | None = None, pair: str = ""
    ) -> None:
        self.url = url
        self.token = token
        self.pair = pair
        self.pids = pids
        self._processes = [psutil.Process(pid) for pid in pids]

    @property
    def memory(self) -> float:
        """MiB that it keeps, with a share of what its processes have in common."""
        return sum(it.memory_full_info().pss for it in self._processes) / MIB

    @property
    def busy(self) -> float:
        """Microseconds that its processor was busy."""
        # The clock of a process (clock_getcpuclockid(3) of Linux): its times are in ticks of 10 ms.
        return sum(clock_gettime_ns(~it.pid << 3 | 2) for it in self._processes) / 1e3

    def client(self, kind: type[FarWire]) -> FarWire:
        """A client with an open session in which one turn is over already."""
        client = kind(self.url, self.token)
        client.initialize()
        client.new_session()
        client.prompt("flood 500")
        for _ in client.until_answer():
            pass
        return client


def figures(run: Run) -> Iterator[Figure]:
    """Times beside the peers'; watchers; memory; what was missed."""
    with ExitStack() as stack:
        stack.enter_context(own_sockets())
        ours = stack.enter_context(serving(run.fresh("journal.db")))
        servers = {
            OURS: ours,
            PYTHON: stack.enter_context(sdk_server(python_sdk("server"))),
            TYPESCRIPT: stack.enter_context(sdk_server(typescript_server())),
        }
        yield from _idle(servers)  # before anything else has taken memory, and given it back
        beside = run.fresh("journal.db")
        piped = stack.enter_context(session_with(wrap(scripted_agent(), beside)))
        daemon = holder(daemon_lock(os.path.realpath(beside)))
        assert daemon is not None
        relay = bare_socket_relay(scripted_agent(), run.fresh("read.db"))
        relayed = stack.enter_context(sdk_server(relay))
        library = library_server(run.fresh("journal.db"), TOKEN)
        servers[LIBRARY] = stack.enter_context(sdk_server(library, TOKEN))
        for way, kind in WAYS.items():
            floor = {RELAY: relayed} if kind is FarSocket else {}
            yield from _beside(run, way, kind, servers | floor, piped, daemon)
        yield from _watchers(run, ours)
        yield _missed(run, ours)


def _beside(
    run: Run, way: str, kind: type[FarWire], servers: dict[str, Server], piped: Wire, daemon: int
) -> Iterator[Figure]:
    """An update, and a prompt with its answer, over one transport and from each server; and from
    this daemon, which is on pipes."""
    clients = {name: server.client(kind) for name, server in servers.items()}
    busy: dict[str, list[float]] = {name: [] for name in (*servers, STDIO)}
    without = Server("", [daemon])

    def both_ways(name: str, number: int) -> float:
        before = servers[name].busy
        taken = _round_trip(clients[name], number)
        busy[name].append((servers[name].busy - before) / number)
        return taken

    def on_pipes(number: int) -> float:
        before = without.busy
        taken = round_trip(piped, number)
        busy[STDIO].append((without.busy - before) / number)
        return taken

    number = run.size(400, 100)
    to_us = run.in_turns(
        {
            **{name: partial(_one_way, client, number) for name, client in clients.items()},
            STDIO: partial(one_way, piped, number),
        }
    )
    and_back = run.in_turns(
        {
            **{name: partial(both_ways, name, number) for name in clients},
            STDIO: partial(on_pipes, number),
        }
    )
    floors = [STDIO, *({RELAY} & servers.keys())]
    for what, taken, floor, bound in (
        (f"an update, {way}", to_us, floors, 1.0),
        (f"a prompt and its answer, {way}", and_back, floors, 1.3),
        (f"its processor, {way}", busy, [STDIO], 1.3),
    ):
        for peer in (PYTHON, TYPESCRIPT):
            goal = Goal(bound, ratio=True)
            yield Figure(f"{what}: {LIBRARY}", "us", taken[LIBRARY], peer, taken[peer], (goal,))
        for peer in (*floor, PYTHON, TYPESCRIPT):
            yield Figure(f"{what}: {OURS}", "us", taken[OURS], peer, taken[peer])
    for client in clients.values():
        client.close()


def _one_way(client: FarWire, number: int) -> float:
    """The median of `number` updates, from the agent's write to our read; microseconds."""
    client.prompt(f"paced {number}")
    taken = []
    for line in client.until_answer():
        now = monotonic_ns()
        if (place := line.find(TEXT)) >= 0:
            taken.append((now - int(line[place + len(TEXT) :].split(b" ", 1)[0])) / 1e3)
    return median(taken)


def _round_trip(client: FarWire, number: int) -> float:
    """The median of `number` prompts, each answered at once; microseconds."""
    taken = []
    for _ in range(number):
        began = perf_counter()
        client.prompt("flood 0")
        for _ in client.until_answer():
            pass
        taken.append((perf_counter() - began) * 1e6)
    return median(taken)


def _watchers(run: Run, server: Server) -> Iterator[Figure]:
    """A flood, until each of those who watch has its last update."""
    number = run.size(4000, 1000)
    prompting = server.client(FarSocket)
    for count in WATCHERS:
        with ExitStack() as stack:
            watchers = [prompting]
            for _ in range(count - 1):
                watchers.append(_watcher(server, prompting.session_id))
                stack.callback(watchers[-1].close)
            rates = [_rate(prompting, watchers, number) for _ in range(run.rounds)]
        told = "1 watcher" if count == 1 else f"each of {count} watchers"
        yield Figure(
            f"updates to {told}, {number:,} at once", "updates/s", rates, higher_is_better=True
        )
    prompting.close()


def _watcher(server: Server, session_id: str) -> FarWire:
    watcher = FarSocket(server.url, server.token)
    watcher.initialize()
    watcher.call("session/load", _opened(session_id))
    return watcher


def _opened(session_id: str) -> dict[str, object]:
    return {"sessionId": session_id, "cwd": FOLDER, "mcpServers": []}


def _rate(prompting: FarWire, watchers: list[FarWire], number: int) -> float:
    began = perf_counter()
    prompting.prompt(f"flood {number}")
    waiting = set(watchers)
    with selectors.DefaultSelector() as ready:
        for watcher in watchers:
            ready.register(watcher, selectors.EVENT_READ)
        while waiting:
            found = ready.select(PATIENCE_SECONDS)
            if not found:
                raise TimeoutError(f"{len(waiting)} of {len(watchers)} lack the end of a flood")
            for key, _ in found:
                heard = key.fileobj
                assert isinstance(heard, FarWire)
                if any(b'0123456!"' in line for line in heard.lines()):
                    waiting.discard(heard)
    seconds = perf_counter() - began
    prompting.call("session/list", {})  # behind the answer to the prompt
    return number / seconds


def _missed(run: Run, server: Server) -> Figure:
    """From nothing to the last of the updates: the connection, the introduction, what was missed.

    One that reads no further keeps the session from being put in order meanwhile.
    """
    client = server.client(FarSocket)
    keeper = FarSocket(server.url, server.token)
    keeper.initialize(positions=True)
    keeper.ask("session/load", _opened(client.session_id))
    (*updates, answer) = keeper.until_answer()
    (*_, last) = [line for line in updates if SEQ in line]
    reached: dict[str, object] = {
        "acphold/after": int(last.split(SEQ, 1)[1].split(b"}", 1)[0]),
        "acphold/lineage": json.loads(answer)["result"]["_meta"]["acphold/lineage"],
    }
    client.prompt(f"flood {MISSED}")
    for _ in client.until_answer():
        pass
    taken = [_caught_up(server, client.session_id, reached) for _ in range(run.rounds)]
    client.close()
    keeper.close()
    return Figure(
        f"reconnecting to live, {MISSED:,} missed updates", "ms", taken, goals=(Goal(300.0),)
    )


def _caught_up(server: Server, session_id: str, reached: dict[str, object]) -> float:
    began = perf_counter()
    client = FarSocket(server.url, server.token)
    client.initialize(positions=True)
    client.ask("session/resume", {**_opened(session_id), "_meta": reached})
    count = 0
    while count < MISSED:
        for line in client.lines():
            if not client.is_answer(line):  # which is no refusal
                count += b"agent_message_chunk" in line
    taken = (perf_counter() - began) * 1e3
    client.close()
    return taken


def _idle(servers: dict[str, Server]) -> Iterator[Figure]:
    """Memory of a server to which nobody came, and of each of many who are silent."""
    alone = {name: [server.memory] for name, server in servers.items()}
    kept = {name: [_each_kept(server)] for name, server in servers.items()}
    for peer in (PYTHON, TYPESCRIPT):
        goals = (Goal(40.0), Goal(1.0, ratio=True))
        yield Figure("memory of an idle serve", "MiB", alone[OURS], peer, alone[peer], goals)
    for peer in (PYTHON, TYPESCRIPT):
        goals = (Goal(60.0), Goal(1.0, ratio=True))
        yield Figure("memory of an idle connection", "KiB", kept[OURS], peer, kept[peer], goals)


def _each_kept(server: Server) -> float:
    clients: list[FarWire] = []
    before = 0.0
    for number in range(IDLE + FIRST):
        if number == FIRST:
            before = server.memory
        clients.append(FarSocket(server.url, server.token))
        clients[-1].initialize()
    taken = (server.memory - before) * 1024 / IDLE
    for client in clients:
        client.close()
    return taken


@contextmanager
def serving(journal: Path | str, program: Sequence[str] = ()) -> Iterator[Server]:
    """`acphold serve` in front of the scripted agent; `program` is what takes the words of it."""
    acphold = os.fspath(Path(sys.executable).parent / "acphold")
    kept = ["--journal", os.fspath(journal)]
    command = [*(program or [acphold]), "serve", "--json", "--listen", "127.0.0.1:0", *kept]
    with _started([*command, "--", *scripted_agent()]) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        made = subprocess.run(
            [acphold, "access", "token", *kept], stdout=subprocess.PIPE, text=True, check=True
        )
        is_file = "://" not in os.fspath(journal)
        daemon = holder(daemon_lock(os.path.realpath(journal))) if is_file else None
        pids = [process.pid, *([] if daemon is None else [daemon])]
        yield Server(told["url"], pids, made.stdout.strip(), told["pair"])


@contextmanager
def sdk_server(command: Command, token: str | None = None) -> Iterator[Server]:
    """What an official SDK serves an agent with; or another program that prints its port."""
    with _started(command) as process:
        assert process.stdout is not None
        yield Server(f"http://127.0.0.1:{int(process.stdout.readline())}", [process.pid], token)


@contextmanager
def _started(command: Command) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:  # one that waits for its clients
                process.kill()
                process.wait()
