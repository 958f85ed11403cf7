"""Rounds of violence against one shared session: `python -m tests.failures.soak ROUNDS [SEED]`.

A scripted agent lives in the background; clients of both kinds are attached, those that `wrap
--background` lets in and those whose own acphold holds a line to the owner. Each round runs a turn
and kills one of them with SIGKILL in the middle: the owner, its agent, a client, or a client that
is just attaching; clients whose owner was killed take the session over. After each round:

- what a client has been shown is the beginning of what the journal has, or all of it if it lives;
- no request has been answered twice, and none of a client that lives waits;
- every question has been answered at most once.

At the end nothing that was started is left.
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
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from acphold.journal import SqliteJournal
from acphold.journal.timeline import Message
from tests.editor import DEADLINE, Editor, Refused, editor, scripted_agent, wrap_command

VICTIMS = ("owner", "agent", "client", "attaching", "nobody")
WORDS = 60
"""Pieces of text in the turn of a round."""

CLIENTS = 3


class Visitor:
    """A client that is attached to the session; `asked` are the questions it was put."""

    def __init__(self, client: Editor, kind: str, leave: AsyncExitStack) -> None:
        self.client = client
        self.kind = kind
        self.leave = leave
        self.killed = False

    @property
    def shown(self) -> str:
        """What the agent has said, as this client was told."""
        return "".join(
            update["content"]["text"]
            for update in self.client.updates()
            if update["sessionUpdate"] == "agent_message_chunk"
            and "acphold/notice" not in update.get("_meta", {})
        )

    def answers(self) -> Counter[Any]:
        """How often each of its requests was answered."""
        return Counter(
            message["id"]
            for message in self.client.messages
            if "id" in message and "method" not in message
        )


class Soak:
    """See the module."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.journal = folder / "journal.db"
        self.chance = random.Random(seed)
        self.agent = scripted_agent(store=str(folder / "store"), capabilities=AGENT)
        self.env = {
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "ACPHOLD_SOAK": folder.name,
        }
        self.visitors: list[Visitor] = []
        self.session = ""

    async def run(self, rounds: int) -> None:
        """All rounds; AssertionError at the first thing that is not as it should be."""
        for number in range(rounds):
            await self.round(number)
        for visitor in list(self.visitors):
            await self.goodbye(visitor)
        await self.stop()

    # -- one round --------------------------------------------------------------------------

    async def round(self, number: int) -> None:
        while len(self.visitors) < CLIENTS:
            await self.come(self.chance.choice(("background", "line")))
        victim = self.chance.choice(VICTIMS)
        author = self.chance.choice(self.visitors)
        steps: list[dict[str, Any]] = [{"say": f"{number}.{word} "} for word in range(WORDS)]
        if self.chance.random() < 0.3:
            steps.insert(self.chance.randrange(WORDS), {"ask": QUESTION})
        turn = author.client.begin_prompt(self.session, *steps)
        await self.until_shown(author, f"{number}.{self.chance.randrange(WORDS)} ", turn)
        await self.kill(victim)
        await asyncio.wait([turn], timeout=DEADLINE)
        assert turn.done(), f"round {number}: a prompt is not answered, {victim} was killed"
        with suppress(Refused, ConnectionError):
            await turn
        await self.check(number, victim)

    async def until_shown(self, author: Visitor, word: str, turn: asyncio.Future[Any]) -> None:
        shown = asyncio.create_task(author.client.until(lambda: word in author.shown))
        await asyncio.wait([shown, turn], return_when=asyncio.FIRST_COMPLETED)
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)

    async def kill(self, victim: str) -> None:
        match victim:
            case "owner":
                for pid in self.owners():
                    kill(pid)
            case "agent":
                for pid in self.agents():
                    kill(pid)
            case "client":
                visitor = self.chance.choice(self.visitors)
                visitor.killed = True
                await visitor.client.kill()
            case "attaching":
                await self.come("line", killed=True)

    # -- coming and going -------------------------------------------------------------------

    async def come(self, kind: str, *, killed: bool = False) -> None:
        """One more client; with `killed` it is so while it attaches."""
        options = ("--background", "--linger", "3600") if kind == "background" else ()
        command = wrap_command(self.agent, "--journal", str(self.journal), *options)
        leave = AsyncExitStack()
        client = await leave.enter_async_context(
            editor(command, journal=self.journal, env=self.env)
        )
        visitor = Visitor(client, kind, leave)
        await client.initialize()
        client.answers["session/request_permission"] = self.decide
        if not self.session:
            self.session = await client.new(cwd=str(self.folder))
            self.visitors.append(visitor)
            return
        loading = client.begin("session/load", opened(self.session, self.folder))
        if killed:
            await asyncio.sleep(self.chance.random() * 0.02)
            visitor.killed = True
            await client.kill()
            await asyncio.gather(loading, return_exceptions=True)
        else:
            await asyncio.wait_for(loading, DEADLINE * 2)
        self.visitors.append(visitor)

    async def decide(self, params: dict[str, Any]) -> dict[str, Any]:
        """What a person answers, sooner or later."""
        await asyncio.sleep(self.chance.random() * 0.01)
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    async def goodbye(self, visitor: Visitor) -> None:
        self.visitors.remove(visitor)
        await visitor.leave.aclose()

    # -- what has to hold -------------------------------------------------------------------

    async def check(self, number: int, victim: str) -> None:
        for visitor in list(self.visitors):
            if victim == "owner" and visitor.kind == "background":
                await visitor.client.ended()
                await visitor.client.process.wait()
            if visitor.client.process.returncode is not None or visitor.killed:
                visitor.killed = True
                await self.is_beginning(visitor, number, victim)
                await self.goodbye(visitor)
            else:
                await self.has_all(visitor, number, victim)
            assert max(visitor.answers().values(), default=1) == 1, "answered twice"

    async def is_beginning(self, visitor: Visitor, number: int, victim: str) -> None:
        kept = await self.kept()
        shown = visitor.shown
        assert kept.startswith(shown), (
            f"round {number}, {victim} killed: a {visitor.kind} client was shown what is not kept: "
            f"…{shown[-80:]!r}"
        )

    async def has_all(self, visitor: Visitor, number: int, victim: str) -> None:
        """What it was shown becomes the whole; asked for until it is, or does not change."""
        deadline = time.monotonic() + DEADLINE
        while (shown := visitor.shown) != (kept := await self.kept()):
            if time.monotonic() > deadline or visitor.client.process.returncode is not None:
                if visitor.client.process.returncode is not None:
                    visitor.killed = True
                    await self.is_beginning(visitor, number, victim)
                    return
                raise AssertionError(
                    f"round {number}, {victim} killed: a {visitor.kind} client does not have all: "
                    f"shown …{shown[-80:]!r}, kept …{kept[-80:]!r}"
                )
            await asyncio.sleep(0.02)

    async def kept(self) -> str:
        """What the agent has said, as the journal has it."""
        journal = SqliteJournal.open(self.journal)
        try:
            state = await journal.state(self.session)
        finally:
            await journal.aclose()
        return "".join(
            json.loads(block)["text"]
            for item in state.timeline
            if isinstance(item, Message) and item.role == "agent"
            for block in item.content
        )

    # -- processes ----------------------------------------------------------------------------

    def running(self, word: str) -> list[int]:
        """The processes of this soak that have this word in their command line."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())  # a zombie has none
                if word in line and str(self.folder) in line:
                    found.append(process.pid)
        return found

    def agents(self) -> list[int]:
        """Those that serve the session now: below the owner."""
        found = []
        for owner in self.owners():
            for child in psutil.Process(owner).children():
                with suppress(psutil.Error):
                    if "scripted_agent" in " ".join(child.cmdline()):
                        found.append(child.pid)
        return found

    def owners(self) -> list[int]:
        return self.running("acphold owner")

    async def stop(self) -> None:
        """End the owner as a person does, and see that nothing is left."""
        stopping = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "acphold", "stop", "--all"),
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


AGENT = {"loadSession": True, "sessionCapabilities": {"resume": {}}}

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


def opened(session: str, folder: Path) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(folder), "mcpServers": []}


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def soak(seed: int) -> AsyncIterator[Soak]:
    """A soak in a folder of its own; whatever is left of it at the end is killed."""
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))  # a short name: sockets are made in it
    made = Soak(folder, seed)
    try:
        yield made
    finally:
        for visitor in made.visitors:
            await visitor.leave.aclose()
        for pid in made.running(""):
            kill(pid)
        shutil.rmtree(folder, ignore_errors=True)


async def _main(rounds: int, seed: int) -> None:
    began = time.monotonic()
    async with soak(seed) as made:
        await made.run(rounds)
    print(f"{rounds} rounds with seed {seed} in {time.monotonic() - began:.0f} s: nothing lost")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
