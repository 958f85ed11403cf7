"""What several clients of one session cost: the way of an update to each, and memory.

One `wrap` owns the sessions; its further clients are sockets of this process.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from time import monotonic_ns, perf_counter

from acphold.machine.runtime_folder import sockets
from bench.latency import TEXT
from bench.memory import idle_memory
from bench.programs import scripted_agent, wrap
from bench.run import Run, own_sockets
from bench.table import Figure, Goal
from bench.wire import FOLDER, Wire, session_with

CLIENTS = 8
MANY = 64
MISSED = 10_000
SEQ = b'"acphold/seq":'

KIB_PER_MIB = 1024


class Onlooker:
    """One client on the socket of an owner."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self._rest = b""
        self._last_id = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    def ask(self, method: str, params: dict[str, object]) -> None:
        """Send a request."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def call(self, method: str, params: dict[str, object]) -> None:
        """Ask and wait; what comes before the answer is passed over."""
        self.ask(method, params)
        while not any(map(self.is_answer, self.lines())):
            pass

    def lines(self) -> list[bytes]:
        """What comes with one read, in whole lines."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError("the owner has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def is_answer(self, line: bytes) -> bool:
        """Whether this is the answer to the last request."""
        if b'"id":%d' % self._last_id not in line:
            return False
        message = json.loads(line)
        if "error" in message:  # what fails is quick: it must not pass for a figure
            raise RuntimeError(str(message["error"]))
        return message.get("id") == self._last_id and "method" not in message

    def initialize(self) -> None:
        """Introduce a client that wants positions."""
        can = {"_meta": {"acphold/positions": True}}
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": can})

    def attach(self, session_id: str) -> None:
        """Introduce a client, and load the session."""
        self.call("initialize", {"protocolVersion": 1})
        self.call("session/load", opened(session_id))


def opened(session_id: str) -> dict[str, object]:
    """What opens a session."""
    return {"sessionId": session_id, "cwd": FOLDER, "mcpServers": []}


def figures(run: Run) -> Iterator[Figure]:
    """The way to the first and to the last of several; memory; what was missed."""
    with own_sockets(), session_with(wrap(scripted_agent(), run.fresh("journal.db"))) as owner:
        (path,) = sockets()
        yield from _latencies(run, owner, path)
        yield _missed(run, owner, path)
    yield from _memory(run)


def _attached(stack: ExitStack, path: str, session_id: str, count: int) -> list[Onlooker]:
    found = []
    for _ in range(count):
        client = Onlooker(path)
        stack.callback(client.socket.close)
        client.attach(session_id)
        found.append(client)
    return found


def _latencies(run: Run, owner: Wire, path: str) -> Iterator[Figure]:
    number = run.size(400, 100)
    first: list[float] = []
    last: list[float] = []

    def alone() -> float:
        with ExitStack() as stack:
            return _one_way(_attached(stack, path, owner.session_id, 1), owner, number)[0]

    def together() -> float:
        with ExitStack() as stack:
            clients = _attached(stack, path, owner.session_id, CLIENTS)
            taken = _one_way(clients, owner, number)
            first.append(taken[0])
            last.append(taken[-1])
            return taken[0]

    taken = run.in_turns({"alone": alone, "together": together})
    for name, ours in (("first", first), ("last", last)):
        yield Figure(
            f"an update to the {name} of {CLIENTS} clients",
            "us",
            ours,
            "the only client",
            taken["alone"],
        )


def _one_way(clients: Sequence[Onlooker], owner: Wire, number: int) -> list[float]:
    """The median for each client of `number` updates, from the agent's write to our read; us."""
    owner.write(owner.prompt_line(f"paced {number}"))
    taken: dict[Onlooker, list[float]] = {client: [] for client in clients}
    with selectors.DefaultSelector() as ready:
        for client in clients:
            ready.register(client, selectors.EVENT_READ)
        while min(map(len, taken.values())) < number:
            for key, _ in ready.select():
                heard = key.fileobj
                assert isinstance(heard, Onlooker)
                lines, now = heard.lines(), monotonic_ns()
                taken[heard] += [
                    (now - int(line.split(TEXT, 1)[1].split(b" ", 1)[0])) / 1e3
                    for line in lines
                    if b"agent_message_chunk" in line
                ]
    owner.count_until_answer()
    return [median(times) for times in taken.values()]


def _memory(run: Run) -> Iterator[Figure]:
    """Of many at once, in a process of its own each time: one is less than the system gives out."""
    clients, sessions = [], []
    for _ in range(run.rounds):
        with ExitStack() as stack:
            stack.enter_context(own_sockets())
            command = wrap(scripted_agent(), run.fresh("journal.db"))
            owner = stack.enter_context(session_with(command))
            (path,) = sockets()
            _attached(stack, path, owner.session_id, 1)
            before = idle_memory(owner)
            _attached(stack, path, owner.session_id, MANY)
            between = idle_memory(owner)
            for _ in range(MANY):
                owner.new_session()
                owner.prompt("flood 10")
            clients.append((between - before) * KIB_PER_MIB / MANY)
            sessions.append((idle_memory(owner) - between) * KIB_PER_MIB / MANY)
    yield Figure("memory of each further client", "KiB", clients, goals=(Goal(150.0),))
    yield Figure("memory of each idle session", "KiB", sessions, goals=(Goal(150.0),))


def _missed(run: Run, owner: Wire, path: str) -> Figure:
    """Behind a position: from the request to the last of the updates.

    One that reads no further keeps the session from being put in order meanwhile.
    """
    keeper = Onlooker(path)
    keeper.initialize()
    keeper.ask("session/load", opened(owner.session_id))
    told: list[bytes] = []
    while not any(map(keeper.is_answer, told)):
        told += keeper.lines()
    (*_, last) = [line for line in told if SEQ in line]
    (answer,) = filter(keeper.is_answer, told)
    reached: dict[str, object] = {
        "acphold/after": int(last.split(SEQ, 1)[1].split(b"}", 1)[0]),
        "acphold/lineage": json.loads(answer)["result"]["_meta"]["acphold/lineage"],
    }
    owner.prompt(f"flood {MISSED}")
    taken = [_caught_up(path, owner.session_id, reached) for _ in range(run.rounds)]
    keeper.socket.close()
    return Figure(f"{MISSED:,} missed updates behind a position", "ms", taken, goals=(Goal(1e3),))


def _caught_up(path: str, session_id: str, reached: dict[str, object]) -> float:
    client = Onlooker(path)
    client.initialize()
    began = perf_counter()
    client.ask("session/resume", {**opened(session_id), "_meta": reached})
    count = 0
    while count < MISSED:
        lines = client.lines()
        any(map(client.is_answer, lines))  # raises if it was refused
        count += sum(b"agent_message_chunk" in line for line in lines)
    taken = (perf_counter() - began) * 1e3
    client.socket.close()
    return taken
