"""Kills while prompts wait: `python -m tests.failures.queue_soak KILLS [SEED [LINE...]]`.

Sessions are begun over each line (LINES), one after the other, each with a queue of prompts. Some
prompts ask a question, some last until they are told to end. An editor may send two more before it
is killed, which its acphold must keep (`keep_prompts`). Meanwhile the session's owner, its agent,
its client or the database is killed with SIGKILL, at random. Then somebody comes back, and says go
if the queue is held. Some sessions were told to go on after a restart: there nobody has to say go
once `serve` starts again. Questions are answered soon, late or never. After each kill:

- the waiting prompts are the last of those that waited before: none is lost or overtook another;
- a session that another process has opened is held, unless it was told to go on.

At the end of each session:

- each prompt has begun once, in its order, and has one turn in the history;
- none began during an open question, or after a turn that ended badly, unless somebody said go or
  the session was told to go on after a restart;
- the agent got each prompt at most once, in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import Summary
from acphold.conversation.history.timeline import turn_end
from acphold.errors import AcpError
from acphold.journal.journal import Journal, history
from acphold.journal.owners import At
from acphold.journal.stores import open_journal
from tests.editor import DEADLINE, Editor, Refused, editor, received, scripted_agent, wrap_command
from tests.failures.soak import AGENT, QUESTION, kill
from tests.owners import lone_command
from tests.postgresql import Server
from tests.queues import QUEUE
from tests.watched_processes import below, command_lines
from tests.web.conftest import ACPHOLD, Served, serving
from tests.web.machines import beside, machines

LINES = ("alone", "background", "serve", "nodes")
"""Ways for a client to reach a session; `nodes` are two servers of one database."""

WEIGHTS = {"owner": 4, "agent": 2, "client": 2, "database": 1}
"""Relative frequency of kills; the database is killed only where it is a program."""

PROMPTS = 25
KILLS_OF_A_SESSION = 10
PATIENCE = 3 * DEADLINE
DIRECT = 1000
"""The first number of prompts that an editor sends by itself, without the queue."""

SETTINGS = "[defaults]\nkeep_prompts = true\n"
NAMES = tuple(str(count) for count in range(PROMPTS))
KINDS = ("question", "answer", "queue", "prompt", "turn_end")
"""The kinds of entries that show the beginnings and ends of prompts and questions."""

ASKS = {"_meta": {"acphold/queue": True}}

Comes = Callable[[], AbstractAsyncContextManager[Editor]]


async def change(client: Editor, session: str, **fields: Any) -> Any:
    return await client.call(QUEUE, {"sessionId": session, "change": fields})


def number(prompt: list[dict[str, Any]]) -> int | None:
    """The number of a prompt of this test; it is in the last block, after the prompt's text."""
    try:
        return int(json.loads(prompt[-1]["text"])[0]["say"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


class Line:
    """One way to sessions: `come` starts a client, `served` are the servers, if there are any."""

    def __init__(
        self,
        name: str,
        folder: Path,
        location: str,
        come: Comes,
        database: Server | None = None,
        served: Sequence[Served] = (),
    ) -> None:
        self.name = name
        self.folder = folder
        self.location = location
        self.come = come
        self.database = database
        self.served = served

    @property
    def keeps(self) -> bool:
        """True if an editor's own prompts are kept when it goes: no line sends them again."""
        return not self.served

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in WEIGHTS if kind != "database" or self.database is not None]

    def running(self, word: str) -> set[int]:
        """The processes of this line with this word in their command line."""
        lines = {pid: " ".join(words) for pid, words in command_lines().items()}
        return {pid for pid, line in lines.items() if word in line and str(self.folder) in line}


class QueueSoak:
    """Kills over one line; `told` counts them by their kind."""

    def __init__(self, line: Line, seed: int) -> None:
        self.line = line
        self.chance = random.Random(f"{line.name} {seed}")
        self.told: Counter[str] = Counter()
        self.story: list[str] = []  # events of this session, to explain a failure
        self._began = time.monotonic()
        self._log = line.folder / "log"
        self._gate = line.folder / "gates"
        self._late = asyncio.Event()
        self._sessions = 0
        self._session = ""
        self._restarts = False
        self._client: Editor | None = None
        self._stack = AsyncExitStack()
        self._waiting: list[str] = []
        self._direct = DIRECT

    async def run(self, kills: int) -> None:
        """All of it; AssertionError at the first thing that is not as it should be."""
        while self.told.total() < kills:
            self.story.clear()
            try:
                async with asyncio.timeout(KILLS_OF_A_SESSION * PATIENCE):
                    await self._one(min(KILLS_OF_A_SESSION, kills - self.told.total()))
            except (AssertionError, TimeoutError, AcpError, Refused) as error:
                error.add_note(f"{self.line.name}, {self._session}: {', '.join(self.story)}")
                raise
            finally:
                await self._leave()
            print(self.line.name, self.line.database is not None, dict(self.told), flush=True)  # noqa: T201 — a long run is looked at

    async def _one(self, kills: int) -> None:
        """One session, with so many kills."""
        self._sessions += 1
        self._log.unlink(missing_ok=True)
        shutil.rmtree(self._gate, ignore_errors=True)
        self._gate.mkdir()
        self._restarts = self.chance.random() < 0.5
        client = await self._come()
        self._session = await client.new(cwd=str(self.line.folder))
        await change(client, self._session, do="hold")
        await change(client, self._session, do="set", restarts=self._restarts)
        self._waiting = [*NAMES]
        self._direct = DIRECT
        for name in self._waiting:
            block = {"type": "text", "text": json.dumps(self._steps(name))}
            await change(client, self._session, do="add", id=name, prompt=[block])
        self._note("restarts" if self._restarts else "holds")
        done = self.told.total() + kills
        while self.told.total() < done and self._waiting:  # those of the queue
            await self._round()
        await self._drain()
        entries = await self._entries()
        try:
            self._check(entries)
        except AssertionError as error:
            kept = [f"{it.seq} {it.kind} {it.raw[:150]!r}" for it in entries if it.kind in KINDS]
            error.add_note("\n".join(kept))
            raise

    def _steps(self, name: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = [{"say": name}, *({"say": "."} for _ in range(5))]
        if self.chance.random() < 0.3:
            steps.insert(self.chance.randrange(1, len(steps)), {"ask": QUESTION})
        if self.chance.random() < 0.3:
            gate = {"until": str(self._gate / name)}
            steps.insert(self.chance.randrange(1, len(steps)), gate)
        return steps

    def _note(self, words: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:.1f} {words}")

    # -- a round ----------------------------------------------------------------------------

    async def _round(self) -> None:
        client = await self._attached()
        await self._say_go(client)
        before, more = len(client.messages), self.chance.randrange(40)
        with suppress(TimeoutError, AssertionError):
            async with asyncio.timeout(self.chance.random() * 0.7):
                await client.until(lambda: len(client.messages) >= before + more)
        weights = [WEIGHTS[kind] for kind in self.line.kinds]
        [kind] = self.chance.choices(self.line.kinds, weights)
        if await self._kill(kind, client):
            self.told[kind] += 1
            self._note(f"kill {kind}")
        if self.chance.random() < 0.5:
            self._open_gates()
        if kind == "owner" and self.line.served and self._restarts:
            await self._goes_on_by_itself()
        await self._look()

    async def _kill(self, kind: str, client: Editor) -> bool:
        owner = await self._owner()
        if kind == "client":
            await self._kill_client(client)
            return True
        if kind == "database":
            assert self.line.database is not None
            await asyncio.to_thread(self.line.database.stop)
            await asyncio.to_thread(self.line.database.start)
            return True
        if owner is None:
            return False
        if kind == "agent":
            agents = self.line.running("scripted_agent") & below(owner)
            for pid in agents:
                kill(pid)
            return bool(agents)
        for served in self.line.served:
            if served.process.pid == owner:
                await asyncio.to_thread(served.start_again)
                return True
        kill(owner)
        if client.process.pid == owner:
            await client.process.wait()
        else:
            await asyncio.to_thread(_gone, owner)
        return True

    async def _kill_client(self, client: Editor) -> None:
        pending = self.chance.randrange(3) if self.line.keeps else 0
        with suppress(ConnectionError):
            for _ in range(pending):
                client.begin_prompt(self._session, {"say": str(self._direct)})
                self._direct += 1
            await client.call(QUEUE, {"sessionId": self._session})  # so they have arrived
        if self.line.name == "alone":  # the program in front is the owner: its editor goes
            assert client.process.stdin is not None
            client.process.stdin.close()
            await asyncio.wait_for(client.process.wait(), PATIENCE)
        else:
            await client.kill()
        await self._leave()
        deadline = time.monotonic() + PATIENCE
        while missing := {*range(DIRECT, self._direct)} - _numbers(await self._entries()):
            assert time.monotonic() < deadline, f"not kept: {missing}"
            await asyncio.sleep(0.02)

    async def _goes_on_by_itself(self) -> None:
        """A session that was told to goes on without anybody, unless something else holds it, or it
        asks something."""
        queue = (await self._summary()).queue
        if queue.held not in ("", "reopened") or not queue.waiting:
            return
        if self.chance.random() < 0.5:
            await self._leave()
        self._open_gates()
        deadline = time.monotonic() + PATIENCE
        while (now := await self._summary()).queue.waiting == queue.waiting:
            held = now.queue.held not in ("", "reopened")
            if held or now.open_questions or (queue.begun is None and now.queue.begun is not None):
                break
            assert time.monotonic() < deadline, f"it does not go on by itself: {now}"
            await asyncio.sleep(0.05)
        self._note("goes on by itself")

    async def _say_go(self, client: Editor) -> None:
        asked = {"sessionId": self._session}
        queue = (await client.call(QUEUE, asked))["queue"]
        if queue.get("held"):
            self._note(f"held: {queue['held']}")
            await change(client, self._session, do="go")

    async def _look(self) -> None:
        """Check that the prompts still waiting are the last of those that waited before."""
        left = [it.id for it in (await self._summary()).queue.waiting if it.id in NAMES]
        assert self._waiting[len(self._waiting) - len(left) :] == left, (
            f"lost, or out of order: {left} of {self._waiting}"
        )
        self._waiting = left

    async def _drain(self) -> None:
        """Nothing is killed any more: all that waits begins, and ends."""
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            self._open_gates()
            self._late.set()
            summary = await self._summary()
            queue = summary.queue
            if not queue.waiting and queue.begun is None and summary.turn != "running":
                break
            assert time.monotonic() < deadline, f"{queue} does not come to its end"
            await self._say_go(await self._attached())
            await asyncio.sleep(0.02)
        self._late = asyncio.Event()
        self._note("done")
        await self._look()
        await self._leave()

    def _open_gates(self) -> None:
        for name in NAMES:
            (self._gate / name).touch()
        self._late.set()
        self._late = asyncio.Event()

    # -- clients ----------------------------------------------------------------------------

    async def _come(self) -> Editor:
        """A client that is introduced."""
        deadline = time.monotonic() + PATIENCE
        while True:
            await self._leave()
            try:
                client = await self._stack.enter_async_context(self.line.come())
                client.answers["session/request_permission"] = self._decide
                await client.initialize(**ASKS)
            except (ConnectionError, Refused):  # the owner it found has just ended
                assert time.monotonic() < deadline, "nobody comes in"
                await asyncio.sleep(0.1)
            else:
                self._client = client
                return client

    async def _attached(self) -> Editor:
        """A client that has the session open: the same, if it still can."""
        deadline = time.monotonic() + PATIENCE
        while True:
            client = self._client
            if client is not None and client.process.returncode is None and not client.is_over:
                with suppress(ConnectionError, Refused, TimeoutError):
                    await client.call(QUEUE, {"sessionId": self._session})
                    return client
            try:
                client = await self._come()
                await client.load(self._session, cwd=str(self.line.folder))
            except (ConnectionError, Refused, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"nobody comes to the session: {error}") from error
                await asyncio.sleep(0.1)
            else:
                return client

    async def _leave(self) -> None:
        self._client = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def _decide(self, _: dict[str, Any]) -> dict[str, Any]:
        if self.chance.random() < 0.5:
            await self._late.wait()
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    # -- the journal's content --------------------------------------------------------------

    async def _read(self, what: Callable[[Journal], Awaitable[Any]]) -> Any:
        """Ask the journal; a database that was killed just now is asked again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            journal = open_journal(self.line.location)
            try:
                return await what(journal)
            except AcpError:
                assert time.monotonic() < deadline, "the journal cannot be read"
                await asyncio.sleep(0.1)
            finally:
                await journal.aclose()

    async def _summary(self) -> Summary:
        summary: Summary = await self._read(lambda it: it.summary(self._session))
        return summary

    async def _owner(self) -> int | None:
        match await self._read(lambda it: it.owner(self._session)):
            case At(owner) if psutil.pid_exists(owner.pid):
                return owner.pid
        return None

    async def _entries(self) -> list[Entry]:
        async def all_of(journal: Journal) -> list[Entry]:
            found = history(journal, self._session)
            return [entry async for segment in found for entry in segment.entries()]

        entries: list[Entry] = await self._read(all_of)
        return entries

    def _check(self, entries: Sequence[Entry]) -> None:
        """The check at the end of a session: see the module."""
        begun: list[str] = []
        texts: dict[str, int | None] = {}  # those that wait
        open_questions: set[str] = set()
        may_begin = True
        reopened = False
        expected: int | None = None
        for entry in entries:
            if entry.kind not in KINDS:
                continue
            raw = json.loads(entry.raw)
            match entry.kind:
                case "question":
                    open_questions.add(raw["id"])
                case "answer":
                    open_questions.discard(raw["question"])
                case "queue" if raw["do"] == "add":
                    texts[raw["id"]] = number(raw["prompt"])
                case "queue" if raw["do"] == "hold":
                    may_begin, reopened = False, raw.get("why") == "reopened"
                case "queue" if raw["do"] == "go":
                    may_begin, reopened = True, False
                case "queue" if raw["do"] == "begin":
                    assert may_begin, f"{raw['id']} began while it was held"
                    assert not open_questions, f"{raw['id']} began over a question"
                    begun.append(raw["id"])
                    expected = texts.pop(raw["id"])
                case "prompt":
                    is_next = number(raw) == expected
                    assert is_next or (expected is None and number(raw) in self._directs)
                    expected = None
                case "turn_end":
                    outcome = turn_end(entry.raw, 0).outcome
                    is_end = outcome == "interrupted" or (outcome == "cancelled" and reopened)
                    if texts and outcome != "completed" and not (self._restarts and is_end):
                        may_begin = False
        kinds = Counter(entry.kind for entry in entries)
        turns = PROMPTS + len(self._directs)
        assert kinds["prompt"] == kinds["turn_end"] == turns, f"not one turn for each: {kinds}"
        assert [it for it in begun if it in NAMES] == list(NAMES), f"begun: {begun}"
        sent = [number(it["params"]["prompt"]) for it in received(self._log, "session/prompt")]
        numbers = [it for it in sent if it is not None]
        assert len(numbers) == len({*numbers}), f"the agent got {numbers}"
        in_order = [it for it in numbers if it < DIRECT]
        assert in_order == sorted(in_order), f"the agent got {numbers}"

    @property
    def _directs(self) -> range:
        return range(DIRECT, self._direct)


def _numbers(entries: Sequence[Entry]) -> set[int | None]:
    """The prompts that are in the queue or in the history, by their numbers."""
    added = [json.loads(it.raw) for it in entries if it.kind == "queue" and b'"add"' in it.raw]
    prompts = [json.loads(it.raw) for it in entries if it.kind == "prompt"]
    return {number(it) for it in (*(each["prompt"] for each in added), *prompts)}


def _gone(pid: int) -> None:
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(pid).wait(DEADLINE)


# -- the lines ------------------------------------------------------------------------------------


@asynccontextmanager
async def line(name: str, on_database: bool) -> AsyncIterator[Line]:
    """A line of this name in a folder of its own, with SQLite or a database of its own; whatever is
    left of it at the end is killed, and told of."""
    async with AsyncExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="acphold-"))  # a short name: sockets are made in it
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        database, location = None, str(folder / "journal.db")
        if on_database:
            place = Path(tempfile.mkdtemp(prefix="acphold-pg-"))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            database = Server(place)
            await asyncio.to_thread(database.make)
            await asyncio.to_thread(database.start)
            stack.callback(database.stop)
            location = database.url()
        agent = scripted_agent(
            store=str(folder / "store"), capabilities=AGENT, log=str(folder / "log")
        )
        (settings := folder / "settings.toml").write_text(SETTINGS)
        env = {
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "ACPHOLD_SETTINGS": str(settings),
        }
        served: list[Served] = []
        if name == "serve":
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            made = serving(
                *(folder, "--listen", f"127.0.0.1:{port}"),
                agent=tuple(agent),
                variables={"ACPHOLD_JOURNAL": location},
            )
            served.append(await stack.enter_async_context(beside(made)))
        elif name == "nodes":
            nodes = await stack.enter_async_context(machines(location, folder, agent=tuple(agent)))
            served += [node.served for node in nodes]
        choose = random.Random(name)

        def come() -> AbstractAsyncContextManager[Editor]:
            if served:
                to = choose.choice(served)
                return editor((*ACPHOLD, "connect", to.url), journal=location, env=to.env)
            through = wrap_command if name == "background" else lone_command
            command = through(agent, "--journal", location)
            return editor(command, journal=location, env=env)

        made_line = Line(name, folder, location, come, database, served)
        try:
            yield made_line
        finally:
            if name == "background":
                await asyncio.to_thread(_stop_all, {**os.environ, **env})
            if not served:
                for pid in made_line.running(""):
                    kill(pid)


def _stop_all(env: dict[str, str]) -> None:
    import subprocess

    subprocess.run(
        (*ACPHOLD, "agent", "stop", "--all", "--yes"), env=env, capture_output=True, check=False
    )


async def soak(kills: int, seed: int, lines: Sequence[str] = LINES) -> dict[str, Counter[str]]:
    """So many kills, as many over each line; how many of each kind there were."""
    told = {}
    for place, name in enumerate(lines):
        mine = (kills * (place + 1)) // len(lines) - (kills * place) // len(lines)
        # Half of them with each store, where there can be both, and it is worth a database.
        on_both = name != "nodes" and mine > 3
        half = mine // 2 if on_both else 0
        halves = [(False, mine - half), (True, half)] if name != "nodes" else [(True, mine)]
        told[name] = Counter[str]()
        for on_database, number_ in halves:
            if number_:
                async with line(name, on_database) as there:
                    rounds = QueueSoak(there, seed)
                    await rounds.run(number_)
                told[name] += rounds.told
    return told


async def _main(kills: int, seed: int, lines: Sequence[str]) -> None:
    began = time.monotonic()
    told = await soak(kills, seed, lines)
    for name, kinds in told.items():
        words = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        print(f"{name}: {kinds.total()} kills: {words}")  # noqa: T201
    print(f"seed {seed}, {time.monotonic() - began:.0f} s: each prompt once, in order")  # noqa: T201


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(
        _main(
            int(arguments[0]),
            int(arguments[1]) if len(arguments) > 1 else 1,
            arguments[2:] or LINES,
        )
    )
