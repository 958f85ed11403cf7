"""The agent of the pictures: a script that forgets everything when it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from acp_check.errands import Memory, content
from acp_check.record import Json
from acp_wire.transports.stdio import stdio_transport
from acphold.faces.cli.demo_agent import DemoAgent, DemoScript

DIFF: Json = {
    "type": "diff",
    "path": "retry.py",
    "oldText": "def retry(call):\n    began = time.time()\n",
    "newText": "def retry(call, clock=time.monotonic):\n    began = clock()\n",
}

COMMAND = "pytest test_retry.py --count 20 && git commit -am 'A monotonic clock'"
OPTIONS: list[Json] = [
    {"optionId": "once", "name": "Yes", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow pytest", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]

TESTED = "tested"
"""A file in the project: the command ends once it is there."""


class Coding(DemoScript):
    async def run(self) -> None:
        if "go on" in self.words.lower():
            await self.go_on()
        elif "commit" in self.words.lower():
            await self.commit()
        elif "mend" in self.words.lower():
            await self.mend()
        elif "release" in self.words.lower():
            await self.slowly("Call it *Tick*: it is the one that mends the clock.")
        else:
            await self.look()

    async def look(self) -> None:
        await self.slowly("I run the test a few times. ")
        call = self.tool("pytest test_retry.py --count 20", "execute")
        await asyncio.sleep(0.3)
        said = content("test_retry.py ......F.............\n1 failed, 19 passed")
        self.change(call, status="completed", content=[{"type": "content", **said}])
        await self.slowly(
            "It compares **wall clock times**: when the clock is set back between two "
            "tries, `retry` gives up."
        )

    async def mend(self) -> None:
        await self.slowly("I make the clock a parameter of retry, and use a monotonic one")
        await asyncio.sleep(3600)  # until somebody ends it

    async def commit(self) -> None:
        await self.slowly("I give `retry` a monotonic clock. ")
        edit = self.tool("Edit retry.py", "edit")
        self.change(edit, status="completed", content=[DIFF])
        call = self.tool("Run the tests and commit", "execute", status="pending")
        given = {"toolCallId": call, "rawInput": {"command": COMMAND}}
        params = {"toolCall": given, "options": OPTIONS}
        outcome = (await self.ask("session/request_permission", params)).get("outcome") or {}
        if outcome.get("optionId") != "once":
            return self.change(call, status="failed")
        self.change(call, status="in_progress")
        while not (Path(self.kept.cwd) / TESTED).exists():  # noqa: ASYNC110 - for the film to make
            await asyncio.sleep(0.05)
        printed = content("20 passed in 1.84s\n[main 3f2c1aa] A monotonic clock")
        self.change(call, status="completed", content=[{"type": "content", **printed}])
        said = "All 20 tries pass now, whatever the clock does. It is committed."
        await self.slowly(said, 0.12)

    async def go_on(self) -> None:
        # All that it knows it was told with this prompt: it is another process than before.
        knows = "clock" in " ".join(self.user_messages()[:-1])
        await self.slowly(
            "You asked me to mend `retry`, and I was about to give it a monotonic clock. "
            if knows
            else "I know nothing of that. "
        )
        call = self.tool("Edit retry.py", "edit")
        await asyncio.sleep(0.3)
        self.change(call, status="completed", content=[DIFF])
        await self.slowly("Done: 20 passed.")

    async def slowly(self, text: str, seconds: float = 0.02) -> None:
        for word in text.split(" "):
            self.say(f"{word} ")
            await self.agent.drain()
            await asyncio.sleep(seconds)


class Coder(DemoAgent):
    script_type = Coding

    def new_id(self) -> str:
        return uuid4().hex

    def info(self) -> Json:
        return {"name": "coder", "title": "Coder", "version": "1"}


async def main() -> None:
    await Coder(stdio_transport(), Memory()).serve()


if __name__ == "__main__":
    asyncio.run(main())
