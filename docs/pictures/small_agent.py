"""The agent of the pictures: a script that forgets everything when it ends."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from acphold.cli.demo_agent import DemoAgent, DemoScript
from acphold.conformance.exemplar_turns import Memory, content
from acphold.conformance.record import Json
from acphold.transports.stdio import stdio_transport

DIFF: Json = {
    "type": "diff",
    "path": "retry.py",
    "oldText": "def retry(call):\n    began = time.time()\n",
    "newText": "def retry(call, clock=time.monotonic):\n    began = clock()\n",
}


class Coding(DemoScript):
    async def run(self) -> None:
        if "go on" in self.words.lower():
            await self.go_on()
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

    async def go_on(self) -> None:
        # All that it knows it was told with this prompt: it is another process than before.
        knows = "clock" in " ".join(self.told()[:-1])
        await self.slowly(
            "You asked me to mend `retry`, and I was about to give it a monotonic clock. "
            if knows
            else "I know nothing of that. "
        )
        call = self.tool("Edit retry.py", "edit")
        await asyncio.sleep(0.3)
        self.change(call, status="completed", content=[DIFF])
        await self.slowly("Done: 20 passed.")

    async def slowly(self, text: str) -> None:
        for word in text.split(" "):
            self.say(f"{word} ")
            await self.agent.drained()
            await asyncio.sleep(0.02)


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
