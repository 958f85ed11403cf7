"""Rounds of violence against shared sessions: `python -m tests.failures.soak ROUNDS [SEED]`.

This is the property test with real processes: a scripted agent, the owner of its sessions in the
background, and people with clients of all KINDS (tests/failures/visitors.py). A round is a turn or
two, with random steps: words, a flood, tool calls, questions. While they run, some of these happen:

- a client is closed, or killed, or reads nothing for a while;
- somebody comes back, resumes after the last position, or loads all;
- somebody cancels, and another one prompts;
- the owner is told to end, or is killed with SIGKILL, or so is its agent, a client that is just
  attaching, or a client that is taking the session over;
- the owner is stopped, mostly for a short while, sometimes for longer than others wait for it;
- the runtime folder is removed, with all sockets in it;
- the clock jumps by hours;
- another program reads the journal, and keeps its snapshot open.

Questions are answered soon, late or never. After each round:

- each person was shown all the agent's text in the journal, or its beginning if they have left;
- every prompt of a connected client has been answered, and no request twice;
- nobody was shown an update twice or out of order.

After some rounds, and at the end, all come back to see the end of the session:

- the updates that each was shown over all of their clients fold to the state of the journal;
- every question was answered at most once, and is closed;
- no prompt is in the journal twice, nor reached the agent twice, and each turn has one end;
- a prompt over a line that was answered with an error had begun: any other is sent again.

Then the next session begins. In the end no started process is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from acphold.journal.bounds import SILENT_SECONDS
from acphold.live.server.reconnection import GAP_HOW
from acphold.machine.place import name_of_place, place_of
from tests.editor import DEADLINE, Editor, Refused, editor, received, scripted_agent, wrap_command
from tests.failures.kept_session import KeptSession
from tests.failures.visitors import Visitor, difference, on_screen
from tests.owners import lone_command
from tests.watched_processes import children, command_lines

SANDBOX = ["unshare", "--mount", "sleep", "infinity"]
"""Makes another place, whose daemon is another one, and lives as long as the soak."""

KINDS = ("background", "line", *(["sandbox"] if os.geteuid() == 0 else []))
"""How people are connected: through the daemon; over a line of a hub of their own; or through the
daemon of another place, which only root can make."""

PEOPLE = 3
ROUNDS_OF_A_SESSION = 15

INCIDENTS = (
    *("kill owner", "kill owner", "kill agent", "kill client", "kill attaching", "kill taker"),
    *("stop owner", "leave", "leave", "close", "come", "come", "lag", "lag", "cancel", "nothing"),
    *("freeze owner", "remove runtime folder", "turn the clock", "read the journal"),
    *("prompt",) * 4,
)

READING = """
import sqlite3, sys
journal = sqlite3.connect(sys.argv[1])
journal.execute("BEGIN")
print(*journal.execute("SELECT count(*) FROM sessions").fetchone(), flush=True)
sys.stdin.read()
"""
"""A program that reads the journal, and keeps that snapshot open until it is killed."""

A_WHILE, TOO_LONG = 0.5, 15.0
"""Seconds for which an owner is stopped: others wait for it, or take the session over."""

CLOCK = """
import os, time

def turned(clock, unit):
    def now():
        try:
            with open(os.environ["ACPHOLD_SOAK_CLOCK"]) as file:
                return clock() + int(file.read() or 0) * unit
        except OSError:
            return clock()
    return now

time.time, time.time_ns = turned(time.time, 1), turned(time.time_ns, 1_000_000_000)
"""
"""Run by each Python of the soak at its start: shifts the clock by the offset in a file."""

AGENT = {"loadSession": True, "sessionCapabilities": {"resume": {}}}

END = {"say": "the end"}

QUESTION = [
    "session/request_permission",
    {
        "toolCall": {"toolCallId": "t1", "title": "Run it"},
        "options": [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ],
    },
]

PASSING = ("acphold was stopped", "none of its addresses can be reached from here")
"""Words of refusals after which a person tries again."""


@contextmanager
def about_to_end() -> Iterator[None]:
    """Whoever comes in this block may have found an owner that was told to end, or one that was
    stopped before it could bind the socket anew that was removed: they come again."""
    try:
        yield
    except ConnectionError:
        pass
    except Refused as refusal:
        if not any(words in refusal.message for words in PASSING):
            raise


class Soak:
    """See the module."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.journal = folder / "journal.db"
        self.log = folder / "log"
        self.chance = random.Random(seed)
        self.agent = scripted_agent(
            store=str(folder / "store"), capabilities=AGENT, log=str(self.log)
        )
        self.env = {
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "ACPHOLD_SOAK_CLOCK": str(folder / "clock"),
            "PYTHONPATH": str(folder / "python"),
        }
        (folder / "python").mkdir()
        (folder / "python" / "sitecustomize.py").write_text(CLOCK)
        self.reader: asyncio.subprocess.Process | None = None
        self.sandbox: asyncio.subprocess.Process | None = None
        self.people: list[Visitor] = []
        self.session = ""
        self.kept = KeptSession(self.journal, "")
        self.turns: list[tuple[Visitor, Editor, asyncio.Future[Any], str]] = []
        self.refused: dict[str, str] = {}  # prompts, and why
        self.told_to_end: set[int] = set()  # processes
        self.late = asyncio.Event()  # set when every open question must be answered
        self.was_settled = False  # an owner ended in order, and compacted the session
        self.told = ""  # events of this round, to explain a failure

    async def run(self, rounds: int) -> None:
        """All rounds; AssertionError at the first thing that is not as it should be."""
        for number in range(rounds):
            if number % ROUNDS_OF_A_SESSION == 0:
                await self.end_session()
                await self.begin_session()
            try:
                async with asyncio.timeout(5 * DEADLINE):
                    await self.round(number)
            except (AssertionError, TimeoutError) as error:
                error.add_note(f"round {number}: {self.told}")
                raise
        await self.end_session()
        await self.stop()

    # -- a session --------------------------------------------------------------------------

    async def begin_session(self) -> None:
        """Somebody begins one, and the others are there."""
        self.people = [
            Visitor(f"person {number}", KINDS[number % len(KINDS)], self.folder)
            for number in range(PEOPLE)
        ]
        self.was_settled = False
        first, *others = self.people
        await self.start_client(first)
        assert first.client is not None
        self.session = await first.client.new(cwd=str(self.folder))
        self.kept = KeptSession(self.journal, self.session)
        for visitor in others[: self.chance.randrange(PEOPLE)]:
            await self.come(visitor)

    async def end_session(self) -> None:
        """All see its end, and have seen exactly the content of the journal."""
        if not self.people:
            return
        for visitor in self.people:
            visitor.read_on()
            if not visitor.is_there:
                await visitor.go()
                await self.come(visitor)
        author = self.people[-1]
        try:
            await asyncio.wait_for(author.begin_prompt(self.session, END), DEADLINE)
        except Refused as refused:
            if "send this again" not in refused.message:
                raise
            await author.go()  # an owner that was told to end had not ended yet
            await self.come(author)
            await asyncio.wait_for(author.begin_prompt(self.session, END), DEADLINE)
        for visitor in self.people:
            await self.show_end(visitor)
        await self.check_views()
        sent = [m["params"]["prompt"][0]["text"] for m in received(self.log, "session/prompt")]
        await self.kept.check(sent, self.refused)
        self.refused.clear()
        self.log.unlink(missing_ok=True)
        for visitor in self.people:
            await visitor.go()
        self.people.clear()

    async def show_end(self, visitor: Visitor) -> None:
        """See to it that this person sees the end; an owner that was ended may take them along."""
        try:
            await visitor.until_shown("the end")
        except AssertionError:
            if visitor.is_there:
                raise
            await visitor.go()
            await self.come(visitor)
            await visitor.until_shown("the end")

    async def check_views(self) -> None:
        known, prompts = await self.kept.state(), await self.kept.prompts()
        for visitor in self.people:
            seen = visitor.state(prompts)
            assert on_screen(seen) == on_screen(known), (
                f"{visitor.name} has seen something else: {difference(seen, known)}"
            )
            assert seen.attributes.title == known.attributes.title
            assert seen.open_tools == known.open_tools

    # -- one round --------------------------------------------------------------------------

    async def round(self, number: int) -> None:
        while not self.present:
            await self.come(self.chance.choice(self.people))
        self.late.clear()
        gate = self.folder / f"gate-{number}"
        author = self.chance.choice(self.present)
        self.told = f"{author.name} prompts"
        self.begin_prompt(author, number, gate)
        if self.chance.random() < 0.8:
            turn = self.turns[-1][2]
            await self.until_shown(author, f"{number}.{self.chance.randrange(5)} ", turn)
        for incident in self.chance.choices(INCIDENTS, k=self.chance.randint(1, 4)):
            await self.happen(incident, number)
        gate.touch()
        await asyncio.sleep(self.chance.random() * 0.02)
        self.late.set()
        for visitor in self.people:
            visitor.read_on()
        await self.answered()
        await self.check()

    def begin_prompt(self, author: Visitor, number: int, gate: Path | None = None) -> None:
        """Some words, and a gate that is shut while things happen; in between, anything."""
        word = f"{number}" if gate else f"{number}+{len(self.turns)}"
        steps: list[dict[str, Any]] = [{"say": f"{word}.{n} "} for n in range(20)]
        for step, likely in (
            ({"ask": QUESTION}, 0.4),
            ({"ask": QUESTION}, 0.2),
            ({"flood": [300, 5000]}, 0.1),
            ({"update": tool(word, "pending")}, 0.5),
        ):
            if self.chance.random() < likely:
                steps.insert(self.chance.randrange(5, len(steps)), step)
        steps.append({"update": tool(word, "completed")})
        if gate is not None:
            steps.insert(self.chance.randrange(5, len(steps)), {"until": str(gate)})
        turn = author.begin_prompt(self.session, *steps)
        assert author.client is not None
        self.turns.append((author, author.client, turn, json.dumps(steps)))

    async def until_shown(self, author: Visitor, word: str, turn: asyncio.Future[Any]) -> None:
        shown = asyncio.create_task(author.until_shown(word))
        await asyncio.wait([shown, turn], return_when=asyncio.FIRST_COMPLETED)
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)

    async def answered(self) -> None:
        """Every prompt of a client that is there is answered; how does not matter here."""
        turns = [turn for _, _, turn, _ in self.turns]
        # An owner in another place that nobody reaches from here, and whose question waits for its
        # own person, is waited for as long as for any.
        _, waiting = await asyncio.wait(turns, timeout=DEADLINE + SILENT_SECONDS)
        assert not waiting, "a prompt is not answered"
        for visitor, client, turn, text in self.turns:
            refusal = turn.exception()
            stayed = visitor.is_there and visitor.client is client  # who left and came asks anew
            ending = client.process.pid in self.told_to_end  # it says so while it ends
            if isinstance(refusal, Refused) and visitor.kind == "line" and stayed and not ending:
                self.refused[text] = refusal.message
        self.turns.clear()

    # -- events -----------------------------------------------------------------------------

    async def happen(self, incident: str, number: int) -> None:
        self.told += f", {incident}"
        absent = [visitor for visitor in self.people if not visitor.is_there]
        if incident in ("kill owner", "stop owner"):
            await self.end_owner(signal.SIGKILL if incident == "kill owner" else signal.SIGTERM)
        elif incident == "kill agent":
            for agent in await self.agents():
                kill(agent)
        elif incident == "freeze owner":
            if (pid := await self.owner()) is not None:
                kill(pid, signal.SIGSTOP)
                seconds = (
                    TOO_LONG if self.chance.random() < 0.05 else self.chance.random() * A_WHILE
                )
                asyncio.get_running_loop().call_later(seconds, kill, pid, signal.SIGCONT)
        elif incident == "remove runtime folder":
            shutil.rmtree(self.folder / "acphold", ignore_errors=True)
        elif incident == "turn the clock":
            (self.folder / "clock").write_text(str(self.chance.randint(-100_000, 100_000)))
        elif incident == "read the journal":
            await self.read_journal()
        elif incident == "kill attaching" and absent:
            await self.kill_attaching(self.chance.choice(absent))
        elif incident == "come" and absent:
            await self.come(self.chance.choice(absent))
        elif self.present:
            await self.act(self.chance.choice(self.present), incident, number)

    async def act(self, visitor: Visitor, incident: str, number: int) -> None:
        client = visitor.client
        assert client is not None
        if incident == "kill client":
            await visitor.kill()
        elif incident == "kill taker":
            await self.end_owner(signal.SIGKILL)
            await asyncio.sleep(self.chance.random() * 0.02)
            await visitor.kill()
        elif incident in ("leave", "close"):
            visitor.read_on()
            if incident == "close":
                client.begin("session/close", {"sessionId": self.session}).add_done_callback(seen)
            await client.leave()
        elif incident == "lag":
            visitor.lag()
        elif incident == "cancel":
            client.tell("session/cancel", {"sessionId": self.session})
        elif incident == "prompt":
            self.begin_prompt(visitor, number)

    async def end_owner(self, number: signal.Signals) -> None:
        """The process that has the session now: the daemon, or the acphold of a client.

        One that ends well settles the session, and nobody can go on where it was put together.
        """
        if (pid := await self.owner()) is not None:
            self.was_settled |= number != signal.SIGKILL
            self.told_to_end.add(pid)
            kill(pid, number)

    async def kill_attaching(self, visitor: Visitor) -> None:
        await visitor.go()
        await self.start_client(visitor)
        loading = visitor.begin_load(self.session)
        loading.add_done_callback(seen)
        await asyncio.sleep(self.chance.random() * 0.02)
        await visitor.kill()

    async def read_journal(self) -> None:
        """Have another program hold a snapshot of the journal: the present one, not the last."""
        await self.end_reader()
        self.reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", READING, str(self.journal)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.reader.stdout is not None
        await self.reader.stdout.readline()

    async def end_reader(self) -> None:
        if self.reader is not None:
            kill(self.reader.pid)
            await self.reader.wait()

    # -- coming and going -------------------------------------------------------------------

    @property
    def present(self) -> list[Visitor]:
        """Those whose clients run."""
        return [visitor for visitor in self.people if visitor.is_there]

    async def come(self, visitor: Visitor) -> None:
        """A client that goes on where its person was; all of it if they want so, or if need be."""
        for _ in range(10):
            await visitor.go()
            await self.start_client(visitor)
            with about_to_end():
                if self.chance.random() < 0.2:
                    await asyncio.wait_for(visitor.begin_load(self.session), DEADLINE * 2)
                elif not await visitor.come_back(self.session):
                    assert self.was_settled, "it could not go on where it was"
                return
        raise AssertionError(f"{visitor.name} cannot come in")

    async def start_client(self, visitor: Visitor) -> None:
        through = lone_command if visitor.kind == "line" else wrap_command
        command = through(self.agent, "--journal", str(self.journal))
        if visitor.kind == "sandbox":
            command = [*await self.enter_sandbox(), *command]
        for _ in range(3):
            stack = AsyncExitStack()
            client = await stack.enter_async_context(
                editor(command, journal=self.journal, env=self.env)
            )
            with about_to_end():
                await visitor.sit_down(stack, client, self.decide)
                return
            await visitor.go()
        raise AssertionError(f"{visitor.name} cannot start a client")

    async def enter_sandbox(self) -> list[str]:
        """Return what starts a program in the other place. Its people may act here, and those here
        in it: the person has allowed both places."""
        if self.sandbox is None:
            self.sandbox = await asyncio.create_subprocess_exec(*SANDBOX)
            own = place_of()
            while (other := place_of(self.sandbox.pid)) == own:  # noqa: ASYNC110 - nothing is told
                await asyncio.sleep(0.01)
            for place in (own, other):
                allowing = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "acphold"),
                    *("access", "places", "allow", name_of_place(place)),
                    env={**os.environ, **self.env},
                    stdout=asyncio.subprocess.DEVNULL,
                )
                assert await allowing.wait() == 0
        return ["nsenter", f"--mount=/proc/{self.sandbox.pid}/ns/mnt", f"--wd={os.getcwd()}"]

    async def decide(self, _: dict[str, Any]) -> dict[str, Any]:
        """Answer for a person: at once, or when `late` says that everybody must answer."""
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.random() * 0.01)
        else:
            await self.late.wait()
        chosen = self.chance.choice(("yes", "no"))
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    # -- checks -----------------------------------------------------------------------------

    async def check(self) -> None:
        for visitor in self.people:
            if visitor.client is None:
                continue
            if visitor.is_there and not await self.has_all(visitor):
                continue
            if not visitor.is_there:
                await visitor.client.ended()
                await self.is_beginning(visitor)
                await visitor.go()

    async def is_beginning(self, visitor: Visitor) -> None:
        shown, kept = visitor.shown, await self.kept.said()
        assert kept.startswith(shown), (
            f"a {visitor.kind} client was shown what is not kept: …{shown[-80:]!r}"
        )

    async def has_all(self, visitor: Visitor) -> bool:
        """Wait until the visitor has been shown everything; False if its program ends meanwhile.

        Who is told of a gap, because an owner that ended well has joined the updates there, loads
        all anew.
        """
        deadline = time.monotonic() + DEADLINE
        kept = await self.kept.said()
        while (shown := visitor.shown) != kept:
            if not visitor.is_there:
                return False
            if self.was_settled and GAP_HOW in str(visitor.view):
                with about_to_end():
                    await asyncio.wait_for(visitor.begin_load(self.session), DEADLINE * 2)
            assert time.monotonic() < deadline, (
                f"{visitor.name}, a {visitor.kind} client, does not have all: "
                f"shown …{shown[-80:]!r}, kept …{kept[-80:]!r}; "
                f"told of a gap: {GAP_HOW in str(visitor.view)}"
            )
            await asyncio.sleep(0.02)
            kept = await self.kept.said()
        return True

    # -- processes ----------------------------------------------------------------------------

    async def owner(self) -> int | None:
        """The process that has the session."""
        pid = await self.kept.owner()
        return pid if pid in self.running("") else None

    async def agents(self) -> list[int]:
        """Those that serve the session now: below the owner."""
        if (owner := await self.owner()) is None:
            return []
        its_own = children(owner)
        return [pid for pid in self.running("scripted_agent") if pid in its_own]

    def running(self, word: str) -> list[int]:
        """The processes of this soak that have this word in their command line."""
        lines = {pid: " ".join(words) for pid, words in command_lines().items()}
        return [pid for pid, line in lines.items() if word in line and str(self.folder) in line]

    async def stop(self) -> None:
        """End the owner as a person does, and see that nothing is left."""
        await self.end_reader()
        stopping = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "acphold", "agent", "stop", "--all", "--yes"),
            env={**os.environ, **self.env},
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await stopping.wait() == 0
        deadline = time.monotonic() + DEADLINE
        while left := self.running(""):
            assert time.monotonic() < deadline, (
                f"left: {[psutil.Process(p).cmdline() for p in left]}"
            )
            await asyncio.sleep(0.05)


def tool(name: str, status: str) -> dict[str, Any]:
    kind = "tool_call" if status == "pending" else "tool_call_update"
    return {"sessionUpdate": kind, "toolCallId": name, "title": f"Tool {name}", "status": status}


def seen(future: asyncio.Future[Any]) -> None:
    """Whatever it came to."""
    if not future.cancelled():
        future.exception()


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@asynccontextmanager
async def soak(seed: int) -> AsyncIterator[Soak]:
    """A soak in a folder of its own; whatever is left of it at the end is killed."""
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))  # a short name: sockets are made in it
    made = Soak(folder, seed)
    try:
        yield made
    finally:
        for visitor in made.people:
            await visitor.go()
        for pid in made.running(""):
            kill(pid)
        if made.sandbox is not None:
            made.sandbox.kill()
            await made.sandbox.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def _main(rounds: int, seed: int) -> None:
    began = time.monotonic()
    async with soak(seed) as made:
        await made.run(rounds)
    print(f"{rounds} rounds with seed {seed} in {time.monotonic() - began:.0f} s: nothing lost")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
