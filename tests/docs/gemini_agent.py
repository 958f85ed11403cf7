"""The agent for the second half of docs/library.md: it knows the questions asked there.

It uses the library, so it can load and resume; its journal is the one of the environment.
"""

from __future__ import annotations

import asyncio
import os

import acphold

agent = acphold.Agent("gemini", version="1.0", embedded_context=True)
agent.mode("plan", "Plan")
agent.mode("code", "Code")

CAPITALS = {"France": "Paris.", "Spain": "Madrid."}


@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    match turn.text.partition("\n")[0].split():
        case ["Read", name]:
            await turn.plan(["Open it", "Read it"])
            async with turn.tool(f"Read {name}", kind="read"):
                text = await turn.files.read(name)
            await turn.say(f"It says: {text.strip()}.")
        case ["Mend", name]:
            async with turn.tool(f"Mend {name}", kind="edit") as call:
                if not await turn.ask_permission(f"Mend {name}", tool=call):
                    return
                await turn.files.write(name, "no weed here\n")
            await turn.say("Mended.")
        case ["Count"]:
            await turn.say("one")
            await asyncio.Event().wait()
        case ["Crash"]:
            os._exit(3)
        case _:
            blocks = [kind_of(block) for block in turn.prompt[1:]]
            known = [city for country, city in CAPITALS.items() if country in turn.text]
            await turn.say(", ".join(blocks) or known[-1])


def kind_of(block: object) -> str:
    return "resource" if isinstance(block, acphold.EmbeddedResource) else type(block).__name__


agent.run()
