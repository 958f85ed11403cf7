"""An agent on acphold, as its guide has it: what a prompt says is what it does.

`flood N`: N updates; the last one ends in "!". `stream N MS`: N updates, one every MS milliseconds.
`paced N MS`: the same by the clock, however long one takes.
`show N`: a tool call whose content grows by N lines in a loop.
`report`: how the program fared, see `pulse`. `ready NAME...`: waits for the tools of these MCP
servers.
"""

import asyncio

from pulse import Pulse  # type: ignore[import-not-found]  # it lies beside this script

import acphold

TEXT = "0 the quick brown fox jumps over the lazy dog, 0123456"

LINE = f"{TEXT} 0123456789 abcdef\n"

agent = acphold.Agent("bench", version="1")
pulse = Pulse()


@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    how, *words = turn.text.split()
    if how == "ready":
        for name in words:
            await turn.mcp[name].tools()
    elif how == "report":
        await turn.say(pulse.report())
    elif how == "stream":
        for _ in range(int(words[0])):
            await turn.say(TEXT)
            await asyncio.sleep(int(words[1]) / 1000)
    elif how == "paced":
        clock = asyncio.get_running_loop().time
        began = clock()
        for n in range(int(words[0])):
            await turn.say(TEXT)
            await asyncio.sleep(began + (n + 1) * int(words[1]) / 1000 - clock())
    elif how == "show":
        async with turn.tool("Show") as call:
            for _ in range(int(words[0])):
                await call.content(LINE)
    elif number := int(words[0]):
        for _ in range(number - 1):
            await turn.say(TEXT)
        await turn.say(f"{TEXT}!")


agent.run()
