"""Errands for an agent under test, and the exemplar's turns, which carry them out.

An errand is a sentence that a model understands and a program can find. The same sentences steer
the stand-in model and the bundled agents.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from acp_check import bounds
from acp_check.record import Json

Task = Literal["greet", "count", "read", "write", "run", "call", "remember", "recall", "plan"]


class Errand(Struct, frozen=True):
    """One task; `what` is the path, command, tool or word it is about."""

    task: Task
    what: str = ""
    text: str = ""

    @property
    def words(self) -> str:
        """The sentence."""
        return SENTENCES[self.task].format(what=self.what, text=self.text)


SENTENCES: dict[Task, str] = {
    "greet": "Say hello in one short sentence. Do not use any tool.",
    "count": "Count from 1 to 300, each number on a line of its own. Do not use any tool.",
    "read": "Read the file `{what}` with your tool for reading files, and repeat what it says.",
    "write": "With your tool for writing files, write the text `{text}` into the file `{what}`.",
    "run": "Run the command `{what}` in a shell, and repeat what it printed.",
    "call": "Call the tool `{what}` with no arguments, and repeat what it answered.",
    "remember": "Remember the code word `{what}`. Answer with OK, and do not use any tool.",
    "recall": "Which code word did I tell you? Answer with it alone, and do not use any tool.",
    "plan": "Plan three steps for baking bread, with your tool for plans if you have one.",
}

_PATTERNS: dict[Task, re.Pattern[str]] = {
    task: re.compile(
        re.escape(sentence)
        .replace(r"\{what\}", "(?P<what>[^`]+)")
        .replace(r"\{text\}", "(?P<text>[^`]+)")
    )
    for task, sentence in SENTENCES.items()
}


def errand(words: str) -> Errand | None:
    """Return the last errand in a text, or None."""
    found = errands(words)
    return found[-1] if found else None


def errands(words: str) -> list[Errand]:
    """Return all errands in a text, in order."""
    found = [
        (match.start(), Errand(task, **match.groupdict()))
        for task, pattern in _PATTERNS.items()
        for match in pattern.finditer(words)
    ]
    return [one for _, one in sorted(found, key=lambda it: it[0])]


GREET = Errand("greet")
COUNT = Errand("count")
RECALL = Errand("recall")
PLAN = Errand("plan")


# -- the exemplar's turns ---------------------------------------------------------------------


class ExemplarSession(msgspec.Struct):
    """A stored session: `history` holds its updates, in order."""

    cwd: str
    directories: list[str]
    history: list[Json]
    mode: str = "ask"
    model: str = "small"
    brave: bool = False
    title: str | None = None
    updated_at: str = ""


class Memory(msgspec.Struct):
    """All sessions by id, shared by an agent's processes.

    With a `path` they are kept in this file, which is complete at any time; processes that live
    at once find each other's sessions in it.
    """

    sessions: dict[str, ExemplarSession] = msgspec.field(default_factory=dict)
    numbers: int = 0
    path: str = ""
    shared: frozenset[str] = frozenset()
    """The ids that the file had when it was last read or written."""

    @classmethod
    def at(cls, path: str) -> Memory:
        """Return the memory stored in this file; empty if there is none."""
        memory = cls(path=path)
        with memory._stored():
            return memory

    def next_number(self) -> int:
        """Return a number that no process with this memory has had."""
        with self._stored():
            self.numbers += 1
            return self.numbers

    def save(self) -> None:
        """Save it, and take in what other processes have saved."""
        if self.path:
            with self._stored():
                pass

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Read the file, run the block, and write the file, as the only process."""
        if not self.path:
            yield
            return
        with open(f"{self.path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = Path(self.path)
            if file.exists():
                # Others may have made, continued or deleted sessions.
                stored = msgspec.json.decode(file.read_bytes(), type=Memory)
                self.numbers = max(self.numbers, stored.numbers)
                for id in self.shared - stored.sessions.keys():
                    self.sessions.pop(id, None)
                for id, theirs in stored.sessions.items():
                    ours = self.sessions.get(id)
                    if ours is None and id in self.shared:
                        continue  # deleted here
                    if ours is None or len(ours.history) < len(theirs.history):
                        self.sessions[id] = theirs
            yield
            self.shared = frozenset(self.sessions)
            new = f"{self.path}.new"
            kept = {"sessions": self.sessions, "numbers": self.numbers}
            Path(new).write_bytes(msgspec.json.encode(kept))
            os.replace(new, self.path)


class ExemplarTurn:
    """A running prompt; `waits` are its open requests to the client."""

    def __init__(self, session_id: str, request: Json) -> None:
        self.session_id = session_id
        self.request = request
        self.cancelled = False
        self.waits: set[asyncio.Timeout] = set()
        self.over = asyncio.Event()

    def cancel(self) -> None:
        """Cancel the turn, and stop waiting for its requests soon."""
        self.cancelled = True
        soon = asyncio.get_running_loop().time() + bounds.CANCELLED_ANSWER_SECONDS
        for wait in self.waits:
            if not wait.expired():
                wait.reschedule(min(soon, wait.when() or soon))


class InVainError(Exception):
    """A request of a turn failed; the message is the reason, a sentence without its full stop."""


class Speaker(Protocol):
    """The parts of an agent that a turn needs."""

    client: Json

    def session(self, session_id: str) -> ExemplarSession: ...

    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None: ...

    async def ask(self, method: str, params: Json) -> Json:
        """Return the client's result; raises InVainError."""

    async def drain(self) -> None: ...

    async def call_tool(self, session_id: str, tool: str) -> str: ...


class Script:
    """One turn, in which `agent` talks to the client; it stops once the turn is cancelled."""

    calls_named = "call"

    def __init__(self, agent: Speaker, turn: ExemplarTurn, words: str) -> None:
        self.agent = agent
        self.turn = turn
        self.session_id = turn.session_id
        self.words = words
        self.kept = agent.session(turn.session_id)
        self._calls = sum("toolCallId" in update for update in self.kept.history)

    async def run(self) -> None:
        """Carry out the prompt."""
        todo = errand(self.words) or Errand("greet")
        match todo.task:
            case "count":
                await self.count()
            case "read":
                await self.read(todo.what)
            case "write":
                await self.write(todo.what, todo.text)
            case "run":
                await self.run_command(todo.what)
            case "call":
                await self.call(todo.what)
            case "plan":
                await self.plan()
            case "remember":
                self.say("OK")
            case "recall":
                self.say(self.recall() or "You told me none.")
            case _:
                await self.greet()

    async def greet(self) -> None:
        self.think("They want to be greeted.")
        self.say("Hello, ")
        self.say("nice to meet you.")
        self.agent.update(self.session_id, self.usage(), remembered=False)
        if self.kept.title is None:
            self.kept.title = "A greeting"
            title = {"sessionUpdate": "session_info_update", "title": self.kept.title}
            self.agent.update(self.session_id, title, remembered=False)

    def usage(self) -> Json:
        cost = {"amount": 0.01, "currency": "EUR"}
        return {"sessionUpdate": "usage_update", "used": 100, "size": 8000, "cost": cost}

    async def count(self) -> None:
        for number in range(1, 301):
            if self.turn.cancelled:
                return
            self.say(f"{number}\n")
            await self.agent.drain()
            await asyncio.sleep(bounds.COUNT_SECONDS)

    async def plan(self) -> None:
        steps = ("Knead", "Wait", "Bake")
        for done in range(len(steps) + 1):
            entries = [
                {
                    "content": step,
                    "priority": "high",
                    "status": "completed" if number < done else "pending",
                }
                for number, step in enumerate(steps)
            ]
            self.agent.update(self.session_id, {"sessionUpdate": "plan", "entries": entries})
        self.say("That is all.")

    def recall(self) -> str:
        """Return the code word given earlier in this session."""
        for update in reversed(self.kept.history):
            if update["sessionUpdate"] == "user_message_chunk":
                for todo in reversed(errands(str(update["content"].get("text", "")))):
                    if todo.task == "remember":
                        return todo.what
        return ""

    # -- tools ------------------------------------------------------------------------------

    async def read(self, what: str) -> None:
        path = self.absolute(what)
        self.think("They want to know what is in it.")
        call = self.tool("Read a file", "read", locations=[{"path": path, "line": 1}])
        with self.failing(call):
            text = await self.text_of(path, line=1, limit=100)
            produced = {"content": [content(text)], "rawOutput": {"text": text}}
            self.change(call, status="completed", **produced)
            self.say(f"It says: {text}")

    async def write(self, what: str, text: str) -> None:
        path = self.absolute(what)
        call = self.tool("Write a file", "edit", status="pending")
        with self.failing(call):
            if not await self.ask_permission(call):
                self.change(call, status="failed")
                return
            self.change(call, status="in_progress")
            old = self.old_text(path)
            await self.save(path, text)
            diff = {"type": "diff", "path": path, "oldText": old, "newText": text}
            self.change(call, status="completed", content=[diff])
            self.say("It is written.")

    async def run_command(self, command: str) -> None:
        call = self.tool("Run a command", "execute", status="pending")
        with self.failing(call):
            if not await self.ask_permission(call):
                self.change(call, status="failed")
                return
            self.change(call, status="in_progress")
            printed = ""
            if self.offers("terminal"):
                printed = await self.in_terminal(call, command)
            if self.turn.cancelled:
                self.change(call, status="failed")
                return
            self.change(call, status="completed", rawOutput={"printed": printed})
            self.say(f"It printed: {printed}")

    async def in_terminal(self, call: str, command: str) -> str:
        """Return a command's output; it is a line for a shell, which a `command` is not."""
        at = await self.terminal(command, outputByteLimit=10_000)
        self.change(call, content=[{"type": "terminal", **at}])
        try:
            await self.wait_for_exit(at)
            output = await self.ask("terminal/output", at)
        except InVainError:
            with suppress(InVainError):  # the reason is reported already
                await self.ask("terminal/release", at)
            raise
        await self.ask("terminal/release", at)
        return str(output.get("output", ""))

    async def terminal(self, command: str, *args: str, **more: object) -> Json:
        """Return the terminal that a line for a shell runs in."""
        params = {"command": "sh", "args": ["-c", command, *args], "cwd": self.kept.cwd, **more}
        made = await self.ask("terminal/create", params)
        if not isinstance(made.get("terminalId"), str):
            raise InVainError("terminal/create was answered without a terminalId")
        return {"terminalId": made["terminalId"]}

    async def wait_for_exit(self, at: Json) -> None:
        """Wait until a command ends; end it if the turn is cancelled."""
        waiting = asyncio.ensure_future(self.ask("terminal/wait_for_exit", at))
        while not (await asyncio.wait([waiting], timeout=bounds.CANCEL_LOOK_SECONDS))[0]:
            if self.turn.cancelled:
                await self.ask("terminal/kill", at)
                break
        await waiting

    async def call(self, tool: str) -> None:
        call = self.tool(f"Call {tool}", "other")
        text = await self.agent.call_tool(self.session_id, tool)
        self.change(call, status="completed", content=[content(text)])
        self.say(f"It answered: {text}")

    async def ask_permission(self, call: str) -> bool:
        """Ask for permission for a call; return True if it is given."""
        return await self.permits({"toolCallId": call})

    async def permits(self, call: Json) -> bool:
        """Ask for permission, with these fields of a call; return True if it is given."""
        options = [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        params = {"toolCall": call, "options": options}
        outcome = (await self.ask("session/request_permission", params)).get("outcome") or {}
        return bool(outcome.get("optionId") == "yes")

    async def text_of(self, path: str, **part: int) -> str:
        """Return the text of a file, from the client if it offers that, which then may send only a
        part; raises InVainError."""
        if self.offers("fs", "readTextFile"):
            answer = await self.ask("fs/read_text_file", {"path": path, **part})
            return str(answer.get("content", "nothing"))
        return _read(path)

    async def save(self, path: str, text: str) -> None:
        """Write a file, through the client if it offers that; raises InVainError."""
        if self.offers("fs", "writeTextFile"):
            await self.ask("fs/write_text_file", {"path": path, "content": text})
        else:
            write_text(path, text)

    def old_text(self, path: str) -> str | None:
        """Return the text of a file that is about to be written; None if there is none."""
        with suppress(InVainError):
            return _read(path)
        return None

    def absolute(self, what: str) -> str:
        return os.path.join(self.kept.cwd, what)

    def offers(self, *path: str) -> bool:
        found: object = self.agent.client
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return bool(found)

    # -- messages -------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        chunk = {"sessionUpdate": "agent_message_chunk", **self.chunk(text)}
        self.agent.update(self.session_id, chunk)

    def think(self, text: str) -> None:
        chunk = {"sessionUpdate": "agent_thought_chunk", "content": content(text)["content"]}
        self.agent.update(self.session_id, chunk)

    def chunk(self, text: str) -> Json:
        # Its number is the place where the chunks at the end of the history begin.
        number = len(self.kept.history)
        while number and self.kept.history[number - 1]["sessionUpdate"] == "agent_message_chunk":
            number -= 1
        return {"messageId": f"message-{number}", "content": {"type": "text", "text": text}}

    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        """Report a new call and return its id."""
        self._calls += 1
        call = f"{self.calls_named}-{self._calls}"
        fields = {"toolCallId": call, "title": title, "kind": kind, "status": status, **more}
        self.agent.update(self.session_id, {"sessionUpdate": "tool_call", **fields})
        return call

    def change(self, call: str, **fields: object) -> None:
        """Report the progress of a call."""
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}
        self.agent.update(self.session_id, update)

    @contextmanager
    def failing(self, call: str) -> Iterator[None]:
        """Mark the call as failed, and say so, if the block raises InVainError."""
        try:
            yield
        except InVainError as error:
            self.change(call, status="failed", content=[content(str(error))])
            self.say(f"It came to nothing: {error}.")

    async def ask(self, method: str, params: Json) -> Json:
        """Send the client a request about this session; raises InVainError."""
        return await self.agent.ask(method, {"sessionId": self.session_id, **params})


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InVainError(str(error)) from None


def write_text(path: str, text: str) -> None:
    """Write a file without the client; raises InVainError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InVainError(str(error)) from None


def content(text: str) -> Json:
    """Return a text as the content of a tool call."""
    return {"type": "content", "content": {"type": "text", "text": text}}
