"""An agent on acphold, as its guide has it: what a prompt says is what it does.

`flood N`: N updates; the last one ends in "!". `ready NAME...`: waits for the tools of these MCP
servers.
"""

import acphold

TEXT = "0 the quick brown fox jumps over the lazy dog, 0123456"

agent = acphold.Agent("bench", version="1")


@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    how, *words = turn.text.split()
    if how == "ready":
        for name in words:
            await turn.mcp[name].tools()
    elif number := int(words[0]):
        for _ in range(number - 1):
            await turn.say(TEXT)
        await turn.say(f"{TEXT}!")


agent.run()
