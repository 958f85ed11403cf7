"""`acphold agent demo`: a scripted agent for `acphold demo`, and for anybody to try.

It streams a thought, a plan, words and a tool call with a diff, and asks for permission. It can
neither list nor load sessions, and forgets everything when it ends. In its scratch repository it
really works: see `demo_work`.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from acp_check.errands import Memory, content, errand
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.transports.stdio import stdio_transport
from acphold.errors import MethodNotFoundError
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import command
from acphold.faces.cli.demo_folder import is_scratch
from acphold.faces.cli.demo_work import Work
from acphold.faces.cli.terminal_text import tell
from acphold.known_agents import DEMO_KEY

METHODS = ("initialize", "session/new", "session/prompt")


@command("agent demo", "")
async def demo_agent() -> None:
    """A scripted offline agent to try acphold with.

    It speaks ACP on stdio and has no sessions of its own: put it behind `acphold wrap`.

      acphold wrap -- acphold agent demo

    Words in a prompt steer it: `slow` (counts until it is cancelled or killed), `quick` (echoes the
    prompt), `crash` (exits during the turn), `recall` (repeats what it knows of the conversation).
    Without one of them it asks for permission, then shows an edit of hello.py. It only pretends: no
    file is read or written. It also does what `acphold check` asks for.

    `acphold chat demo` starts it in a scratch repository, where it does not pretend: it asks with
    the diff, changes hello.py, asks again, and runs it. A file `.acphold-demo` marks that folder.
    """
    if sys.stdin.isatty():
        tell(
            "acphold agent demo: this is an ACP agent and waits for an editor on stdin; name "
            "`acphold wrap -- acphold agent demo` in your editor's settings"
        )
    await DemoAgent(stdio_transport(), Memory()).serve()


class DemoScript(Work):
    """One turn. Ids contain the pid: the conversation may have calls of an earlier process."""

    calls_named = f"call-{os.getpid()}"

    async def run(self) -> None:
        if errand(self.words) is not None:
            await super().run()
        elif "crash" in self.words:
            self.say("I am about to crash. ")
            await self.agent.drain()
            print("demo agent: asked to crash", file=sys.stderr, flush=True)
            os._exit(3)
        elif "recall" in self.words:
            self.say("I know: " + "\n".join(self.user_messages()[:-1]))
        elif "slow" in self.words:
            await self.count_without_end()
        elif "quick" in self.words:
            self.say(f"You said: {self.words}")
        elif is_scratch(self.kept.cwd):
            await self.work()
        else:
            await self.edit()

    def user_messages(self) -> list[str]:
        """Return the user's messages that this process knows, the prompt of this turn last."""
        return [
            update["content"].get("text", "")
            for update in self.kept.history
            if update["sessionUpdate"] == "user_message_chunk"
        ]

    async def count_without_end(self) -> None:
        call = self.tool("Count without end", "execute")
        number = 0
        while not self.turn.cancelled:
            number += 1
            self.say(f"tick {number} ")
            await self.agent.drain()
            await asyncio.sleep(bounds.DEMO_WORD_SECONDS)
        self.change(call, status="failed")

    async def edit(self) -> None:
        # Edits of an earlier process are in the conversation that was handed over.
        known = msgspec.json.encode(self.kept.history)
        edits = known.count(b'"newText"') + known.count(rb"\n+print(")
        self.think("The greeting should be friendlier.")
        self.plan_stands("in_progress")
        for words in ("I will ", "change ", "the greeting, ", "but only act it: no file changes. "):
            self.say(words)
            await asyncio.sleep(bounds.DEMO_WORD_SECONDS)
        call = self.tool("Edit hello.py", "edit", status="pending")
        with self.failing(call):
            if not await self.ask_permission(call):
                self.change(call, status="failed")
                self.say("I left it as it was.")
                return
            self.change(call, status="in_progress")
            path = self.absolute("hello.py")
            before, after = greeting(edits), greeting(edits + 1)
            diff = {"type": "diff", "path": path, "oldText": before, "newText": after}
            at = {"path": path, "line": 1}
            self.change(call, status="completed", content=[diff], locations=[at])
            self.plan_stands("completed")
            self.say("Done.")

    def plan_stands(self, status: str) -> None:
        entry = {"content": "Change the greeting", "priority": "high", "status": status}
        self.agent.update(self.session_id, {"sessionUpdate": "plan", "entries": [entry]})

    def chunk(self, text: str) -> Json:
        return {"content": content(text)["content"]}


def greeting(edits: int) -> str:
    """Return the text of hello.py after this many edits: each makes it friendlier."""
    words = f"Hello, {'dear ' * (edits - 1)}friend!" if edits else "hi"
    return f'print("{words}")\n'


class DemoAgent(Exemplar):
    """An agent that offers only new sessions and turns."""

    script_type = DemoScript
    connect_seconds = 10.0
    """Behind `wrap`, a program connects to a server at a URL, which takes time on a busy
    machine."""

    async def result(self, method: str, request: Json) -> object:
        if method not in METHODS:
            raise RefusalError(MethodNotFoundError.code, f"no method {method}")
        return await super().result(method, request)

    def info(self) -> Json:
        return {"name": DEMO_KEY, "title": "Demo agent", "version": "1"}

    def capabilities(self) -> Json:
        return {"promptCapabilities": {"embeddedContext": True}}

    def auth_methods(self) -> list[Json]:
        return []

    def new_id(self) -> str:
        return f"demo-{os.getpid()}-{len(self.memory.sessions)}"

    def settings(self, session_id: str) -> Json:
        return {}

    async def send_commands(self, session_id: str) -> None:
        """Do nothing: it has no commands."""
