"""Costs that no neighbour disturbs: bytecodes, steps of SQLite's machine, what it writes, memory.

A hub, an agent of the library, that behind a WebSocket in uvicorn, or the relay of `serve` runs in
a process of its own. Its client, and the program of the agent or the daemon, are at the other end
of connections in memory: each message is answered in a later step of the loop, and its clocks stand
still while anything works, so every run takes the same steps. So it lacks what reads and writes
descriptors: `PipeTransport`, and asyncio's transport of a socket. A tracer counts bytecodes, except
those of this folder: of the loop until the answer, and of all threads in the BEHIND_SECONDS after
it. `python -m bench.exact KIND WORK` prints them as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import thread as pools
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
    redirect_stdout,
)
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from bench.far_wire import Frames
from bench.run import Run
from bench.table import Figure, Goal

if TYPE_CHECKING:
    import uvicorn

    from acphold.live.server.service import Service

BEHIND_SECONDS: Final = 2.0
"""What is finished behind an answer is counted for so long."""

THREAD_LOOK_SECONDS: Final = 0.01
"""How often the clock looks if a thread that works has finished."""

WARM_UP: Final = 25
RUNS: Final = 8

DEAREST: Final = 10
"""Functions that are named."""

HISTORY: Final = 1_000
"""Updates that a load replays."""

TEXT: Final = "0 the quick brown fox jumps over the lazy dog, 0123456"
UPDATE: Final = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"scripted","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%b"}}}}\n'
) % TEXT.encode()

PAUSE: Final = "prompt after a pause"
"""Behind more than a second: the session moves up in the list, which is written."""

PROMPTS: Final = ("prompt", "prompt with ten updates", "prompt with ten updates apart")
SOCKET: Final = "library over WebSocket"
RELAY: Final = "relay of serve"
KINDS: Final = {
    "hub": (*PROMPTS, PAUSE, "load of 1,000", "one more client"),
    "library": (*PROMPTS, PAUSE, "load of 1,000", "one more client"),
    SOCKET: PROMPTS,
    RELAY: PROMPTS,
}
"""What is measured, and the work of each."""

LINES: Final = ("list --all", "list --json --all", "usage --by session")
"""Commands that print a line for each session."""

LINES_OF_A_PAGE: Final = 50, 150

GOALS: Final = {
    ("hub", "prompt"): 5_800,
    ("hub", "prompt with ten updates"): 8_800,
    ("library", "prompt"): 6_200,
    ("library", "prompt with ten updates"): 8_500,
}
"""Bytecodes until the answer."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of one piece of work: bytecodes, steps and bytes of SQLite's log until its answer,
    bytecodes behind it, and blocks of memory that it leaves allocated.

    `dearest` are the functions that took most bytecodes until the answer, by file and name.
    """

    bytecodes: float
    bytecodes_behind: float
    steps: float
    log_bytes: float
    blocks: float
    dearest: dict[str, float]


Trace = Callable[[FrameType, str, Any], Any]

UNCOUNTED: Final = os.path.dirname(__file__)


class Tracer:
    """Counts bytecodes and steps of SQLite's machine: those of the loop's thread, the bytecodes by
    their code; and those of all other threads."""

    def __init__(self) -> None:
        self.by_code = Counter[CodeType]()
        self.behind = 0
        self.steps = self.steps_behind = 0
        self._loops = threading.get_ident()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Open a database whose steps are counted; see `sqlite3.connect`."""
        opened: sqlite3.Connection = CONNECT(*arguments, **options)
        opened.set_progress_handler(self._step, 1)
        return opened

    def _step(self) -> int:
        if threading.get_ident() == self._loops:
            self.steps += 1
        else:
            self.steps_behind += 1
        return 0

    def start(self) -> None:
        """Count from now on, in this thread, the loop's, and in those that begin later."""
        threading.settrace(partial(self._enter, self._take_behind))
        sys.settrace(partial(self._enter, self._take))

    def stop(self) -> None:
        """Count no more."""
        sys.settrace(None)
        threading.settrace(None)

    def _enter(self, take: Trace, frame: FrameType, event: str, argument: object) -> Trace | None:
        if frame.f_code.co_filename.startswith(UNCOUNTED):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return take

    def _take(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.by_code[frame.f_code] += 1
        return self._take

    def _take_behind(self, frame: FrameType, event: str, argument: object) -> Any:
        self.behind += event == "opcode"
        return self._take_behind


CONNECT: Final = sqlite3.connect


class Work(pools._WorkItem[Any]):
    """A piece of work of a pool of threads: `unfinished` until its end has woken the loop."""

    unfinished: ClassVar[set[object]] = set()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.unfinished.add(self)

    def run(self, *arguments: Any) -> None:
        """Do it."""
        try:
            super().run(*arguments)
        finally:
            self.unfinished.discard(self)


class QuickClock(selectors.DefaultSelector):
    """The selector and the clock of a loop that waits for no timer: if nothing is ready, and no
    thread works, its time has come. The clock on the wall goes with it only if it `has_pauses`;
    otherwise all happens in one moment of that."""

    now = 0.0
    has_pauses = False
    began = time.time_ns()

    def wall(self) -> int:
        """Return the time on the wall; see `time.time_ns`."""
        return self.began + int(self.now * 1e9) * self.has_pauses

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; see `selectors.BaseSelector.select`."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        while True:
            works = bool(Work.unfinished)  # asked first: what it finishes meanwhile is ready
            if ready := super().select(THREAD_LOOK_SECONDS if works else 0):
                return ready
            if not works:
                self.now += timeout
                return ready


def quick_loop(work: str) -> asyncio.AbstractEventLoop:
    """Return a loop with such a clock; acphold, which is imported later, has the same."""
    clock = QuickClock()
    clock.has_pauses = work == PAUSE
    vars(pools).update(_WorkItem=Work)
    time.time_ns = clock.wall
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = time.monotonic = lambda: clock.now  # type: ignore[method-assign]
    return loop


class LockStep:
    """A transport in memory: `take` gets each message and may return an answer, which arrives in a
    later step."""

    is_read = True
    buffered = 0

    def __init__(self, take: Callable[[bytes], bytes]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._offer: Callable[[bytes], bool] = lambda _: False
        self._arrived: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None

    async def receive(self) -> bytes:
        """Return the next bytes."""
        if not self._arrived:
            self._waiting = self._loop.create_future()
            await self._waiting
        return self._arrived.pop(0)

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer what arrives to `take` first."""
        self._offer = take

    def deliver(self, data: bytes) -> None:
        """Let bytes arrive."""
        waits = self._waiting is not None and not self._waiting.done()
        if waits and data and self._offer(data):
            return
        self._arrived.append(data)
        if waits and self._waiting is not None:
            self._waiting.set_result(None)

    def send(self, data: bytes) -> None:
        """Hand bytes over."""
        if answer := self._take(data):
            self._loop.call_soon(self.deliver, answer)

    async def drain(self) -> None:
        """Return at once: there is always room."""

    async def aclose(self) -> None:
        """End the connection."""
        self.deliver(b"")


class ScriptedProgram:
    """The program of an agent without a process; a prompt says how many updates it wants, and
    whether in one read or `apart`."""

    pid, returncode = 1, None

    def __init__(self, *_: object, **__: object) -> None:
        self.transport = LockStep(self._answer)
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()

    def _answer(self, data: bytes) -> bytes:
        answers = []
        for message in map(msgspec.json.decode, data.splitlines()):
            result: dict[str, object] = {"stopReason": "end_turn"}
            match message.get("method"):
                case "initialize":
                    result = {"protocolVersion": 1, "agentInfo": {"name": "bench", "version": "1"}}
                case "session/new":
                    result = {"sessionId": "scripted"}
                case "session/prompt":
                    updates, apart = _wanted(message["params"]["prompt"][0]["text"])
                    for _ in range(updates * apart):
                        self._loop.call_soon(self.transport.deliver, UPDATE)
                    answers.append(UPDATE * (updates * (not apart)))
                case _:
                    continue
            answers.append(_line(id=message["id"], result=result))
        return b"".join(answers)

    async def wait(self) -> None:
        """Wait for its end."""
        await self._end

    async def aclose(self, *_: object) -> None:
        """End it."""
        if not self._end.done():
            self._end.set_result(None)
        await self.transport.aclose()

    def last_words(self) -> str:
        """Return what it said last: nothing."""
        return ""


def _wanted(text: str) -> tuple[int, bool]:
    number, _, apart = text.partition(" ")
    return int(number), bool(apart)


def _line(**members: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members}) + b"\n"


class Client:
    """A client at the other end of a connection in memory."""

    def __init__(self) -> None:
        self.transport = LockStep(self._hear)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._last = 0

    def _hear(self, data: bytes) -> bytes:
        for line in data.splitlines():
            message = msgspec.json.decode(line)
            if "method" not in message and message.get("id") in self._answers:
                answered = self._answers.pop(message["id"])
                if "error" in message:
                    answered.set_exception(RuntimeError(str(message["error"])))
                else:
                    answered.set_result(message["result"])
        return b""

    def _send(self, line: bytes) -> None:
        self.transport.deliver(line)

    async def initialize(self) -> None:
        """Introduce it."""
        await self.call("initialize", protocolVersion=1, clientCapabilities={})

    async def call(self, method: str, **params: object) -> Any:
        """Send a request; return its result."""
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        self._send(_line(id=self._last, method=method, params=params))
        return await answer

    async def prompt(self, session_id: str, updates: str) -> None:
        """Run a turn with so many updates, "10" or "10 apart"."""
        block = {"type": "text", "text": updates}
        await self.call("session/prompt", sessionId=session_id, prompt=[block])


class SocketInMemory(asyncio.Transport):
    """The transport of a socket, for the protocol of a server: `take` gets what that writes."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        super().__init__()
        self._take = take
        self._is_closing = False
        self._is_paused = False
        self._unread: list[bytes] = []

    def deliver(self, data: bytes) -> None:
        """Let bytes arrive."""
        if self._is_paused:
            self._unread.append(data)
        elif isinstance(self._protocol, asyncio.BufferedProtocol):
            memoryview(self._protocol.get_buffer(-1))[: len(data)] = data
            self._protocol.buffer_updated(len(data))
        else:
            self._protocol.data_received(data)

    def write(self, data: Any) -> None:
        self._take(data)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol: Any = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        unread, self._unread = self._unread, []
        for data in unread:
            asyncio.get_running_loop().call_soon(self.deliver, data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


class FarClient(Client):
    """A client over a WebSocket in memory; `accept` returns the protocol of a socket."""

    def __init__(self, accept: Callable[[asyncio.Transport], asyncio.BaseProtocol]) -> None:
        super().__init__()
        self._frames = Frames()
        self._upgraded = asyncio.get_running_loop().create_future()
        self.socket = SocketInMemory(self._read)
        protocol = accept(self.socket)
        self.socket.set_protocol(protocol)
        protocol.connection_made(self.socket)

    def _read(self, data: bytes) -> None:
        if not self._upgraded.done():
            self._upgraded.set_result(data)
            return
        messages, pongs = self._frames.feed(data)
        if pongs:
            asyncio.get_running_loop().call_soon(self.socket.deliver, pongs)
        for message in messages:
            self._hear(message)

    def _send(self, line: bytes) -> None:
        self.socket.deliver(self._frames.framed(line[:-1]))

    async def initialize(self) -> None:
        self.socket.deliver(self._frames.upgrade(b"Host: localhost\r\n"))
        assert b" 101 " in await self._upgraded
        await super().initialize()


def _service(kind: str, journal: str) -> Service:
    from acp_wire.surroundings import Surroundings
    from acphold.live.agents import wrapped
    from acphold.live.server.service import Service
    from acphold.serve_options import AgentOptions, ServeOptions

    if kind != "hub":
        import acphold
        from acphold.library.server import service_of

        agent = acphold.Agent("bench", version="1")

        @agent.prompt
        async def answer(turn: acphold.Turn) -> None:
            updates, apart = _wanted(turn.text)
            for _ in range(updates):
                await turn.say(TEXT)
                if apart:
                    await asyncio.sleep(0)

        options = AgentOptions(journal=journal, snapshots=False)
        return service_of(agent._definition, options, share=kind != SOCKET)
    here = Surroundings.here()
    vars(wrapped).update(ChildProcess=ScriptedProgram, launch=lambda *_, **__: None)
    return Service(
        make_agent=lambda listener, journal: wrapped.ProcessAgent(
            ["bench"], listener, here, journal=journal
        ),
        options=ServeOptions(journal=journal, snapshots=False),
        share=False,
    )


Come = Callable[[], Client]
"""A client comes."""


@asynccontextmanager
async def _attending(service: Service) -> AsyncIterator[Come]:
    """Serve clients on connections in memory, as long as the first is there."""
    from acphold.live.server.service import attend, journal_at, open_desk

    async with open_desk(service, journal_at(service.journal)) as desks:
        attending: list[asyncio.Task[None]] = []
        stop = asyncio.Event()

        def come() -> Client:
            client = Client()
            ends = None if attending else stop
            work = attend(desks, service, client.transport, ends)
            attending.append(asyncio.create_task(work))
            return client

        yield come
        stop.set()
        for task in attending[1:]:
            task.cancel()
        await asyncio.wait(attending)


@asynccontextmanager
async def _in_uvicorn(
    config: uvicorn.Config, state: Callable[[asyncio.Transport], dict[str, Any]]
) -> AsyncIterator[Come]:
    """Serve clients over WebSockets; `state` is that of a connection."""
    from uvicorn.server import ServerState

    config.load()
    make: Any = config.http_protocol_class
    server = ServerState()
    clients: list[FarClient] = []

    def come() -> Client:
        clients.append(FarClient(lambda socket: make(config, server, state(socket))))
        return clients[-1]

    yield come
    for client in clients:
        client.socket.close()
    await asyncio.wait(server.tasks)


@asynccontextmanager
async def _mounted(service: Service) -> AsyncIterator[Come]:
    """Serve an agent of the library to clients over WebSockets."""
    import uvicorn

    from acphold import Principal
    from acphold.library.server import Server

    async def who(_: object) -> Principal:
        return Principal(name="bench", tenant="bench")

    async with Server(service) as server:
        config = uvicorn.Config(server.asgi(who), lifespan="off", log_config=None)
        async with _in_uvicorn(config, lambda _: {}) as come:
            yield come


@asynccontextmanager
async def _relaying(journal: str) -> AsyncIterator[Come]:
    """Relay clients over WebSockets to a daemon in memory, as `serve` does."""
    from acp_wire.schema import encode
    from acphold.live.hub.alerts import Activity
    from acphold.live.server import relay_protocol
    from acphold.live.server.principals import THIS_USER
    from acphold.live.server.service import journal_at
    from acphold.web.application import attend_websocket
    from acphold.web.connections import STATE, Connections, limits_for
    from acphold.web.exchange import HttpExchange
    from acphold.web.gate import Admitted, Gate
    from acphold.web.relay import Relay, RelayedAgent
    from acphold.web.server import configure

    registered = relay_protocol.Registered("mark", "node")

    class Daemon:
        def __init__(self) -> None:
            self.transport = LockStep(self._register)

        def _register(self, data: bytes) -> bytes:
            asked = msgspec.json.decode(data)["id"]
            return _line(id=asked, result=msgspec.Raw(encode(registered)))

        async def connect(self) -> LockStep:
            return ScriptedProgram().transport

    reach = lambda _: nullcontext(Daemon())  # noqa: E731
    agent = RelayedAgent(relay_protocol.AskedAgent("bench", ("bench",), ()), journal, 1 << 24)
    kept = journal_at(journal)
    connections = Connections(limits_for(1024))
    gate = Gate(kept.access, [], connections)
    async with Relay([agent], reach, Activity()) as relay:

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            exchange = HttpExchange(scope, receive, send)
            attend = partial(relay.attend, "bench", principal=THIS_USER, headers={})
            await attend_websocket(attend, gate, exchange, Admitted(THIS_USER, "bench"))

        config = configure(answer, agent.max_message)
        async with _in_uvicorn(config, lambda socket: {STATE: connections.add(socket)}) as come:
            yield come
    await kept.aclose()


def _serve(kind: str, journal: str) -> AbstractAsyncContextManager[Come]:
    if kind == RELAY:
        return _relaying(journal)
    serve = _mounted if kind == SOCKET else _attending
    return serve(_service(kind, journal))


async def _measure(kind: str, work: str, folder: str) -> Cost:
    """Measure one piece of work of a kind in KINDS."""
    tracer = Tracer()
    sqlite3.connect = tracer.connect  # type: ignore[assignment]
    journal = os.path.join(folder, "journal.db")
    async with _serve(kind, journal) as come:
        client = come()
        await client.initialize()
        opened = await client.call("session/new", cwd=folder, mcpServers=[])
        session_id = opened["sessionId"]
        updates = "10" if work in ("prompt with ten updates", "one more client") else "0"
        updates = "10 apart" if work.endswith("apart") else updates
        for _ in range(WARM_UP):
            await client.prompt(session_id, updates)
        run: Callable[[], Awaitable[object]] = partial(client.prompt, session_id, updates)
        opening = {"sessionId": session_id, "cwd": folder, "mcpServers": []}
        if work == "one more client":
            other = come()
            await other.initialize()
            await other.call("session/load", **opening)
        elif work == "load of 1,000":
            await client.prompt(session_id, str(HISTORY))
            other = come()
            await other.initialize()
            run = partial(other.call, "session/load", **opening)
        tracer.start()
        await run()
        await asyncio.sleep(BEHIND_SECONDS)
        answered, behind = Counter[CodeType](), Counter[CodeType]()
        steps, log_bytes, others_before = 0, 0, tracer.behind
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(RUNS):
            log_size = _size(f"{journal}-wal")
            tracer.by_code, tracer.steps = answered, steps
            await run()
            steps, tracer.by_code = tracer.steps, behind
            log_bytes += _size(f"{journal}-wal") - log_size
            await asyncio.sleep(BEHIND_SECONDS)
        tracer.stop()
        gc.collect()
        blocks = sys.getallocatedblocks() - blocks
    return Cost(
        answered.total() / RUNS,
        (behind.total() + tracer.behind - others_before) / RUNS,
        steps / RUNS,
        log_bytes / RUNS,
        blocks / RUNS,
        _dearest(answered),
    )


def _size(file: str) -> int:
    return os.path.getsize(file) if os.path.exists(file) else 0


def _dearest(counted: Counter[CodeType]) -> dict[str, float]:
    return {
        f"{Path(code.co_filename).stem}.{code.co_qualname}": number / RUNS
        for code, number in counted.most_common(DEAREST)
    }


def _print_lines(command: str, journal: str) -> Cost:
    """Measure a command that has run once before, so that its modules are there."""
    tracer = Tracer()
    sqlite3.connect = tracer.connect  # type: ignore[assignment]
    from acphold.faces.cli import main

    words = [*command.split(), "--journal", journal]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        assert main.main(words) == 0
        tracer.steps = tracer.steps_behind = 0
        tracer.start()
        main.main(words)
        tracer.stop()
    bytecodes, steps = tracer.by_code.total() + tracer.behind, tracer.steps + tracer.steps_behind
    return Cost(bytecodes, 0, steps, 0, 0, _dearest(tracer.by_code))


def measure_line(command: str) -> Cost:
    """Measure a line of a command of LINES: all that it adds to a page."""
    from bench.big_journal import take_in  # late: see `quick_loop`

    with TemporaryDirectory() as folder:
        few, many = (
            (asyncio.run(take_in(place := os.path.join(folder, f"{number}.db"), number)), place)[1]
            for number in LINES_OF_A_PAGE
        )
        less, more = measure(command, few), measure(command, many)
    by = LINES_OF_A_PAGE[1] - LINES_OF_A_PAGE[0]
    dearest = {
        name: round((number - less.dearest.get(name, 0.0)) * RUNS / by, 1)
        for name, number in more.dearest.items()
    }
    bytecodes, steps = more.bytecodes - less.bytecodes, more.steps - less.steps
    return Cost(bytecodes / by, 0, steps / by, 0, 0, dearest)


def measure(kind: str, work: str) -> Cost:
    """Measure one piece of work in a process of its own, of a kind of KINDS; or a command of LINES,
    with the journal `work`."""
    command = [sys.executable, "-m", "bench.exact", kind, work]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    return msgspec.json.decode(done.stdout, type=Cost)


def figures(run: Run) -> Iterator[Figure]:
    """Bytecodes and steps, with the goals of a prompt."""
    for kind, works in KINDS.items():
        for work in works:
            cost = measure(kind, work)
            goals = (Goal(GOALS[kind, work]),) if (kind, work) in GOALS else ()
            yield Figure(f"{kind}: {work}", "bytecodes", [cost.bytecodes], goals=goals)
            yield Figure(f"{kind}: {work}, behind it", "bytecodes", [cost.bytecodes_behind])
            yield Figure(f"{kind}: {work}", "SQLite steps", [cost.steps])
            yield Figure(f"{kind}: {work}", "bytes of the log", [cost.log_bytes])
            yield Figure(f"{kind}: {work}, left behind", "blocks", [cost.blocks])
    for command in LINES:
        cost = measure_line(command)
        yield Figure(f"{command}: a line", "bytecodes", [cost.bytecodes])
        yield Figure(f"{command}: a line", "SQLite steps", [cost.steps])


if __name__ == "__main__":
    given_kind, given_work = sys.argv[1:]
    if given_kind in LINES:
        print(msgspec.json.encode(_print_lines(given_kind, given_work)).decode())
        sys.exit()
    with (
        TemporaryDirectory() as place,
        asyncio.Runner(loop_factory=partial(quick_loop, given_work)) as runner,
    ):
        found = runner.run(_measure(given_kind, given_work, place))
        print(msgspec.json.encode(found).decode())
