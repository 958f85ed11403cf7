"""Costs that no neighbour disturbs: bytecodes, steps of SQLite's machine, what it writes, memory.

A hub, or an agent of the library, runs in a process of its own. Its client, and the program of the
agent, are at the other end of connections in memory: each message is answered in a later step of
the loop, and its clocks stand still while anything works, so every run takes the same steps. A
tracer counts bytecodes, except those of this module: of the loop until the answer, and of all
threads in the BEHIND_SECONDS after it. `python -m bench.exact KIND WORK` prints them as JSON.
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
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import thread as pools
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from bench.run import Run
from bench.table import Figure, Goal

if TYPE_CHECKING:
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

KINDS: Final = ("hub", "library")
WORK: Final = (
    *("prompt", PAUSE, "prompt with ten updates", "prompt with ten updates apart"),
    *("load of 1,000", "one more client"),
)
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


class Tracer:
    """Counts bytecodes and steps of SQLite's machine: those of the loop's thread, the bytecodes by
    their code; and the bytecodes of all other threads."""

    def __init__(self) -> None:
        self.by_code = Counter[CodeType]()
        self.behind = 0
        self.steps = 0
        self._loops = threading.get_ident()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Open a database whose steps are counted; see `sqlite3.connect`."""
        opened: sqlite3.Connection = CONNECT(*arguments, **options)
        opened.set_progress_handler(self._step, 1)
        return opened

    def _step(self) -> int:
        self.steps += threading.get_ident() == self._loops
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
        if frame.f_code.co_filename == __file__:
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

    async def call(self, method: str, **params: object) -> Any:
        """Send a request; return its result."""
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        self.transport.deliver(_line(id=self._last, method=method, params=params))
        return await answer

    async def prompt(self, session_id: str, updates: str) -> None:
        """Run a turn with so many updates, "10" or "10 apart"."""
        block = {"type": "text", "text": updates}
        await self.call("session/prompt", sessionId=session_id, prompt=[block])


def _service(kind: str, journal: str) -> Service:
    from acp_wire.surroundings import Surroundings
    from acphold.live.agents import wrapped
    from acphold.live.server.service import Service
    from acphold.serve_options import AgentOptions, ServeOptions

    if kind == "library":
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

        return service_of(agent._definition, AgentOptions(journal=journal, snapshots=False))
    here = Surroundings.here()
    vars(wrapped).update(ChildProcess=ScriptedProgram, launch=lambda *_, **__: None)
    return Service(
        make_agent=lambda listener, journal: wrapped.ProcessAgent(
            ["bench"], listener, here, journal=journal
        ),
        options=ServeOptions(journal=journal, snapshots=False),
        share=False,
    )


async def _measure(kind: str, work: str, folder: str) -> Cost:
    """Measure one piece of work of WORK in a process of this kind."""
    tracer = Tracer()
    sqlite3.connect = tracer.connect  # type: ignore[assignment]
    from acphold.live.server.service import attend, journal_at, open_desk

    journal = os.path.join(folder, "journal.db")
    service = _service(kind, journal)
    async with open_desk(service, journal_at(service.journal)) as desks:
        client = Client()
        stop = asyncio.Event()
        attending = asyncio.create_task(attend(desks, service, client.transport, stop))
        await client.call("initialize", protocolVersion=1, clientCapabilities={})
        opened = await client.call("session/new", cwd=folder, mcpServers=[])
        session_id = opened["sessionId"]
        updates = "10" if work in ("prompt with ten updates", "one more client") else "0"
        updates = "10 apart" if work.endswith("apart") else updates
        for _ in range(WARM_UP):
            await client.prompt(session_id, updates)
        others: list[asyncio.Task[None]] = []

        async def come() -> Client:
            other = Client()
            others.append(asyncio.create_task(attend(desks, service, other.transport)))
            await other.call("initialize", protocolVersion=1, clientCapabilities={})
            return other

        run: Callable[[], Awaitable[object]] = partial(client.prompt, session_id, updates)
        if work == "one more client":
            other = await come()
            await other.call("session/load", sessionId=session_id, cwd=folder, mcpServers=[])
        elif work == "load of 1,000":
            await client.prompt(session_id, str(HISTORY))
            other = await come()
            opening = {"sessionId": session_id, "cwd": folder, "mcpServers": []}
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
        stop.set()
        for task in others:
            task.cancel()
        await asyncio.wait([attending, *others])
    return Cost(
        answered.total() / RUNS,
        (behind.total() + tracer.behind - others_before) / RUNS,
        steps / RUNS,
        log_bytes / RUNS,
        blocks / RUNS,
        _dearest(answered),
    )


def _size(file: str) -> int:
    return os.path.getsize(file)


def _dearest(counted: Counter[CodeType]) -> dict[str, float]:
    return {
        f"{Path(code.co_filename).stem}.{code.co_qualname}": number / RUNS
        for code, number in counted.most_common(DEAREST)
    }


def measure(kind: str, work: str) -> Cost:
    """Measure one piece of work in a process of its own, of a kind of KINDS."""
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
    for kind in KINDS:
        for work in WORK:
            cost = measure(kind, work)
            goals = (Goal(GOALS[kind, work]),) if (kind, work) in GOALS else ()
            yield Figure(f"{kind}: {work}", "bytecodes", [cost.bytecodes], goals=goals)
            yield Figure(f"{kind}: {work}, behind it", "bytecodes", [cost.bytecodes_behind])
            yield Figure(f"{kind}: {work}", "SQLite steps", [cost.steps])
            yield Figure(f"{kind}: {work}", "bytes of the log", [cost.log_bytes])
            yield Figure(f"{kind}: {work}, left behind", "blocks", [cost.blocks])


if __name__ == "__main__":
    given_kind, given_work = sys.argv[1:]
    with (
        TemporaryDirectory() as place,
        asyncio.Runner(loop_factory=partial(quick_loop, given_work)) as runner,
    ):
        found = runner.run(_measure(given_kind, given_work, place))
        print(msgspec.json.encode(found).decode())
